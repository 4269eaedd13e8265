"""solve_ex around n = 512, the cliff of stock torch up to 2.12, with the overrides and without."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import common

from aotools.gputest.session import Session

SIZES = (511, 512, 513)
BATCHES = (1, 16, 64, 256, 1024)
LIMIT, NOT_SLOWER = 1.10, 1.05
BYTE_CAP = 9e9


def with_stock(preference: str, dtype: str, batch: int) -> bool:
    """Whether stock is timed too: under "cusolver" its loop takes 900 ms for 1024 matrices."""
    return preference == "default" or (dtype == "float32" and batch <= 64)


def _one(session: Session, library: Any, dtype: str, batch: int, wish: str) -> None:
    torch = session.torch
    systems = {
        n: (
            common.matrices(torch, dtype, batch, n, n),
            common.matrices(torch, dtype, batch, n, 1),
        )
        for n in SIZES
    }
    who = ("overrides", "stock") if with_stock(wish, dtype, batch) else ("overrides",)
    calls = {
        f"{name} {n}": partial(torch.linalg.solve_ex, *systems[n]) for n in SIZES for name in who
    }

    def prepare(name: str) -> None:
        common.switch(torch, library, name.startswith("overrides"))

    # All are wanted whole, also where stock takes many times as long.
    samples = common.in_turns(session, calls, prepare, far=100)
    common.switch(torch, library, True)
    for name, found in samples.items():
        owner, _, size = name.partition(" ")
        session.point(
            "solve_ex",
            dtype,
            (batch, int(size), int(size)),
            common.timing(found),
            nrhs=1,
            preference=wish,
            library=owner,
        )
    params = {"dtype": dtype, "batch": batch, "preference": wish}
    with session.check("cliff", **params) as check:
        low, high = (statistics.median(samples[f"overrides {n}"]) for n in (511, 512))
        check.value, check.ok = round(high / low, 3), high / low <= LIMIT
        check.reason = f"{low:.3f} ms at 511, {high:.3f} ms at 512"
    if "stock" in who:
        with session.check("not slower", **params) as check:
            ratios = {}
            for n in SIZES:
                pairs = zip(samples[f"overrides {n}"], samples[f"stock {n}"], strict=False)
                ratios[n] = statistics.median(ours / stock for ours, stock in pairs)
            check.value = {str(n): round(ratio, 3) for n, ratio in ratios.items()}
            check.ok = max(ratios.values()) <= NOT_SLOWER


def run(session: Session) -> None:
    """Times solve_ex at 511, 512, 513 for every batch and dtype, default and "cusolver"."""
    torch = session.torch
    library = common.enable()
    for dtype in common.DTYPES:
        for batch in BATCHES:
            if batch * 513 * 513 * common.item_bytes(dtype) > BYTE_CAP:
                continue
            for wish in ("default", "cusolver"):
                with common.preferring(torch, wish):
                    _one(session, library, dtype, batch, wish)
    common.disable()
