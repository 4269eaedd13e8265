"""Builds the solver lanes for a simulated CUDA runtime and runs scripts on them.

``lanes(script)`` runs one command a line, ``<thread> <command> [arguments]``, and returns one dict
per command and a last one with what the simulation found wrong. The commands:

    call ITEMS [THROW_AT]      a loop of ITEMS calls as ATen makes it; THROW_AT raises in the body
    stream N | device N        the thread's current stream (0: the legacy one), device (0 or 1)
    begin MODE | end           capture of the current stream; 0 global, 1 thread-local, 2 relaxed
    replay GRAPH | synchronize
    limits LANES MEMORY_MIB | release
    capacity N                 no more than N handles fit in the memory of a device
    fail FUNCTION NTH [1]      the NTH call from now fails (FUNCTION may be "any"), 1: all later too
    fault N                    use a wrong scheduler (faulty_schedulers.h)
    exit                       the thread ends
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

Report = list[dict[str, Any]]
Lanes = Callable[..., Report]

HERE = Path(__file__).resolve().parent
LINALG = HERE.parents[1] / "aten_overrides" / "csrc" / "linalg"
REPLACED = (  # all of it comes from simulated_torch.h
    "ATen/cuda/CUDAContext.h",
    "ATen/cuda/Exceptions.h",
    "c10/cuda/CUDAException.h",
    "c10/cuda/CUDAFunctions.h",
    "c10/cuda/CUDAGraphsC10Utils.h",
    "c10/cuda/CUDAGuard.h",
    "c10/cuda/CUDAStream.h",
    "c10/util/Exception.h",
    "c10/util/env.h",
)


class Builder:
    """Compiles the driver once, and the lanes once per set of changes to their source."""

    def __init__(self, folder: Path, flags: Sequence[str] = ("-O0",)) -> None:
        compiler = shutil.which(os.environ.get("CXX", "g++"))
        if compiler is None:
            pytest.fail("a C++17 compiler is needed: install g++ or set CXX")
        self._folder = folder
        self._flags = [*flags, "-pthread"]
        self._command = [compiler, "-std=c++17", "-Wall", "-Wextra", *self._flags]
        self._command += [f"-I{HERE}", f"-I{folder / 'include'}"]
        include = folder / "include"
        for name in REPLACED:
            path = include / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('#include "simulated_torch.h"\n')
        headers = include / "ATen" / "native" / "cuda" / "linalg"
        headers.mkdir(parents=True)
        for name in ("SolverLanes.h", "CUDASolverLanes.h"):
            shutil.copy(LINALG / name, headers / name)
        sources = [HERE / f"{name}.cpp" for name in ("simulated_cuda", "simulated_world")]
        with ThreadPoolExecutor(2) as pool:
            objects = list(pool.map(self._compile, [*sources, HERE / "lanes_driver.cpp"]))
        self._objects = objects

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")

    def _compile(self, source: Path) -> Path:
        out = self._folder / f"{source.stem}.o"
        self._run([*self._command, "-c", str(source), "-o", str(out)])
        return out

    def build(self, name: str, changes: Sequence[tuple[str, str]] = ()) -> Path:
        """Return the executable for CUDASolverLanes.cpp with each ``old`` replaced by ``new``.

        Raises AssertionError if an ``old`` is not found exactly once: then the change no longer
        fits the source and has to be adapted.
        """
        text = (LINALG / "CUDASolverLanes.cpp").read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"found {text.count(old)} times in the source: {old}"
            text = text.replace(old, new)
        source = self._folder / f"{name}.cpp"
        source.write_text(text)
        out = self._folder / name
        objects = [str(path) for path in (*self._objects, self._compile(source))]
        self._run([self._command[0], *self._flags, *objects, "-o", str(out)])
        return out

    def build_without_cuda(self, source: str) -> Path:
        """Return the executable of a program that uses the lanes as a ROCm build does."""
        program = self._folder / "rocm.cpp"
        program.write_text(source)
        lanes = LINALG / "CUDASolverLanes.cpp"
        simulation = [str(path) for path in self._objects if path.stem.startswith("simulated")]
        out = self._folder / "rocm"
        self._run(
            [*self._command, "-DUSE_ROCM", str(program), str(lanes), *simulation, "-o", str(out)]
        )
        return out


def runner(executable: Path) -> Lanes:
    """Return a function that runs a script in a process of its own."""

    def run(script: str, **environment: str) -> Report:
        env = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_LINALG_STREAMS")}
        done = subprocess.run(
            [str(executable)],
            input=script,
            env={**env, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr}\n{script}"
        report = [json.loads(line) for line in done.stdout.splitlines()]
        assert report and report[-1]["op"] == "end", done.stdout
        return report

    return run


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("lanes"))


@pytest.fixture(scope="session")
def lanes(builder: Builder) -> Lanes:
    """The lanes as they are."""
    return runner(builder.build("lanes"))


@pytest.fixture(scope="session")
def rocm_program(builder: Builder) -> Callable[[str], Path]:
    """Compile a program for ROCm."""
    return builder.build_without_cuda


@pytest.fixture
def lanes_with(
    builder: Builder, request: pytest.FixtureRequest
) -> Callable[[Sequence[tuple[str, str]]], Lanes]:
    """The lanes with changes to their source."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    return lambda changes: runner(builder.build(name, changes))


@pytest.fixture(scope="session")
def sanitized_lanes(tmp_path_factory: pytest.TempPathFactory) -> Lanes:
    """The lanes under the thread sanitizer."""
    folder = tmp_path_factory.mktemp("sanitized")
    flags = ("-O1", "-g", "-fsanitize=thread")
    probe = folder / "probe.cpp"
    probe.write_text("int main() { return 0; }\n")
    compiler = os.environ.get("CXX", "g++")
    commands = (
        [compiler, *flags, str(probe), "-o", str(folder / "probe")],
        [str(folder / "probe")],
    )
    if any(subprocess.run(c, capture_output=True, check=False).returncode for c in commands):
        pytest.skip(f"{compiler} has no thread sanitizer here")
    return runner(Builder(folder, flags).build("lanes"))
