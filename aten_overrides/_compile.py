"""Compile the torch-free ``select`` library with the system's C++ compiler, into the cache."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aten_overrides._cache import cache_dir
from aten_overrides._errors import UserError

CSRC = Path(__file__).resolve().parent / "csrc"
HEADERS = ("LinalgChoice.h", "LinalgThresholds.h", "NativeThresholds.h")
EIGH_HEADERS = ("EighBackend.h", "EighChoice.h", "EighThresholds.h")
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")


def find_compiler() -> list[str]:
    """Command line of the C++ compiler: ``$CXX``, else c++, g++ or clang++ on the path."""
    named = os.environ.get("CXX", "").strip()
    if named:
        command = shlex.split(named)
        if shutil.which(command[0]) is None:
            raise UserError(
                f"CXX names {command[0]!r}, which is not on the path; set CXX to a C++17 compiler "
                "or unset it"
            )
        return command
    for name in ("c++", "g++", "clang++"):
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise UserError(
        "a C++17 compiler is needed once to build the select library, and none of c++, g++, "
        "clang++ is on the path; install one (Debian: apt install g++) or set CXX"
    )


def _not_started(compiler: Sequence[str], error: OSError) -> UserError:
    return UserError(
        f"the compiler {shlex.join(compiler)} cannot be started: {error}; set CXX to another one"
    )


def _version(compiler: Sequence[str]) -> bytes:
    try:
        done = subprocess.run([*compiler, "--version"], capture_output=True, check=False)
    except OSError as error:
        raise _not_started(compiler, error) from error
    return done.stdout


def _key(compiler: Sequence[str], sources: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for part in (shlex.join([*compiler, *FLAGS]).encode(), _version(compiler)):
        digest.update(part + b"\0")
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def build(name: str, units: Sequence[str], linalg: Path | None = None) -> Path:
    """Path of the shared library ``lib<name>.so`` made of the given files in csrc/package/select.

    Compiles only if the cache has no library of these very sources, compiler and flags. ``linalg``
    is the folder with HEADERS, the package's own unless given; those of eigh are taken from it
    where it has them. The library appears in the cache complete or not at all. Raises UserError
    without a compiler, when the compiler fails or when the cache cannot be written.
    """
    folder = CSRC / "package" / "select"
    headers = [(linalg or CSRC / "linalg") / header for header in HEADERS]
    for header in EIGH_HEADERS:
        other = (linalg or CSRC / "linalg") / header
        headers.append(other if other.is_file() else CSRC / "linalg" / header)
    sources = [*sorted(folder.glob("*.h")), *(folder / unit for unit in units), *headers]
    missing = [source for source in sources if not source.is_file()]
    if missing:
        raise UserError(
            f"the source {missing[0]} of the select library is missing; the package is incomplete, "
            "install it again"
        )
    compiler = find_compiler()
    target = cache_dir() / "select" / _key(compiler, sources) / f"lib{name}.so"
    if target.is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=target.parent) as temporary:
            made = _run(compiler, [folder / unit for unit in units], headers, Path(temporary), name)
            made.replace(target)
    except OSError as error:
        raise UserError(
            f"the select library cannot be kept in {target.parent}: {error}; set "
            "ATEN_OVERRIDES_CACHE to a folder that can be written"
        ) from error
    return target


def _run(
    compiler: Sequence[str],
    units: Sequence[Path],
    headers: Sequence[Path],
    folder: Path,
    name: str,
) -> Path:
    # The headers name themselves as in ATen, so they are seen through a folder of only them.
    overlay = folder / "include" / "ATen" / "native" / "cuda" / "linalg"
    overlay.mkdir(parents=True)
    for header in headers:
        shutil.copyfile(header, overlay / header.name)
    made = folder / f"lib{name}.so"
    command = [*compiler, *FLAGS, "-I", str(folder / "include"), *map(str, units), "-o", str(made)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise _not_started(compiler, error) from error
    if done.returncode != 0 or not made.is_file():
        tail = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise UserError(
            f"the select library did not compile (exit status {done.returncode}); it needs a C++17 "
            f"compiler, CXX names another one\n{shlex.join(command)}\n{tail}"
        )
    return made
