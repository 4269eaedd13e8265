"""Fit the thresholds of LU factorization to a cost table.

For square problems a row holds for a range of batches and has, for one stream and for lanes, the n
from which cuSOLVER is faster than cuBLAS and the interval of n in which stock is faster than both.
All cuts between measured n are tried. A cut costs the sum of log(time taken / best time) over the
table's completed grid, with a steep extra cost above STEEP_FROM; the ranges of batches are the
cheapest partition of the grid's batches at a price per row, so rows that do not pay are merged.
A cut is then placed where the interpolated times cross. Rows that would begin above the largest
measured batch are dropped: what was extrapolated weighs in the last row, but makes none. Sizes on
two sides of a leap of cuBLAS's time are fitted apart, so that no cut is placed across it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from aten_overrides._names import DTYPES
from aten_overrides._select import Basis, Library, Problem
from aten_overrides._select import Table as Costs
from aten_overrides.tables.rows import (
    NEVER,
    Crossover,
    DtypeRows,
    Rectangular,
    SquareRow,
    Thresholds,
)
from aten_overrides.tables.table import CostTable, Point

OP = "lu_factor"
CUBLAS, LOOPED, STREAMED, STOCK = (
    "batched_cublas",
    "looped_cusolver",
    "streamed_cusolver",
    "stock",
)
PRICE_OF_ROW = 0.5  # in units of the summed log regret
PRICE_OF_STOCK = 0.10  # of an interval, so that none is made for a tie
STEEP_FROM = math.log(1.06)
STEEP = 50.0
# Problems of the grid that were not measured at all, by how well the table can tell.
WEIGHT_INTERPOLATED = 0.5
WEIGHT_EXTRAPOLATED = 0.05
WIDEST_BATCH, WIDEST_SIZE = 2.0, 1.5  # ratios of neighbours in the grid
LARGE = 1024  # fitted up to this batch, also where fewer were measured
# Stock has to win by a margin, since its times scatter most from size to size; and so has what was
# not measured.
MARGIN_STOCK = math.log(1.03)
MARGIN_EXTRAPOLATED = math.log(1.25)
TALL_FROM = 724  # between the measured 512 and 1024 rows, where stock's time leaps
# cuBLAS's getrfBatched with pivoting is 1.4-2.5 times faster at n = 512 than at 511 in float64, at
# all batches, so there its crossing with cuSOLVER can lie on both sides. Of the others only
# complex128 comes to 1.3-1.4 times, at batches where cuSOLVER is far behind: no second table pays.
LEAP = 512
LEAPING = ("float64",)  # as LinalgChoice.h has it


@dataclass(frozen=True)
class Grid:
    """Log times by back end over (batch, n) of square problems, and the weight of each cell."""

    batches: tuple[int, ...]
    sizes: tuple[int, ...]
    log_ms: dict[str, dict[tuple[int, int], float]]
    weight: dict[tuple[int, int], float]


def expected_log_ms(
    costs: Costs, dtype: str, backend: str, problem: Problem
) -> tuple[float, bool] | None:
    """Log time to reckon with, margins included, and whether it is firm; None if nothing tells."""
    ms, basis = costs.predict(OP, dtype, backend, problem)
    if ms is None:
        return None
    firm = basis < Basis.EXTRAPOLATED
    margin = (0.0 if firm else MARGIN_EXTRAPOLATED) + (MARGIN_STOCK if backend == STOCK else 0.0)
    return math.log(ms) + margin, firm


def refined(values: set[int], widest: float) -> tuple[int, ...]:
    """The values, and geometric means between them until no ratio of neighbours is above widest."""
    axis = sorted(values)
    while True:
        between = {
            math.isqrt(low * high)
            for low, high in itertools.pairwise(axis)
            if high > widest * low and math.isqrt(low * high) > low
        }
        if not between:
            return tuple(axis)
        axis = sorted({*axis, *between})


def square_grid(
    points: Sequence[Point], costs: Costs, dtype: str, pivot: bool, within: range = range(1, NEVER)
) -> Grid:
    """The completed grid of a dtype for n within a range, with the batches of all n.

    Cells that no back end can tell are not in it.
    """
    problems = [p.problem for p in points if p.problem.m == p.problem.n]
    measured = {(p.batch, p.n) for p in problems if p.pivot == pivot}
    batches = refined({1, 2, LARGE} | {batch for batch, _ in measured}, WIDEST_BATCH)
    sizes = refined({n for _, n in measured if n in within}, WIDEST_SIZE)
    largest = max(batch for batch, _ in measured)
    log_ms: dict[str, dict[tuple[int, int], float]] = {}
    weight = dict.fromkeys(itertools.product(batches, sizes), WEIGHT_EXTRAPOLATED)
    for backend in (CUBLAS, LOOPED, STREAMED, STOCK):
        cells = log_ms[backend] = {}
        for batch, n in itertools.product(batches, sizes):
            if backend == STREAMED and batch < 2:
                continue
            told = expected_log_ms(costs, dtype, backend, Problem(batch, n, n, pivot))
            if told is not None:
                cells[batch, n], firm = told
                if firm or batch > largest:
                    weight[batch, n] = WEIGHT_INTERPOLATED
    weight.update({(batch, n): 1.0 for batch, n in measured if n in within})
    return Grid(batches, sizes, log_ms, weight)


def _steep(regret: float) -> float:
    return regret + STEEP * max(regret - STEEP_FROM, 0.0)


def _between(low: int, high: int, where: float) -> float:
    return low * math.pow(high / low, where)


class _Group:
    """Sums over some batches of a grid, per n."""

    def __init__(self, grid: Grid, batches: Sequence[int], cusolver: str, stock: bool) -> None:
        self.grid = grid
        self.batches = batches
        self.cusolver = cusolver
        backends = (CUBLAS, cusolver, STOCK) if stock else (CUBLAS, cusolver)
        self.costs = {b: [self._cost(b, n, backends) for n in grid.sizes] for b in backends}

    def _cost(self, backend: str, n: int, backends: Sequence[str]) -> float:
        total = 0.0
        for batch in self.batches:
            cell = (batch, n)
            times = {b: self.grid.log_ms[b][cell] for b in backends if cell in self.grid.log_ms[b]}
            if not times:
                continue
            if backend not in times:
                return math.inf
            regret = times[backend] - min(times.values())
            weight = self.grid.weight[cell]
            total += weight * (regret if weight == WEIGHT_EXTRAPOLATED else _steep(regret))
        return total

    def crossing(self, cut: int, before: str, after: str) -> int:
        """The n between sizes[cut - 1] and sizes[cut] from which ``after`` is faster."""
        low, high = self.grid.sizes[cut - 1], self.grid.sizes[cut]
        gain_low, gain_high = (self._mean_gain(n, before, after) for n in (low, high))
        where = 0.5
        if gain_low is not None and gain_high is not None and gain_low < 0 < gain_high:
            where = -gain_low / (gain_high - gain_low)
        return min(max(round(_between(low, high, where)), low + 1), high)

    def _mean_gain(self, n: int, before: str, after: str) -> float | None:
        first, second = self.grid.log_ms[before], self.grid.log_ms[after]
        gains = [
            first[batch, n] - second[batch, n]
            for batch in self.batches
            if (batch, n) in first and (batch, n) in second
        ]
        return sum(gains) / len(gains) if gains else None


def _prefix(costs: Sequence[float]) -> list[float]:
    return [0.0, *itertools.accumulate(costs)]


def _cheapest(options: Sequence[tuple[float, tuple[int, ...]]]) -> tuple[float, tuple[int, ...]]:
    # The first of equals, whatever rounding says: results must not depend on the machine.
    best = options[0]
    for option in options[1:]:
        if option[0] < best[0] - 1e-9:
            best = option
    return best


def fit_crossover(grid: Grid, batches: Sequence[int], lanes: bool) -> tuple[float, Crossover]:
    """The best crossover for some batches of a grid, and its cost."""
    cusolver = STREAMED if lanes else LOOPED
    count = len(grid.sizes)
    family = _Group(grid, batches, cusolver, stock=False)
    below, above = _prefix(family.costs[CUBLAS]), _prefix(family.costs[cusolver])
    cost, (cut,) = _cheapest(
        [(below[i] + (above[count] - above[i]), (i,)) for i in range(count + 1)]
    )

    def place(group: _Group, cut: int, before: str, after: str) -> int:
        return 0 if cut == 0 else NEVER if cut == count else group.crossing(cut, before, after)

    cusolver_from = place(family, cut, CUBLAS, cusolver)
    group = _Group(grid, batches, cusolver, stock=True)
    names = [CUBLAS if i < cut else cusolver for i in range(count)]
    rest = _prefix([group.costs[name][i] for i, name in enumerate(names)])
    stock = _prefix(group.costs[STOCK])
    intervals = [(rest[count], (0, 0))]
    for low, high in itertools.combinations(range(count + 1), 2):
        inside = stock[high] - stock[low]
        if math.isfinite(inside):
            outside = rest[low] + rest[count] - rest[high]
            intervals.append((outside + inside + PRICE_OF_STOCK, (low, high)))
    cost_with_stock, (low, high) = _cheapest(intervals)
    if low == high:
        return cost + cost_with_stock, Crossover(cusolver_from)
    return cost + cost_with_stock, Crossover(
        cusolver_from,
        0 if low == 0 else group.crossing(low, names[low - 1], STOCK),
        NEVER if high == count else group.crossing(high, STOCK, names[high]),
    )


def fit_square(grid: Grid) -> tuple[SquareRow, ...]:
    """The cheapest partition of the grid's batches into rows, each with its crossovers."""
    batches = grid.batches
    fitted: dict[tuple[int, int], tuple[float, Crossover, Crossover]] = {}
    for start, stop in itertools.combinations(range(len(batches) + 1), 2):
        members = batches[start:stop]
        if members[0] < 2 and len(members) > 1:
            continue  # one matrix cannot be streamed: a row of its own
        cost, loop = fit_crossover(grid, members, lanes=False)
        cost_lanes, lanes = (cost, loop)
        if members[0] >= 2:
            cost_lanes, lanes = fit_crossover(grid, members, lanes=True)
        fitted[start, stop] = (cost + cost_lanes + PRICE_OF_ROW, loop, lanes)
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for stop in range(1, len(batches) + 1):
        options = [
            (best[start][0] + fitted[start, stop][0], (*best[start][1], start))
            for start in range(stop)
            if (start, stop) in fitted and math.isfinite(best[start][0])
        ]
        best.append(_cheapest(options) if options else (math.inf, ()))
    starts = best[-1][1]
    rows = []
    for start, stop in zip(starts, (*starts[1:], len(batches)), strict=True):
        # Half-way between the measured batches, in logarithms.
        first = 1 if start == 0 else math.isqrt(batches[start - 1] * batches[start]) + 1
        rows.append(SquareRow(first, *fitted[start, stop][1:]))
    return tuple(rows)


def fit_pivoted(
    points: Sequence[Point], costs: Costs, dtype: str
) -> tuple[tuple[SquareRow, ...], tuple[SquareRow, ...]]:
    """Rows with pivoting: for all n and none, or of a leaping dtype below the leap and from there.

    Where nothing was measured on one side, the other side's rows serve for both.
    """
    if dtype not in LEAPING:
        return fit_square(square_grid(points, costs, dtype, pivot=True)), ()
    grids = [
        square_grid(points, costs, dtype, pivot=True, within=side)
        for side in (range(1, LEAP), range(LEAP, NEVER))
    ]
    below, above = (fit_square(grid) if grid.sizes else () for grid in grids)
    return below or above, above or below


def up_to_measured(
    rows: tuple[SquareRow, ...], points: Sequence[Point], *, pivot: bool
) -> tuple[SquareRow, ...]:
    """The rows that begin no higher than a batch measured for their kind; the last one holds on."""
    problems = [p.problem for p in points]
    largest = max(p.batch for p in problems if p.m == p.n and p.pivot == pivot)
    return tuple(row for row in rows if row.batch <= largest)


def fit_rectangular(
    points: Sequence[Point], costs: Costs, dtype: str, *, tall: bool, lanes: bool
) -> int:
    """The batch from which stock is faster than cuSOLVER for m != n, m on one side of TALL_FROM."""
    problems = [p.problem for p in points if p.problem.m != p.problem.n and p.problem.pivot]
    shapes = sorted({(p.m, p.n) for p in problems if (p.m >= TALL_FROM) == tall})
    cusolver = STREAMED if lanes else LOOPED

    def mean_gain(batch: int) -> float:
        gains = []
        for m, n in shapes:
            own = expected_log_ms(costs, dtype, cusolver, Problem(batch, m, n))
            stock = expected_log_ms(costs, dtype, STOCK, Problem(batch, m, n))
            if own is not None and stock is not None:
                gains.append(own[0] - stock[0])
        return sum(gains) / len(gains) if gains else -math.inf

    batches = sorted({p.batch for p in problems if p.batch >= 2 or not lanes})
    for low, high in itertools.pairwise(batches):
        gain_low, gain_high = mean_gain(low), mean_gain(high)
        if gain_low < 0 <= gain_high:
            where = -gain_low / (gain_high - gain_low) if math.isfinite(gain_low) else 1.0
            return min(max(math.ceil(_between(low, high, where)), low + 1), high)
    return batches[0] if batches and mean_gain(batches[0]) >= 0 else NEVER


def fit(table: CostTable, library: Library, points: Sequence[Point] | None = None) -> Thresholds:
    """Thresholds fitted to the table, or to some of its points only, for the table's batches."""
    used = tuple(table.points if points is None else points)
    reduced = CostTable(table.path, table.gpu, table.meta, table.lanes, used)
    costs = reduced.costs(library)
    dtypes = {}
    for dtype in DTYPES:
        own, measured = reduced.of(OP, dtype), table.of(OP, dtype)
        rectangular = {
            lanes: Rectangular(
                *(
                    fit_rectangular(own, costs, dtype, tall=tall, lanes=lanes)
                    for tall in (False, True)
                )
            )
            for lanes in (False, True)
        }
        pivoted, from_leap = fit_pivoted(own, costs, dtype)
        unpivoted = fit_square(square_grid(own, costs, dtype, pivot=False))
        dtypes[dtype] = DtypeRows(
            up_to_measured(pivoted, measured, pivot=True),
            up_to_measured(unpivoted, measured, pivot=False),
            rectangular[False],
            rectangular[True],
            up_to_measured(from_leap, measured, pivot=True),
        )
    sides = [min(p.problem.m, p.problem.n) for p in used if p.problem.m != p.problem.n]
    return Thresholds(table.lanes, min(sides, default=NEVER), TALL_FROM, LEAP, dtypes)
