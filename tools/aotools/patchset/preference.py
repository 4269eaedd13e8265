"""Makes "cublas" a preferred linalg library of a stock torch, for use with a relinked library.

torch passes the value 3 of its enum through as it is; only its Python side does not know the name.
`register` adds it to the enum and to torch.backends.cuda, `unregister` takes it out. A wheel's own
functions treat the value as "default".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from aotools.env import UserError

MEMBER, NAME, VALUE = "Cublas", "cublas", 3
KNOWN = {"Default": 0, "Cusolver": 1, "Magma": 2}
ENVIRONMENT = "TORCH_LINALG_PREFER_CUBLAS"
_DOC = "cuBLAS's batched routines where there is one, elsewhere as cusolver"
_ENTRIES = "__entries"  # where pybind11 keeps an enum's members
_added: list[Any] = []  # the value that `register` made, while it is registered


def _enum() -> Any:
    import torch

    return torch._C._LinalgBackend


def _members() -> dict[str, int]:
    return {name: int(value) for name, value in _enum().__members__.items()}


def _listed(members: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in members.items())


def is_registered() -> bool:
    """Whether `register` has added the name in this process."""
    return bool(_added)


def register() -> Any:
    """Adds "cublas" and returns its enum value; a second call changes nothing.

    UserError when the enum's members are not exactly default, cusolver and magma: a torch that has
    more may use the value 3 for something else, or know "cublas" itself.
    """
    import torch

    if _added:
        return _added[0]
    enum = _enum()
    found = _members()
    entries = enum.__dict__.get(_ENTRIES)
    if found != KNOWN or not isinstance(entries, dict):
        raise UserError(
            f'"cublas" cannot be added to the preferred linalg libraries of torch '
            f"{torch.__version__}: it has {_listed(found)}, expected was exactly {_listed(KNOWN)}"
        )
    value = enum(VALUE)
    entries[MEMBER] = (value, _DOC)
    setattr(enum, MEMBER, value)
    cuda: Any = torch.backends.cuda
    cuda._LinalgBackends[NAME] = value
    cuda._LinalgBackends_str = ", ".join(cuda._LinalgBackends)
    _added.append(value)
    return value


def unregister() -> None:
    """Takes the name out again; if it is the preferred library, "default" is from now on."""
    import torch

    if not is_registered():
        return
    if int(torch._C._get_linalg_preferred_backend()) == VALUE:
        torch._C._set_linalg_preferred_backend(_enum().Default)
    cuda: Any = torch.backends.cuda
    cuda._LinalgBackends.pop(NAME, None)
    cuda._LinalgBackends_str = ", ".join(cuda._LinalgBackends)
    delattr(_enum(), MEMBER)
    del _enum().__dict__[_ENTRIES][MEMBER]
    _added.clear()


def from_environment(environ: Mapping[str, str] = os.environ) -> bool:
    """Prefers cuBLAS if TORCH_LINALG_PREFER_CUBLAS=1, unless a library was chosen in the process
    already.

    A patched torch reads the variable itself, before TORCH_LINALG_PREFER_CUSOLVER; a stock one has
    compiled in that it does not. True if the preference is now "cublas" for this reason.
    """
    import torch

    if environ.get(ENVIRONMENT) != "1":
        return False
    initial = (
        KNOWN["Cusolver"]
        if environ.get("TORCH_LINALG_PREFER_CUSOLVER") == "1"
        else KNOWN["Default"]
    )
    if int(torch._C._get_linalg_preferred_backend()) != initial:
        return False
    torch._C._set_linalg_preferred_backend(register())
    return True
