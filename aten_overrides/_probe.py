"""Run by the build, in a process of its own: describes the torch of this interpreter.

``python -m aten_overrides._probe cmake FILE COMPILER`` writes CMake variables and, beside them,
native.json about our kernels; ``facts LIBRARY COMPILER HEADERS NATIVE`` writes the facts file
beside a library just built, NATIVE being that file. Exit code 3: there is no torch with CUDA to
build for, and the message says why.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from aten_overrides import _abi, _cuda_headers, _nvcc
from aten_overrides._errors import UserError
from aten_overrides._files import write_atomically

ROOT = Path(__file__).resolve().parent
NO_TORCH = 3


class NothingToBuildFor(UserError):
    """No torch, or one without CUDA."""


def import_torch() -> Any:
    """torch, if it can be imported and was built with CUDA. NothingToBuildFor otherwise."""
    if importlib.util.find_spec("torch") is None:
        raise NothingToBuildFor(f"{sys.executable} has no torch")
    try:
        import torch
    except Exception as error:
        raise NothingToBuildFor(f"torch cannot be imported by {sys.executable}: {error}") from error
    if torch.version.cuda is None:
        raise NothingToBuildFor(f"torch {torch.__version__} was built without CUDA")
    return torch


def source_files() -> list[Path]:
    """The sources of the gpu library, in a fixed order."""
    csrc = ROOT / "csrc"
    folders = (csrc / "linalg", csrc / "linalg" / "native", csrc / "package" / "gpu")
    kinds = (".cpp", ".h", ".cu", ".cuh")
    found = [path for folder in folders for path in folder.glob("*") if path.suffix in kinds]
    found += (csrc / "package" / "select").glob("*.h")
    found.append(ROOT / "CMakeLists.txt")
    return sorted(path for path in found if path.is_file())


def sources_digest() -> str:
    """SHA-256 over names and contents of the gpu library's sources."""
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(
            path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
        )
    return digest.hexdigest()


def _native(
    site: list[Path], cuda: str, compiler: str
) -> tuple[_abi.NativeFacts, dict[str, object]]:
    """How our kernels are compiled, or why they are not, and that as CMake variables."""
    try:
        nvcc = _nvcc.find(site, cuda, compiler)
    except _nvcc.NoKernels as error:
        none = _abi.NativeFacts(reason=str(error))
        return none, {"NATIVE_NVCC": "", "NATIVE_REASON": none.reason}
    cublas = _cuda_headers.mapped_library("libcublas.so")
    if cublas is None:
        raise UserError("import torch has loaded no libcublas.so, so there is none to link with")
    return _abi.NativeFacts(nvcc.architectures, nvcc.version), {
        "NATIVE_NVCC": nvcc.path,
        "NATIVE_FLAGS": ";".join(nvcc.flags),
        "NATIVE_ARCHITECTURES": ",".join(nvcc.architectures),
        "NATIVE_CUDA": nvcc.version.split(".")[0],
        "CUBLAS": cublas,
    }


def _describe(torch: Any, file: Path, compiler: str) -> None:
    build = _abi.torch_build(torch)
    if build.release < (2, 6):
        raise UserError(f"torch {build.version} is too old: the gpu library needs 2.6 or later")
    folder = _abi.torch_folder(torch)
    assert build.cuda is not None
    site = [folder.parent, *map(Path, sys.path)]
    headers, version = _cuda_headers.find_headers(site, build.cuda)
    runtime = _cuda_headers.mapped_library("libcudart.so")
    if runtime is None:
        raise UserError("import torch has loaded no libcudart.so, so there is none to link with")
    native, native_values = _native(site, build.cuda, compiler)
    values = {
        "TORCH_VERSION": build.version,
        "TORCH_CUDA": build.cuda,
        "TORCH_LIB": folder / "lib",
        "TORCH_CXX11_ABI": int(build.cxx11_abi),
        "TORCH_CXX_STANDARD": 17 if build.release < (2, 12) else 20,
        "TORCH_INCLUDES": ";".join(
            str(folder / "include" / part) for part in (".", "torch/csrc/api/include")
        ),
        "CUDA_INCLUDES": ";".join(map(str, headers)),
        "CUDA_HEADERS_VERSION": version,
        "CUDART": runtime,
        **native_values,
    }
    text = "".join(f"set({name} [==[{value}]==])\n" for name, value in values.items())
    write_atomically(file.with_name("native.json"), json.dumps(dataclasses.asdict(native)))
    write_atomically(file, text)


def write_facts(library: Path, compiler: str, headers: str, native: Path) -> None:
    """Write the facts file beside a library that was built for the torch of this interpreter.

    ``native``: the file that says what was found out about our kernels.
    """
    digest, size = _abi.file_digest(library)
    facts = _abi.BuildFacts(
        torch=_abi.torch_build(import_torch()),
        api=_abi.API,
        compiler=compiler,
        sources=sources_digest(),
        date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        sha256=digest,
        size=size,
        cuda_headers=headers,
        native=_abi.NativeFacts.of(json.loads(native.read_text(encoding="utf-8"))),
    )
    write_atomically(_abi.facts_path(library), facts.to_json())


def main(arguments: list[str]) -> int:
    """See the module's text."""
    try:
        match arguments:
            case ["cmake", file, compiler]:
                _describe(import_torch(), Path(file), compiler)
            case ["facts", library, compiler, headers, native]:
                write_facts(Path(library), compiler, headers, Path(native))
            case _:
                raise UserError(
                    "usage: _probe cmake FILE COMPILER | facts LIBRARY COMPILER HEADERS NATIVE"
                )
    except UserError as error:
        print(error, file=sys.stderr)
        return NO_TORCH if isinstance(error, NothingToBuildFor) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
