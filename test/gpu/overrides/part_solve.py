"""lu_solve: every route against stock over right-hand sides, for a table of its own."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import common

from aotools.gputest.session import Session

SHAPES = (
    (1, 64),
    (64, 64),
    (1024, 64),
    (1, 256),
    (2, 256),
    (64, 256),
    (1024, 256),
    (2, 512),
    (64, 512),
    (256, 1024),
)
LOOPED = 64  # the largest batch that the loop is timed for
PREFERENCES = ("default", "cusolver")


def _prepare(torch: Any, library: Any, name: str) -> None:
    """Forces a route, or leaves the choice under a preference."""
    wish = name if name in PREFERENCES else "default"
    torch.backends.cuda.preferred_linalg_library(wish)
    library.force_route("lu_solve", None if name in PREFERENCES else name)


def run(session: Session) -> None:
    """Times lu_solve for 1, 8, 64 and n right-hand sides, and the choice under two preferences."""
    torch = session.torch
    library = common.enable()
    for dtype in session.options.get("dtypes", ["float32"]):
        for batch, n in SHAPES:
            a = common.matrices(torch, dtype, batch, n, n)
            lu, pivots, _ = torch.linalg.lu_factor_ex(a)
            for k in sorted({1, 8, 64, n}):
                b = common.matrices(torch, dtype, batch, n, k)
                names = [
                    name
                    for name in (*common.SOLVE_ROUTES, *PREFERENCES)
                    if name != "looped_cusolver" or batch <= LOOPED
                ]
                samples = common.in_turns(
                    session,
                    dict.fromkeys(names, partial(torch.linalg.lu_solve, lu, pivots, b)),
                    partial(_prepare, torch, library),
                    far=4,
                )
                _prepare(torch, library, "default")
                for name, found in samples.items():
                    more = {"preference" if name in PREFERENCES else "backend": name}
                    timed = common.timing(found, common.far_note(found))
                    session.point("lu_solve", dtype, (batch, n, n), timed, nrhs=k, **more)
                for preference, limit in zip(PREFERENCES, (1.05, 3.0), strict=True):
                    with session.check(
                        "lu_solve against stock",
                        case="B101",
                        dtype=dtype,
                        batch=batch,
                        n=n,
                        nrhs=k,
                        preference=preference,
                    ) as check:
                        stock = statistics.median(samples["stock"])
                        pairs = zip(samples[preference], samples["stock"], strict=False)
                        ratio = statistics.median(ours / other for ours, other in pairs)
                        # Calls of some 50 microseconds vary by as much as 3 of them.
                        check.value = round(ratio, 3)
                        check.ok = ratio <= limit + 0.003 / stock
    common.disable()
