"""Operations that are loops of cuSOLVER calls: a question about one, as both libraries take it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from aten_overrides._names import DTYPES, LOOP_OPS, PREFERENCES


@dataclass(frozen=True)
class LoopQuestion:
    """A problem of csrc/package/select/LoopChoice.h, and what a build and a call allow.

    m, n: of the matrices that are factored or hold the reflectors; nrhs: 0 where there are no
    right-hand sides; lanes: streams usable at once, below 2 none; magma: the wheel's own function
    may call it.
    """

    op: str
    dtype: str
    batch: int
    m: int
    n: int
    nrhs: int = 0
    hermitian: bool = False
    preference: str = "default"
    lanes: int = 4
    magma: bool = True
    capturing: bool = False
    deterministic: bool = False

    def raw(self) -> RawLoop:
        """As the libraries take it."""
        return RawLoop(
            self.batch,
            self.m,
            self.n,
            self.nrhs,
            LOOP_OPS.index(self.op),
            DTYPES.index(self.dtype),
            self.hermitian,
            PREFERENCES.index(self.preference),
            self.lanes,
            self.magma,
            self.capturing,
            self.deterministic,
        )


class RawLoop(ctypes.Structure):
    """aten_overrides_select_loop."""

    _fields_ = (
        ("batch", ctypes.c_int64),
        ("m", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("nrhs", ctypes.c_int64),
        ("op", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("hermitian", ctypes.c_int32),
        ("preference", ctypes.c_int32),
        ("lanes", ctypes.c_int32),
        ("magma", ctypes.c_int32),
        ("capturing", ctypes.c_int32),
        ("deterministic", ctypes.c_int32),
    )
