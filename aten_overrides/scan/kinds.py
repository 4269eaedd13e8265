"""Findings: confirmed jumps, told apart by what the curve does after them.

step   from this size on time stays on another level, slower or faster, as far as was measured
drop   throughput drops at this size and comes back by a jump: a bounded stretch of slow sizes
tooth  time jumps at this size and the loss fades over the next sizes, as tiles fill up
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aten_overrides.scan.search import Verdict
from aten_overrides.scan.series import Jump, Samples, theil_sen

NEAR = math.log(2)  # the trend around a jump is taken from sizes within this ratio
FADED = 0.65  # part of a jump that has to fade for a tooth
RETURNED = 0.5  # part of a jump that has to come back at once for a drop
AMBIGUOUS = "AMBIGUOUS"


@dataclass(frozen=True)
class Finding:
    """One cliff. ``size``: the first size after the jump; ``below``: the last one before it.

    direction: "slower" or "faster" from ``size`` on; factor: what the slow side takes more than the
    trend of the other; low, high: its 95 % interval; confidence: probability that it is at least
    the least factor that counts, under normal errors, or AMBIGUOUS; until: last slow size of a
    drop; period: distance of equal teeth.
    """

    kind: str
    size: int
    below: int
    direction: str
    factor: float
    low: float
    high: float
    confidence: float | str
    pairs: int
    seconds_below: float
    seconds: float
    until: int | None = None
    period: int | None = None
    reason: str = ""

    @property
    def ambiguous(self) -> bool:
        """Whether the measurements could not tell."""
        return self.confidence == AMBIGUOUS

    def json(self) -> dict[str, Any]:
        """As JSON values."""
        return dataclasses.asdict(self)


def _probability(jump: Jump, least: float) -> float:
    """P(factor > least)."""
    distance = (abs(jump.log_factor) - math.log(least)) / max(jump.error, 1e-9)
    return 0.5 * (1 + math.erf(distance / math.sqrt(2)))


def _normalised(
    samples: Samples, work: Callable[[int], float] | None, around: int
) -> dict[int, float]:
    """Levels by size near ``around``, over the work and without the trend that is left."""
    levels = {
        size: samples.log_level(size) - (math.log(work(size)) if work else 0.0)
        for size in samples.sizes()
        if abs(math.log(size / around)) <= NEAR
    }
    slope = theil_sen([(math.log(size), level) for size, level in levels.items()])
    return {size: level - slope * math.log(size / around) for size, level in levels.items()}


def _fades(
    samples: Samples, jump: Jump, stop: int | None, work: Callable[[int], float] | None
) -> bool:
    """Whether the loss of an upward jump is mostly gone before ``stop`` (None: the end)."""
    levels = _normalised(samples, work, jump.size)
    before = [level for size, level in levels.items() if size <= jump.below][-3:]
    after = [
        level for size, level in levels.items() if size >= jump.size and _is_before(size, stop)
    ]
    if not before or len(after) < 5:
        return False
    last = statistics.median(after[-max(3, len(after) // 4) :])
    return last < statistics.median(before) + (1 - FADED) * jump.log_factor


def _is_before(size: int, stop: int | None) -> bool:
    return stop is None or size < stop


def _finding(samples: Samples, verdict: Verdict, kind: str, least: float) -> Finding:
    jump = verdict.jump
    size = abs(jump.log_factor)
    unsure = verdict.result == "ambiguous"
    return Finding(
        kind=kind,
        size=jump.size,
        below=jump.below,
        direction="slower" if jump.log_factor > 0 else "faster",
        factor=math.exp(size),
        low=math.exp(size - 1.96 * jump.error),
        high=math.exp(size + 1.96 * jump.error),
        confidence=AMBIGUOUS if unsure else round(_probability(jump, least), 4),
        pairs=jump.pairs,
        seconds_below=math.exp(samples.log_level(jump.below)),
        seconds=math.exp(samples.log_level(jump.size)),
        reason=verdict.reason,
    )


def _estimate(verdict: Verdict) -> float:
    """The factor of an undecided verdict; 1 of one that was ruled out."""
    return math.exp(abs(verdict.jump.log_factor)) if verdict.result == "ambiguous" else 1.0


def unresolved(verdicts: Sequence[Verdict], least: float) -> dict[int, float]:
    """Sizes whose jump looks smaller than ``least``, but noise does not rule such a one out: the
    largest factor that it may have.
    """
    return {
        one.jump.size: round(math.exp(abs(one.jump.log_factor) + 1.96 * one.jump.error), 3)
        for one in verdicts
        if one.result == "ambiguous" and _estimate(one) < least
    }


def classify(
    samples: Samples,
    verdicts: Sequence[Verdict],
    least: float,
    work: Callable[[int], float] | None = None,
) -> list[Finding]:
    """The findings among verdicts, by size; ``work``: operations of one call by size, if known.

    A verdict that noise alone leaves open, its estimate below ``least``, is no finding; those are
    ``unresolved``.
    """
    told = sorted(
        (one for one in verdicts if one.result == "found" or _estimate(one) >= least),
        key=lambda verdict: verdict.jump.size,
    )
    findings: list[Finding] = []
    index = 0
    while index < len(told):
        verdict = told[index]
        rest = [one for one in told[index + 1 :] if one.result == "found"]
        following = rest[0] if rest else None
        up = verdict.jump.log_factor > 0
        if up and following is not None and _comes_back(verdict, following):
            made = _finding(samples, verdict, "drop", least)
            findings.append(dataclasses.replace(made, until=following.jump.below))
            told.remove(following)
            index += 1
            continue
        stop = following.jump.size if following is not None else None
        kind = "tooth" if up and _fades(samples, verdict.jump, stop, work) else "step"
        findings.append(_finding(samples, verdict, kind, least))
        index += 1
    return _with_period(findings)


def _comes_back(verdict: Verdict, following: Verdict) -> bool:
    fall = following.jump.log_factor
    certain = verdict.result == following.result == "found"
    return certain and fall < -RETURNED * verdict.jump.log_factor


def _with_period(findings: list[Finding]) -> list[Finding]:
    """Give teeth their period where at least three follow each other at the same distance."""
    teeth = [finding.size for finding in findings if finding.kind == "tooth"]
    distances = {b - a for a, b in itertools.pairwise(teeth)}
    if len(teeth) < 3 or len(distances) != 1:
        return findings
    period = distances.pop()
    return [
        dataclasses.replace(finding, period=period) if finding.kind == "tooth" else finding
        for finding in findings
    ]
