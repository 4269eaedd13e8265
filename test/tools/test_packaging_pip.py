"""`pip install` as a user runs it: into a throwaway environment that sees the 2.11.0 wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotools import env

SOURCES = ("aten_overrides", "tools/packaging", "pyproject.toml", "README.md", "LICENSE")
MADE = ("__pycache__", "*.so", "*.pyc")


class Place:
    """A copy of what the package is built from, and a virtual environment with pip and torch."""

    def __init__(self, folder: Path, tree: Path | None) -> None:
        self.source = folder / "check out"
        self.venv = folder / "venv"
        self.cache = folder / "cache"
        for name in SOURCES:
            path = env.ROOT / name
            target = self.source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, target, ignore=shutil.ignore_patterns(*MADE))
            else:
                shutil.copy(path, target)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.venv], check=True)
        self.site = self.venv / "lib" / f"python{env.python_name()}" / "site-packages"
        # pip, scikit-build-core, cmake and ninja come from .venv; torch from the wheel's tree.
        seen = [*([str(tree)] if tree else []), str(env.venv_site())]
        (self.site / "seen.pth").write_text("\n".join(seen) + "\n")

    def run(self, *command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a program of the environment, without the user's settings and without a network."""
        hidden = ("ATEN_OVERRIDES", "PYTHON", "PIP_", "TORCH_LINALG_", "AOTOOLS_")
        variables = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        variables |= {
            "PATH": f"{self.venv / 'bin'}:{env.venv_python().parent}:{variables['PATH']}",
            "VIRTUAL_ENV": str(self.venv),
            "PIP_NO_INDEX": "1",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "ATEN_OVERRIDES_CACHE": str(self.cache),
            # The host parts alone: compiling the kernels is tested elsewhere and takes minutes.
            "ATEN_OVERRIDES_ARCHITECTURES": "none",
            **more,
        }
        return subprocess.run(
            [self.venv / "bin" / command[0], *command[1:]],
            cwd=self.source.parent,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    def pip(self, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs pip."""
        return self.run("python", "-m", "pip", *arguments, **more)

    def files(self) -> set[str]:
        """Every file of the environment and of the copied sources."""
        return {
            str(path)
            for root in (self.venv, self.source)
            for path in root.rglob("*")
            if path.is_file() and path.parent.name != "__pycache__"
        }


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An environment without torch, in which nothing is installed."""
    return Place(tmp_path_factory.mktemp("bare"), None)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The package installed beside torch 2.11.0 by the README's command, once for all tests; at
    the end `pip uninstall` must leave nothing of it.
    """
    place = Place(tmp_path_factory.mktemp("pip"), env.wheel_tree("2.11.0", download=False))
    before = place.files()
    done = place.pip("install", "--no-build-isolation", place.source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name for name in place.files() - before if str(place.source) in name} == set()
    yield place
    done = place.pip("uninstall", "--yes", "aten-overrides")
    assert done.returncode == 0, done.stdout + done.stderr
    left = place.files() ^ before
    assert not left, f"left behind or lost: {sorted(left)[:10]}"
    assert not list(place.site.glob("aten_overrides*"))


ENABLE = """
import json, aten_overrides
from aten_overrides import _runtime
status = aten_overrides.enable()
files = {entry.name: entry.current for entry in _runtime.loaded_library().entries()}
aten_overrides.disable()
print(json.dumps([aten_overrides.__file__, str(status.library), str(status), files]))
"""


@pytest.mark.wheel
def test_the_installed_package_holds_its_library(installed: Place) -> None:
    package = installed.site / "aten_overrides"
    library = package / "lib/libaten_overrides_gpu.so"
    assert library.is_file() and library.with_suffix(".json").is_file()
    assert (package / "libaten_overrides_select.so").is_file()
    assert (package / "tables/nvidia-h200.json").is_file()
    assert (package / "csrc/package/gpu/Api.cpp").is_file()  # for `aten-overrides build` later
    done = installed.run("python", "-c", ENABLE)
    assert done.returncode == 0, done.stderr
    module, used, status, files = json.loads(done.stdout)
    assert module == str(package / "__init__.py")
    assert used == str(library)
    assert "torch 2.11.0+cu130 (CUDA 13.0)" in status
    assert {name for name, file in files.items() if file == str(library)} >= {
        "lu_factor",
        "lu_solve",
    }


@pytest.mark.wheel
def test_the_commands_are_there(installed: Place) -> None:
    done = installed.run("aten-overrides", "info")
    assert done.returncode == 0, done.stderr
    assert f"gpu library {installed.site}/aten_overrides/lib/" in done.stdout
    assert "older than the sources" not in done.stdout
    done = installed.run("aten-overrides", "explain", "lu_factor", "--shape", "64,512,512")
    assert done.returncode == 0, done.stderr


@pytest.mark.wheel
def test_the_entry_point_enables_at_import_torch(installed: Place) -> None:
    code = "import torch, aten_overrides; print(aten_overrides.is_enabled())"
    assert installed.run("python", "-c", code, ATEN_OVERRIDES="1").stdout == "True\n"
    assert installed.run("python", "-c", code).stdout == "False\n"


@pytest.mark.wheel
def test_the_source_distribution_is_complete(installed: Place, tmp_path: Path) -> None:
    code = "import sys, aten_overrides_backend as b; print(b.build_sdist(sys.argv[1]))"
    backend = str(installed.source / "tools/packaging")
    script = f"import os, sys; os.chdir({str(installed.source)!r}); sys.path.insert(0, {backend!r})"
    done = installed.run("python", "-c", f"{script}\n{code}", tmp_path)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / done.stdout.strip().splitlines()[-1]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    for name in SOURCES:
        path = installed.source / name
        files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
        wanted = {
            str(file.relative_to(installed.source))
            for file in files
            if file.parent.name != "__pycache__"
        }
        assert wanted <= held, sorted(wanted - held)[:5]


def test_build_isolation_is_refused_before_anything_is_downloaded(bare: Place) -> None:
    before = bare.files()
    done = bare.pip("install", bare.source)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "which build isolation hides" in said
    assert "pip install --no-build-isolation ." in said
    assert "scikit-build-core>=0.10' cmake ninja" in said
    assert "No matching distribution" not in said
    assert bare.files() == before
