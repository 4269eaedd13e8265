"""Turns the linalg sources and the wheel's CUDA headers into their ROCm form, by the wheel's own
hipify tables.

PyTorch's ROCm build does this with all of its sources before it compiles them. Only the text
replacement is needed here: the rules follow `preprocessor` in torch/utils/hipify/hipify_python.py
for files of PyTorch itself.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from aotools.env import ROOT, UserError
from aotools.patchset import overlay
from aotools.patchset.compile import Unit
from aotools.patchset.wheel import Wheel

PROTOTYPES = ROOT / "test/prototypes/hip"
_CUDA_FOLDERS = ("ATen/cuda", "ATen/native/cuda", "c10/cuda")
_ROCM = "60200"


@cache
def _tables(folder: Path) -> Any:
    """The module hipify_python of the wheel, loaded without torch itself."""
    # A name of its own, or a second wheel would get the first one's module.
    name = f"aotools_hipify_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or not (folder / "hipify_python.py").is_file():
        raise UserError(f"{folder} holds no hipify_python.py")
    package: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    return importlib.import_module(f"{name}.hipify_python")


def hipify(text: str, path: str, tables: Any) -> str:
    """`text`, the file at `path` in the repository, as the ROCm build would compile it."""

    def general(match: re.Match[str]) -> str:
        return str(tables.PYTORCH_MAP[match[0]])

    def special(match: re.Match[str]) -> str:
        return str(tables.PYTORCH_SPECIAL_MAP.get(match[0], tables.PYTORCH_MAP[match[0]]))

    if tables.is_special_file(path):
        text = tables.RE_PYTORCH_PREPROCESSOR.sub(special, text)
    elif tables.is_pytorch_file(path):
        text = tables.RE_PYTORCH_PREPROCESSOR.sub(general, text)
    else:
        text = tables.RE_CAFFE2_PREPROCESSOR.sub(lambda match: tables.CAFFE2_MAP[match[0]], text)

    def include(match: re.Match[str]) -> str:
        return f"{match[1]}{tables.get_hip_file_path(match[2])}{match[3]}"

    return re.sub(r'(#include [<"])(ATen/(?:native/)?cuda/[^>"]+)([>"])', include, text)


def build(folder: Path, wheel: Wheel, include: overlay.Overlay, *, magma: bool) -> list[Path]:
    """Fills `folder` with the hipified headers and linalg sources; returns the sources."""
    tables = _tables(wheel.site / "torch/utils/hipify")
    origins: dict[str, Path] = {}
    for top in (wheel.include, include.folder):
        for part in _CUDA_FOLDERS:
            for path in sorted((top / part).rglob("*")):
                if path.is_file():
                    origins[path.relative_to(top).as_posix()] = path
    contents: dict[str, bytes] = {}
    for name, path in origins.items():
        repository_path = f"aten/src/{name}" if name.startswith("ATen/") else name
        text = hipify(path.read_text(encoding="utf-8"), repository_path, tables)
        if name == "ATen/cuda/CUDAConfig.h":
            text = text.replace("AT_ROCM_ENABLED() 0", "AT_ROCM_ENABLED() 1")
            text = re.sub(r"AT_MAGMA_ENABLED\(\) \d", f"AT_MAGMA_ENABLED() {int(magma)}", text)
        contents[tables.get_hip_file_path(repository_path).removeprefix("aten/src/")] = (
            text.encode()
        )
    for path in sorted(include.folder.rglob("*")):  # other patched headers, as they are
        name = path.relative_to(include.folder).as_posix()
        if path.is_file() and not name.startswith(_CUDA_FOLDERS):
            contents[name] = path.read_bytes()
    overlay.sync(folder, contents)
    return sorted((folder / "ATen/native/hip/linalg").glob("*.cpp"))


def unit(source: Path, folder: Path, wheel: Wheel, magma_prototypes: Path, *, magma: bool) -> Unit:
    """The syntax check of one hipified source."""
    arguments = [
        "-std=gnu++17",
        "-w",
        "-DUSE_ROCM",
        "-D__HIP_PLATFORM_AMD__=1",
        "-DAT_PER_OPERATOR_HEADERS",
    ]
    arguments += [f"-D{name}" for name in ("NDEBUG", *wheel.cpu_macros)]
    arguments += [f"-D_GLIBCXX_USE_CXX11_ABI={int(wheel.cxx11_abi)}", f"-DROCM_VERSION={_ROCM}"]
    arguments += [f"-I{folder}", f"-I{PROTOTYPES}"]
    if magma:
        arguments.append(f"-I{magma_prototypes}")
    arguments.append(f"-isystem{wheel.include}")
    return Unit(
        f"{source.name} ({'MAGMA' if magma else 'no MAGMA'})",
        source,
        tuple(arguments),
        syntax_only=True,
    )
