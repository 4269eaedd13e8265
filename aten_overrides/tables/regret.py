"""How far a choice is from the best back end, over the points of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aten_overrides._names import BACKENDS
from aten_overrides._select import Basis, Facts, Native, Problem
from aten_overrides._select import Table as Costs
from aten_overrides.tables.table import CostTable, Point

OP = "lu_factor"
NATIVE_BELOW = 2**31 - 1  # sizes that our kernels take


@dataclass(frozen=True)
class Regret:
    """Time taken / best time over ``count`` points: geometric mean, worst, and where that is."""

    count: int
    mean: float
    worst: float
    worst_at: Point | None


def available_sets(lanes: int) -> dict[str, Facts]:
    """The four sets of back ends that a build or a call may have."""
    return {
        "streams, MAGMA": Facts(lanes=lanes, stock=True),
        "streams": Facts(lanes=lanes, stock=False),
        "MAGMA": Facts(lanes=0, stock=True),
        "neither": Facts(lanes=0, stock=False),
    }


def feasible(problem: Problem, facts: Facts) -> tuple[str, ...]:
    """Back ends that can take an LU factorization; as in Choice.h, which a test compares."""
    can = {
        "batched_cublas": problem.m == problem.n,
        "looped_cusolver": True,
        "streamed_cusolver": facts.lanes >= 2 and problem.batch >= 2,
        "stock": facts.stock and not facts.capturing,
        "batched_native": facts.native == Native.USABLE
        and max(problem.batch, problem.m, problem.n) < NATIVE_BELOW,
    }
    return tuple(name for name in BACKENDS if can[name])


def of_point(point: Point, costs: Costs, facts: Facts, chosen: str) -> float:
    """Time of ``chosen`` / time of the best feasible back end.

    Where one was not measured its predicted time counts; an extrapolated one only for ``chosen``.
    Infinite if nothing tells the time of ``chosen``.
    """
    times = {}
    for backend in feasible(point.problem, facts):
        ms = point.ms.get(backend)
        if ms is None:
            ms, basis = costs.predict(OP, point.dtype, backend, point.problem)
            if basis == Basis.EXTRAPOLATED and backend != chosen:
                continue
        if ms is not None:
            times[backend] = ms
    return times[chosen] / min(times.values()) if chosen in times else math.inf


def over(
    points: Sequence[Point],
    costs: Costs,
    facts: Facts,
    choose: Callable[[str, Problem, Facts], str],
) -> Regret:
    """Regret of a choice over points, with the times of the whole table behind ``costs``."""
    logs = [math.log(of_point(p, costs, facts, choose(p.dtype, p.problem, facts))) for p in points]
    if not logs:
        return Regret(0, 1.0, 1.0, None)
    worst = max(logs)
    return Regret(
        len(logs), math.exp(math.fsum(logs) / len(logs)), math.exp(worst), points[logs.index(worst)]
    )


def every_fifth(table: CostTable, fold: int) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
    """(kept, left out): every fifth point in the file's order, beginning with ``fold``."""
    kept = tuple(p for i, p in enumerate(table.points) if i % 5 != fold)
    return kept, table.points[fold::5]
