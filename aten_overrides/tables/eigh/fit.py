"""Fit thresholds to a table: which back end is ahead over n, by rows of batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aten_overrides._names import DTYPES, EIGH_OPS
from aten_overrides.tables.eigh.table import EighTable, Point

NEVER = 2**63 - 1
RANKED = (
    "batched_cusolver",
    "jacobi_batched_cusolver",
    "looped_cusolver",
    "stock",
)
STREAMED = "streamed_cusolver"
LOOP, STOCK, BATCHED, JACOBI = RANKED[2], RANKED[3], RANKED[0], RANKED[1]
MOST_JACOBI_ROWS = 64  # kMostJacobiRows
MOST_MATRICES = 16384  # kMostMatrices: a build's own function may fail beyond
INFEASIBLE = math.inf  # in place of a time
MOST_SEGMENTS = 8  # kMostSegments
STOCK_LEAD = 1.05  # by how much stock has to be ahead
SEGMENT_COST = 0.03  # of the logarithm of the regret, summed over the points of a row
ROW_MEAN, ROW_WORST = 1.02, 1.10  # a row is left out if the one before costs no more
UNMEASURED = math.log(20.0)  # how far behind the best a back end without a time is taken to be

# What a build may have: with XsyevBatched and without.
SETS = (RANKED, RANKED[1:])

Times = Mapping[str, float]
Ranking = tuple[str, ...]


@dataclass(frozen=True)
class Segment:
    """A ranking from this n on."""

    from_n: int
    ranking: Ranking


@dataclass(frozen=True)
class Row:
    """Segments from this batch on."""

    batch: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Rows:
    """Of one operation and dtype. ``lanes_from``: the n from which lanes are used."""

    lanes_from: int
    rows: tuple[Row, ...]


def loop_times(point: Point, lanes_from: int) -> Times:
    """The point's times with streams behind the loop where they are used, and INFEASIBLE."""
    times = {name: point.ms[name] for name in RANKED if name in point.ms}
    if point.n > MOST_JACOBI_ROWS:
        times[JACOBI] = INFEASIBLE
    if point.n >= lanes_from and point.batch >= 2 and STREAMED in point.ms:
        times[LOOP] = point.ms[STREAMED]
    return times


def lanes_from(points: Sequence[Point]) -> int:
    """The n from which streams in place of the loop cost the least over all points."""
    both = [p for p in points if STREAMED in p.ms and LOOP in p.ms and p.batch >= 2]
    gains = dict.fromkeys(sorted({p.n for p in both}), 0.0)
    for point in both:
        gains[point.n] += math.log(point.ms[LOOP] / point.ms[STREAMED])
    best, found, total = 0.0, NEVER, 0.0
    for n in reversed(list(gains)):
        total += gains[n]
        if total > best:
            best, found = total, n
    return found


def ranking_of(points: Sequence[Times]) -> Ranking:
    """All back ends, by the product of their times over the points."""

    def cost(name: str) -> float:
        total = 0.0
        for times in points:
            best = math.log(min(times.values()))
            if name not in times:
                total += best + UNMEASURED
            else:  # an infeasible one is passed over, which costs nothing
                total += best if times[name] == INFEASIBLE else math.log(times[name])
        return total + (len(points) * math.log(STOCK_LEAD) if name == STOCK else 0.0)

    return tuple(sorted(RANKED, key=lambda name: (cost(name), RANKED.index(name))))


def regrets(times: Times, ranking: Ranking) -> list[float]:
    """Time taken / best time, for every set of back ends that a build may have."""
    found = []
    for usable in SETS:
        possible = [name for name in ranking if times.get(name) != INFEASIBLE]
        there = {name: ms for name, ms in times.items() if name in usable and name in possible}
        chosen = next((name for name in possible if name in usable), STOCK)
        if there:
            best = min(there.values())
            found.append(there[chosen] / best if chosen in there else math.exp(UNMEASURED))
    return found


def _cost(points: Sequence[Times], ranking: Ranking) -> float:
    return sum(math.log(regret) for times in points for regret in regrets(times, ranking))


def _crossing(low: tuple[int, Times], high: tuple[int, Times], old: str, new: str) -> int:
    """The first n at which ``new`` is ahead of ``old``, between two measured n."""
    (n0, t0), (n1, t1) = low, high
    if old == JACOBI and t1.get(old) == INFEASIBLE:
        t1 = {name: ms for name, ms in t1.items() if name != old}
    if old == new or not ({old, new} <= t0.keys() and {old, new} <= t1.keys()):
        return min(n1, max(n0 + 1, math.ceil(math.sqrt(n0 * n1))))
    lead0, lead1 = math.log(t0[new] / t0[old]), math.log(t1[new] / t1[old])
    if lead0 <= 0 or lead1 >= 0:
        return n1 if lead1 >= 0 else n0 + 1
    share = lead0 / (lead0 - lead1)
    crossing = math.exp(math.log(n0) * (1 - share) + math.log(n1) * share)
    return min(n1, max(n0 + 1, math.ceil(round(crossing, 6))))


def segments(row: Mapping[int, Times]) -> tuple[Segment, ...]:
    """The segments of one batch: the fewest that cost little."""
    sizes = sorted(row)
    times = [row[n] for n in sizes]
    best: list[tuple[float, int, int]] = [(0.0, 0, 0)]  # cost, begin of the last one, how many
    for end in range(1, len(sizes) + 1):
        options = []
        for begin in range(end):
            part = times[begin:end]
            before, _, count = best[begin]
            if count < MOST_SEGMENTS:
                cost = before + SEGMENT_COST + _cost(part, ranking_of(part))
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


def ranking_at(found: Sequence[Segment], n: int) -> Ranking:
    """The ranking that holds at n."""
    return next(
        (s.ranking for s in reversed(found) if s.from_n <= n),
        found[0].ranking,
    )


def _begin(
    last: tuple[int, Mapping[int, Times]],
    this: tuple[int, Mapping[int, Times]],
    before: Sequence[Segment],
    now: Sequence[Segment],
) -> int:
    """The batch from which the new segments hold: where the interpolated times of the old choices
    and of the new ones meet, the geometric mean over the n where they differ. A time that is
    missing at the larger batch grows with the batch, as that of a loop does.
    """
    (b0, row0), (b1, row1) = last, this
    middle = math.log(b0 * b1) / 2
    crossings = []
    for n in sorted(row0.keys() & row1.keys()):
        old = _first(ranking_at(before, n), row0[n])
        new = _first(ranking_at(now, n), row1[n])
        if old == new or new not in row0[n]:
            continue
        lead0 = math.log(row0[n][new] / row0[n][old])
        later = row1[n].get(old, row0[n][old] * b1 / b0)
        lead1 = math.log(row1[n][new] / later)
        share = lead0 / (lead0 - lead1) if lead0 > 0 > lead1 else 0.5
        crossings.append(math.log(b0) * (1 - share) + math.log(b1) * share)
    at = sum(crossings) / len(crossings) if crossings else middle
    return min(b1, max(b0 + 1, math.ceil(round(math.exp(at), 6))))


def _first(ranking: Ranking, times: Times) -> str:
    return next(name for name in ranking if times.get(name, INFEASIBLE) != INFEASIBLE)


def _beyond(row: Mapping[int, Times], before: Mapping[int, Times]) -> dict[int, Times]:
    """The times of the two batched routines at a smaller batch beyond the row's largest n, as far
    as Jacobi's may go: their order depends on n more than on the batch.
    """
    found: dict[int, Times] = {}
    for n, times in before.items():
        both = {name: times[name] for name in (BATCHED, JACOBI) if name in times}
        if max(row) < n <= MOST_JACOBI_ROWS and len(both) == 2:
            found[n] = both
    return found


def rows_of(points: Sequence[Point]) -> Rows:
    """The rows of one operation and dtype; without points stock for all."""
    from_n = lanes_from(points)
    by_batch: dict[int, dict[int, Times]] = {}
    for point in points:
        times = loop_times(point, from_n)
        if min(times.values(), default=INFEASIBLE) < INFEASIBLE:
            by_batch.setdefault(point.batch, {})[point.n] = times
    rows: list[Row] = []
    last = 0
    for batch in sorted(by_batch):
        row = by_batch[batch]
        whole = {**_beyond(row, by_batch[last]), **row} if rows else row
        if rows:
            kept = [
                regret
                for n, times in row.items()
                for regret in regrets(times, ranking_at(rows[-1].segments, n))
            ]
            mean = math.exp(sum(map(math.log, kept)) / len(kept))
            if mean > ROW_MEAN or max(kept) > ROW_WORST:
                made = segments(whole)
                sides = (last, by_batch[last]), (batch, row)
                rows.append(Row(_begin(*sides, rows[-1].segments, made), made))
        else:
            rows.append(Row(1, segments(row)))
        last, by_batch[batch] = batch, whole
    if not rows:
        nothing = (STOCK, *RANKED[:3])
        return Rows(NEVER, (Row(1, (Segment(1, nothing),)),))
    return Rows(from_n, tuple(rows))


def _completed(points: tuple[Point, ...], others: tuple[Point, ...]) -> tuple[Point, ...]:
    """The points and, for every batch of theirs, those of the others beyond its largest n: what
    holds there has to be more than what held for a smaller batch.
    """
    largest: dict[int, int] = {}
    for point in points:
        largest[point.batch] = max(point.n, largest.get(point.batch, 0))
    return points + tuple(p for p in others if p.n > largest.get(p.batch, NEVER))


def fit(table: EighTable) -> dict[tuple[str, str], Rows]:
    """The rows of every operation and dtype. A dtype without points takes those of the real one of
    its precision, eigvalsh those of eigh where it has none: at all, or beyond the largest n of a
    batch.
    """
    real = {"complex64": "float32", "complex128": "float64"}
    found: dict[tuple[str, str], Rows] = {}
    for op in EIGH_OPS:
        for dtype in DTYPES:
            vectors = table.of(EIGH_OPS[0], dtype)
            points = _completed(table.of(op, dtype), vectors) or vectors
            if not points and dtype in real:
                points = table.of(op, real[dtype]) or table.of(EIGH_OPS[0], real[dtype])
            found[op, dtype] = rows_of(points)
    return found


def choose(rows: Rows, batch: int, n: int, usable: Sequence[str], lanes: int = 4) -> str:
    """The back end that the header would take; ``usable``: names out of RANKED."""
    row = next((r for r in reversed(rows.rows) if r.batch <= batch), rows.rows[0])
    if n > MOST_JACOBI_ROWS:
        usable = [name for name in usable if name != JACOBI]
    if batch > MOST_MATRICES and BATCHED in usable:
        usable = [name for name in usable if name != STOCK]
    name = next((name for name in ranking_at(row.segments, n) if name in usable), STOCK)
    streams = name == LOOP and n >= rows.lanes_from and lanes >= 2 and batch >= 2
    return STREAMED if streams else name
