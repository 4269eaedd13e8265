"""Where files that can be made again are kept, and a user's own."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """``$ATEN_OVERRIDES_CACHE``, else ``aten-overrides`` in the user's cache folder."""
    named = os.environ.get("ATEN_OVERRIDES_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aten-overrides"


def data_dir() -> Path:
    """``$ATEN_OVERRIDES_DATA``, else ``aten-overrides`` in the user's data folder."""
    named = os.environ.get("ATEN_OVERRIDES_DATA")
    if named:
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local/share") / "aten-overrides"
