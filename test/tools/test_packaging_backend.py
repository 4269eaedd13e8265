"""pip's build isolation hides the user's torch: refused with the command that works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from aotools import env

BACKEND = env.ROOT / "tools/packaging"
CODE = "import aten_overrides_backend as b; print(b.get_requires_for_build_wheel())"


def ask(code: str, *paths: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs code with the backend and the given folders on the path."""
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": ":".join(map(str, [BACKEND, *paths])), "PATH": "/usr/bin:/bin", **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_isolated_build_is_refused(tmp_path: Path) -> None:
    overlay = tmp_path / "pip-build-env-x1y2/overlay/lib"
    overlay.mkdir(parents=True)
    done = ask(CODE, overlay)
    assert done.returncode != 0
    assert "pip install --no-build-isolation ." in done.stderr
    assert "Traceback" not in done.stderr
    # whoever builds a package for others, without a GPU library, may
    done = ask(CODE, overlay, ATEN_OVERRIDES_WITHOUT_GPU_LIBRARY="1")
    assert (done.returncode, done.stdout) == (0, "['scikit-build-core>=0.10']\n")


def test_without_torch_the_rest_is_built(tmp_path: Path) -> None:
    done = ask(CODE, tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert "has no torch, so only the part without a GPU library" in done.stderr
    assert "aten-overrides build" in done.stderr


def test_missing_tools_are_named(tmp_path: Path) -> None:
    done = ask("import aten_overrides_backend as b; b.build_wheel('.')", tmp_path)
    assert done.returncode != 0
    assert "pip install 'scikit-build-core>=0.10' cmake ninja" in done.stderr
    assert "Traceback" not in done.stderr
