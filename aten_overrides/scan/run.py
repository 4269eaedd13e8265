"""One scan from beginning to end: search, then look at both sides of what was found."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._files import write_atomically
from aten_overrides.measure import machine
from aten_overrides.scan.backends import Side
from aten_overrides.scan.kernels import Trace, trace_of
from aten_overrides.scan.kinds import Finding, classify, unresolved
from aten_overrides.scan.search import Search, Settings
from aten_overrides.scan.sides import cause, look, surroundings
from aten_overrides.scan.target import Measured, Target, measured

FORMAT = 1
SEARCH_SHARE = 0.75  # of the budget; the rest looks at both sides of the findings
MOST_EXPLAINED = 4
LONG_CALL = 0.02  # seconds; what a warm-up holds of the host's time is little of such a call
LEAST_MEASURED = 5  # sizes; fewer measured nothing
SAME_MACHINE = ("gpu", "cpu", "driver", "torch", "cublas", "cusolver")


@dataclass
class Explained:
    """A finding with both sides: back ends, times and traces (None: there is none)."""

    finding: Finding
    sides: tuple[Side, ...] = ()
    traces: tuple[Trace | None, ...] = ()
    cause: str = ""

    def json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            **self.finding.json(),
            "cause": self.cause,
            "sides": [side.json() for side in self.sides],
            "traces": [trace.json() if trace else None for trace in self.traces],
        }


@dataclass
class Scan:
    """A scan's result. ``levels``: (seconds, lower and upper quartile, samples) by size."""

    target: Target
    wanted: tuple[int, int, int]  # first, last, step
    settings: Settings
    meta: dict[str, Any]
    clock: str
    levels: dict[int, tuple[float, float, float, int]]
    work: dict[int, float] | None
    skipped: dict[int, str]
    complete: bool
    seconds: float
    findings: list[Explained] = field(default_factory=list)
    samples: list[tuple[int, int, float]] = field(default_factory=list)
    resolution: int = 1  # slow stretches narrower than this many sizes may have been missed
    unresolved: dict[int, float] = field(default_factory=dict)  # see kinds.unresolved

    def json(self) -> dict[str, Any]:
        """As JSON values; times in milliseconds."""
        return {
            "format": FORMAT,
            "meta": self.meta,
            "target": dataclasses.asdict(self.target),
            "sizes": list(self.wanted),
            "settings": dataclasses.asdict(self.settings),
            "clock": self.clock,
            "complete": self.complete,
            "seconds": round(self.seconds, 2),
            "resolution": self.resolution,
            "unresolved": {str(size): most for size, most in self.unresolved.items()},
            "levels": {
                str(size): [_ms(level), _ms(low), _ms(high), count]
                for size, (level, low, high, count) in self.levels.items()
            },
            "work": None if self.work is None else {str(n): w for n, w in self.work.items()},
            "skipped": {str(size): reason for size, reason in self.skipped.items()},
            "findings": [explained.json() for explained in self.findings],
            "samples": [[size, number, _ms(value)] for size, number, value in self.samples],
        }


def _ms(seconds: float) -> float:
    return float(f"{seconds * 1e3:.6g}")


def read(path: Path) -> Scan:
    """A scan that ``json`` has written. UserError if it cannot be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return from_json(data)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not a scan that can be read ({type(error).__name__}: {error}); name a "
            "file that `aten-overrides scan --json` has written"
        ) from error


def from_json(data: dict[str, Any]) -> Scan:
    """A scan from JSON values. ValueError for another format."""
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}, expected {FORMAT}")
    names = {one.name for one in dataclasses.fields(Finding)}
    findings = []
    for row in data["findings"]:
        finding = Finding(**{key: value for key, value in row.items() if key in names})
        sides = tuple(
            Side(side["size"], side["chosen"], side["ms"], side["times_ms"], side["reason"])
            for side in row["sides"]
        )
        traces = tuple(trace_of(trace) if trace else None for trace in row["traces"])
        findings.append(Explained(finding, sides, traces, row["cause"]))
    first, last, step = data["sizes"]
    return Scan(
        target=Target(**data["target"]),
        wanted=(first, last, step),
        settings=Settings(**data["settings"]),
        meta=data["meta"],
        clock=data["clock"],
        levels={
            int(size): (row[0] / 1e3, row[1] / 1e3, row[2] / 1e3, row[3])
            for size, row in data["levels"].items()
        },
        work=None if data["work"] is None else {int(n): w for n, w in data["work"].items()},
        skipped={int(size): reason for size, reason in data["skipped"].items()},
        complete=data["complete"],
        seconds=data["seconds"],
        findings=findings,
        samples=[(size, number, ms / 1e3) for size, number, ms in data["samples"]],
        resolution=data["resolution"],
        unresolved={int(size): most for size, most in data["unresolved"].items()},
    )


def check_same(old: Scan, target: Target, wanted: Sequence[int], meta: dict[str, Any]) -> None:
    """UserError unless the samples of an earlier scan may stand beside new ones."""
    differing = [key for key in SAME_MACHINE if old.meta.get(key) != meta.get(key)]
    if old.target != target:
        differing.append("target")
    if tuple(old.wanted) != tuple(wanted):
        differing.append("sizes")
    if differing:
        raise UserError(
            f"--resume: the earlier scan is of another {', '.join(differing)}, so its samples "
            "cannot stand beside new ones; name another --json file or leave --resume out"
        )


def scan(
    target: Target,
    wanted: tuple[int, int, int],
    settings: Settings,
    budget: float,
    *,
    torch: Any | None,
    clock: str = "auto",
    path: Path | None = None,
    resume: bool = False,
    explain: int = MOST_EXPLAINED,
    command: str = "",
    meta: dict[str, Any] | None = None,
    explain_seconds: float = 0.0,
) -> Scan:
    """Scan ``target`` over sizes first, last, step for at most about ``budget`` seconds.

    path: where the JSON is written after every stage, so that an interrupted scan goes on with
    ``resume``. meta: the machine's, if it is known already. explain: of how many findings both
    sides are looked at, for at least ``explain_seconds``, which may come on top of the budget.
    UserError if the earlier scan is of another target or machine.
    """
    started = time.monotonic()
    curve = measured(target, torch, clock)
    facts = {**(meta or machine.machine(torch, target.device == "cuda")), "command": command}
    watched = meta is None and facts["gpu"] is not None
    if watched:
        facts["clocks_before"] = machine.clocks()
    search = Search(curve, range(wanted[0], wanted[1] + 1, wanted[2]), settings, long=LONG_CALL)
    end = started + budget * SEARCH_SHARE
    search.left = lambda: end - time.monotonic()
    if resume and path is not None and path.exists():
        _go_on(search, read(path), target, wanted, facts)

    def state() -> Scan:
        return _result(search, target, wanted, facts, time.monotonic() - started, curve)

    def save() -> None:
        if path is not None:
            write_atomically(path, json.dumps(state().json()) + "\n")

    search.saved = save
    with surroundings(target):
        search.run()
        result = state()
        left = _left(max(started + budget, time.monotonic() + explain_seconds))
        for explained in _worst(result.findings)[:explain]:
            _explain(explained, curve, target, left)
            if path is not None:
                write_atomically(path, json.dumps(result.json()) + "\n")
    if watched:
        result.meta["clocks_after"] = machine.clocks()
    result.seconds = time.monotonic() - started
    if path is not None:
        write_atomically(path, json.dumps(result.json()) + "\n")
    return result


def _left(end: float) -> Callable[[], float]:
    return lambda: end - time.monotonic()


def _worst(findings: list[Explained]) -> list[Explained]:
    certain = [one for one in findings if not one.finding.ambiguous]
    return sorted(certain, key=lambda one: (-one.finding.factor, one.finding.size))


def _go_on(
    search: Search, old: Scan, target: Target, wanted: Sequence[int], meta: dict[str, Any]
) -> None:
    check_same(old, target, wanted, meta)
    for size, number, seconds in old.samples:
        search.samples.add(size, number, seconds)
        search.round = max(search.round, number)


def _result(
    search: Search,
    target: Target,
    wanted: tuple[int, int, int],
    meta: dict[str, Any],
    seconds: float,
    curve: Measured,
) -> Scan:
    samples = search.samples
    verdicts = search.verdicts()
    findings = classify(samples, verdicts, search.settings.factor, curve.work)
    levels = {}
    for size in samples.sizes():
        values = samples.seconds(size)
        low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        levels[size] = (math.exp(samples.log_level(size)), low, high, len(values))
    sizes = list(levels)
    work = {size: float(curve.work(size)) for size in sizes} if curve.work else None
    gaps = [b - a for a, b in itertools.pairwise(sizes)]
    return Scan(
        target=target,
        wanted=wanted,
        settings=search.settings,
        meta=meta,
        clock=curve.clock.name,
        levels=levels,
        work=work,
        skipped=dict(sorted(search.skipped.items())),
        complete=search.complete,
        seconds=seconds,
        findings=[Explained(finding) for finding in findings],
        samples=list(samples.rounds()),
        resolution=max(gaps, default=1),
        unresolved=unresolved(verdicts, search.settings.factor),
    )


def _explain(
    explained: Explained, curve: Measured, target: Target, left: Callable[[], float]
) -> None:
    """Fill in sides, traces and cause."""
    if left() <= 0:
        explained.cause = "not looked at: the time budget was spent"
        return
    finding = explained.finding
    seconds = {finding.below: finding.seconds_below, finding.size: finding.seconds}
    looks = look(curve, target, seconds, left)
    explained.sides = tuple(one.side for one in looks)
    explained.traces = tuple(one.trace for one in looks)
    explained.cause = cause(explained.sides, explained.traces)
