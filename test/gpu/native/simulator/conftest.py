"""The library of the kernels for the simulated device, built once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from library import Library  # noqa: E402


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The library, or the one that SIMULATED_LU_LIBRARY names (built by build.py)."""
    built = os.environ.get("SIMULATED_LU_LIBRARY")
    path = Path(built) if built else tmp_path_factory.mktemp("simulated") / "lu.so"
    if not built:
        subprocess.run([sys.executable, str(HERE / "build.py"), str(path)], check=True)
    return Library(str(path), "cpu")
