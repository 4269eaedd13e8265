"""What to measure next: a coarse sweep, bisection of the gaps that may hold a jump, confirmation.

Every stage times its sizes in rounds, interleaved and in random order. A gap is a candidate while a
jump of the least factor cannot be ruled out; a candidate wider than one size is halved, one of
neighbouring sizes is timed again until its jump is certain, ruled out, or the pairs run out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aten_overrides.scan.series import Jump, Samples

LEAST_SIZES = 9  # of a sweep; where even these take too long with all rounds, they get FEW_ROUNDS
FEW_ROUNDS = 3
STAGE = 0.25  # of the time left: what one stage of the refinement may take
WARM_UPS = 0  # the round of the warm-ups that count as samples


class Skipped(Exception):
    """A size that cannot be measured; the text says why."""


class OutOfTime(Exception):
    """The time budget is spent."""


class Curve(Protocol):
    """What is measured."""

    def first(self, size: int) -> float:
        """Run once, unmeasured as a sample, and return about how many seconds a sample takes.

        Raises Skipped.
        """

    def sample(self, size: int) -> float:
        """Seconds of one call. Raises Skipped."""


@dataclass(frozen=True)
class Settings:
    """How to search.

    factor: least factor of a jump that counts; points: most sizes of the sweep; rounds: samples of
    each size of the sweep; most_pairs: pairs after which an undecided jump is ambiguous; sure:
    standard errors from ``factor`` at which a jump is certain or ruled out; open: standard errors
    at which a gap is a candidate; ranks: least rank distance of a jump; share: part of the budget
    for the sweep.
    """

    factor: float = 1.12
    points: int = 96
    rounds: int = 5
    most_pairs: int = 44
    sure: float = 2.6
    open: float = 1.0
    ranks: float = 2.8
    share: float = 0.6
    seed: int = 1


@dataclass(frozen=True)
class Verdict:
    """A decided gap. ``result``: "found", "none" or "ambiguous"; ``reason``: why ambiguous."""

    jump: Jump
    result: str
    reason: str = ""


@dataclass
class Search:
    """One search over ``sizes``; ``left`` returns the seconds that are left. ``long``: seconds of a
    call from which its warm-up counts as a sample, so that slow calls are not run for nothing.
    """

    curve: Curve
    wanted: Sequence[int]
    settings: Settings
    left: Callable[[], float] = lambda: math.inf
    saved: Callable[[], None] = lambda: None
    samples: Samples = field(default_factory=Samples)
    skipped: dict[int, str] = field(default_factory=dict)
    costs: dict[int, float] = field(default_factory=dict)
    round: int = 0
    long: float = math.inf
    complete: bool = False  # False: the budget ended before every candidate was decided

    def __post_init__(self) -> None:
        self._random = random.Random(self.settings.seed + self.round)
        self._allowed = sorted(set(self.wanted))
        self.rounds = self.settings.rounds

    def run(self) -> list[Verdict]:
        """Search until everything is decided or the time is spent."""
        try:
            self._sweep()
            self._refine()
            self.complete = True
        except OutOfTime:
            pass
        self.saved()
        return self.verdicts()

    def verdicts(self) -> list[Verdict]:
        """What the samples say so far about every gap that is or was a candidate."""
        told = []
        for jump in self.samples.jumps():
            middle = self._middle(jump.below, jump.size)
            verdict = self._judge(jump) if middle is None else None
            if verdict is not None:
                told.append(verdict)
            elif not self.complete and self._open(jump):
                where = "between these sizes" if middle is not None else "here"
                why = f"the time ended with {jump.pairs} pairs, before the jump {where} was decided"
                told.append(Verdict(jump, "ambiguous", why))
        return told

    # --- the sweep ---

    def grid(self) -> list[int]:
        """Sizes of the coarse sweep: all if they are few, else evenly spread, by ratio over wide
        ranges.
        """
        sizes, points = self._allowed, self.settings.points
        if len(sizes) <= points:
            return sizes
        low, high = sizes[0], sizes[-1]
        if high > 4 * max(low, 1):
            ratio = (high / low) ** (1 / (points - 1))
            targets = [low * ratio**i for i in range(points)]
        else:
            targets = [low + (high - low) * i / (points - 1) for i in range(points)]
        return sorted({min(sizes, key=lambda size: abs(size - target)) for target in targets})

    def _sweep(self) -> None:
        until = self.left() * (1 - self.settings.share)
        started: list[int] = []
        for size in spread_order(self.grid()):
            if self.samples.count(size) >= self.rounds:  # from an earlier, interrupted scan
                started.append(size)
                continue
            new = [self.costs[known] for known in started if known in self.costs]
            cost = self.rounds * (self._guess(size) + sum(new))
            if self.left() - cost < until and len(started) >= LEAST_SIZES:
                if self.rounds == FEW_ROUNDS or len(started) > LEAST_SIZES:
                    break
                self.rounds = FEW_ROUNDS
            if self._begin(size):
                started.append(size)
        for _ in range(self.rounds):
            self._one_round(
                size
                for size in started
                if size not in self.skipped and self.samples.count(size) < self.rounds
            )
            self.saved()

    def _guess(self, size: int) -> float:
        if size in self.costs:
            return self.costs[size]
        known = [other for other in self.costs if other not in self.skipped]
        near = min(known, key=lambda other: abs(other - size), default=None)
        return self.costs[near] if near is not None else 0.0

    def _begin(self, size: int) -> bool:
        """Run a size for the first time; whether it can be measured."""
        if size in self.skipped:
            return False
        if size in self.costs:
            return True
        self._check_time()
        try:
            self.costs[size] = self.curve.first(size)
        except Skipped as reason:
            self.skipped[size] = str(reason)
            return False
        if self.costs[size] >= self.long:
            self.samples.add(size, WARM_UPS, self.costs[size])
        return True

    def _check_time(self) -> None:
        if self.left() <= 0:
            raise OutOfTime

    def _one_round(self, sizes: Iterable[int]) -> None:
        order = [size for size in sizes if self._begin(size)]
        if not order:
            return
        self._random.shuffle(order)
        self.round += 1
        for size in order:
            self._check_time()
            try:
                self.samples.add(size, self.round, self.curve.sample(size))
            except Skipped as reason:
                self.skipped[size] = str(reason)

    # --- bisection and confirmation ---

    def _refine(self) -> None:
        while True:
            undecided = self._undecided()
            if not undecided:
                return
            group: set[int] = set()
            for sizes in undecided:
                wider = group | set(sizes)
                # Where time is short, the largest jumps are decided rather than none.
                if group and self.rounds * sum(map(self._guess, wider)) > STAGE * self.left():
                    break
                group = wider
            for _ in range(self.rounds):
                self._one_round(sorted(group))
            self.saved()

    def _undecided(self) -> list[list[int]]:
        """The candidates, the largest jump first: the sizes to time next for each, which are its
        ends and its middle, or where they are neighbours those around it too.
        """
        found = []
        for jump in sorted(self.samples.jumps(), key=lambda one: -abs(one.log_factor)):
            if not self._open(jump):
                continue
            middle = self._middle(jump.below, jump.size)
            if middle is not None:
                found.append([jump.below, middle, jump.size])
            elif self._judge(jump) is None:
                found.append(self._window(jump.below, jump.size))
        return found

    def _open(self, jump: Jump) -> bool:
        """Whether a jump of the least factor cannot be ruled out."""
        least = math.log(self.settings.factor)
        return abs(jump.log_factor) + self.settings.open * jump.error > least

    def _middle(self, below: int, size: int) -> int | None:
        """The measurable size nearest to the middle of a gap."""
        inside = [n for n in self._allowed if below < n < size and n not in self.skipped]
        return min(inside, key=lambda n: abs(2 * n - below - size), default=None)

    def _window(self, below: int, size: int) -> list[int]:
        """The gap's sizes and the next one on each side."""
        usable = [size for size in self._allowed if size not in self.skipped]
        first = usable.index(below)
        return usable[max(0, first - 1) : first + 3] if size in usable else [below]

    def _judge(self, jump: Jump) -> Verdict | None:
        """The verdict on a gap that cannot be halved; None while there are too few pairs."""
        settings = self.settings
        least, size = math.log(settings.factor), abs(jump.log_factor)
        if jump.pairs < 2 * self.rounds:
            return None
        apart = jump.rank * math.copysign(1, jump.log_factor) >= settings.ranks
        if size - settings.sure * jump.error > least and apart:
            return Verdict(jump, "found")
        if size + settings.sure * jump.error < least:
            return Verdict(jump, "none")
        if jump.pairs >= settings.most_pairs:
            low, high = (math.exp(size + side * 2 * jump.error) for side in (-1, 1))
            if not apart and low > settings.factor:
                why = f"after {jump.pairs} pairs the samples of both sizes still overlap"
                return Verdict(jump, "ambiguous", why)
            why = f"after {jump.pairs} pairs the factor lies between {low:.2f} and {high:.2f}"
            return Verdict(jump, "ambiguous", why)
        return None


def spread_order(sizes: Sequence[int]) -> list[int]:
    """The sizes in an order whose every beginning is spread over the whole range: both ends, the
    middle, the quarters and so on.
    """
    if len(sizes) < 3:
        return list(sizes)
    order, seen = [0, len(sizes) - 1], {0, len(sizes) - 1}
    step = 1
    while len(order) < len(sizes):
        step *= 2
        for part in range(1, step, 2):
            index = round(part * (len(sizes) - 1) / step)
            if index not in seen:
                seen.add(index)
                order.append(index)
        if step > 4 * len(sizes):
            order += [index for index in range(len(sizes)) if index not in seen]
    return [sizes[index] for index in order]
