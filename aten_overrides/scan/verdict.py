"""From a scan to an exit code, and against an earlier scan of the same machine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aten_overrides._errors import UserError
from aten_overrides.scan.run import LEAST_MEASURED, Explained, Scan

NONE, FOUND, NOT_MEASURED = 0, 1, 2
SAME_SIZE = 0.02  # of the size: nearer findings of two scans are the same one


@dataclass(frozen=True)
class Outcome:
    """The exit code with its reasons: 0 no cliff, 1 found, 2 could not measure."""

    code: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """A size in two scans: seconds then and now; verdict SAME, FASTER, SLOWER or AMBIGUOUS."""

    size: int
    before: float
    now: float
    verdict: str

    @property
    def factor(self) -> float:
        """Now divided by before."""
        return self.now / self.before


def known_in(explained: Explained, baseline: Scan, tolerance: float = 1.1) -> bool:
    """Whether an earlier scan has this finding, at the same size and not smaller by a tenth."""
    new = explained.finding
    return any(
        old.finding.direction == new.direction
        and abs(old.finding.size - new.size) <= SAME_SIZE * new.size
        and new.factor <= tolerance * old.finding.factor
        and not old.finding.ambiguous
        for old in baseline.findings
    )


def check_baseline(scan: Scan, baseline: Scan) -> None:
    """UserError unless the two can be compared: same GPU (or CPU), clock and problem."""
    differing = [key for key in ("gpu", "cpu") if scan.meta.get(key) != baseline.meta.get(key)]
    if scan.clock != baseline.clock:
        differing.append("clock")
    for name in ("op", "path", "dtype", "batch", "nrhs", "device"):
        if getattr(scan.target, name) != getattr(baseline.target, name):
            differing.append(name)
    if differing:
        raise UserError(
            f"--baseline: that scan is of another {', '.join(differing)}; times compare only on "
            "the same machine and problem. Make a baseline here with --json"
        )


def changes(scan: Scan, baseline: Scan, factor: float) -> list[Change]:
    """Every size that both scans measured. Different by more than ``factor`` counts, if it is also
    more than the spreads allow.
    """
    found = []
    for size, (now, low, high, _) in scan.levels.items():
        if size not in baseline.levels:
            continue
        before, old_low, old_high, _ = baseline.levels[size]
        apart = low > old_high or high < old_low
        ratio = now / before
        if 1 / factor <= ratio <= factor:
            verdict = "SAME"
        elif not apart:
            verdict = "AMBIGUOUS"
        else:
            verdict = "SLOWER" if ratio > 1 else "FASTER"
        found.append(Change(size, before, now, verdict))
    return found


def outcome(scan: Scan, fail_over: float, baseline: Scan | None = None) -> Outcome:
    """The exit code. ``fail_over``: least factor of a finding that counts. With a baseline, what it
    has too does not count, and sizes slower than there do.
    """
    reasons = []
    for explained in scan.findings:
        finding = explained.finding
        if finding.ambiguous or finding.factor < fail_over:
            continue
        if baseline is not None and known_in(explained, baseline):
            continue
        reasons.append(f"{finding.kind} at {finding.size}: {finding.factor:.2f}x")
    if baseline is not None:
        slower = [one for one in changes(scan, baseline, fail_over) if one.verdict == "SLOWER"]
        if slower:
            worst = max(slower, key=lambda one: one.factor)
            reasons.append(
                f"{len(slower)} sizes are slower than in the baseline, at most {worst.factor:.2f}x "
                f"at {worst.size}"
            )
    if reasons:
        return Outcome(FOUND, tuple(reasons))
    reasons = missing(scan, fail_over)
    return Outcome(NOT_MEASURED if reasons else NONE, tuple(reasons))


def missing(scan: Scan, fail_over: float) -> list[str]:
    """Why a scan that found nothing cannot say that there is nothing."""
    reasons = []
    if len(scan.levels) < LEAST_MEASURED:
        reasons.append(f"only {len(scan.levels)} sizes could be measured")
    if not scan.complete:
        reasons.append("the time budget ended the search; raise --budget or go on with --resume")
    if scan.skipped:
        size, reason = next(iter(scan.skipped.items()))
        reasons.append(f"{len(scan.skipped)} sizes were skipped, the first {size}: {reason}")
    unsure = [
        one.finding.size
        for one in scan.findings
        if one.finding.ambiguous and one.finding.high >= fail_over
    ]
    if unsure:
        reasons.append(f"AMBIGUOUS at {len(unsure)} sizes, the first {unsure[0]}")
    noisy = {size: most for size, most in scan.unresolved.items() if most >= fail_over}
    if noisy:
        worst = max(noisy, key=lambda size: noisy[size])
        reasons.append(
            f"the noise is too large to rule out jumps at {len(noisy)} sizes (at {worst} up to "
            f"{noisy[worst]:.2f}x): use a quieter machine or a larger --factor"
        )
    return reasons


def geometric_mean(values: list[float]) -> float:
    """The geometric mean; 1 of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 1.0
