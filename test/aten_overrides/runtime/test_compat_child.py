"""What tools/compat tries with every release, on 2.11.0: each feature in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from wheel_process import run

from aotools.compat import child
from aotools.compat.features import REFUSED, WORKS

pytestmark = pytest.mark.wheel

CODE = "import sys; from aotools.compat import child; sys.exit(child.main())"


@pytest.mark.parametrize("name", child.CHECKS)
def test_works(tree: Path, cache: Path, stub_caller: Path, name: str) -> None:
    done = run(tree, cache, CODE, name, str(stub_caller))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["state"], found["reason"]) == (WORKS, "")


def test_without_a_library_it_is_refused(tree: Path, tmp_path: Path, stub_caller: Path) -> None:
    done = run(tree, tmp_path, CODE, "install", str(stub_caller))
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["state"] == REFUSED
    assert "run `aten-overrides build`" in found["reason"]


def test_a_broken_override_is_seen(tree: Path, cache: Path, stub_caller: Path) -> None:
    """restore() leaves an entry ours: the check of installation must not pass then."""
    broken = f"from aten_overrides import _gpu; _gpu.Library.restore = lambda self: ();{CODE}"
    done = run(tree, cache, broken, "install", str(stub_caller))
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["state"], found["reason"]) == (
        "broken",
        "the entries are not whose they should be",
    )
