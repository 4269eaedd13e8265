"""solve_ex around n = 512, the cliff of stock torch up to 2.12, with the overrides and without."""

from __future__ import annotations

from functools import partial

import common

import aten_overrides
from aotools.gputest.session import Session

SIZES = (511, 512, 513)
BATCHES = (1, 16, 64, 256, 1024)
LIMIT = 1.10
BYTE_CAP = 9e9


def _times(
    session: Session, library: str, dtype: str, batch: int, preference: str
) -> dict[int, float]:
    torch = session.torch
    torch.backends.cuda.preferred_linalg_library(preference)
    times: dict[int, float] = {}
    for n in SIZES:
        a = common.matrices(torch, dtype, batch, n, n)
        b = common.matrices(torch, dtype, batch, n, 1)
        timing = common.quick(session, partial(torch.linalg.solve_ex, a, b))
        times[n] = timing.ms
        session.point(
            "solve_ex", dtype, (batch, n, n), timing, nrhs=1, preference=preference, library=library
        )
    torch.backends.cuda.preferred_linalg_library("default")
    return times


def run(session: Session) -> None:
    """Times solve_ex at 511, 512, 513 for every batch and dtype, default and "cusolver"."""
    for dtype in common.DTYPES:
        item = 16 if dtype == "complex128" else 4 if dtype == "float32" else 8
        for batch in BATCHES:
            if batch * 513 * 513 * item > BYTE_CAP:
                continue
            for preference in ("default", "cusolver"):
                aten_overrides.enable()
                ours = _times(session, "overrides", dtype, batch, preference)
                with session.check(
                    "cliff", dtype=dtype, batch=batch, preference=preference
                ) as check:
                    ratio = ours[512] / ours[511]
                    check.value, check.ok = round(ratio, 3), ratio <= LIMIT
                    check.reason = f"{ours[511]:.3f} ms at 511, {ours[512]:.3f} ms at 512"
                if preference == "default" or (dtype == "float32" and batch <= 64):
                    aten_overrides.disable()
                    stock = _times(session, "stock", dtype, batch, preference)
                    with session.check(
                        "not slower", dtype=dtype, batch=batch, preference=preference
                    ) as check:
                        ratio = max(ours[n] / stock[n] for n in SIZES)
                        check.value, check.ok = round(ratio, 3), ratio <= 1.05
    aten_overrides.disable()
