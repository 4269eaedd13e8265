"""The smoothness scan: its sizes, and how far each is above what its neighbours predict."""

from __future__ import annotations

import math
from collections.abc import Iterable

LEAST, MOST = 64, 1100
STEP = 1.06  # from one size to the next; the round sizes and those beside them come in addition
ROUND = (128, 192, 256, 384, 512, 640, 768, 896, 1024)
REACH = 1.3  # a neighbour is at most this factor away
NEAR = 1.015  # and farther than this: sizes beside each other share what is to be found out


def sizes() -> list[int]:
    """64 .. 1100 in steps of 6 %, with the round sizes and those beside them, ascending."""
    found = {beside for size in ROUND for beside in (size - 1, size, size + 1)}
    size = float(LEAST)
    while size <= MOST:
        found.add(round(size))
        size *= STEP
    return sorted(found)


def predicted(n: int, times: dict[int, float]) -> float | None:
    """Milliseconds at n by a power law through the neighbours' times, without n's own.

    A least-squares line of log time over log n, weighted by nearness; None unless neighbours lie on
    both sides.
    """
    near = [m for m in times if NEAR < max(m / n, n / m) <= REACH]
    if not any(m < n for m in near) or not any(m > n for m in near):
        return None
    x = [math.log(m / n) for m in near]
    y = [math.log(times[m]) for m in near]
    weights = [1 / (0.02 + abs(value)) for value in x]
    total = sum(weights)
    mean_x = sum(w * a for w, a in zip(weights, x, strict=True)) / total
    mean_y = sum(w * b for w, b in zip(weights, y, strict=True)) / total
    spread = sum(w * (a - mean_x) ** 2 for w, a in zip(weights, x, strict=True))
    slope = (
        sum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(weights, x, y, strict=True)) / spread
    )
    return math.exp(mean_y - slope * mean_x)


def ratios(times: dict[int, float]) -> list[tuple[int, float]]:
    """(n, time over the neighbours' prediction) for every n that has neighbours on both sides."""
    found = ((n, predicted(n, times)) for n in sorted(times))
    return [(n, times[n] / ms) for n, ms in found if ms is not None]


def worst(found: Iterable[tuple[int, float]], count: int = 5) -> list[tuple[int, float]]:
    """The sizes most above their prediction."""
    return sorted(found, key=lambda pair: -pair[1])[:count]
