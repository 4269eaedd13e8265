"""What lu_solve is to reach: solve_ex and inv_ex beside LU alone and beside stock, no steps from
one size to the next, and no trap under the preference for cuSOLVER.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import common
from part_lu_solve import brief, solve

from aotools.gputest.session import Session

SHAPES = {
    "float32": (
        (1, 64), (1, 256), (1, 512), (1, 1024), (4, 512), (16, 64), (16, 256), (16, 1024),
        (64, 64), (64, 65), (64, 128), (64, 129), (64, 256), (64, 512), (64, 513), (64, 1024),
        (256, 256), (256, 512), (1024, 64), (1024, 65), (1024, 128), (1024, 129), (1024, 256),
        (1024, 512), (2, 128), (3, 128), (8, 128), (9, 128), (2, 300), (3, 300), (8, 300), (9, 300),
    ),
    "float64": ((1, 512), (64, 64), (64, 128), (64, 512), (256, 256), (1024, 128)),
    "complex64": ((64, 128), (64, 512), (256, 256)),
    "complex128": ((64, 128), (64, 512)),
}  # fmt: skip
SOLVE_SHARE, SHARE_FROM_MS, MORE_MS = 1.35, 0.5, 0.06  # of LU alone; below, so much more
INVERSE_SHARE = 3.2  # of LU alone
NOISE = 1.05  # up to which a time is no slower than another
MEAN = 3.0  # times as fast as stock, in the geometric mean
MEAN_SIZES, MEAN_BATCHES = (64, 1024), (16, 1024)
# (batch, n) before and after.
STEPS = {
    "rows": (((64, 64), (64, 65)), ((64, 128), (64, 129)), ((1024, 64), (1024, 65)),
             ((1024, 128), (1024, 129))),
    "batch": (((2, 128), (3, 128)), ((8, 128), (9, 128)), ((2, 300), (3, 300)),
              ((8, 300), (9, 300))),
}  # fmt: skip
MOST_STEP = {"rows": 1.5, "batch": 1.2, "right-hand sides": 1.2}
TRAPS = ((64, 512), (64, 128), (8, 512))  # batch and n, as many right-hand sides as rows
TRAP = 1.2  # of the library routes' best

Key = tuple[str, int, int, str, bool]  # dtype, batch, n, call, ours


def goals(session: Session) -> None:
    """LU alone, solve_ex with 1, 2 and 3 right-hand sides and inv_ex: ours, and stock's default;
    then what follows from the times.
    """
    library = common.enable()
    times: dict[Key, float] = {}
    for dtype, shapes in SHAPES.items():
        for batch, n in shapes:
            by = _times(session, library, dtype, batch, n, times)
            _beside(session, (dtype, batch, n), times, by)
    _means(session, times)
    _steps(session, times)
    traps(session, library)
    common.disable()


def _calls(
    session: Session, dtype: str, batch: int, n: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    linalg = session.torch.linalg
    a = common.matrices(session.torch, dtype, batch, n, n)
    yield "lu_factor_ex", partial(linalg.lu_factor_ex, a)
    for k in (1, 2, 3):
        b = common.matrices(session.torch, dtype, batch, n, k)
        yield f"solve_ex {k}", partial(linalg.solve_ex, a, b)
    yield "inv_ex", partial(linalg.inv_ex, a)


def _times(
    session: Session, library: Any, dtype: str, batch: int, n: int, times: dict[Key, float]
) -> dict[str, str]:
    """Times every call, and returns by which route of lu_solve ours went."""
    by = {}
    for name, call in _calls(session, dtype, batch, n):
        op, _, columns = name.partition(" ")
        for ours in (True, False):
            if not ours and name in ("lu_factor_ex", "solve_ex 2"):
                continue
            common.switch(session.torch, library, ours)
            before = dict(library.counts())
            samples = brief(session, call, None)
            if ours:
                by[name] = _route(library, before)
            times[dtype, batch, n, name, ours] = statistics.median(samples)
            session.point(
                op,
                dtype,
                (batch, n, n),
                common.timing(samples),
                nrhs=int(columns or 0),
                backend="choice" if ours else "stock",
            )
    common.switch(session.torch, library, True)
    return by


def _route(library: Any, before: dict[tuple[str, str], int]) -> str:
    taken = {key: count for key, count in library.counts().items() if count > before.get(key, 0)}
    return ", ".join(sorted(route for op, route in taken if op == "lu_solve"))


def _beside(
    session: Session, problem: tuple[str, int, int], times: dict[Key, float], by: dict[str, str]
) -> None:
    """Three rows of a problem."""
    dtype, batch, n = problem

    def ms(name: str, ours: bool = True) -> float:
        return times[dtype, batch, n, name, ours]

    alone, one, inverse = ms("lu_factor_ex"), ms("solve_ex 1"), ms("inv_ex")
    params = {"dtype": dtype, "batch": batch, "n": n}
    with session.check("goal", what="solve_ex beside LU", **params) as check:
        most = SOLVE_SHARE * alone if alone >= SHARE_FROM_MS else alone + MORE_MS
        check.value = {
            "lu": round(alone, 4),
            "solve/lu": round(one / alone, 3),
            "more us": round(1000 * (one - alone)),
            "stock/ours": round(ms("solve_ex 1", False) / one, 2),
            "by": by.get("solve_ex 1", ""),
        }
        check.ok = one <= most
    with session.check("goal", what="inv_ex beside LU", **params) as check:
        check.value = {
            "lu": round(alone, 4),
            "inv/lu": round(inverse / alone, 3),
            "by": by.get("inv_ex", ""),
        }
        check.ok = inverse <= INVERSE_SHARE * alone
    with session.check("goal", what="inv_ex beside stock", **params) as check:
        check.value = {"stock/ours": round(ms("inv_ex", False) / inverse, 2)}
        check.ok = inverse <= NOISE * ms("inv_ex", False)


def _means(session: Session, times: dict[Key, float]) -> None:
    """Geometric means over stock, float32."""
    for name in ("solve_ex 1", "inv_ex"):
        factors = [
            times[dtype, batch, n, call, False] / ms
            for (dtype, batch, n, call, ours), ms in times.items()
            if ours
            and call == name
            and dtype == "float32"
            and MEAN_SIZES[0] <= n <= MEAN_SIZES[1]
            and MEAN_BATCHES[0] <= batch <= MEAN_BATCHES[1]
        ]
        if not factors:
            continue
        with session.check("goal", what=f"{name.split()[0]}, mean over stock") as check:
            mean = math.exp(math.fsum(map(math.log, factors)) / len(factors))
            check.value = {"mean": round(mean, 2), "least": round(min(factors), 2)}
            check.value["problems"] = len(factors)
            check.ok = mean >= MEAN


def _steps(session: Session, times: dict[Key, float]) -> None:
    """From one size, batch or number of right-hand sides to the next; stock's beside ours."""

    def row(kind: str, before: Key, after: Key) -> None:
        if before not in times or after not in times:
            return
        name = " to ".join(f"{batch} x {n}, {call}" for _, batch, n, call, _ in (before, after))
        with session.check("step", kind=kind, dtype="float32", at=name) as check:
            ratio = times[after] / times[before]
            check.value = {"ours": round(ratio, 3)}
            old, new = (*before[:4], False), (*after[:4], False)
            if old in times and new in times:
                check.value["stock"] = round(times[new] / times[old], 3)
            check.ok = ratio <= MOST_STEP[kind]

    for kind, pairs in STEPS.items():
        for before, after in pairs:
            for call in ("solve_ex 1", "inv_ex"):
                row(kind, ("float32", *before, call, True), ("float32", *after, call, True))
    for dtype, batch, n, call, ours in list(times):
        if dtype == "float32" and call == "solve_ex 2" and ours:
            ends = [(dtype, batch, n, f"solve_ex {k}", True) for k in (2, 3)]
            row("right-hand sides", *ends)


def traps(session: Session, library: Any) -> None:
    """Many right-hand sides under the preference for cuSOLVER: getrsBatched takes up to 13 times
    as long as two triangular solves, so the choice has to be among both.
    """
    torch = session.torch
    for batch, n in TRAPS:
        a = common.matrices(torch, "float32", batch, n, n)
        b = common.matrices(torch, "float32", batch, n, n)
        call = partial(solve, torch, torch.linalg.lu_factor_ex(a)[:2], b, "T")
        with session.check("cusolver, many right-hand sides", batch=batch, n=n, nrhs=n) as check:
            found: dict[str, float] = {}
            for route in ("batched_cublas", "triangular_cublas"):
                with common.forced(library, route, "lu_solve"):
                    found[route] = statistics.median(brief(session, call, None))
            with common.preferring(torch, "cusolver"):
                before = dict(library.counts())
                found["choice"] = statistics.median(brief(session, call, None))
                by = _route(library, before)
                common.switch(torch, library, False)
                found["stock"] = statistics.median(brief(session, call, None))
                common.switch(torch, library, True)
            check.value = {key: round(value, 4) for key, value in found.items()} | {"by": by}
            best = min(found["batched_cublas"], found["triangular_cublas"])
            check.ok = found["choice"] <= TRAP * best and "native" not in by
