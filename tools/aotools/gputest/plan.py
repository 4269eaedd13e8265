"""What `tools/gpu-test patchset` runs: parts, and the jobs of each.

A job is one child process with one library (or the stock wheel) and its own time-out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotools.env import ROOT, UserError

STOCK = "stock"  # nothing is loaded: the wheel as it is
DTYPES = ("float32", "float64", "complex64", "complex128")

# In the order in which they run: the figures first, what takes longest last.
PARTS: dict[str, str] = {
    "cliff": "solve_ex at n = 511, 512, 513, and every route of lu_factor_ex there",
    "allocs": "allocator calls a call of lu_factor_ex and others makes",
    "lanes": "auxiliary streams against the loop: speed, bits, graphs, threads, memory",
    "eigh": "eigh and eigvalsh: time against the unpatched source, errors, NaN, a graph",
    "unchanged": "operations that the series must not change",
    "routes": "correctness of every route: residuals, pivots, info, bad matrices",
    "solve": "lu_solve: correctness of every route, and times, unpatched against patched",
    "upstream": "upstream's test_linalg.py, unpatched against patched",
}


@dataclass(frozen=True)
class Job:
    """One child process; `seconds` is estimated for an H200, start included; `timeout` ends it."""

    part: str
    name: str
    library: str
    function: str  # module:function
    seconds: float
    timeout: float
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()  # further libraries that the job loads
    timed: bool = True  # its times count, so it must have the machine for itself
    folder: str = ""  # of the module, below the checkout; this package's if empty

    @property
    def title(self) -> str:
        """The job's name in records and in messages: "cliff/stock"."""
        return f"{self.part}/{self.name}"

    def key(self, libraries_sha256: Mapping[str, str]) -> str:
        """Changes whenever the result could: options, libraries, the code that measures."""
        folder = ROOT / self.folder if self.folder else Path(__file__).parent
        files = [folder / f"{self.function.partition(':')[0]}.py", folder / "common.py"]
        text = b"".join(path.read_bytes() for path in files if path.is_file())
        code = hashlib.sha256(text).hexdigest()
        parts = [
            self.title,
            self.function,
            self.options,
            dict(self.environment),
            [libraries_sha256.get(name, "") for name in (self.library, *self.also)],
            code,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _cliff() -> list[Job]:
    def job(name: str, library: str, seconds: float, **options: Any) -> Job:
        return Job("cliff", name, library, "part_cliff:run", seconds, 200, options)

    return [
        job(
            "patched-magma",
            "patched-magma",
            85,
            preferences=["default", "cusolver", "cublas"],
            routes=True,
        ),
        job("stock", STOCK, 45, preferences=["default", "cusolver"]),
        job(
            "unpatched-nomagma",
            "unpatched-nomagma",
            60,
            preferences=["default"],
            also_float32=["cusolver"],
        ),
        job(
            "patched-nomagma", "patched-nomagma", 30, preferences=["default", "cusolver", "cublas"]
        ),
    ]


def _allocs() -> list[Job]:
    jobs = []
    for library in ("unpatched-nomagma", "patched-nomagma"):
        jobs.append(Job("allocs", library, library, "part_allocs:count", 15, 60))
        no_caching = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        jobs.append(
            Job(
                "allocs",
                f"{library}-uncached",
                library,
                "part_allocs:uncached",
                15,
                60,
                {},
                no_caching,
            )
        )
    return jobs


def _lanes() -> list[Job]:
    library = "patched-nomagma"
    one_stream = {"TORCH_LINALG_STREAMS": "1"}
    return [
        Job("lanes", "speed", library, "part_lanes:speed", 35, 90),
        Job("lanes", "limits", library, "part_lanes:limits", 12, 60),
        Job("lanes", "loops", library, "part_loops:run", 35, 60),
        Job("lanes", "graphs", "patched-magma", "part_lanes:graphs", 15, 60, timed=False),
        Job("lanes", "threads", library, "part_lanes:threads", 15, 90, timed=False),
        Job("lanes", "environment", library, "part_lanes:off", 12, 60, {}, one_stream, timed=False),
    ]


def _eigh() -> list[Job]:
    jobs = [
        Job("eigh", library, library, "part_eigh:times", 15, 45)
        for library in ("patched-nomagma", "unpatched-nomagma")
    ]
    return [
        *jobs,
        Job("eigh", "values", "patched-nomagma", "part_eigh:values", 25, 60, timed=False),
    ]


def _unchanged() -> list[Job]:
    return [
        Job(
            "unchanged", library, library, "part_unchanged:run", 15, 60, {"late": late}, timed=False
        )
        for library, late in (("patched-magma", True), ("patched-nomagma", False))
    ]


def _routes() -> list[Job]:
    return [Job("routes", "all", "patched-magma", "part_routes:run", 50, 150, timed=False)]


def _solve() -> list[Job]:
    patched, unpatched = "patched-magma", "unpatched-magma"
    routes = {"routes": True}
    return [
        Job("solve", patched, patched, "part_solve:times", 15, 60, routes),
        Job("solve", unpatched, unpatched, "part_solve:times", 10, 40),
        Job("solve", "correct", patched, "part_solve:correct", 20, 90, timed=False),
    ]


def _upstream(tests: Path) -> list[Job]:
    options = {"tests": str(tests), "shards": 4, "seconds": 220, "device": "cuda"}
    also = ("unpatched-magma",)
    return [
        Job("upstream", "both", "patched-magma", "part_upstream:run", 200, 290, options, {}, also)
    ]


def jobs(
    parts: Sequence[str], tests: Path = ROOT / "build/v2.6.0/src/test/test_linalg.py"
) -> list[Job]:
    """The jobs of the parts asked for, in the order in which they run."""
    made: dict[str, Callable[[], list[Job]]] = {
        "cliff": _cliff,
        "allocs": _allocs,
        "lanes": _lanes,
        "eigh": _eigh,
        "unchanged": _unchanged,
        "routes": _routes,
        "solve": _solve,
        "upstream": lambda: _upstream(tests),
    }
    return [job for part in PARTS if part in parts for job in made[part]()]


def parse_parts(text: str) -> list[str]:
    """The parts in a comma list, in running order; UserError that lists those there are."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = sorted(set(names) - PARTS.keys())
    if unknown or not names:
        asked = f"unknown part {', '.join(unknown)}" if unknown else "no part was named"
        raise UserError(f"--parts: {asked}. There are: {', '.join(PARTS)}")
    return [part for part in PARTS if part in names]
