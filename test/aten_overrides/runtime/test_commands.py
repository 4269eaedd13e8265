"""The commands info, run, build and selftest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from wheel_process import environment

from aotools import env
from aten_overrides.tables.eigh import table as eigh
from aten_overrides.tables.lu_solve import table as lu_solve

FAKE_TORCH = """
__version__ = "2.11.0+cpu"
class version:
    cuda = None
    git_version = "70d99e998b"
class _C:
    _GLIBCXX_USE_CXX11_ABI = True
    class _LinalgBackend:
        def __init__(self, value):
            self.value = value
        def __int__(self):
            return self.value
    @staticmethod
    def _get_linalg_preferred_backend():
        return _C._LinalgBackend(0)
class cuda:
    has_magma = False
    @staticmethod
    def is_available():
        return False
"""


def command(
    *arguments: str, path: list[Path], cache: Path, **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs `aten-overrides ...` where only the given folders, besides the checkout, hold
    packages.
    """
    variables = {key: value for key, value in os.environ.items() if not key.startswith("ATEN_")}
    variables["PYTHONPATH"] = os.pathsep.join(map(str, [env.ROOT, *path]))
    variables["ATEN_OVERRIDES_CACHE"] = str(cache)
    # -S: without the torch that .venv sees through its .pth file
    return subprocess.run(
        [sys.executable, "-S", "-m", "aten_overrides", *arguments],
        env=variables | more,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def cpu_only(tmp_path: Path) -> Path:
    """A folder with a torch without CUDA: as much of it as is asked before anything is loaded."""
    package = tmp_path / "cpu/torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE_TORCH)
    return package.parent


def test_without_torch(tmp_path: Path) -> None:
    done = command("info", path=[], cache=tmp_path)
    assert done.returncode == 0
    assert "torch cannot be imported by" in done.stdout
    for arguments in (["selftest"], ["run", __file__]):
        done = command(*arguments, path=[], cache=tmp_path)
        assert done.returncode == 2
        assert "install a CUDA build of torch >= 2.6" in done.stderr
        assert "Traceback" not in done.stderr
    done = command("build", path=[], cache=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("has no torch\n")


def test_a_torch_without_cuda(cpu_only: Path, tmp_path: Path) -> None:
    done = command("info", "--json", path=[cpu_only], cache=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["torch"]["usable"] is False
    assert facts["library"]["reason"] == (
        "torch 2.11.0+cpu (without CUDA) has no CUDA, so there is nothing to override"
    )
    for op, made in (("lu_solve", lu_solve.load()), ("eigh", eigh.load())):
        choice = facts["compiled_choices"][op]
        assert (choice["gpu"], choice["problems"]) == (made.gpu, len(made.points))
        assert choice["date"] == made.meta["date"]
    done = command("selftest", path=[cpu_only], cache=tmp_path)
    assert done.returncode == 2
    assert "torch 2.11.0+cpu (without CUDA) cannot run the overrides" in done.stderr
    done = command("build", path=[cpu_only], cache=tmp_path)
    assert done.returncode == 2
    assert "torch 2.11.0+cpu was built without CUDA" in done.stderr
    done = command(
        "explain",
        "lu_factor",
        "--shape",
        "64,512,512",
        path=[cpu_only],
        cache=tmp_path,
    )
    assert done.returncode == 0, done.stderr


def on_wheel(
    tree: Path, cache: Path, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command with the stock wheel of a tree."""
    return subprocess.run(
        [sys.executable, "-m", "aten_overrides", *arguments],
        env=environment(tree, cache, **more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.wheel
def test_info_and_selftest_on_the_wheel(tree: Path, cache: Path) -> None:
    done = on_wheel(tree, cache, "info")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "torch 2.11.0+cu130 (CUDA 13.0), with MAGMA" in text
    assert "not enabled" in text
    assert "cuSOLVER calls: not in this torch (in no torch yet; issue 182001)" in text
    done = on_wheel(tree, cache, "selftest")
    assert (done.returncode, done.stdout) == (
        0,
        "pass  install and restore\nskip  results: torch sees no GPU\n",
    )


@pytest.mark.wheel
def test_run_is_like_python_itself(tree: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, beside, aten_overrides\n"
        "print(__name__, sys.argv[1:], beside.value, aten_overrides.is_enabled(), __file__)\n"
        "sys.exit(5)\n"
    )
    done = on_wheel(tree, cache, "run", "--only", "lu_factor", str(script), "--flag", "-m")
    assert done.returncode == 5
    assert done.stdout == f"__main__ ['--flag', '-m'] 7 True {script}\n"
    done = on_wheel(tree, cache, "run", "--profile", str(script))
    assert done.returncode == 5
    assert done.stderr.split()[:3] == ["operation", "dtype", "back"]
    done = on_wheel(tree, cache, "run", "-m", "timeit", "-n1", "-r1", "pass")
    assert done.returncode == 0 and "loop" in done.stdout
    done = on_wheel(tree, cache, "run", str(tmp_path / "absent.py"))
    assert done.returncode == 2
    assert "there is no script" in done.stderr


@pytest.mark.wheel
def test_a_build_that_fails_says_why_and_leaves_nothing(tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for variables, words in (
        ({"CXX": "absent-compiler"}, "absent-compiler is not on the path"),
        ({"CXX": "false"}, "the configuration of the gpu library failed"),
    ):
        done = on_wheel(tree, tmp_path, "build", "--into", str(target), **variables)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert not target.exists() or list(target.iterdir()) == []
