"""A gpu library built once for the stock wheel of torch 2.11.0, and processes to try it in."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from wheel_process import build_cache, run

from aotools import env

HERE = Path(__file__).resolve().parent
TORCH = "2.11.0"
CXX11_ABI = {"2.6.0": 0, "2.11.0": 1}

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def tree() -> Path:
    """The unpacked wheel of torch 2.11.0."""
    return env.wheel_tree(TORCH, download=False)


@pytest.fixture(scope="session")
def cache(tree: Path) -> Path:
    """The cache with the gpu library for torch 2.11.0."""
    return build_cache(tree, TORCH)


@pytest.fixture(scope="session")
def library(cache: Path) -> Path:
    """The gpu library for torch 2.11.0."""
    return next(cache.glob("gpu/*/libaten_overrides_gpu.so"))


@pytest.fixture(scope="session")
def python(tree: Path, cache: Path) -> RunPython:
    """Runs Python code with torch 2.11.0 and the library for it; asserts that it exits with 0."""

    def call(
        code: str, *arguments: str, expect: int = 0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        done = run(tree, cache, code, *arguments, **more)
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return call


def built_with(tree: Path, source: Path) -> Path:
    """A library made of one file against torch's headers, kept in the cache."""
    stub = env.ROOT / "aten_overrides/csrc/package/gpu/Stub.h"
    key = hashlib.sha256(source.read_bytes() + stub.read_bytes()).hexdigest()[:16]
    made = env.cache_dir() / "tests" / f"{source.stem.replace('_', '-')}-{TORCH}-{key}.so"
    if not made.is_file():
        made.parent.mkdir(parents=True, exist_ok=True)
        temporary = made.with_suffix(f".{os.getpid()}")
        command = [
            "g++",
            "-std=gnu++17",
            "-O1",
            "-fPIC",
            "-shared",
            "-w",
            "-DAT_PER_OPERATOR_HEADERS",
        ]
        command += [f"-D_GLIBCXX_USE_CXX11_ABI={CXX11_ABI[TORCH]}", "-I", str(stub.parent)]
        command += ["-isystem", str(tree / "torch/include"), str(source), "-o", str(temporary)]
        command += [str(tree / "torch/lib" / name) for name in ("libtorch_cpu.so", "libc10.so")]
        subprocess.run([*command, "-Wl,--allow-shlib-undefined"], check=True)
        temporary.replace(made)
    return made


@pytest.fixture(scope="session")
def stub_caller(tree: Path) -> Path:
    """The library made of stub_caller.cpp."""
    return built_with(tree, HERE / "stub_caller.cpp")


@pytest.fixture(scope="session")
def magma_stand_in(tree: Path) -> Path:
    """The library made of magma_stand_in.cpp."""
    return built_with(tree, HERE / "magma_stand_in.cpp")


@pytest.fixture(scope="session")
def cuda_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library made of cuda_stand_in.c, for LD_PRELOAD."""
    made = tmp_path_factory.mktemp("cuda") / "libcuda_stand_in.so"
    source = HERE / "cuda_stand_in.c"
    command = ["gcc", "-Wall", "-Werror", "-fPIC", "-shared", str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    return made
