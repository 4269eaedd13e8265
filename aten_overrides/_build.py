"""Build the gpu library for the torch at hand: ``aten-overrides build``."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from aten_overrides import _abi, _gpu, _nvcc, _probe
from aten_overrides._errors import UserError

ROOT = Path(__file__).resolve().parent


def find_cmake() -> list[str]:
    """Command line of CMake: the one on the path, else the Python package's."""
    found = shutil.which("cmake")
    if found is not None:
        return [found]
    if importlib.util.find_spec("cmake") is not None:
        return [sys.executable, "-m", "cmake"]
    raise UserError(
        "CMake 3.18 or later is needed to build the gpu library and is not on the path; install "
        "it: "
        "pip install cmake ninja (Debian: apt install cmake ninja-build)"
    )


def _require_compiler() -> None:
    named = os.environ.get("CXX", "").split()
    candidates = [named[0]] if named else ["c++", "g++", "clang++"]
    if not any(shutil.which(name) for name in candidates):
        raise UserError(
            f"a C++17 compiler is needed to build the gpu library, and {', '.join(candidates)} is "
            f"not on "
            "the path; install g++ 11 or later, or set CXX"
        )


def _run(command: list[str], what: str, log: Path, verbose: bool) -> None:
    with log.open("ab") as file:
        output = None if verbose else file
        done = subprocess.run(command, stdout=output, stderr=output, check=False)
    if done.returncode != 0:
        tail = (
            "" if verbose else "\n" + "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        )
        raise UserError(f"{what} failed (exit status {done.returncode}){tail}")


def build(
    into: Path | None = None,
    *,
    jobs: int = 0,
    verbose: bool = False,
    architectures: str | None = None,
) -> Path:
    """Build the gpu library for the torch of this interpreter and return its path.

    ``into``: the folder, the user's cache unless given. The library and its facts appear there
    complete or not at all, and a library that other processes use stays theirs. UserError that
    says what is missing (torch with CUDA, compiler, CMake, CUDA headers) or how the compiler
    failed. ``architectures``: the GPUs of our kernels, see ``_nvcc.architectures``; without an
    nvcc the library is built without them, which its facts say.
    """
    _nvcc.architectures(architectures)
    torch = _probe.import_torch()
    facts = _abi.torch_build(torch)
    target = into if into is not None else _gpu.cache_folder(facts)
    cmake = find_cmake()
    _require_compiler()
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target) as name:
            made = _compile(cmake, Path(name), jobs, verbose, architectures)
            return _publish(made, target, facts)
    except OSError as error:
        raise UserError(
            f"the gpu library cannot be written to {target}: {error}; name another folder with "
            f"--into, "
            "or set ATEN_OVERRIDES_CACHE"
        ) from error


def _compile(
    cmake: list[str], folder: Path, jobs: int, verbose: bool, architectures: str | None
) -> Path:
    log = folder / "log"
    configure = [*cmake, "-S", str(ROOT), "-B", str(folder / "work"), "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DPython_EXECUTABLE={sys.executable}", "-DATEN_OVERRIDES_GPU=ON"]
    configure += ["-DATEN_OVERRIDES_SELECT=OFF"]
    if architectures:
        configure += [f"-DATEN_OVERRIDES_ARCHITECTURES={architectures}"]
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    _run(configure, "the configuration of the gpu library", log, verbose)
    count = jobs if jobs > 0 else os.cpu_count() or 1
    compile_command = [*cmake, "--build", str(folder / "work"), "--parallel", str(count)]
    _run(compile_command, "the compilation of the gpu library", log, verbose)
    return folder / "work" / _abi.LIBRARY


def _publish(made: Path, target: Path, torch: _abi.TorchBuild) -> Path:
    """Move a library and its facts into a folder that may hold older ones."""
    _abi.check_library(made, torch)
    library = target / _abi.LIBRARY
    # Facts first: a library without the facts that belong to it is refused, never loaded.
    _abi.facts_path(made).replace(_abi.facts_path(library))
    made.replace(library)
    return library
