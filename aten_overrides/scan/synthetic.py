"""Curves with known cliffs.

Clean curves have what real ones have without a cliff: sums of power laws, a constant cost in front,
a kink where another algorithm takes over at equal cost, teeth of tile quantisation below the least
factor, slow drift during the measurement. All samples have 5 % log-normal noise, and one in forty
is up to three times too long.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

NOISE = 0.05
OUTLIERS = 1 / 40
BUSY = 1 / 6  # of the samples, on a machine that does other things too
DRIFT = 0.10  # over a search, peak to peak
RANGES = ((100, 180), (480, 544), (64, 512), (16, 256), (128, 1100))
LARGEST_TEETH = 1.06
Shape = Callable[[int], float]


@dataclass(frozen=True)
class Planted:
    """A notch: ``shape`` is the factor by size, ``sizes`` where it jumps, ``kind`` what it is."""

    kind: str
    size: int
    factor: float
    shape: Shape
    sizes: tuple[int, ...]


class SyntheticCurve:
    """A curve of ``shape`` seconds with noise, outliers and drift."""

    def __init__(self, shape: Shape, seed: int, outliers: float = OUTLIERS) -> None:
        self._shape = shape
        self._random = random.Random(seed)
        self._outliers = outliers
        self._count = 0
        self._phase = self._random.uniform(0, 2 * math.pi)

    def first(self, size: int) -> float:
        """The true time."""
        return self._shape(size)

    def sample(self, size: int) -> float:
        """The time with noise."""
        self._count += 1
        drift = DRIFT / 2 * math.sin(self._phase + self._count / 300)
        late = self._random.uniform(1.1, 3) if self._random.random() < self._outliers else 1.0
        return self._shape(size) * math.exp(self._random.gauss(drift, NOISE)) * late


def _power_law(chosen: random.Random) -> Shape:
    low, high = chosen.choice(((1, 2), (1, 3), (2, 3)))
    crossover = chosen.uniform(50, 800)
    return lambda n: (n / crossover) ** low + (n / crossover) ** high


def _constant_first(chosen: random.Random) -> Shape:
    crossover, power = chosen.uniform(60, 600), chosen.choice((2, 3))
    return lambda n: float(1 + (n / crossover) ** power)


def _kink(chosen: random.Random) -> Shape:
    crossover = chosen.uniform(60, 600)
    return lambda n: float(max((n / crossover) ** 1.5, (n / crossover) ** 3))


def _teeth(chosen: random.Random, start: int) -> Shape:
    """Tiles of a size whose first tooth within the range stays below LARGEST_TEETH."""
    base = _power_law(chosen)
    tile = chosen.choice((8, 16, 32, 64))
    depth = chosen.uniform(0.3, 1.0) * math.log(LARGEST_TEETH)

    def shape(n: int) -> float:
        filled = (n - 1) % tile / tile
        return base(n) * math.exp(depth * (1 - filled) * min(1.0, start / n * 2))

    return shape


def clean_shape(chosen: random.Random, start: int) -> Shape:
    """A curve without a cliff, for sizes from ``start`` on."""
    kind = chosen.randrange(4)
    if kind == 3:
        return _teeth(chosen, start)
    return (_power_law, _constant_first, _kink)[kind](chosen)


def plant(chosen: random.Random, sizes: range, spacing: int) -> Planted:
    """A notch in the inner part of a range; narrow ones are as wide as the sweep's spacing."""
    kind = chosen.choice(("step", "drop", "tooth", "faster"))
    factor = 1.2 if chosen.random() < 0.5 else math.exp(chosen.uniform(math.log(1.2), math.log(4)))
    margin = max(5, len(sizes) // 10)
    size = chosen.randrange(sizes[0] + margin, sizes[-1] - margin)
    width = max(4, 2 * spacing) + chosen.randrange(len(sizes) // 5)
    if kind == "step":
        return Planted(kind, size, factor, lambda n: factor if n >= size else 1.0, (size,))
    if kind == "faster":
        return Planted(kind, size, factor, lambda n: factor if n < size else 1.0, (size,))
    if kind == "drop":
        width = min(width, sizes[-1] - 3 - size)
        inside = range(size, size + width)
        return Planted(
            kind, size, factor, lambda n: factor if n in inside else 1.0, (size, size + width)
        )
    fade = max(8.0, 4.0 * spacing, 25 * math.log(factor))

    def tooth(n: int) -> float:
        return factor ** math.exp(-(n - size) / fade) if n >= size else 1.0

    return Planted(kind, size, factor, tooth, (size,))
