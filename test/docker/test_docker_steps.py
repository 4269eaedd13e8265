"""The RUN steps of docker/Dockerfile, executed: apt and pip in a scratch root, ours in folders.

What needs nvcc, PyTorch's submodules or hours is played by a stand-in for PyTorch's setup.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import dockerfile
import pytest
import scratch_root

from aotools.env import ROOT, cache_dir, tree_ready
from aotools.patchset import base as bases
from aotools.patchset import build_full, fetch, git

TOP, STAGES = dockerfile.read()
SETUP = """
import os, pathlib, sys, zipfile
lib = pathlib.Path("third_party/lib/CMakeLists.txt").read_text()
print("setup.py", *sys.argv[1:], "arch", os.environ["TORCH_CUDA_ARCH_LIST"], os.environ["BLAS"])
if "bdist_wheel" in sys.argv:
    name = f"torch-{os.environ['PYTORCH_BUILD_VERSION']}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(sys.argv[-1]) / name, "w") as wheel:
        wheel.writestr("torch/lib/libtorch_cuda_linalg.so", b"TORCH_LINALG_STREAMS")
"""


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def commit(repo: Path, tag: str | None = None) -> Path:
    git.init(repo)
    git.git(repo, "add", "--all", "--force")
    git.git(repo, "commit", "-qm", "release", extra=git.BASE_AUTHOR)
    if tag:
        git.git(repo, "tag", tag)
    return repo


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release's real files with a setup.py that makes a wheel at once, and one submodule."""
    folder = tmp_path_factory.mktemp("origin")
    real = bases.load("v2.6.0")
    source = fetch.source(real, progress=False)
    library = folder / "lib"
    write(library / "CMakeLists.txt", "project(lib)\n")
    commit(library)
    repo = Path(shutil.copytree(source, folder / "pytorch"))
    write(repo / "setup.py", SETUP)
    write(repo / "version.txt", "2.6.0a0\n")
    git.init(repo)
    add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add"]
    git.git(repo, *add, f"file://{library}", "third_party/lib")
    return commit(repo, "v2.6.0")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What stands for /opt/venv/bin/python; nvcc, cmake and ninja lie beside it."""
    folder = tmp_path_factory.mktemp("venv")
    for name in (*build_full.PACKAGES, "wheel"):
        write(folder / f"site/{name}.py", "")
    for name, said in (("nvcc", "release 12.4, V12.4.131"), ("cmake", "3.31"), ("ninja", "1.13")):
        write(folder / "bin" / name, f"#!/bin/sh\necho '{name} {said}'\n", 0o755)
    script = f'#!/bin/sh\nPYTHONPATH={folder}/site exec {sys.executable} -S "$@"\n'
    write(folder / "bin/python", script, 0o755)
    return folder / "bin/python"


class World:
    """Runs steps with the images' absolute folders replaced by folders of the test."""

    def __init__(self, folder: Path, origin: Path, python: Path) -> None:
        self.folder = folder
        self.places = {
            "/opt/aten-overrides": str(ROOT),
            "/opt/venv/bin/python": str(python),
            "/src": str(folder / "src"),
            "/dist": str(folder / "dist"),
        }
        self.values = {"PYTORCH_URL": f"file://{origin}"}

    def run(self, command: str, stage: str) -> str:
        """One step as the images' shell runs it; returns what it printed."""
        for old, new in self.places.items():
            command = re.sub(rf"(?<![\w/.-]){re.escape(old)}(?=[/ \"]|$)", new, command)
        variables = STAGES[stage].args() | self.values
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PYTHON"))}
        kept |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow"}
        kept |= {"GIT_CONFIG_VALUE_0": "always", "CUDA_HOME": "/nonexistent", **variables}
        done = subprocess.run(
            ["/bin/bash", "-euo", "pipefail", "-c", command],
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout


@pytest.mark.source
def test_source_configure_and_wheel(origin: Path, python: Path, tmp_path: Path) -> None:
    world = World(tmp_path, origin, python)
    said = [world.run(step, "source") for step in STAGES["source"].runs()]
    assert len(said) == 2 and "tests.patch" in said[1]
    tree = tmp_path / "src/pytorch"
    assert (tree / "third_party/lib/CMakeLists.txt").is_file()
    assert (tree / "aten/src/ATen/native/cuda/linalg/CUDASolverLanes.cpp").is_file()
    (step,) = STAGES["configure"].runs()
    said_now = world.run(step, "configure")
    assert "setup.py build --cmake-only arch 8.0;8.6;8.9;9.0 OpenBLAS" in said_now
    (step,) = STAGES["wheel"].runs()
    world.values["MAX_JOBS"] = "7"
    said_now = world.run(step, "wheel")
    assert "7 jobs at a time" in said_now and "USE_CUDA=1" in said_now
    world.values["MAX_JOBS"] = ""
    world.run(step, "wheel")
    facts = json.loads((tmp_path / "dist" / build_full.FACTS).read_text())
    assert len(facts["patches"]) == len(bases.load("v2.6.0").series())
    assert (tmp_path / "dist" / facts["wheel"]["name"]).is_file()


@pytest.mark.source
def test_another_release_is_refused(origin: Path, python: Path, tmp_path: Path) -> None:
    world = World(tmp_path, origin, python)
    clone, apply_step = STAGES["source"].runs()
    world.run(clone, "source")
    place = tmp_path / "src/pytorch/aten/src/ATen/Context.cpp"
    place.write_text(place.read_text() + "// another release\n")
    with pytest.raises(AssertionError, match=r"this is not PyTorch v2\.6\.0"):
        world.run(apply_step, "source")


@pytest.mark.source
@pytest.mark.wheel
def test_relink(origin: Path, python: Path, tmp_path: Path) -> None:
    if not tree_ready("2.6.0"):
        pytest.fail("the wheel of 2.6.0 is not in the cache")
    world = World(tmp_path, origin, python)
    (step,) = STAGES["relink"].runs()
    said = world.run(step, "relink")
    entry = STAGES["test-relinked"].steps[-1][1]
    library = json.loads(entry)[-1].removeprefix("/dist/")
    assert (tmp_path / "dist" / library).is_file() and library in said
    assert (tmp_path / "src/pytorch/test/test_linalg.py").is_file()


# --- apt and pip ----------------------------------------------------------------------------------


def scratch_steps() -> list[str]:
    """The steps that only need a distribution and Python: in the images' order."""
    toolchain, full = STAGES["toolchain"].runs(), STAGES["full"].runs()
    relinked = STAGES["test-relinked"].runs()
    assert (len(toolchain), len(full), len(relinked)) == (2, 3, 1)
    assert "apt-get" in toolchain[0] and "pip install" in toolchain[1] and "apt-get" in full[0]
    # The wheel of `full` takes hours; its other packages go in as written.
    tests = full[1].replace(" /dist/*.whl", "").replace("python3 -m venv /opt/venv && ", "")
    assert "dist" not in tests and "test.txt" in tests
    return [toolchain[0], toolchain[1], full[0], tests, full[2]]


def scratch_key() -> str:
    return scratch_root.key(scratch_steps(), sorted((ROOT / "docker/requirements").iterdir()))


def test_apt_and_pip_steps_in_a_scratch_root() -> None:
    """Cached in the state after the steps; made in full runs and when it was made before."""
    ready = scratch_root.place(scratch_key()).is_dir()
    if not ready and (why := scratch_root.reason_against()):
        pytest.skip(f"no scratch root: {why}")
    wanted = "source" in os.environ.get("AOTOOLS_REQUIRE", "").split(",")
    if not ready and not wanted and "AOTOOLS_SCRATCH_ROOT" not in os.environ:
        pytest.skip("no scratch root yet: AOTOOLS_SCRATCH_ROOT=1 makes one (0.3 GB to download)")
    copies = {ROOT / "docker/requirements": "/opt/requirements"}
    root = scratch_root.make(scratch_key(), scratch_steps(), copies)
    if os.geteuid() != 0:
        pytest.skip("only root may change its root folder")
    for command, said in (
        ("g++ --version", "g++"),
        ("ccache --version", "ccache"),
        ("git --version", "git version"),
        ("/opt/venv/bin/cmake --version", "cmake version 3."),
        ("/opt/venv/bin/ninja --version", "1."),
        (
            "/opt/venv/bin/python -c 'import numpy, scipy, yaml, pytest; print(numpy.__version__)'",
            "2.",
        ),
        ("/opt/venv/bin/python -m pip check", "No broken requirements"),
        ("id -u torch", "1000"),
        ("ls /usr/lib/x86_64-linux-gnu/libopenblas.so", "libopenblas.so"),
    ):
        done = scratch_root.run(root, command)
        assert done.returncode == 0 and said in done.stdout, f"{command}: {done.stdout}"
    assert cache_dir() in root.parents
