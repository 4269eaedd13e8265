"""The choice against every library route on a dense grid around n = 512."""

from __future__ import annotations

import math
from typing import Any

import common

from aotools.gputest.session import Session, Timing

SIZES = (480, 487, 499, 511, 512, 513, 521, 529, 544)
BATCHES = (1, 2, 3, 5, 12, 16, 64, 100, 256, 700, 1024)
BYTE_CAP = 3e9
WORST, MEAN = 1.10, 1.02


def sizes(thinned: bool) -> tuple[int, ...]:
    """All n of the issue's grid, or a few of them."""
    return SIZES if thinned else tuple(range(480, 545))


def times_at(
    session: Session, library: Any, dtype: str, batch: int, m: int, n: int, **more: Any
) -> dict[str, float]:
    """Milliseconds of lu_factor_ex by route; writes a point each."""
    torch = session.torch
    a = common.matrices(torch, dtype, batch, m, n)
    pivot = more.get("pivot", True)
    found: dict[str, Timing] = {}
    for route in common.LU_ROUTES:
        if (route == "batched_cublas" and m != n) or (route == "streamed_cusolver" and batch < 2):
            continue
        with common.forced(library, route):
            best = min((timing.ms for timing in found.values()), default=None)
            timing = common.quick(session, lambda: torch.linalg.lu_factor_ex(a, pivot=pivot), best)
        found[route] = timing
        session.point("lu_factor_ex", dtype, (batch, m, n), timing, backend=route, **more)
    return {route: timing.ms for route, timing in found.items()}


def run(session: Session) -> None:
    """Regret per dtype and preference: the chosen route's time over the best one's."""
    library = common.enable()
    for dtype in common.DTYPES:
        regrets: dict[str, list[tuple[float, tuple[int, int], str, str]]] = {
            "default": [],
            "cusolver": [],
        }
        item = 16 if dtype == "complex128" else 4 if dtype == "float32" else 8
        for batch in BATCHES:
            for n in sizes(bool(session.options.get("thinned", True))):
                if batch * n * n * item > BYTE_CAP:
                    continue
                times = times_at(session, library, dtype, batch, n, n)
                for preference, rows in regrets.items():
                    allowed = {
                        route: ms
                        for route, ms in times.items()
                        if route != "stock" or preference == "default"
                    }
                    choice = library.lu_factor_route(dtype, batch, n, n, preference=preference)
                    best = min(allowed, key=lambda route: allowed[route])
                    rows.append((allowed[choice] / allowed[best], (batch, n), choice, best))
        for preference, rows in regrets.items():
            with session.check(
                "regret", dtype=dtype, preference=preference, points=len(rows)
            ) as check:
                worst = max(rows)
                mean = math.exp(sum(math.log(row[0]) for row in rows) / len(rows))
                over = sum(row[0] > WORST for row in rows)
                check.value = {
                    "worst": round(worst[0], 3),
                    "mean": round(mean, 4),
                    "over 1.10": over,
                }
                check.ok = worst[0] <= WORST and mean <= MEAN
                check.reason = f"worst at batch, n = {worst[1]}: {worst[2]}, best {worst[3]}"
