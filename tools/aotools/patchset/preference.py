"""Makes "cublas" and "native" preferred linalg libraries of a stock torch, for use with a relinked
library.

torch passes the values 3 and 4 of its enum through as they are; only its Python side does not know
the names. `register` adds them to the enum and to torch.backends.cuda, `unregister` takes them out.
A wheel's own functions treat the values as "default", and so does a relinked library without the
kernels the value of "native".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from aotools.env import UserError

# By name: the enum's member, its value, and what it means.
NAMES = {
    "cublas": (
        "Cublas",
        3,
        "cuBLAS's batched routines where there is one, elsewhere as cusolver",
    ),
    "native": ("Native", 4, "our own kernels where there is one, elsewhere as default"),
}
KNOWN = {"Default": 0, "Cusolver": 1, "Magma": 2}
ENVIRONMENT = "TORCH_LINALG_PREFER_CUBLAS"
_ENTRIES = "__entries"  # where pybind11 keeps an enum's members
_added: list[Any] = []  # the values that `register` made, while they are registered


def _enum() -> Any:
    import torch

    return torch._C._LinalgBackend


def _members() -> dict[str, int]:
    return {name: int(value) for name, value in _enum().__members__.items()}


def _listed(members: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in members.items())


def is_registered() -> bool:
    """Whether `register` has added the names in this process."""
    return bool(_added)


def register() -> Any:
    """Adds the names and returns the enum value of "cublas"; a second call changes nothing.

    UserError when the enum's members are not exactly default, cusolver and magma: a torch that has
    more may use the values for something else, or know the names itself.
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
    cuda: Any = torch.backends.cuda
    for name, (member, number, meaning) in NAMES.items():
        value = enum(number)
        entries[member] = (value, meaning)
        setattr(enum, member, value)
        cuda._LinalgBackends[name] = value
        _added.append(value)
    cuda._LinalgBackends_str = ", ".join(cuda._LinalgBackends)
    return _added[0]


def unregister() -> None:
    """Takes the names out again; if one is the preferred library, "default" is from now on."""
    import torch

    if not is_registered():
        return
    if int(torch._C._get_linalg_preferred_backend()) in {number for _, number, _ in NAMES.values()}:
        torch._C._set_linalg_preferred_backend(_enum().Default)
    cuda: Any = torch.backends.cuda
    for name, (member, _, _) in NAMES.items():
        cuda._LinalgBackends.pop(name, None)
        delattr(_enum(), member)
        del _enum().__dict__[_ENTRIES][member]
    cuda._LinalgBackends_str = ", ".join(cuda._LinalgBackends)
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
