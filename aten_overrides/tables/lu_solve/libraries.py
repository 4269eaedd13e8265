"""Fit ATen's choice of lu_solve, among the libraries' routines alone, to a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from aten_overrides._errors import UserError
from aten_overrides._names import DTYPES
from aten_overrides.tables.lu_solve.table import Point, SolveTable

NEVER = 2**63 - 1
CUBLAS, LOOP, STREAMED = "batched_cublas", "looped_cusolver", "streamed_cusolver"
TRIANGULAR, STOCK = "triangular_cublas", "stock"

# Classes of right-hand sides: where each begins (halfway to the sizes measured in it, in
# logarithms), and MANY: at least 8 sqrt(n) of them for more than 64 rows.
SIDES_FROM = (1, 2, 3, 5, 23)
MANY = NEVER
# With more right-hand sides than that and fewer than WIDE_ROWS_FROM rows, only n right-hand sides
# were measured: a rule holds there, PyTorch's but for many matrices.
WIDE_ROWS_FROM = 46
WIDE_BATCH_FROM = 256
# PyTorch's triangular solve of more matrices with more rows is MAGMA's, where there is MAGMA.
MAGMA_ROWS, MAGMA_BATCH = 512, 8
LOOPED_BATCH = 8  # the most matrices for which loops were timed
LANES = 4  # streams behind every time of STREAMED: CUDASolverLanes.h's default
WORSE = 1.05  # by how much a route may be behind today's at a measured problem: noise
_PENALTY = 30.0  # of being further behind, in logarithms of time


class Today(Enum):
    """What PyTorch's rule takes: a routine, or two triangular solves by cuBLAS or MAGMA."""

    CUBLAS = CUBLAS
    LOOP = LOOP
    TRIANGULAR = TRIANGULAR
    MAGMA = STOCK


def today(point: Point) -> Today:
    """PyTorch's rule since 1.11 without a preference, for at most 256 columns of 8 rows."""
    n, nrhs, few = point.n, point.nrhs, point.batch <= 2
    if n == nrhs:
        cublas, loop = n <= 16, False
    elif n <= 8:
        cublas, loop = True, False
    elif n <= 64:
        loop = few and (n <= 32 or nrhs <= 64 or point.transposed)
        cublas = nrhs <= 8
    else:
        loop = n <= 128 and nrhs <= 2 and few
        cublas = n <= 128 and nrhs <= 2
    if loop:
        return Today.LOOP
    if cublas:
        return Today.CUBLAS
    return Today.MAGMA if n > MAGMA_ROWS and point.batch > MAGMA_BATCH else Today.TRIANGULAR


@dataclass(frozen=True)
class Crossover:
    """cuBLAS below ``cusolver_from``, cuSOLVER below ``triangular_from``, else two triangular
    solves.
    """

    cusolver_from: int
    triangular_from: int


@dataclass(frozen=True)
class Row:
    """Holds from this batch and number of right-hand sides up to those of the next row.

    ``plain`` and ``transposed``: by a loop on the current stream, and on auxiliary streams.
    """

    batch: int
    nrhs: int
    plain: tuple[Crossover, Crossover]
    transposed: tuple[Crossover, Crossover]


@dataclass(frozen=True)
class Costs:
    """Milliseconds of one problem by the routes that ATen has; those not known are absent."""

    point: Point
    ms: Mapping[str, float]

    def cusolver(self, lanes: bool) -> float | None:
        """On auxiliary streams, or in a loop on one."""
        if lanes and STREAMED in self.ms:
            return min(self.ms[STREAMED], self.ms.get(LOOP, math.inf))
        return self.ms.get(LOOP)

    def triangular(self, magma: bool) -> float | None:
        """By cuBLAS, or by what PyTorch's triangular solve takes where there is MAGMA."""
        return self.ms[STOCK] if magma and STOCK in self.ms else self.ms.get(TRIANGULAR)

    def best(self, lanes: bool, magma: bool) -> float:
        """Of the routes that a build or call has."""
        known = (self.ms.get(CUBLAS), self.cusolver(lanes), self.triangular(magma))
        return min(ms for ms in known if ms is not None)


def _exchange_bound(point: Point, known: Sequence[tuple[Point, float]]) -> float:
    """At most what row exchanges by ATen's operations take more than those by our kernel: as at
    the nearest smaller problem where both were measured, in proportion to the entries.
    """
    smaller = [
        (other.n * other.nrhs * other.batch, other.n, ms)
        for other, ms in known
        if other.batch == point.batch and other.nrhs <= point.nrhs and other.n <= point.n
    ]
    entries, _, ms = max(smaller)
    return max(0.0, ms) * point.n * point.nrhs * point.batch / entries


def costs_of(table: SolveTable) -> list[Costs]:
    """What ATen's routes take at the table's problems; UserError where a dtype has none.

    The table's ``stock`` is PyTorch's own lu_solve: where its rule takes two triangular solves by
    cuBLAS, that is their time; the table's ``triangular_cublas`` exchanges rows by our kernel,
    which ATen's does not have. A loop over several matrices was timed where it is PyTorch's rule;
    elsewhere it is taken to be as many times that of one.
    """
    single = {
        (p.dtype, p.transposed, p.n, p.nrhs): p.ms[LOOP]
        for p in table.points
        if p.batch == 1 and LOOP in p.ms
    }
    exchanges: dict[str, list[tuple[Point, float]]] = {dtype: [] for dtype in DTYPES}
    for p in table.points:
        if today(p) is Today.TRIANGULAR and {STOCK, TRIANGULAR} <= p.ms.keys():
            exchanges[p.dtype].append((p, p.ms[STOCK] - p.ms[TRIANGULAR]))
    found = []
    for p in table.points:
        if STOCK not in p.ms:
            continue
        rule, stock = today(p), p.ms[STOCK]
        ms = {name: p.ms[name] for name in (CUBLAS, STREAMED) if name in p.ms}
        one = single.get((p.dtype, p.transposed, p.n, p.nrhs))
        if one is not None:
            ms[LOOP] = one * p.batch
        if rule is Today.CUBLAS:  # timed twice
            ms[CUBLAS] = min(stock, ms.get(CUBLAS, math.inf))
        elif rule is Today.LOOP:
            ms[LOOP] = stock if p.batch > 1 else min(stock, ms.get(LOOP, math.inf))
        elif rule is Today.TRIANGULAR:
            ms[TRIANGULAR] = stock
        else:
            ms[STOCK] = stock
            ms[TRIANGULAR] = p.ms[TRIANGULAR] + _exchange_bound(p, exchanges[p.dtype])
        found.append(Costs(p, ms))
    missing = set(DTYPES) - {one.point.dtype for one in found}
    if missing:
        raise UserError(
            f"{table.path} has no problem of {', '.join(sorted(missing))} with PyTorch's own time: "
            "all four dtypes are needed"
        )
    return found


def sides_class(n: int, nrhs: int) -> int:
    """Where the class of so many right-hand sides begins, or MANY."""
    if n > 64 and nrhs * nrhs >= 64 * n:
        return MANY
    return max(start for start in SIDES_FROM if start <= nrhs)


def is_wide(n: int, nrhs: int) -> bool:
    """Whether the rule for many right-hand sides of few rows holds, and no row."""
    return n < WIDE_ROWS_FROM and nrhs >= SIDES_FROM[-1]


def _begin(low: int, high: int) -> int:
    """The first size that is as near to ``high`` as to ``low``, in logarithms."""
    return math.isqrt(low * high - 1) + 1


def batches_from(batches: Iterable[int]) -> dict[int, int]:
    """Where the rows of each measured batch begin."""
    ascending = sorted(set(batches))
    pairs = itertools.pairwise(ascending)
    return {ascending[0]: 1} | {high: _begin(low, high) for low, high in pairs}


def _time(costs: Costs, segment: int, lanes: bool) -> float | None:
    if segment == 0:
        return costs.ms.get(CUBLAS)
    return costs.cusolver(lanes) if segment == 1 else costs.triangular(magma=True)


def _loss(costs: Costs, segment: int, lanes: bool) -> float:
    """The logarithm of the regret, and a penalty for being behind today's route; large where
    the route was not measured.
    """
    taken = _time(costs, segment, lanes)
    if taken is None:
        return 1e3
    behind = taken / before(costs, lanes=False, preferred=False)
    regret = math.log(taken / costs.best(lanes, magma=True))
    return regret + (_PENALTY * math.log(behind) if behind > WORSE else 0.0)


def before(costs: Costs, lanes: bool, preferred: bool) -> float:
    """What PyTorch's rule takes, without a preference or with ``cusolver``."""
    point = costs.point
    if not preferred:
        return costs.ms[today(point).value]
    if point.batch <= 2 and point.n >= 64:
        return costs.ms.get(LOOP, math.inf)
    return costs.ms.get(CUBLAS, math.inf)


def _crossing(
    below: Sequence[Costs], above: Sequence[Costs], old: int, new: int, lanes: bool
) -> int:
    """The first n at which the route of ``new`` is ahead of that of ``old``."""
    low, high = below[0].point.n, above[0].point.n

    def lead(group: Sequence[Costs]) -> float | None:
        times = [(_time(c, old, lanes), _time(c, new, lanes)) for c in group]
        known = [math.log(n / o) for o, n in times if o is not None and n is not None]
        return sum(known) / len(known) if len(known) == len(times) else None

    first, last = lead(below), lead(above)
    if first is None or last is None:
        return min(high, max(low + 1, _begin(low, high)))
    if first <= 0 or last >= 0:
        return high if last >= 0 else low + 1
    share = first / (first - last)
    found = math.exp(math.log(low) * (1 - share) + math.log(high) * share)
    return min(high, max(low + 1, math.ceil(round(found, 6))))


def crossover(group: Iterable[Costs], lanes: bool) -> Crossover:
    """The two sizes that lose least over problems of one batch and class of right-hand sides."""
    by_n: dict[int, list[Costs]] = {}
    for costs in group:
        by_n.setdefault(costs.point.n, []).append(costs)
    rows = [by_n[n] for n in sorted(by_n)]
    loss = [[sum(_loss(c, s, lanes) for c in row) for s in range(3)] for row in rows]
    count = len(rows)
    options = []
    for i in range(count + 1):
        for j in range(i, count + 1):
            total = sum(row[0] for row in loss[:i]) + sum(row[1] for row in loss[i:j])
            options.append((total + sum(row[2] for row in loss[j:]), j - i, i, j))
    _, _, i, j = min(options)

    def cut(at: int, old: int, new: int) -> int:
        if at == 0:
            return 0
        return NEVER if at == count else _crossing(rows[at - 1], rows[at], old, new, lanes)

    if i == j:
        both = cut(i, 0, 2)
        return Crossover(both, both)
    return Crossover(cut(i, 0, 1), cut(j, 1, 2))


def _measured(costs: Sequence[Costs], batch: int, sides: int) -> Iterator[Costs]:
    """The problems of a batch and class. Where a batch for which loops are out of the question was
    measured up to fewer rows only, those of the nearest smaller one such beyond.
    """
    batches = {c.point.batch for c in costs if LOOPED_BATCH < c.point.batch < batch}
    most = 0
    for measured in (batch, *sorted(batches, reverse=True)):
        own = [
            c
            for c in costs
            if c.point.batch == measured
            and c.point.n > most
            and sides_class(c.point.n, c.point.nrhs) == sides
            and not is_wide(c.point.n, c.point.nrhs)
        ]
        yield from own
        most = max([most, *(c.point.n for c in own)])


def _group(costs: Sequence[Costs], batch: int, sides: int) -> list[Costs]:
    """The problems of a row; below the fewest rows of its class, those of the next ones."""
    found = list(_measured(costs, batch, sides))
    for more in SIDES_FROM[:-1]:
        if found and sides < more:
            least = min(c.point.n for c in found)
            found += [c for c in _measured(costs, batch, more) if c.point.n < least]
    return found


def rows_of(costs: Sequence[Costs]) -> tuple[Row, ...]:
    """The rows of one dtype. What was measured in one direction alone serves both."""
    begins = batches_from(c.point.batch for c in costs)
    rows: list[Row] = []
    for batch, begin in begins.items():
        made: list[Row] = []
        for sides in (*SIDES_FROM, MANY):
            group = _group(costs, batch, sides)
            if not group:
                continue
            pair = []
            for transposed in (False, True):
                own = [c for c in group if c.point.transposed == transposed]
                sizes = {c.point.n for c in own}
                own += [c for c in group if c.point.n not in sizes]
                pair.append((crossover(own, lanes=False), crossover(own, lanes=True)))
            row = Row(begin, sides, pair[0], pair[1])
            same = made and (made[-1].plain, made[-1].transposed) == (row.plain, row.transposed)
            if not same:
                made.append(row)
        rows += made
    return tuple(rows)


def fit(costs: Sequence[Costs]) -> dict[str, tuple[Row, ...]]:
    """The rows of every dtype."""
    return {dtype: rows_of([c for c in costs if c.point.dtype == dtype]) for dtype in DTYPES}


def row_of(rows: Sequence[Row], batch: int, n: int, nrhs: int) -> Row:
    """The row that LUSolveChoice.h takes."""
    begin = max(row.batch for row in rows if row.batch <= batch)
    own = [row for row in rows if row.batch == begin]
    sides = sides_class(n, nrhs)
    return next((row for row in reversed(own) if row.nrhs <= sides), own[0])


def choose(rows: Sequence[Row], point: Point, lanes: bool) -> int:
    """The segment, 0 to 2, by the rows."""
    if is_wide(point.n, point.nrhs):
        many = point.batch >= WIDE_BATCH_FROM and point.nrhs < WIDE_ROWS_FROM
        return 0 if point.n <= 8 or many else 2
    row = row_of(rows, point.batch, point.n, point.nrhs)
    found = (row.transposed if point.transposed else row.plain)[lanes and point.batch > 1]
    if point.n < found.cusolver_from:
        return 0
    return 1 if point.n < found.triangular_from else 2


def taken(rows: Sequence[Row], costs: Costs, lanes: bool, magma: bool) -> float | None:
    """Milliseconds by the rows; None where that route was not measured."""
    segment = choose(rows, costs.point, lanes)
    return costs.triangular(magma) if segment == 2 else _time(costs, segment, lanes)
