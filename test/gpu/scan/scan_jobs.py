"""The jobs of plan.json and what one job does, in the process that has torch."""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aten_overrides.measure.operations import operation, overridden
from aten_overrides.scan.kernels import Bar, joined, profile_call
from aten_overrides.scan.run import Scan, scan
from aten_overrides.scan.search import Settings
from aten_overrides.scan.sides import look, surroundings
from aten_overrides.scan.target import Target, measured

PLAN = Path(__file__).with_name("plan.json")
MODES = ("stock", "overrides")
MOST_BARS = 150  # of the trace of a scan's finding
EXPLAINED = 2  # findings of a scan
EXPLAIN_SECONDS = 2.0
SAMPLES = 5
LEAST_TIMELINE = 8.0  # seconds: the profiler's start is part of the first one


def jobs(only: str | None, modes: tuple[str, ...] = MODES) -> list[dict[str, Any]]:
    """The jobs of the plan, stock before overrides; ``only``: operations with commas between."""
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    wanted = only.split(",") if only else None
    return [
        {**job, "mode": mode, "name": f"{number}/{mode}"}
        for number, job in enumerate(plan)
        for mode in modes
        if wanted is None or job["op"] in wanted
    ]


def target_of(job: dict[str, Any]) -> Target | None:
    """What a job scans; None where the overrides do not have its operation. In a timeline the
    overrides choose freely, since the preference is what makes stock's cliff.
    """
    ours = job["mode"] == "overrides"
    if ours and not overridden(operation(job["op"])):
        return None
    return Target(
        op=job["op"],
        dtype=job["dtype"],
        batch=job["batch"],
        nrhs=job.get("nrhs", 1),
        device=job.get("device", "cuda"),
        prefer="" if ours and "timeline" in job else job.get("prefer", ""),
        overrides=ours,
    )


def short(data: dict[str, Any]) -> dict[str, Any]:
    """A scan for the record: without the single samples, with shorter traces."""
    for finding in data["findings"]:
        for trace in finding["traces"]:
            if trace is not None:
                bars = joined([Bar(*bar) for bar in trace["bars"]], MOST_BARS)
                trace["bars"] = [[bar.start, bar.length, bar.name, bar.lane] for bar in bars]
    return {**data, "samples": []}


def partial_scan(path: Path, job: dict[str, Any]) -> dict[str, Any] | None:
    """What a scan that did not end had saved, if ``path`` is of this job."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    target = target_of(job)
    if target is None or data["target"] != dataclasses.asdict(target) or not data["levels"]:
        return None
    return short({**data, "complete": False})


def run_job(
    torch: Any, job: dict[str, Any], seconds: float, meta: dict[str, Any], path: Path
) -> dict[str, Any]:
    """A job's result, {"scan": ...} or {"timeline": ...}; {} where the overrides do not have its
    operation. A scan is saved at ``path`` on its way.
    """
    target = target_of(job)
    if target is None:
        return {}
    if "timeline" in job:
        return {"timeline": timeline(torch, target, job["timeline"], seconds)}
    first, last, step = job["n"]
    found: Scan = scan(
        target,
        (first, last, step),
        Settings(),
        seconds,
        torch=torch,
        explain=EXPLAINED,
        meta=meta,
        path=path,
        explain_seconds=EXPLAIN_SECONDS,
    )
    return {"scan": short(found.json())}


def warm_up(torch: Any) -> str:
    """Load what takes seconds the first time, in no job's time: the overrides and the profiler.
    What does not work here is said; the jobs that need it say so, too.
    """
    from aten_overrides import _runtime

    said = []
    try:
        with _runtime.enabled():
            pass
    except Exception as error:
        said.append(f"the overrides: {' '.join(str(error).split())[:300]}")
    try:
        trace = profile_call(torch, lambda: torch.ones(8, device="cuda").sum(), True)
        if trace is None or trace.what != "kernels":
            said.append("the profiler: it sees no kernels")
    except Exception as error:
        said.append(f"the profiler: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return "; ".join(said)


def timeline(torch: Any, target: Target, sizes: list[int], seconds: float) -> dict[str, Any]:
    """The kernels of one call at each size, its time and that of the other back ends."""
    end = time.monotonic() + max(seconds, LEAST_TIMELINE)
    left: Callable[[], float] = lambda: end - time.monotonic()  # noqa: E731
    curve = measured(target, torch)
    with surroundings(target):
        times = {size: statistics.median(curve.time(size, SAMPLES)) for size in sizes}
        looks = look(curve, target, times, left)
    return {
        "target": dataclasses.asdict(target),
        "sides": [one.side.json() for one in looks],
        "traces": [one.trace.json() if one.trace else None for one in looks],
    }


def line(name: str, row: dict[str, Any]) -> str:
    """A job's end in a line."""
    if row.get("error"):
        return f"{name}: {row['error']}"
    if row.get("timeline"):
        sides = row["timeline"]["sides"]
        told = ", ".join(f"n = {one['size']} {one['ms']:.3g} ms ({one['chosen']})" for one in sides)
        traced = sum(trace is not None for trace in row["timeline"]["traces"])
        return f"{name}: timeline {row['timeline']['target']['op']}: {told}; {traced} traces"
    if not row.get("scan"):
        return f"{name}: not covered"
    found, target = row["scan"], row["scan"]["target"]
    told = ", ".join(
        f"{one['kind']} {one['size']} {one['factor']:.2f}x"
        for one in found["findings"]
        if one["confidence"] != "AMBIGUOUS"
    )
    return (
        f"{name}: {target['op']} {target['dtype']} b{target['batch']} {target['prefer']} "
        f"{len(found['levels'])} sizes, {len(found['skipped'])} skipped, {found['seconds']} s"
        f"{'' if found['complete'] else ', cut'}: {told or '-'}"
    )
