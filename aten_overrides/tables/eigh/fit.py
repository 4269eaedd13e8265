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
LOOP, STOCK, BATCHED = RANKED[2], RANKED[3], RANKED[0]
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
    """The point's times with streams behind the loop where they are used."""
    times = {name: point.ms[name] for name in RANKED if name in point.ms}
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
            total += math.log(times[name]) if name in times else best + UNMEASURED
        return total + (len(points) * math.log(STOCK_LEAD) if name == STOCK else 0.0)

    return tuple(sorted(RANKED, key=lambda name: (cost(name), RANKED.index(name))))


def regrets(times: Times, ranking: Ranking) -> list[float]:
    """Time taken / best time, for every set of back ends that a build may have."""
    found = []
    for usable in SETS:
        there = {name: ms for name, ms in times.items() if name in usable}
        chosen = next((name for name in ranking if name in usable), STOCK)
        if there:
            best = min(there.values())
            found.append(there[chosen] / best if chosen in there else math.exp(UNMEASURED))
    return found


def _cost(points: Sequence[Times], ranking: Ranking) -> float:
    return sum(math.log(regret) for times in points for regret in regrets(times, ranking))


def _crossing(low: tuple[int, Times], high: tuple[int, Times], old: str, new: str) -> int:
    """The first n at which ``new`` is ahead of ``old``, between two measured n."""
    (n0, t0), (n1, t1) = low, high
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


def rows_of(points: Sequence[Point]) -> Rows:
    """The rows of one operation and dtype; without points stock for all."""
    from_n = lanes_from(points)
    by_batch: dict[int, dict[int, Times]] = {}
    for point in points:
        times = loop_times(point, from_n)
        if times:
            by_batch.setdefault(point.batch, {})[point.n] = times
    rows: list[Row] = []
    last = 0
    for batch in sorted(by_batch):
        row = by_batch[batch]
        if rows:
            kept = [
                regret
                for n, times in row.items()
                for regret in regrets(times, ranking_at(rows[-1].segments, n))
            ]
            mean = math.exp(sum(map(math.log, kept)) / len(kept))
            begin = math.ceil(math.sqrt(last * batch))
            if mean > ROW_MEAN or max(kept) > ROW_WORST:
                rows.append(Row(begin, segments(row)))
        else:
            rows.append(Row(1, segments(row)))
        last = batch
    if not rows:
        nothing = (STOCK, *RANKED[:3])
        return Rows(NEVER, (Row(1, (Segment(1, nothing),)),))
    return Rows(from_n, tuple(rows))


def fit(table: EighTable) -> dict[tuple[str, str], Rows]:
    """The rows of every operation and dtype. A dtype without points takes those of the real one of
    its precision, eigvalsh without points those of eigh.
    """
    real = {"complex64": "float32", "complex128": "float64"}
    found: dict[tuple[str, str], Rows] = {}
    for op in EIGH_OPS:
        for dtype in DTYPES:
            points = table.of(op, dtype) or table.of(EIGH_OPS[0], dtype)
            if not points and dtype in real:
                points = table.of(op, real[dtype]) or table.of(EIGH_OPS[0], real[dtype])
            found[op, dtype] = rows_of(points)
    return found


def choose(rows: Rows, batch: int, n: int, usable: Sequence[str], lanes: int = 4) -> str:
    """The back end that the header would take; ``usable``: names out of RANKED."""
    row = next((r for r in reversed(rows.rows) if r.batch <= batch), rows.rows[0])
    name = next((name for name in ranking_at(row.segments, n) if name in usable), STOCK)
    streams = name == LOOP and n >= rows.lanes_from and lanes >= 2 and batch >= 2
    return STREAMED if streams else name
