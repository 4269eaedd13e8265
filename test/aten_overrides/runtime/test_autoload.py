"""ATEN_OVERRIDES=1: enabled at `import torch`, through torch's own entry point group."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from wheel_process import environment, run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from aotools import env

CODE = "import sys, torch; import aten_overrides; print(aten_overrides.is_enabled())"


def test_the_project_declares_the_entry_point() -> None:
    project = tomllib.loads((env.ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["torch.backends"] == {
        "aten_overrides": "aten_overrides._autoload:autoload"
    }
    assert project["scripts"] == {"aten-overrides": "aten_overrides.cli:main"}


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A folder that makes the checkout look installed, entry point included."""
    metadata = tmp_path / "aten_overrides-0.1.0.dist-info"
    metadata.mkdir()
    header = "Metadata-Version: 2.1\nName: aten-overrides\nVersion: 0.1.0\n"
    (metadata / "METADATA").write_text(header)
    (metadata / "entry_points.txt").write_text(
        "[torch.backends]\naten_overrides = aten_overrides._autoload:autoload\n"
    )
    return str(tmp_path)


@pytest.mark.wheel
def test_only_when_asked(tree: Path, cache: Path, installed: str) -> None:
    path = f"{environment(tree, cache)['PYTHONPATH']}:{installed}"
    plain = run(tree, cache, CODE, PYTHONPATH=path)
    assert (plain.stdout, plain.stderr, plain.returncode) == ("False\n", "", 0)
    off = run(tree, cache, CODE, PYTHONPATH=path, ATEN_OVERRIDES="0")
    assert (off.stdout, off.returncode) == ("False\n", 0)
    on = run(tree, cache, CODE, PYTHONPATH=path, ATEN_OVERRIDES="1")
    assert (on.stdout, on.stderr, on.returncode) == ("True\n", "", 0)


@pytest.mark.wheel
def test_import_torch_never_fails(tree: Path, tmp_path: Path, installed: str) -> None:
    empty = tmp_path / "empty"
    path = f"{environment(tree, empty)['PYTHONPATH']}:{installed}"
    done = run(tree, empty, CODE, PYTHONPATH=path, ATEN_OVERRIDES="1")
    assert (done.stdout, done.returncode) == ("False\n", 0)
    assert (
        "ATEN_OVERRIDES=1, but the overrides are not enabled: there is no gpu library"
        in done.stderr
    )
    assert "run `aten-overrides build`" in done.stderr
