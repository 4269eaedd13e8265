"""How many known cliffs the search finds, and how many it sees where there are none."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from aten_overrides.scan.kinds import Finding, classify, unresolved
from aten_overrides.scan.search import Search, Settings
from aten_overrides.scan.synthetic import (
    OUTLIERS,
    RANGES,
    Planted,
    Shape,
    SyntheticCurve,
    clean_shape,
    plant,
)

FOUND_GOAL, ALARM_GOAL = 0.95, 0.01


@dataclass(frozen=True)
class Searched:
    """A searched curve: findings, sizes that noise left unresolved, samples taken."""

    findings: tuple[Finding, ...]
    unresolved: int
    samples: int


@dataclass(frozen=True)
class Result:
    """Counts of curves, and in all: ``found`` at the exact size, ``same_kind`` of them with their
    kind, findings ``beside`` the notch; clean curves with a finding (``alarms``, AMBIGUOUS ones
    included) and those that noise left ``undecided``.
    """

    planted: int
    found: int
    same_kind: int
    beside: int
    clean: int
    alarms: int
    undecided: int
    samples: int

    @property
    def good(self) -> bool:
        """Whether both goals hold: 95 % found at the exact size, at most 1 % false alarms."""
        few = self.alarms <= ALARM_GOAL * self.clean
        return self.found >= FOUND_GOAL * self.planted and few

    def __str__(self) -> str:
        share = 100 * self.found / self.planted
        return (
            f"planted notches of 1.2x to 4x: {self.found} of {self.planted} found at the exact "
            f"size ({share:.1f} %), {self.same_kind} of them with their kind; {self.beside} "
            f"further findings\nclean curves: {self.alarms} of {self.clean} with a finding "
            f"(AMBIGUOUS ones included), {self.undecided} not decided\n"
            f"{self.samples / (self.planted + self.clean):.0f} samples a curve"
        )


def search_curve(shape: Shape, sizes: range, seed: int, outliers: float = OUTLIERS) -> Searched:
    """Search a synthetic curve over ``sizes``."""
    settings = Settings()
    search = Search(SyntheticCurve(shape, seed, outliers), sizes, settings)
    verdicts = search.run()
    return Searched(
        tuple(classify(search.samples, verdicts, settings.factor)),
        len(unresolved(verdicts, settings.factor)),
        sum(search.samples.count(size) for size in search.samples.sizes()),
    )


def planted_curve(seed: int, outliers: float = OUTLIERS) -> tuple[Planted, Searched]:
    """The notch of a curve, and what was found on it."""
    chosen = random.Random(seed)
    low, high = RANGES[seed % len(RANGES)]
    sizes = range(low, high + 1)
    base = clean_shape(chosen, low)
    notch = plant(chosen, sizes, math.ceil(len(sizes) / Settings().points))
    return notch, search_curve(lambda n: base(n) * notch.shape(n), sizes, seed, outliers)


def clean_curve(seed: int, outliers: float = OUTLIERS) -> Searched:
    """What was found on a curve without a notch."""
    low, high = RANGES[seed % len(RANGES)]
    shape = clean_shape(random.Random(seed), low)
    return search_curve(shape, range(low, high + 1), seed, outliers)


def self_test(
    planted: int = 200, clean: int = 200, seed: int = 0, outliers: float = OUTLIERS
) -> Result:
    """Search ``planted`` curves with a notch and ``clean`` ones without."""
    found = same = beside = samples = alarms = undecided = 0
    for number in range(planted):
        notch, searched = planted_curve(seed + number, outliers)
        samples += searched.samples
        exact = [one for one in searched.findings if one.size == notch.size and not one.ambiguous]
        found += bool(exact)
        kind = "step" if notch.kind == "faster" else notch.kind
        same += any(one.kind == kind for one in exact)
        beside += sum(one.size not in notch.sizes for one in searched.findings)
    for number in range(clean):
        searched = clean_curve(seed + planted + number, outliers)
        samples += searched.samples
        alarms += bool(searched.findings)
        undecided += bool(searched.unresolved)
    return Result(planted, found, same, beside, clean, alarms, undecided, samples)
