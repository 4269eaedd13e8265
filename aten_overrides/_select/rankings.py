"""Rankings of eigh and lu_solve that were measured on the user's own GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from aten_overrides._names import OPS
from aten_overrides._select.calls import Calls


class Rankings:
    """In the library, of one operation; ``numbers`` are those of Rankings.h. ValueError with the
    reason if they are refused.
    """

    def __init__(self, library: Calls, op: str, numbers: Sequence[int]) -> None:
        self._library = library
        why = ctypes.create_string_buffer(300)
        given = as_array(numbers)
        self.handle = library.call(
            "rankings_new", OPS.index(op), given, len(numbers), why, len(why)
        )
        if not self.handle:
            raise ValueError(why.value.decode())

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle:
            self._library.call("rankings_free", handle)


def as_array(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """The numbers as an argument of a function."""
    return (ctypes.c_int64 * len(numbers))(*numbers)


def handle_of(rankings: Rankings | None) -> int | None:
    """The argument that stands for the rankings; None: those compiled in."""
    return None if rankings is None else int(rankings.handle)
