"""The build backend of pyproject.toml: scikit-build-core, after a look at where the build runs.

The gpu library is built against the user's torch. pip's build isolation hides it, so an isolated
build is refused with the command that works instead of leaving the library out.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

COMMAND = "pip install --no-build-isolation ."
SCIKIT = "scikit-build-core>=0.10"
NEEDED = f"pip install '{SCIKIT}' cmake ninja"


def isolated() -> bool:
    """Whether a frontend runs this in an environment of its own, which lacks the user's
    packages.
    """
    marks = ("pip-build-env-", "build-env-", os.sep + "builds-v0" + os.sep)
    places = (sys.prefix, os.environ.get("VIRTUAL_ENV", ""), *sys.path)
    return any(mark in place for mark in marks for place in places)


def check() -> None:
    """SystemExit with the right command where torch is hidden or the build's own tools are
    missing.
    """
    if os.environ.get("ATEN_OVERRIDES_WITHOUT_GPU_LIBRARY") == "1":
        return
    if isolated():
        raise SystemExit(
            "aten-overrides is built against the torch of your environment, which build isolation "
            "hides. "
            f"Use: {NEEDED} && {COMMAND}"
        )
    if importlib.util.find_spec("torch") is None:
        print(
            f"aten-overrides: {sys.executable} has no torch, so only the part without a GPU "
            f"library is "
            "installed. Later: aten-overrides build",
            file=sys.stderr,
        )


def _scikit() -> Any:
    if importlib.util.find_spec("scikit_build_core") is None:
        raise SystemExit(
            f"scikit-build-core is needed to build aten-overrides. Use: {NEEDED} && {COMMAND}"
        )
    import scikit_build_core.build

    return scikit_build_core.build


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """PEP 517. An isolated build ends here, unless it is wanted without the GPU library."""
    check()
    return [SCIKIT] if isolated() else []


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """PEP 660, as for wheels."""
    return get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """PEP 517. A source distribution needs no torch."""
    return [SCIKIT]


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 517."""
    check()
    made: str = _scikit().build_wheel(wheel_directory, config_settings, metadata_directory)
    return made


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 660."""
    check()
    made: str = _scikit().build_editable(wheel_directory, config_settings, metadata_directory)
    return made


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """PEP 517."""
    made: str = _scikit().build_sdist(sdist_directory, config_settings)
    return made


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    """PEP 517."""
    check()
    made: str = _scikit().prepare_metadata_for_build_wheel(metadata_directory, config_settings)
    return made
