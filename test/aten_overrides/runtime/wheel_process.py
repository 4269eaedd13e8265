"""Processes with a stock wheel, the checkout's package and a cache that holds the gpu library."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from aotools import env
from aten_overrides import _probe

# Left out of every test process: a user's settings would change what is tested.
_CLEARED = ("ATEN_OVERRIDES", "TORCH_LINALG_", "XDG_CACHE_HOME", "PYTHONSAFEPATH")


def environment(tree: Path, cache: Path, **more: str) -> dict[str, str]:
    """The environment of a Python with the wheel of a tree, the checkout's package and a cache."""
    made = {
        key: value
        for key, value in env.tree_environment(tree).items()
        if not key.startswith(_CLEARED)
    }
    made["ATEN_OVERRIDES_CACHE"] = str(cache)
    return made | more


def run(
    tree: Path, cache: Path, code: str, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process of its own, which must not be able to hang the tests."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment(tree, cache, **more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def build_cache(tree: Path, version: str) -> Path:
    """A cache with the gpu library for this wheel, built by the command that a user runs."""
    folder = env.cache_dir() / "tests" / f"gpu-{version}-{_probe.sources_digest()[:16]}"
    if not list(folder.glob("gpu/*/libaten_overrides_gpu.json")):
        code = "from aten_overrides import _build; print(_build.build(jobs=2))"
        done = run(tree, folder, code)
        assert done.returncode == 0, done.stderr
        for old in folder.parent.glob(f"gpu-{version}-*"):
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)
    return folder
