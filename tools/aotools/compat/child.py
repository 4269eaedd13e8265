"""One feature, tried in a process of its own with the torch in question; without a GPU.

python -m aotools.compat.child FEATURE STUB_CALLER: prints the verdict as JSON. STUB_CALLER is the
library made of test/aten_overrides/runtime/stub_caller.cpp, which calls torch's linalg entries
directly: what lies behind them then fails for want of a driver, and that is seen.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aten_overrides as ao
from aotools.compat.features import BROKEN, IMPOSSIBLE, REFUSED, WORKS, Verdict
from aten_overrides import _abi, _gpu, _runtime

_ENTRY_POINT = "[torch.backends]\naten_overrides = aten_overrides._autoload:autoload\n"
_ENABLED = "import torch, aten_overrides; print('enabled', aten_overrides.is_enabled())"


class Caller:
    """Calls of the linalg entries, with the first line of what they fail with."""

    def __init__(self, path: str) -> None:
        import torch  # noqa: F401  (its libraries must be there before)

        self._dll = ctypes.CDLL(path)

    def _call(self, name: str, *numbers: int) -> tuple[int, str]:
        text = ctypes.create_string_buffer(2000)
        longs = [ctypes.c_long(number) for number in numbers]
        returned = int(getattr(self._dll, f"stub_caller_{name}")(*longs, text, 2000))
        return returned, text.value.decode(errors="replace")

    def lu_factor(self, batch: int, m: int, n: int) -> str:
        """The error of one lu_factor."""
        return self._call("lu_factor", batch, m, n, 1)[1]

    def lu_solve(self, batch: int, n: int, nrhs: int) -> str:
        """The error of one lu_solve."""
        return self._call("lu_solve", batch, n, nrhs)[1]

    def race(self, threads: int) -> tuple[int, str]:
        """How many calls torch's lazy loading refused, and the errors of the others."""
        return self._call("race", threads)


def reached_cuda(error: str) -> bool:
    """Whether a call came as far as the CUDA runtime."""
    return "CUDA" in error or "NVIDIA" in error


def verdict(good: bool, value: Any, wrong: str) -> Verdict:
    """Works, or is broken with a reason."""
    return Verdict(WORKS, value) if good else Verdict(BROKEN, value, wrong)


def install(_: str) -> Verdict:
    """All entries are the wheel's, then those of the operations are ours, then all are the wheel's
    very functions again.
    """
    import torch

    wheel = _abi.wheel_linalg(torch)
    if wheel is not None:
        ctypes.CDLL(str(wheel))
    library = _runtime._load(torch)

    def state() -> dict[str, tuple[str, int]]:
        return {e.name: (Path(e.current).name, e.current_address) for e in library.entries()}

    before = state()
    status = ao.enable()
    during = state()
    ao.disable()
    ours = sorted(name for name, (file, _) in during.items() if file == _abi.LIBRARY)
    files = sorted({file for file, _ in before.values()})
    good = (
        sorted(name.removeprefix("linalg_") for name in ours)
        == sorted(op for op in status.ops if op not in _gpu.NO_STUB)
        and all(during[name] == before[name] for name in before if name not in ours)
        and state() == before
        and _abi.LIBRARY not in files
    )
    value = {"entries": len(before), "ours": ours, "wheel": files}
    return verdict(good, value, "the entries are not whose they should be")


def call(caller_path: str) -> Verdict:
    """Calls are counted by route, "cublas" is obeyed, and after disable() nothing is counted."""
    caller = Caller(caller_path)
    ao.enable()
    library = _runtime.loaded_library()
    assert library is not None
    errors = [caller.lu_factor(2, 8, 8), caller.lu_factor(1, 512, 512), caller.lu_solve(2, 8, 3)]
    by_default = {"/".join(key): number for key, number in library.counts().items()}
    ao.preferred_linalg_library("cublas")
    errors.append(caller.lu_factor(64, 512, 512))
    counted = {"/".join(key): number for key, number in library.counts().items()}
    ao.disable()
    caller.lu_factor(2, 8, 8)
    cublas = counted.get("lu_factor/batched_cublas", 0)
    good = (
        all(map(reached_cuda, errors))
        and sum(by_default.values()) == 3
        and cublas == by_default.get("lu_factor/batched_cublas", 0) + 1
        and sum(library.counts().values()) == sum(counted.values()) == 4
    )
    return verdict(good, counted, f"calls: {counted}; errors: {'; '.join(dict.fromkeys(errors))}")


def threads(caller_path: str) -> Verdict:
    """The first calls ever, from eight threads at once, with the overrides enabled."""
    caller = Caller(caller_path)
    ao.enable()
    refused, errors = caller.race(8)
    good = refused == 0 and all(map(reached_cuda, errors.splitlines()))
    return verdict(good, {"refused": refused}, f"{refused} of 8 calls were refused; {errors}")


def preference(_: str) -> Verdict:
    """torch's own setter takes "cublas" while enabled, and knows nothing of it afterwards."""
    import torch

    enum = torch._C._LinalgBackend
    names = torch.backends.cuda

    def state() -> list[Any]:
        return [sorted(enum.__members__), sorted(names._LinalgBackends), names._LinalgBackends_str]

    before = state()
    status = ao.enable()
    notes = [note for note in status.notes if "cublas" in note]
    if notes:
        return Verdict(REFUSED, {"enum": before[0]}, notes[0])
    set_to = str(names.preferred_linalg_library("cublas"))
    ours = str(ao.preferred_linalg_library())
    ao.disable()
    good = set_to.endswith("Cublas") and ours == "cublas" and state() == before
    return verdict(good, {"enum": before[0]}, f"set: {set_to}, {ours}; {before} became {state()}")


def observe(caller_path: str) -> Verdict:
    """One call is logged once and profiled once."""
    lines: list[str] = []
    os.environ["ATEN_OVERRIDES_LOG"] = "calls"
    caller = Caller(caller_path)

    import logging

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logging.getLogger("aten_overrides").addHandler(Kept())
    ao.enable()
    with ao.profile() as profile:
        caller.lu_factor(2, 8, 8)
    calls = [str(one) for one in profile.calls]
    good = len(calls) == 1 and calls == lines and calls[0].startswith("lu_factor float32 2 x 8 x 8")
    return verdict(good, calls, f"profiled: {calls}, logged: {lines}")


def tell(_: str) -> Verdict:
    """`info` finds the library usable; `explain` answers."""
    facts = ao.info()
    found = ao.explain("lu_factor", (64, 512, 512), "float32")
    held = [feature["name"] for feature in facts["features"] if feature["in_this_torch"]]
    good = facts["library"]["usable"] and facts["library"]["up_to_date"] and bool(str(found))
    return verdict(good, {"held by torch": held}, f"library: {facts['library']}")


def _python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def _says_enabled(done: subprocess.CompletedProcess[str]) -> Verdict:
    good = done.returncode == 0 and "enabled True" in done.stdout.splitlines()
    said = f"exit {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}"
    return verdict(good, None, said)


def run(_: str) -> Verdict:
    """A script runs with the overrides enabled."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(_ENABLED + "\n", encoding="utf-8")
        return _says_enabled(_python("-m", "aten_overrides", "run", str(script)))


def autoload(_: str) -> Verdict:
    """`import torch` enables through torch's own group of entry points."""
    import torch

    if not hasattr(torch, "_import_device_backends"):
        return Verdict(IMPOSSIBLE, None, "this torch loads no entry points")
    with tempfile.TemporaryDirectory() as folder:
        metadata = Path(folder) / "aten_overrides-0.dist-info"
        metadata.mkdir()
        header = "Metadata-Version: 2.1\nName: aten-overrides\nVersion: 0\n"
        (metadata / "METADATA").write_text(header, encoding="utf-8")
        (metadata / "entry_points.txt").write_text(_ENTRY_POINT, encoding="utf-8")
        path = f"{os.environ['PYTHONPATH']}{os.pathsep}{folder}"
        return _says_enabled(_python("-c", _ENABLED, PYTHONPATH=path, ATEN_OVERRIDES="1"))


def gate(_: str) -> Verdict:
    """The facts of the library are made to name another commit of torch: enable() says so."""
    import torch

    build = _abi.torch_build(torch)
    library, facts = _gpu.find_library(build)
    other = dataclasses.replace(facts, torch=dataclasses.replace(build, git="0" * 40))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATEN_OVERRIDES_CACHE"] = folder
        copy = _gpu.cache_folder(build) / _abi.LIBRARY
        copy.parent.mkdir(parents=True)
        copy.symlink_to(library)
        _abi.facts_path(copy).write_text(other.to_json(), encoding="utf-8")
        said = ""
        try:
            ao.enable()
        except ao.UserError as error:
            said = str(error)
    mapped = _abi.LIBRARY in Path("/proc/self/maps").read_text(encoding="utf-8")
    good = f"built for {build}, found {build} (git commit {'0' * 40} there" in said and not mapped
    return verdict(good, None, f"enable() said {said!r}, library loaded: {mapped}")


CHECKS: dict[str, Callable[[str], Verdict]] = {
    function.__name__: function
    for function in (install, call, threads, preference, observe, tell, run, autoload, gate)
}


def main() -> int:
    """Prints the verdict as the last line; an exception is one, too."""
    name, caller = sys.argv[1:]
    try:
        found = CHECKS[name](caller)
    except ao.UserError as error:
        found = Verdict(REFUSED, None, str(error))
    except Exception as error:
        found = Verdict(BROKEN, None, f"{type(error).__name__}: {error}")
    print(json.dumps(dataclasses.asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
