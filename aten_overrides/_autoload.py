"""Called by torch at the end of ``import torch`` (entry point group ``torch.backends``)."""

from __future__ import annotations

import os


def autoload() -> None:
    """Enable the overrides if ATEN_OVERRIDES is set to 1. Never raises: ``import torch`` must not
    fail.
    """
    if os.environ.get("ATEN_OVERRIDES", "").strip().lower() not in ("1", "on", "yes", "true"):
        return
    from aten_overrides import _log, _runtime

    try:
        _runtime.enable()
    except Exception as error:
        _log.LOGGER.warning("ATEN_OVERRIDES=1, but the overrides are not enabled: %s", error)
