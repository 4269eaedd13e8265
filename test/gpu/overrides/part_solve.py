"""lu_solve: every route against stock over right-hand sides, for a table of its own."""

from __future__ import annotations

from functools import partial

import common

from aotools.gputest.session import Session

ROUTES = ("stock", "triangular_cublas", "batched_cublas", "looped_cusolver")
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


def run(session: Session) -> None:
    """Times lu_solve for 1, 8, 64 and n right-hand sides, and the choice under two preferences."""
    torch = session.torch
    library = common.enable()
    for dtype in session.options.get("dtypes", ["float32", "complex128"]):
        for batch, n in SHAPES:
            a = common.matrices(torch, dtype, batch, n, n)
            lu, pivots, _ = torch.linalg.lu_factor_ex(a)
            for k in sorted({1, 8, 64, n}):
                b = common.matrices(torch, dtype, batch, n, k)
                times: dict[str, float] = {}
                for route in ROUTES:
                    if route == "looped_cusolver" and batch > 64:
                        continue
                    with common.forced(library, route, "lu_solve"):
                        best = min(times.values(), default=None)
                        timing = common.quick(
                            session, partial(torch.linalg.lu_solve, lu, pivots, b), best
                        )
                    times[route] = timing.ms
                    session.point("lu_solve", dtype, (batch, n, n), timing, nrhs=k, backend=route)
                for preference in ("default", "cusolver"):
                    torch.backends.cuda.preferred_linalg_library(preference)
                    timing = common.quick(session, partial(torch.linalg.lu_solve, lu, pivots, b))
                    session.point(
                        "lu_solve", dtype, (batch, n, n), timing, nrhs=k, preference=preference
                    )
                    with session.check(
                        "lu_solve", dtype=dtype, batch=batch, n=n, nrhs=k, preference=preference
                    ) as check:
                        ratio = timing.ms / times["stock"]
                        check.value, check.ok = (
                            round(ratio, 3),
                            ratio <= 1.05 or preference != "default",
                        )
                        if preference == "cusolver":
                            check.ok = ratio <= 3
                torch.backends.cuda.preferred_linalg_library("default")
