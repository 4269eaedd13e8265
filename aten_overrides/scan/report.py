"""A scan as text."""

from __future__ import annotations

from aten_overrides.scan.kinds import Finding
from aten_overrides.scan.run import Explained, Scan
from aten_overrides.scan.verdict import Change, Outcome, geometric_mean

MOST_UNSURE = 4  # AMBIGUOUS findings told in a line each


def milliseconds(ms: float) -> str:
    """Three significant digits with a unit: "12.3 us", "1.23 ms", "216 ms"."""
    if ms < 1:
        return f"{ms * 1e3:.3g} us"
    return f"{ms:.3g} ms" if ms < 1000 else f"{ms:.0f} ms"


def headline(finding: Finding) -> str:
    """A finding in one line."""
    where = f"{finding.kind} at {finding.size}"
    if finding.until is not None:
        where += f" to {finding.until}"
    told = f"{where}: {finding.factor:.2f}x {_side(finding)}"
    told += f" ({finding.low:.2f} to {finding.high:.2f}, {_confidence(finding)})"
    times = f"{milliseconds(finding.seconds_below * 1e3)} at {finding.below}, "
    times += f"{milliseconds(finding.seconds * 1e3)} at {finding.size}"
    period = f", every {finding.period}" if finding.period else ""
    return f"{told}{period}; {times}"


def _side(finding: Finding) -> str:
    if finding.direction == "slower":
        return "slower than the trend below it"
    return f"faster; sizes up to {finding.below} are the slow ones"


def _confidence(finding: Finding) -> str:
    if finding.ambiguous:
        return f"AMBIGUOUS: {finding.reason}"
    assert isinstance(finding.confidence, float)
    return "confidence " + ("> 0.999" if finding.confidence > 0.999 else f"{finding.confidence}")


def _details(explained: Explained) -> list[str]:
    lines = [f"    {explained.cause}"] if explained.cause else []
    for side, trace in zip(explained.sides, explained.traces, strict=True):
        told = [side.chosen] if side.chosen else []
        if side.times:
            name, ms = side.best
            factor = f"{side.ms / ms:.2f}x the best back end there"
            told.append(f"{factor} ({name}, {milliseconds(ms)})")
        if told:
            lines.append(f"    n = {side.size}: {', '.join(told)}")
        if side.times and side.reason:
            lines.append(f"      not timed: {side.reason}")
        if trace is not None:
            most = ", ".join(f"{count} x {name}" for name, count, _ in trace.names[:3])
            span = milliseconds(trace.span / 1e3)
            lines.append(f"    n = {side.size}: {trace.launches} {trace.what} in {span}: {most}")
    reasons = [side.reason for side in explained.sides if side.reason and not side.times]
    lines += [f"    no back ends compared: {reason}" for reason in dict.fromkeys(reasons)]
    return lines


def report(scan: Scan, outcome: Outcome, compared: list[Change] | None = None) -> str:
    """The whole scan; ``compared``: its sizes against a baseline."""
    first, last, _ = scan.wanted
    meta = scan.meta
    device = meta["gpu"] or meta.get("cpu")
    lines = [
        f"{scan.target}; n = {first} to {last}",
        f"{device}, torch {meta['torch']}; {scan.clock} clock; {len(scan.levels)} sizes, "
        f"{len(scan.samples)} samples in {scan.seconds:.1f} s",
        "",
    ]
    certain = [one for one in scan.findings if not one.finding.ambiguous]
    unsure = [one.finding for one in scan.findings if one.finding.ambiguous]
    for explained in certain:
        lines.append(headline(explained.finding))
        lines += _details(explained)
    worst = sorted(unsure, key=lambda finding: -finding.factor)[:MOST_UNSURE]
    lines += [headline(finding) for finding in worst]
    if len(unsure) > len(worst):
        others = sorted(one.size for one in unsure if one not in worst)
        lines.append(f"AMBIGUOUS too: {', '.join(map(str, others))}")
    if not scan.findings:
        lines.append(f"no jump of {scan.settings.factor}x or more between neighbouring sizes")
    if scan.skipped:
        told = "; ".join(f"{size}: {reason}" for size, reason in list(scan.skipped.items())[:2])
        lines.append(f"{len(scan.skipped)} sizes were skipped: {told}")
    if scan.resolution > 1:
        lines.append(
            f"stretches narrower than {scan.resolution} sizes between those measured may be missed"
        )
    lines += _against(compared) if compared else []
    words = {0: "no cliff", 1: "found", 2: "could not measure"}
    reasons = f": {'; '.join(outcome.reasons)}" if outcome.reasons else ""
    lines += ["", f"exit code {outcome.code}, {words[outcome.code]}{reasons}"]
    return "\n".join(lines)


def _against(compared: list[Change]) -> list[str]:
    counts = dict.fromkeys(("SAME", "FASTER", "SLOWER", "AMBIGUOUS"), 0)
    for change in compared:
        counts[change.verdict] += 1
    told = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    mean = geometric_mean([change.factor for change in compared])
    return [f"against the baseline, {len(compared)} sizes: {told}; {mean:.3f}x its time on average"]
