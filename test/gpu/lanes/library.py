"""Build and call the library of measured loops: lanes_entry.cpp.

python test/gpu/lanes/library.py build .scratch/lanes     # with torch and a toolkit's headers
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
NAME = "liblanes_entry.so"
OPS = ("geqrf", "orgqr", "ormqr", "potrf", "potrs", "sytrf", "gesvdj", "gesvd", "geev")
DTYPES = ("float32", "float64", "complex64", "complex128")
_WHY = 500


class Problem(ctypes.Structure):
    """lanes_problem."""

    _fields_ = (
        ("op", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("batch", ctypes.c_int64),
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("nrhs", ctypes.c_int64),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        ("d", ctypes.c_void_p),
        ("source_a", ctypes.c_void_p),
        ("source_b", ctypes.c_void_p),
        ("pivots", ctypes.c_void_p),
        ("infos", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


class _Times(ctypes.Structure):
    _fields_ = (("device_ms", ctypes.c_double), ("host_ms", ctypes.c_double))


@dataclass(frozen=True)
class Times:
    """Milliseconds: on the device, the copy of the input included, and of the host to enqueue."""

    device: float
    host: float


@dataclass(frozen=True)
class Needs:
    """Bytes of workspace that a lane needs, and whether the vendor has a batched routine."""

    device: int
    host: int
    batched: bool


def build(torch: Any, into: Path) -> Path:
    """Compile the library against the CUDA libraries of this torch; returns its path."""
    sys.path[:0] = [str(ROOT)]
    from aten_overrides import _cuda_headers

    site = [Path(torch.__file__).resolve().parent.parent, *map(Path, sys.path)]
    headers, _ = _cuda_headers.find_headers(site, str(torch.version.cuda))
    torch.zeros(1)
    libraries = []
    for stem in ("libcudart.so", "libcublas.so", "libcusolver.so"):
        found = _cuda_headers.mapped_library(stem) or _beside(stem, site)
        libraries.append(str(found))
    into.mkdir(parents=True, exist_ok=True)
    made = into / NAME
    temporary = made.with_suffix(f".{os.getpid()}")
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-fPIC", "-shared", "-Wall"]
    for folder in headers:
        command += ["-isystem", str(folder)]
    command += [str(HERE / "lanes_entry.cpp"), "-o", str(temporary), *libraries]
    subprocess.run([*command, "-Wl,-z,defs", "-Wl,--allow-shlib-undefined"], check=True)
    temporary.replace(made)
    return made


def _beside(stem: str, site: list[Path]) -> Path:
    for folder in site:
        for pattern in (f"nvidia/*/lib/{stem}.*", f"nvidia/{stem[3:-3]}/lib/{stem}.*"):
            for found in sorted(folder.glob(pattern)):
                return found
    raise SystemExit(f"error: no {stem} beside torch; install its nvidia packages")


class Library:
    """The loaded library; torch must have loaded cuSOLVER and cuBLAS before."""

    def __init__(self, path: Path) -> None:
        self._dll = ctypes.CDLL(str(path))

    def _call(self, name: str, *arguments: Any) -> None:
        why = ctypes.create_string_buffer(_WHY)
        if getattr(self._dll, name)(*arguments, why, _WHY):
            raise RuntimeError(why.value.decode(errors="replace"))

    def prepare(self, problem: Problem, lanes: int) -> Needs:
        """Get ready for a problem with up to ``lanes`` lanes. RuntimeError that says why not."""
        needs = (ctypes.c_int64 * 3)()
        self._call("lanes_prepare", ctypes.byref(problem), ctypes.c_int(lanes), needs)
        return Needs(int(needs[0]), int(needs[1]), bool(needs[2]))

    def run(self, lanes: int) -> Times:
        """All calls on so many lanes from a fresh copy of the input; 0: the batched routine."""
        times = _Times()
        self._call("lanes_run", ctypes.c_int(lanes), ctypes.byref(times))
        return Times(times.device_ms, times.host_ms)

    def enqueue_one(self, batched: bool = False) -> float:
        """Milliseconds that the host is in one call for one matrix (or the batched one)."""
        host = ctypes.c_double()
        self._call("lanes_enqueue_one", ctypes.c_int(batched), ctypes.byref(host))
        return host.value

    def release(self) -> None:
        """Free the workspaces of the present problem."""
        self._dll.lanes_release()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "build":
        raise SystemExit("usage: library.py build FOLDER")
    import torch

    print(build(torch, Path(sys.argv[2])))
