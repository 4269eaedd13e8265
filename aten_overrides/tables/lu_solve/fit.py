"""Fit rankings to a table: for every batch and number of right-hand sides, segments over n."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aten_overrides._names import DTYPES, LU_SOLVE_BACKENDS
from aten_overrides.tables.lu_solve.table import Point, SolveTable

NEVER = 2**63 - 1
STREAMED, LOOP, STOCK = "streamed_cusolver", "looped_cusolver", "stock"
RANKED = tuple(name for name in LU_SOLVE_BACKENDS if name != STREAMED)
AS_MANY_AS_ROWS = 0  # kAsManyAsRows
MOST_SEGMENTS = 8  # kMostSegments
COLUMNS = (1, 2, 3, 8, 64)  # right-hand sides that are rows of their own
STOCK_LEAD = 1.05  # by how much stock has to be ahead: it may synchronise
SEGMENT_COST = 0.03  # of the logarithm of the regret, summed over the points of a row
UNMEASURED = math.log(20.0)  # how far behind the best a back end without a time is taken to be

Times = Mapping[str, float]
Ranking = tuple[str, ...]


@dataclass(frozen=True)
class Segment:
    """A ranking from this n on."""

    from_n: int
    ranking: Ranking


@dataclass(frozen=True)
class Row:
    """Segments measured at one batch and number of right-hand sides."""

    batch: int
    nrhs: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Rows:
    """Of one dtype, with transposition or without."""

    rows: tuple[Row, ...]


def ranked_times(point: Point) -> dict[str, float]:
    """The point's times, streams in place of the loop where they are what was measured."""
    times = {name: point.ms[name] for name in RANKED if name in point.ms}
    if STREAMED in point.ms:
        times[LOOP] = min(point.ms[STREAMED], times.get(LOOP, math.inf))
    return times


def lanes_from(points: Sequence[Point]) -> int:
    """The n from which streams take the place of the loop: the smallest at which they were timed,
    as loops of several matrices were only timed on streams.
    """
    return min((p.n for p in points if STREAMED in p.ms and p.batch >= 2), default=NEVER)


def ranking_of(points: Sequence[Times]) -> Ranking:
    """All back ends, by the product of their times over the points."""

    def cost(name: str) -> float:
        total = len(points) * math.log(STOCK_LEAD) if name == STOCK else 0.0
        for times in points:
            known = math.log(times[name]) if name in times else None
            total += math.log(min(times.values())) + UNMEASURED if known is None else known
        return total

    return tuple(sorted(RANKED, key=lambda name: (cost(name), RANKED.index(name))))


def regret(times: Times, ranking: Ranking) -> float:
    """Time of the ranking's first back end / best time."""
    best = min(times.values())
    return times[ranking[0]] / best if ranking[0] in times else math.exp(UNMEASURED)


def _crossing(low: tuple[int, Times], high: tuple[int, Times], old: str, new: str) -> int:
    """The first n at which ``new`` is ahead of ``old``, between two measured n."""
    (n0, t0), (n1, t1) = low, high
    middle = min(n1, max(n0 + 1, math.ceil(math.sqrt(n0 * n1))))
    if old == new or not ({old, new} <= t0.keys() and {old, new} <= t1.keys()):
        return middle
    lead0, lead1 = math.log(t0[new] / t0[old]), math.log(t1[new] / t1[old])
    if lead0 <= 0 or lead1 >= 0:
        return n1 if lead1 >= 0 else n0 + 1
    share = lead0 / (lead0 - lead1)
    crossing = math.exp(math.log(n0) * (1 - share) + math.log(n1) * share)
    return min(n1, max(n0 + 1, math.ceil(round(crossing, 6))))


def segments(row: Mapping[int, Times]) -> tuple[Segment, ...]:
    """The segments of one row: the fewest that cost little."""
    sizes = sorted(row)
    times = [row[n] for n in sizes]
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)]  # cost, begin of the last one, how many
    for end in range(1, len(sizes) + 1):
        options = []
        for begin in range(end):
            before, _, count = best[begin]
            if count < MOST_SEGMENTS:
                part = times[begin:end]
                ranking = ranking_of(part)
                cost = before + SEGMENT_COST + sum(math.log(regret(t, ranking)) for t in part)
                options.append((cost, begin, count + 1))
        best.append(min(options))
    cuts, end = [], len(sizes)
    while end > 0:
        begin = best[end][1]
        cuts.append((begin, ranking_of(times[begin:end])))
        end = begin
    made: list[Segment] = []
    for begin, ranking in reversed(cuts):
        if not made:
            made.append(Segment(1, ranking))
        elif ranking != made[-1].ranking:
            low, high = sizes[begin - 1], sizes[begin]
            old, new = made[-1].ranking[0], ranking[0]
            made.append(Segment(_crossing((low, row[low]), (high, row[high]), old, new), ranking))
    return tuple(made)


def row_columns(point: Point) -> tuple[int, ...]:
    """The rows that a point belongs to, by their number of right-hand sides."""
    own = (point.nrhs,) if point.nrhs in COLUMNS else ()
    return (*own, AS_MANY_AS_ROWS) if point.nrhs == point.n else own


def rows_of(points: Sequence[Point]) -> Rows:
    """The rows of one dtype, with transposition or without."""
    found: dict[tuple[int, int], dict[int, Times]] = {}
    for point in points:
        times = ranked_times(point)
        for nrhs in row_columns(point) if times else ():
            found.setdefault((point.batch, nrhs), {})[point.n] = times
    keys = sorted(found, key=lambda key: (key[0], key[1] or NEVER))
    return Rows(tuple(Row(batch, nrhs, segments(found[batch, nrhs])) for batch, nrhs in keys))


def fit(table: SolveTable) -> dict[tuple[str, bool], Rows]:
    """The rows of every dtype and transposition. Batches or right-hand sides without points take
    the nearest row in the library; a transposition without any takes the rows of the other one.
    """
    found: dict[tuple[str, bool], Rows] = {}
    for dtype in DTYPES:
        for transposed in (False, True):
            own = table.of(dtype, transposed)
            known = {(point.batch, nrhs) for point in own for nrhs in row_columns(point)}
            more = [  # of rows that were measured in the other direction alone
                point
                for point in table.of(dtype, not transposed)
                if known.isdisjoint((point.batch, nrhs) for nrhs in row_columns(point))
            ]
            found[dtype, transposed] = rows_of([*own, *more])
    return found


def row_of(rows: Rows, batch: int, n: int, nrhs: int) -> Row | None:
    """The row that the library takes: LuSolveChoice.h's row_of."""
    nearest = 0
    for row in rows.rows:
        if nearest == 0 or (row.batch > nearest and batch * batch >= nearest * row.batch):
            nearest = row.batch
    many = nrhs**2 >= 64 * n if n > 64 else 8 * n <= nrhs**2 < 64 * n
    found: Row | None = None
    for row in rows.rows:
        if row.batch == nearest and (
            found is None
            or (row.nrhs == AS_MANY_AS_ROWS and many)
            or (row.nrhs > 0 and nrhs * nrhs >= found.nrhs * row.nrhs)
        ):
            found = row
    return found


def ranking_at(found: Sequence[Segment], n: int) -> Ranking:
    """The ranking that holds at n."""
    return next((s.ranking for s in reversed(found) if s.from_n <= n), found[0].ranking)


def choose(rows: Rows, batch: int, n: int, nrhs: int) -> str | None:
    """The first choice by the rows, the loop standing for streams; None without rows."""
    row = row_of(rows, batch, n, nrhs)
    return None if row is None else ranking_at(row.segments, n)[0]
