"""The thresholds as data, and the rule that LinalgChoice.h makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aten_overrides._select import Facts, Problem

NEVER = 2**63 - 1


@dataclass(frozen=True)
class Crossover:
    """Square n x n: stock in [stock_from, stock_below), else cuBLAS below cusolver_from."""

    cusolver_from: int = NEVER
    stock_from: int = NEVER
    stock_below: int = NEVER

    def has_stock(self) -> bool:
        """Whether stock is chosen for any n."""
        return self.stock_from != NEVER


@dataclass(frozen=True)
class SquareRow:
    """Crossovers from ``batch`` up to the next row's batch: with one stream, with lanes."""

    batch: int
    loop: Crossover
    lanes: Crossover


@dataclass(frozen=True)
class Rectangular:
    """Batches from which stock is chosen for m != n: m below Thresholds.tall_from, and the rest."""

    wide: int
    tall: int


@dataclass(frozen=True)
class DtypeRows:
    """Everything for one dtype. ``from_leap``: the pivoted rows for n >= Thresholds.leap.

    Where that is empty, cuBLAS's time makes no leap and ``pivoted`` holds for all n.
    """

    pivoted: tuple[SquareRow, ...]
    unpivoted: tuple[SquareRow, ...]
    loop: Rectangular
    lanes: Rectangular
    from_leap: tuple[SquareRow, ...] = ()


@dataclass(frozen=True)
class Thresholds:
    """Everything for one operation. ``lanes``: streams behind the entries of that name.

    ``rectangular_from``: the smallest min(m, n) for which the rectangular entries were measured.
    """

    lanes: int
    rectangular_from: int
    tall_from: int
    leap: int
    dtypes: Mapping[str, DtypeRows]


def choose(thresholds: Thresholds, dtype: str, problem: Problem, facts: Facts) -> str:
    """What choose_lu_factor takes with the default preference.

    The fit needs the rule for rows that no header holds yet; a test compares it with the C++ one.
    """
    rows = thresholds.dtypes[dtype]
    stream = facts.lanes >= 2 and problem.batch >= 2
    lanes = stream and facts.lanes >= min(problem.batch, thresholds.lanes)
    cusolver = "streamed_cusolver" if stream else "looped_cusolver"
    stock = facts.stock and not facts.capturing
    if problem.m != problem.n:
        if min(problem.m, problem.n) < thresholds.rectangular_from:
            return "stock" if stock else cusolver
        row = rows.lanes if lanes else rows.loop
        stock_from = row.tall if problem.m >= thresholds.tall_from else row.wide
        return "stock" if stock and problem.batch >= stock_from else cusolver
    square = rows.pivoted if problem.pivot else rows.unpivoted
    if problem.pivot and problem.n >= thresholds.leap and rows.from_leap:
        square = rows.from_leap
    holding = square[0]
    for entry in square:
        if entry.batch <= problem.batch:
            holding = entry
    crossover = holding.lanes if lanes else holding.loop
    if stock and crossover.stock_from <= problem.n < crossover.stock_below:
        return "stock"
    return "batched_cublas" if problem.n < crossover.cusolver_from else cusolver
