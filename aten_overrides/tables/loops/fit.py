"""Fit intervals to a table: where streams are ahead of what torch's own function does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aten_overrides._names import DTYPES
from aten_overrides.tables.loops.table import LoopTable, Point

NEVER_ENDS = 2**63 - 1
STREAMED = "streamed4"  # by the default number of lanes
PAIR = "streamed2"
LOOPED = "looped"
BATCHED = "batched"
STOCK = "stock"
# What torch's own function does, by the name in LoopBackend.h, and which time stands for it.
RIVALS = {"loop": LOOPED, "batched_cublas": BATCHED, "batched_cusolver": BATCHED, "magma": STOCK}
# By how much a back end has to be ahead of it. MAGMA's times are those of torch's cholesky_solve,
# its overhead and copies included, and stand for cholesky_inverse too, whose own are up to 1.4
# times shorter: with less of a lead 64 float32 inverses of 256 rows took 2.28 ms instead of 1.57.
LEADS = {"loop": 1.10, "batched_cublas": 1.10, "batched_cusolver": 1.10, "magma": 1.40}
MAGMA_LEAD_MS = 0.15  # besides, for the same reason
# Routine, right-hand sides, rivals: what LoopChoice.h's rival_of can answer for more than one
# matrix.
KEYS = (
    ("geqrf", "none", "loop"),
    ("geqrf", "none", "batched_cublas"),
    ("orgqr", "none", "loop"),
    ("ormqr", "one", "loop"),
    ("ormqr", "square", "loop"),
    ("potrf", "none", "batched_cusolver"),
    ("potrs", "one", "batched_cusolver"),
    ("potrs", "one", "magma"),
    ("potrs", "some", "loop"),
    ("potrs", "some", "magma"),
    ("potrs", "square", "loop"),
    ("potrs", "square", "magma"),
    ("sytrf", "none", "loop"),
)
# LOOPED: the loop is ahead on one stream already, and runs on as many as there are.
BACKENDS = {LOOPED: "looped_cusolver", STREAMED: "streamed_cusolver", STOCK: "stock"}
BETWEEN = 4  # steps from a measured batch to the next one, by interpolated times

Key = tuple[str, str, str, str]  # of KEYS, and the dtype


@dataclass(frozen=True)
class Interval:
    """Sizes from_n up to below to_n go to ``backend``; both 0: none does."""

    batch: int
    from_n: int
    to_n: int
    backend: str


Rows = dict[int, dict[int, Mapping[str, float]]]


def _rows(points: tuple[Point, ...], pair: bool) -> Rows:
    """Times by batch and n. Loops grow with the batch, so a loop that was too long to be measured
    has the time of a smaller batch; ``pair``: batch 2 on two streams, from those of batch 4.
    """
    rows: Rows = {}
    last: dict[tuple[int, str], tuple[int, float]] = {}
    for point in sorted(points, key=lambda p: (p.batch, p.n)):
        times = dict(point.ms)
        for way in (LOOPED, STREAMED):
            if way in times:
                last[point.n, way] = (point.batch, times[way])
            elif (point.n, way) in last:
                batch, ms = last[point.n, way]
                times[way] = ms * point.batch / batch
        rows.setdefault(point.batch, {})[point.n] = times
    if pair and 4 in rows:
        rows[2] = {
            n: {LOOPED: times[LOOPED] / 2, STREAMED: times[PAIR] / 2}
            for n, times in rows[4].items()
            if LOOPED in times and PAIR in times
        }
    return _with_between(dict(sorted(rows.items())))


def _with_between(rows: Rows) -> Rows:
    """The rows and some between them, by times interpolated over the logarithm of the batch."""
    found: Rows = {}
    batches = list(rows)
    for low, high in itertools.pairwise(batches):
        found[low] = rows[low]
        for step in range(1, BETWEEN):
            share = step / BETWEEN
            batch = round(low ** (1 - share) * high**share)
            if low < batch < high:
                found[batch] = {
                    n: {
                        way: rows[low][n][way] ** (1 - share) * rows[high][n][way] ** share
                        for way in rows[low][n].keys() & rows[high][n].keys()
                    }
                    for n in rows[low].keys() & rows[high].keys()
                }
    if batches:
        found[batches[-1]] = rows[batches[-1]]
    return found


def _best(times: Mapping[str, float], rival: str) -> str | None:
    """The way that a problem takes, STOCK included; None if a time is not known."""
    if RIVALS[rival] not in times or STREAMED not in times:
        return None
    limit = times[RIVALS[rival]] / LEADS[rival]
    if rival == "magma":
        limit = min(limit, times[STOCK] - MAGMA_LEAD_MS)
    if times[STREAMED] > limit:
        return STOCK
    return LOOPED if times.get(LOOPED, math.inf) <= limit else STREAMED


def _intervals(batch: int, chosen: Mapping[int, str]) -> tuple[Interval, ...]:
    found: list[Interval] = []
    sizes = sorted(chosen)
    start = 0
    for place in range(1, len(sizes) + 1):
        if place < len(sizes) and chosen[sizes[place]] == chosen[sizes[start]]:
            continue
        way = chosen[sizes[start]]
        if way != STOCK:
            low = sizes[start] if start == 0 else between(sizes[start - 1], sizes[start])
            ended = place < len(sizes)
            high = between(sizes[place - 1], sizes[place]) if ended else NEVER_ENDS
            found.append(Interval(batch, low, high, BACKENDS[way]))
        start = place
    return tuple(found)


def between(low: int, high: int) -> int:
    """The size from which the larger one's choice holds."""
    return math.ceil(round(math.sqrt(low * high), 6))


def intervals_of(points: tuple[Point, ...], rival: str) -> tuple[Interval, ...]:
    """The intervals of one key, by batch; a batch that changes nothing is left out."""
    found: list[Interval] = []
    kept: list[tuple[int, int, str]] = []
    before: dict[int, str] = {}
    for batch, row in _rows(points, pair=rival == "loop").items():
        chosen: dict[int, str] = {}
        for n, times in row.items():
            best = _best(times, rival) or before.get(n)
            if best is not None:
                chosen[n] = best
        if not chosen:
            continue
        before = chosen
        now = _intervals(batch, chosen)
        shape = [(i.from_n, i.to_n, i.backend) for i in now]
        if shape != kept:
            found += now or (Interval(batch, 0, 0, "stock"),)
            kept = shape
    if kept and rival != "loop":
        # A loop takes as much longer as there are more matrices, the others perhaps less.
        found.append(Interval(2 * max(p.batch for p in points), 0, 0, "stock"))
    return tuple(found)


def fit(table: LoopTable) -> dict[Key, tuple[Interval, ...]]:
    """The intervals of all keys that have any."""
    fitted = {}
    for routine, columns, rival in KEYS:
        for dtype in DTYPES:
            found = intervals_of(table.of(routine, columns, dtype), rival)
            if found:
                fitted[routine, columns, rival, dtype] = found
    return fitted


def choose(intervals: tuple[Interval, ...], batch: int, n: int) -> str:
    """The back end of a problem, as measured_of in LoopChoice.h finds it."""
    nearest = max((i.batch for i in intervals if i.batch <= batch), default=0)
    for interval in intervals:
        if interval.batch == nearest and interval.from_n <= n < interval.to_n:
            return interval.backend
    return "stock"


def gains(
    table: LoopTable, fitted: Mapping[Key, tuple[Interval, ...]], key: Key
) -> Iterator[tuple[float, float]]:
    """For each measured point: time of torch's own way / time taken, and time taken / the best."""
    routine, columns, rival, dtype = key
    ways = {backend: way for way, backend in BACKENDS.items()}
    for point in table.of(routine, columns, dtype):
        stock = point.ms.get(RIVALS[rival])
        if stock is None:
            continue
        way = ways[choose(fitted.get(key, ()), point.batch, point.n)]
        taken = stock if way == STOCK else point.ms.get(STREAMED if way == LOOPED else way)
        if taken is not None:
            yield stock / taken, taken / min(stock, point.ms.get(STREAMED, stock))
