"""What there is and what it does: ``aten-overrides info``."""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aten_overrides import (
    __version__,
    _abi,
    _backends,
    _device,
    _features,
    _gpu,
    _preference,
    _probe,
    _runtime,
)
from aten_overrides._errors import UserError

if TYPE_CHECKING:
    from aten_overrides.tables.own import Used

ENVIRONMENT = (
    "ATEN_OVERRIDES",
    "ATEN_OVERRIDES_PREFER",
    "ATEN_OVERRIDES_STREAMS",
    "ATEN_OVERRIDES_TABLE",
    "ATEN_OVERRIDES_LOG",
    "ATEN_OVERRIDES_CACHE",
    "ATEN_OVERRIDES_DATA",
    "ATEN_OVERRIDES_ARCHITECTURES",
    "TORCH_LINALG_PREFER_CUBLAS",
    "TORCH_LINALG_PREFER_CUSOLVER",
)


def _gpus(torch: Any) -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "name": properties.name,
                "compute_capability": f"{properties.major}.{properties.minor}",
                "sm_count": properties.multi_processor_count,
                "memory_gib": round(properties.total_memory / 2**30, 1),
            }
        )
    return found


def _choice(used: Used) -> dict[str, Any]:
    meta = used.table.meta
    return {
        "gpu": used.table.gpu,
        "problems": len(used.table.points),
        **{key: str(meta.get(key, "")) for key in ("date", "torch", "record")},
        "source": used.source,
        "table": str(used.table.path),
        "notes": list(used.notes),
    }


def _choices() -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Of lu_solve and eigh: what is compiled in, and what chooses on the GPU here."""
    from aten_overrides.tables import own

    gpu = _device.gpu()
    return (
        {op: _choice(own.compiled(op)) for op in own.OPS},
        {op: _choice(own.for_gpu(op, gpu)) for op in own.OPS},
    )


def _native(library: dict[str, Any], gpus: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether our kernels can be used, and where not why."""
    if not library["usable"]:
        return {"usable": False, "reason": library["reason"]}
    built = _abi.NativeFacts.of(library["native"])
    if not built.architectures:
        return {"usable": False, "reason": str(built)}
    left_out = [
        f"{gpu['name']} ({gpu['compute_capability']})"
        for gpu in gpus
        if not built.runs_on(*_device.capability_of(gpu["compute_capability"]))
    ]
    if left_out:
        reason = f"built {built}, which leaves out {', '.join(left_out)}; build again with "
        reason += "aten-overrides build --architectures LIST. The libraries' back ends are used"
        return {"usable": False, "reason": reason}
    return {"usable": True, "built": str(built)}


def _driver() -> str | None:
    path = Path("/proc/driver/nvidia/version")
    try:
        words = path.read_text(encoding="utf-8").split("Kernel Module", 1)[1].split()
    except (OSError, IndexError):
        return _device.driver()
    return next((word for word in words if word[0].isdigit()), None)


def _library(build: _abi.TorchBuild) -> dict[str, Any]:
    """The gpu library for this torch: its facts, or why there is none."""
    if build.cuda is None:
        return {"usable": False, "reason": f"{build} has no CUDA, so there is nothing to override"}
    try:
        path, facts = _gpu.find_library(build)
    except UserError as error:
        return {"usable": False, "reason": str(error)}
    return {
        "usable": True,
        "path": str(path),
        "up_to_date": facts.sources == _probe.sources_digest(),
        **dataclasses.asdict(facts),
    }


def _features_of(build: _abi.TorchBuild, usable: bool, reason: str) -> list[dict[str, Any]]:
    rows = []
    for piece in _features.PIECES:
        in_torch = _features.held(piece, build.release)
        since = f"{piece.since[0]}.{piece.since[1]}" if piece.since else None
        rows.append(
            {
                "name": piece.name,
                "what": piece.what,
                "in_this_torch": in_torch,
                "since": since,
                "upstream": piece.upstream,
                "ours": _features.ours(piece, build.release) if usable else f"not usable: {reason}",
            }
        )
    return rows


def info() -> dict[str, Any]:
    """Facts about the package, its gpu library, torch, the GPUs, the state and each feature.

    Works without a GPU, on a CPU-only torch and without torch; never raises for what is missing,
    but says so under ``reason``.
    """
    compiled, choices = _choices()
    result: dict[str, Any] = {
        "package": {"version": __version__, "path": str(Path(__file__).resolve().parent)},
        "python": platform.python_version(),
        "backends": [dataclasses.asdict(backend) for backend in _backends.BACKENDS],
        "compiled_choices": compiled,
        "choices": choices,
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }
    try:
        torch = _runtime.import_torch()
    except UserError as error:
        result["torch"] = {"usable": False, "reason": str(error)}
        result["state"] = {"enabled": False}
        return result
    build = _abi.torch_build(torch)
    library = _library(build)
    result["torch"] = {
        "usable": build.cuda is not None,
        **dataclasses.asdict(build),
        "path": str(_abi.torch_folder(torch)),
        "magma": bool(torch.cuda.has_magma),
    }
    result["library"] = library
    result["gpus"] = _gpus(torch)
    result["driver"] = _driver()
    result["native"] = _native(library, result["gpus"])
    result["state"] = _state()
    result["features"] = _features_of(build, library["usable"], library.get("reason", ""))
    return result


def _state() -> dict[str, Any]:
    status = _runtime.current_status()
    loaded = _runtime.loaded_library()
    state: dict[str, Any] = {
        "enabled": _runtime.is_enabled(),
        "preference": str(_preference.preferred_linalg_library()),
    }
    if status is None or loaded is None:
        return state
    lanes, memory = loaded.limits()
    entries = {entry.name: entry.current for entry in loaded.entries()}
    return {
        **state,
        "ops": list(loaded.installed()),
        "strict": status.strict,
        "table": status.table,
        "streams": lanes,
        "streams_memory_mib": memory,
        "entries": entries,
        "calls": {f"{op}/{route}": count for (op, route), count in loaded.counts().items()},
        "notes": list(status.notes),
    }


def text(facts: dict[str, Any]) -> str:
    """The same for people."""
    lines = [
        f"aten-overrides {facts['package']['version']}, Python {facts['python']} ({sys.executable})"
    ]
    torch = facts["torch"]
    if "version" not in torch:
        return "\n".join((*lines, f"torch: {torch['reason']}"))
    cuda = f"CUDA {torch['cuda']}" if torch["cuda"] else "without CUDA"
    lines.append(
        f"torch {torch['version']} ({cuda}), {'with' if torch['magma'] else 'without'} MAGMA, "
        f"{torch['path']}"
    )
    library = facts["library"]
    if library["usable"]:
        state = (
            "" if library["up_to_date"] else "; older than the sources, run `aten-overrides build`"
        )
        lines.append(
            f"gpu library {library['path']}, built {library['date']} by "
            f"{library['compiler']}{state}"
        )
    else:
        lines.append(f"gpu library: {library['reason']}")
    native = facts["native"]
    if library["usable"]:
        lines.append(f"our LU kernels: {native['built'] if native['usable'] else native['reason']}")
    for gpu in facts["gpus"]:
        lines.append(
            f"GPU {gpu['name']}, compute capability {gpu['compute_capability']}, "
            f"{gpu['sm_count']} SMs, {gpu['memory_gib']} GiB"
        )
    if not facts["gpus"]:
        lines.append("torch sees no GPU")
    if facts["driver"]:
        lines.append(f"driver {facts['driver']}")
    state = facts["state"]
    lines.append(
        f"enabled: {', '.join(state['ops'])} by {state['table']}, {state['streams']} streams"
        if state["enabled"]
        else "not enabled"
    )
    for op, choice in facts["choices"].items():
        lines.append(
            f"choice for {op}: {choice['source']}; fitted to {choice['problems']} problems"
        )
        lines += [f"  {note}" for note in choice["notes"]]
    lines.append(f"preferred library: {state['preference']}")
    for name, value in facts["environment"].items():
        lines.append(f"{name}={value}")
    for feature in facts["features"]:
        ours = feature["ours"]
        if not library["usable"] and ours.endswith(library["reason"]):
            ours = "not usable without the gpu library"  # the reason stands above, once
        since = f"torch has it since {feature['since']}" if feature["since"] else "in no torch yet"
        here = "held by this torch" if feature["in_this_torch"] else "not in this torch"
        lines.append(f"- {feature['what']}: {here} ({since}; {feature['upstream']}); ours: {ours}")
    return "\n".join(lines)
