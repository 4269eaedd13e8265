"""What `tools/gpu-test overrides` runs: parts, and the jobs of each, in order of priority.

The scripts lie in test/gpu/overrides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotools.env import UserError
from aotools.gputest.plan import DTYPES, Job

FOLDER = "test/gpu/overrides"
LIBRARY = "overrides"

PARTS: dict[str, str] = {
    "smoke": "every route of lu_factor and lu_solve against the definition",
    "cliff": "solve_ex at n = 511, 512, 513, with the overrides and without, in turns",
    "regret": "the choice against every library route, all n of 480..544",
    "allocs": "allocator calls of one lu_factor_ex",
    "streams": "streams against the loop: speed, bits in 1000 runs, memory of the handles",
    "overhead": "host microseconds that the overrides add to a small call",
    "graphs": "synchronisations, capture and replay, torch.compile, capture beside work",
    "kinds": "correctness by kind of fault, after public reports",
    "concurrency": "threads, fresh processes, 10^6 small calls with churn",
    "lifetime": "streams in order, raised errors, memory nearly full",
    "sanitizer": "compute-sanitizer: memcheck and racecheck on a reduced set",
    "upstream": "upstream's test_linalg.py of 2.6.0: tests of linear solvers",
    "solve": "lu_solve by every route, and shapes that were reported as slow",
    "upstream-rest": "the other tests of that file, in shards",
}

REGRET_SECONDS = {"float32": 24.0, "float64": 28.0, "complex64": 28.0, "complex128": 38.0}
REST_SHARDS = 4


def _job(
    part: str,
    name: str,
    function: str,
    seconds: float,
    timeout: float,
    options: Mapping[str, Any] | None = None,
    *,
    timed: bool = True,
) -> Job:
    return Job(
        part, name, LIBRARY, function, seconds, timeout, options or {}, timed=timed, folder=FOLDER
    )


def _regret() -> list[Job]:
    return [
        _job(
            "regret",
            dtype,
            "part_regret:run",
            REGRET_SECONDS[dtype] + 6,
            REGRET_SECONDS[dtype] + 40,
            {"dtypes": [dtype], "seconds": REGRET_SECONDS[dtype]},
        )
        for dtype in DTYPES
    ]


def _checks() -> list[Job]:
    """What only checks, in the order of its parts; neighbours run at once."""
    rows: list[tuple[str, str, str, float, float, dict[str, Any]]] = [
        ("graphs", "capture", "part_graphs:run", 10, 90, {}),
        ("graphs", "synchronisations", "part_graphs:syncs", 15, 90, {}),
        ("graphs", "stock", "part_graphs:stock", 8, 60, {}),
        ("graphs", "beside-work", "part_graphs:beside_work", 8, 60, {}),
        ("graphs", "compile", "part_graphs:compiled", 60, 150, {}),
        ("kinds", "bad", "part_bad:run", 30, 120, {}),
        ("kinds", "native", "part_native:run", 30, 120, {}),
        ("kinds", "limits", "part_kinds:limits", 15, 120, {}),
        ("kinds", "offsets", "part_kinds:offsets", 15, 120, {}),
        ("kinds", "views", "part_kinds:views", 10, 90, {}),
        ("kinds", "derivatives", "part_derivatives:run", 25, 120, {}),
        ("kinds", "endless", "part_bad:endless", 25, 200, {}),
        ("kinds", "pivots", "part_pivots:run", 20, 120, {}),
        ("kinds", "stock", "part_stock:run", 30, 120, {}),
        ("kinds", "magma", "part_magma:run", 10, 90, {}),
        ("kinds", "uses", "part_uses:run", 25, 120, {}),
        ("kinds", "uses-compiled", "part_uses:compiled", 30, 150, {}),
        ("kinds", "reports", "part_reports:run", 8, 90, {}),
        ("concurrency", "threads", "part_threads:streams", 8, 60, {}),
        ("concurrency", "fresh", "part_threads:fresh", 45, 200, {"processes": 20}),
        ("concurrency", "processes", "part_lifetime:beside", 20, 120, {}),
        ("concurrency", "churn", "part_lifetime:churn", 90, 220, {"calls": 10**6, "seconds": 170}),
    ]
    return [
        _job(part, name, function, seconds, timeout, options, timed=False)
        for part, name, function, seconds, timeout, options in rows
    ]


def _upstream(tests: Path) -> list[Job]:
    def job(part: str, name: str, seconds: float, others: bool, shard: int, shards: int) -> Job:
        options = {"tests": str(tests), "shards": 4, "device": "cuda"}
        options |= {"others": others, "part": shard, "parts": shards}
        function = "part_upstream_overrides:run"
        # Times do not matter. The first runs beside the sanitizer, the rest one after the other.
        return Job(part, name, LIBRARY, function, seconds, 240, options, timed=others)

    first = [job("upstream", "solvers", 75, False, 0, 1)]
    return first + [
        job("upstream-rest", f"{shard + 1}-of-{REST_SHARDS}", 60, True, shard, REST_SHARDS)
        for shard in range(REST_SHARDS)
    ]


def jobs(parts: Sequence[str], tests: Path) -> list[Job]:
    """The jobs of the parts asked for, in the order in which they run."""
    made = [
        _job("smoke", "all", "part_smoke:run", 12, 120),
        _job("cliff", "all", "part_cliff:run", 35, 150),
        *_regret(),
        _job("allocs", "all", "part_small:allocs", 9, 60),
        _job("streams", "all", "part_small:streams", 35, 150, {"runs": 1000}),
        _job("overhead", "all", "part_small:overhead", 6, 60),
        *_checks(),
        _job("lifetime", "all", "part_lifetime:run", 35, 240),
        _job("sanitizer", "memcheck", "part_sanitize:memcheck", 90, 150, timed=False),
        _job("sanitizer", "racecheck", "part_sanitize:racecheck", 90, 150, timed=False),
        *_upstream(tests),
        _job("solve", "magma-costs", "part_magma:costs", 6, 60),
        _job("solve", "reported", "part_small:reported", 8, 60),
        _job("solve", "all", "part_solve:run", 25, 120),
    ]
    order = list(PARTS)
    return sorted((job for job in made if job.part in parts), key=lambda job: order.index(job.part))


def parse_parts(text: str) -> list[str]:
    """The parts in a comma list, in running order; UserError that lists those there are."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - PARTS.keys())
    if unknown or not names:
        asked = f"unknown part {', '.join(unknown)}" if unknown else "no part was named"
        raise UserError(f"--parts: {asked}. There are: {', '.join(PARTS)}")
    return [part for part in PARTS if part in names]
