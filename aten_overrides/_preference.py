"""The preferred linear algebra library, with "cublas" and "native" beside torch's own names.

A stock wheel carries the values 3 and 4 without names for them: its setter has no range check, and
its kernels send them to their default branches. While the overrides are enabled the names exist
wherever torch's own names do; disable() takes them away again.
"""

from __future__ import annotations

import importlib
import os
from types import TracebackType
from typing import Any

from aten_overrides import _gpu
from aten_overrides._errors import UserError
from aten_overrides._names import PREFERENCES

_KNOWN = {"Default": 0, "Cusolver": 1, "Magma": 2}
_ADDED = PREFERENCES[len(_KNOWN) :]
_ENTRIES = "__entries"  # pybind11's dict of an enum: name -> (value, text)
_TRUE = ("1", "on", "yes", "true", "y")


class _State:
    explicit = False  # set through preferred_linalg_library since the process began
    before: int | None = None  # what torch held when our names were registered
    text: str | None = None  # torch's text of all names at that time


def _backends() -> Any:
    return importlib.import_module("torch.backends.cuda")


def _current(torch: Any) -> int:
    return int(torch._C._get_linalg_preferred_backend())


def _set(torch: Any, value: int) -> None:
    torch._C._set_linalg_preferred_backend(torch._C._LinalgBackend(value))


def register(torch: Any) -> None:
    """Give the values 3 and 4 the names "cublas" and "native". UserError, with nothing changed,
    where torch's enum is not the one that is known: a later torch may use 3 itself.
    """
    enum = torch._C._LinalgBackend
    entries = getattr(enum, _ENTRIES, None)
    names = _backends()
    if _State.before is not None and _ADDED[0].capitalize() in (entries or {}):
        return
    members = {name: int(value) for name, value in getattr(enum, "__members__", {}).items()}
    taken = [name for name in _ADDED if name in names._LinalgBackends]
    if members != _KNOWN or not isinstance(entries, dict) or taken:
        raise UserError(
            f'the preferences "cublas" and "native" cannot be added: torch {torch.__version__} '
            f"knows "
            f"{members or 'an enum of another kind'}, and exactly {_KNOWN} is known to this package"
        )
    _State.before = _current(torch)
    _State.text = names._LinalgBackends_str
    for name in _ADDED:
        value = enum(PREFERENCES.index(name))
        entries[name.capitalize()] = (value, None)
        setattr(enum, name.capitalize(), value)
        names._LinalgBackends[name] = value
    names._LinalgBackends_str = ", ".join(names._LinalgBackends)


def unregister(torch: Any) -> None:
    """Take the names away. A preference that only we know becomes what it was before."""
    if _State.before is None:
        return
    enum = torch._C._LinalgBackend
    names = _backends()
    for name in _ADDED:
        getattr(enum, _ENTRIES).pop(name.capitalize(), None)
        if hasattr(enum, name.capitalize()):
            delattr(enum, name.capitalize())
        names._LinalgBackends.pop(name, None)
    names._LinalgBackends_str = _State.text
    if _current(torch) not in _KNOWN.values():
        _set(torch, _State.before if _State.before in _KNOWN.values() else 0)
    _State.before = None


def registered() -> bool:
    """Whether "cublas" and "native" are known to torch now."""
    return _State.before is not None


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in _TRUE


def from_environment() -> str | None:
    """The preference that the environment asks for, None if nothing does. UserError: unknown
    name.
    """
    asked = os.environ.get("ATEN_OVERRIDES_PREFER", "").strip().lower()
    if asked:
        if asked not in PREFERENCES:
            raise UserError(
                f"ATEN_OVERRIDES_PREFER={asked}: there is no such preference; known are "
                f"{', '.join(PREFERENCES)}"
            )
        return asked
    if _is_set("TORCH_LINALG_PREFER_CUBLAS"):
        return "cublas"
    if _is_set("TORCH_LINALG_PREFER_CUSOLVER") or _is_set("TORCH_LINALG_PREFER_HIPSOLVER"):
        return "cusolver"
    return None


def _initial() -> int:
    """What torch took from the environment by itself."""
    cusolver = ("TORCH_LINALG_PREFER_CUSOLVER", "TORCH_LINALG_PREFER_HIPSOLVER")
    return int(any(os.environ.get(name) == "1" for name in cusolver))


def apply_environment(torch: Any, library: _gpu.Library) -> str | None:
    """Set what the environment asks for unless a call has set the preference. Returns what was
    set.
    """
    asked = from_environment()
    if asked is None or _State.explicit or _current(torch) != _initial():
        return None
    if asked in _ADDED and not registered():
        raise UserError(
            f'the environment asks for the preference "{asked}", which this torch cannot hold; '
            "unset ATEN_OVERRIDES_PREFER and TORCH_LINALG_PREFER_CUBLAS"
        )
    library.prefer(asked)
    return asked


class PreferredLibrary(str):
    """The preference now in force, by its name. As a context manager it restores the one before."""

    previous: str | None

    def __new__(cls, name: str, previous: str | None = None) -> PreferredLibrary:
        made = super().__new__(cls, name)
        made.previous = previous
        return made

    def __enter__(self) -> PreferredLibrary:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.previous is not None:
            preferred_linalg_library(self.previous)


def preferred_linalg_library(name: object = None) -> PreferredLibrary:
    """Get, or set and get, the preferred library, as torch.backends.cuda.preferred_linalg_library
    does.

    ``name`` is "default", "cusolver", "magma" or, while the overrides are enabled, "cublas" or
    "native"; or one of torch's own enum. ``with preferred_linalg_library("cublas"): ...`` restores
    the former preference at its end. The setting is one for the whole process. UserError for
    anything else.
    """
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"the preference is torch's, and torch cannot be imported: {error}"
        ) from error
    now = _current(torch)
    previous = PREFERENCES[now] if 0 <= now < len(PREFERENCES) else "default"
    if name is None:
        return PreferredLibrary(previous)
    if isinstance(name, torch._C._LinalgBackend):
        value = int(name)
        asked = PREFERENCES[value] if 0 <= value < len(PREFERENCES) else str(value)
    else:
        asked = str(name).strip().lower()
    if asked not in PREFERENCES:
        raise UserError(
            f"there is no preferred library {asked!r}; known are {', '.join(PREFERENCES)}"
        )
    if asked in _ADDED and not registered():
        raise UserError(
            f'the preference "{asked}" exists only while the overrides are enabled: call '
            "aten_overrides.enable() first"
        )
    _set(torch, PREFERENCES.index(asked))
    _State.explicit = True
    return PreferredLibrary(asked, previous)
