"""CUDA linear algebra without cliffs on a stock PyTorch wheel.

Importing this package imports neither torch nor anything that needs CUDA.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aten_overrides._errors import UserError as UserError
    from aten_overrides._info import info as info
    from aten_overrides._preference import preferred_linalg_library as preferred_linalg_library
    from aten_overrides._profile import Profile as Profile
    from aten_overrides._profile import profile as profile
    from aten_overrides._runtime import Status as Status
    from aten_overrides._runtime import disable as disable
    from aten_overrides._runtime import enable as enable
    from aten_overrides._runtime import enabled as enabled
    from aten_overrides._runtime import is_enabled as is_enabled

__version__ = "0.1.0"

# Name -> module. Loaded on first use.
_EXPORTS = {
    "Profile": "_profile",
    "Status": "_runtime",
    "UserError": "_errors",
    "disable": "_runtime",
    "enable": "_runtime",
    "enabled": "_runtime",
    "explain": "_explain",
    "info": "_info",
    "is_enabled": "_runtime",
    "preferred_linalg_library": "_preference",
    "profile": "_profile",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
