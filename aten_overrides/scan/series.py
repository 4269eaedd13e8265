"""Samples of a curve, and the jump between two neighbouring sizes with its error.

All is done on logarithms: a jump is a factor, noise is relative, and a power law is a line. Samples
belong to rounds. In a round each size is timed once, in random order. A sample is taken as the
level of its size, plus an offset of its round (clocks, temperature, neighbours: what drifts), plus
noise; levels and offsets are fitted in turn. A level is Tukey's biweight estimate, an offset a
median: both bear that almost half of the samples are too long, as on a busy machine. A jump is the
difference of two levels less what the local trend explains.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

NORMAL_MAD = 1.4826  # standard deviation of a normal distribution by its median deviation
EFFICIENCY = 0.95  # of the biweight estimate for normal noise
BIWEIGHT = 4.685  # standard deviations from which a sample has no weight
TREND_GAPS = 5  # gaps on each side that tell the local trend
NOISE_SIZES = 6  # sizes on each side that tell the local noise
LEAST_NOISE = 1e-4  # a clock's resolution is no certainty
TURNS = 3
LEAST_RANKED = 0.015  # smaller jumps (1.5 %) never count, so their ranks are not looked at
# A median deviation of so few samples is too small by this (Croux and Rousseeuw 1992).
_FEW = {1: 1.2, 2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107}


@dataclass(frozen=True)
class Jump:
    """From size ``below`` to ``size`` time grows by exp(``log_factor``) more than the trend.

    ``error``: standard error of ``log_factor``; ``pairs``: samples of the size with fewer;
    ``rank``: how far apart the samples of both sizes are by their ranks alone, whatever the noise
    is like, in standard deviations (Mann and Whitney's U).
    """

    below: int
    size: int
    log_factor: float
    error: float
    pairs: int
    rank: float = 0.0


@dataclass(frozen=True)
class Fit:
    """``levels``: log seconds by size; ``deviations``: absolute residuals by size, corrected;
    ``offsets``: of the rounds.
    """

    levels: dict[int, float]
    deviations: dict[int, list[float]]
    offsets: dict[int, float]


def rank_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """By how many standard deviations ``second`` ranks above ``first``."""
    above = sum((b > a) + 0.5 * (b == a) for a in first for b in second)
    count = len(first) * len(second)
    return (above - count / 2) / math.sqrt(count * (len(first) + len(second) + 1) / 12)


def biweight(values: Sequence[float], scale: float) -> float:
    """Tukey's biweight estimate of location, from the median on; ``scale``: of the noise."""
    centre = statistics.median(values)
    width = BIWEIGHT * max(scale, LEAST_NOISE)
    for _ in range(4):
        weights = [max(0.0, 1 - ((value - centre) / width) ** 2) ** 2 for value in values]
        total = sum(weights)
        if total <= 0:
            return centre
        moved = sum(w * value for w, value in zip(weights, values, strict=True)) / total
        if abs(moved - centre) < 1e-3 * width / BIWEIGHT:
            return moved
        centre = moved
    return centre


def weighted_median(pairs: Iterable[tuple[float, float]]) -> float:
    """The value at which half of the weight is reached; pairs of (value, weight)."""
    ordered = sorted(pairs)
    half = sum(weight for _, weight in ordered) / 2
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    raise ValueError("the median of nothing")


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """The median slope of all pairs of points; 0 for fewer than two."""
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0])
        for i, a in enumerate(points)
        for b in points[i + 1 :]
        if b[0] != a[0]
    ]
    return statistics.median(slopes) if slopes else 0.0


@dataclass
class Samples:
    """Seconds by size and round."""

    _logs: dict[int, dict[int, float]] = field(default_factory=dict)
    _fit: Fit | None = None

    def add(self, size: int, number: int, seconds: float) -> None:
        """Keep the sample of ``size`` in round ``number``. ValueError unless it is above 0."""
        if not seconds > 0:
            raise ValueError(f"a time must be above 0, found {seconds} at {size}")
        self._logs.setdefault(size, {})[number] = math.log(seconds)
        self._fit = None

    def sizes(self) -> list[int]:
        """The sizes that have samples, in order."""
        return sorted(self._logs)

    def count(self, size: int) -> int:
        """How many samples there are of a size."""
        return len(self._logs.get(size, ()))

    def seconds(self, size: int) -> list[float]:
        """The samples of a size, in the order of the rounds."""
        return [math.exp(value) for _, value in sorted(self._logs[size].items())]

    def log_level(self, size: int) -> float:
        """The fitted level of a size: the logarithm of its seconds."""
        return self.fit().levels[size]

    def rounds(self) -> Iterator[tuple[int, int, float]]:
        """All samples as (size, round, seconds)."""
        for size in self.sizes():
            for number, value in sorted(self._logs[size].items()):
                yield size, number, math.exp(value)

    def fit(self) -> Fit:
        """Levels of the sizes without the offsets of the rounds."""
        if self._fit is None:
            self._fit = self._fitted()
        return self._fit

    def _fitted(self) -> Fit:
        if not self._logs:
            return Fit({}, {}, {})
        by_round: dict[int, list[int]] = {}
        for size, logs in self._logs.items():
            for number in logs:
                by_round.setdefault(number, []).append(size)
        levels = {size: statistics.median(logs.values()) for size, logs in self._logs.items()}
        scale = 0.0
        offsets: dict[int, float] = {}
        deviations: dict[int, list[float]] = {}
        for _ in range(TURNS):
            offsets = {
                number: statistics.median(self._logs[size][number] - levels[size] for size in sizes)
                for number, sizes in by_round.items()
            }
            deviations = {}
            for size, logs in self._logs.items():
                rest = [value - offsets[number] for number, value in logs.items()]
                middle = statistics.median(rest)
                count = len(rest)
                correction = _FEW.get(count, count / (count - 0.8))
                deviations[size] = [correction * abs(value - middle) for value in rest]
            scale = NORMAL_MAD * statistics.median(
                itertools.chain.from_iterable(deviations.values())
            )
            for size, logs in self._logs.items():
                rest = [value - offsets[number] for number, value in logs.items()]
                own = NORMAL_MAD * statistics.median(deviations[size])
                levels[size] = biweight(rest, max(scale, own) if len(rest) > 7 else scale)
        return Fit(levels, deviations, offsets)

    def jumps(self) -> list[Jump]:
        """The jump of every gap between neighbouring sizes."""
        fit = self.fit()
        sizes = self.sizes()
        gaps = list(itertools.pairwise(sizes))
        rises = [fit.levels[size] - fit.levels[below] for below, size in gaps]
        widths = [math.log(size / below) for below, size in gaps]
        found = []
        for index, (below, size) in enumerate(gaps):
            near = range(max(0, index - TREND_GAPS), min(len(gaps), index + TREND_GAPS + 1))
            slopes = [(rises[i] / widths[i], widths[i]) for i in near if i != index]
            trend = weighted_median(slopes) if slopes else 0.0
            around = sizes[max(0, index - NOISE_SIZES) : index + NOISE_SIZES + 2]
            error = math.hypot(self._error(fit, below, around), self._error(fit, size, around))
            pairs = min(self.count(below), self.count(size))
            rise = rises[index] - trend * widths[index]
            small = abs(rise) < LEAST_RANKED
            rank = 0.0 if small else self._rank(fit, below, size, trend * widths[index])
            found.append(Jump(below, size, rise, error, pairs, rank))
        return found

    def _rank(self, fit: Fit, below: int, size: int, trend: float) -> float:
        """Rank distance of the samples without offsets and trend."""
        first = [value - fit.offsets[number] for number, value in self._logs[below].items()]
        second = [value - fit.offsets[number] for number, value in self._logs[size].items()]
        return rank_distance(first, [value - trend for value in second])

    def _error(self, fit: Fit, size: int, around: Sequence[int]) -> float:
        """Standard error of a level: by the noise of the sizes around, or its own if larger."""
        pooled = itertools.chain.from_iterable(fit.deviations[near] for near in around)
        deviation = NORMAL_MAD * statistics.median(pooled)
        count = self.count(size)
        if count > 7:
            deviation = max(deviation, 0.8 * NORMAL_MAD * statistics.median(fit.deviations[size]))
        return max(deviation, LEAST_NOISE) / math.sqrt(EFFICIENCY * count)
