"""One log line per fallback, or per call, through Python's logging: logger ``aten_overrides``."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
from typing import Any

from aten_overrides import _gpu
from aten_overrides._errors import UserError

LOGGER = logging.getLogger("aten_overrides")
LEVELS = {"off": 0, "fallbacks": 1, "calls": 2}
_ALIASES = {"": "fallbacks", "0": "off", "1": "calls"}


class _State:
    library: _gpu.Library | None = None
    function: Any = None  # kept alive while the library may call it
    handler: logging.Handler | None = None


def level_from_environment() -> int:
    """The level that ATEN_OVERRIDES_LOG asks for: off, fallbacks (the default) or calls."""
    asked = os.environ.get("ATEN_OVERRIDES_LOG", "").strip().lower()
    name = _ALIASES.get(asked, asked)
    if name not in LEVELS:
        raise UserError(f"ATEN_OVERRIDES_LOG={asked}: known are {', '.join(LEVELS)}")
    return LEVELS[name]


def start(library: _gpu.Library, level: int) -> None:
    """Log the calls of a library at this level from now on."""
    names = {number: name for name, number in library.routes().items()}

    def on_call(raw: Any) -> None:
        with contextlib.suppress(Exception):  # a log line must not break an operation
            call = _gpu.call_of(raw.contents, names)
            LOGGER.log(logging.WARNING if call.reason else logging.INFO, "%s", call)

    if _State.library is None:
        atexit.register(stop)  # no calls into an interpreter that is going down
    stop()
    if level == LEVELS["calls"] and not LOGGER.isEnabledFor(logging.INFO):
        LOGGER.setLevel(logging.INFO)
    if level == LEVELS["calls"] and not LOGGER.hasHandlers():
        _State.handler = logging.StreamHandler()
        _State.handler.setFormatter(logging.Formatter("aten_overrides: %(message)s"))
        LOGGER.addHandler(_State.handler)
    # A thread may be about to call the former function: functions are never freed.
    _FUNCTIONS.append(_gpu.LOG_FUNCTION(on_call))
    _State.function = _FUNCTIONS[-1]
    _State.library = library
    library.set_log(_State.function, level)


_FUNCTIONS: list[ctypes._FuncPointer] = []


def stop() -> None:
    """Log no more."""
    if _State.library is not None:
        _State.library.set_log(None, 0)
    if _State.handler is not None:
        LOGGER.removeHandler(_State.handler)
        _State.handler = None
