"""Times the batched solve's plans in one run, checks every answer; writes a timing record.

Example: BATCHED_LU_LIBRARY=... python test/gpu/native/bench_batched_solve.py --out FOLDER
    [--other NAME=LIBRARY] [--budget SECONDS]

``--other``: further builds of the same entry points, by their own plans. What matters most comes
first; the record is written whole every few seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from checks import solve_residual
from solve_checks import LIMIT, column_major, operated, random
from solve_library import SolveLibrary, SolvePlan

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from aten_overrides._files import record_text, write_atomically
from aten_overrides.measure import machine

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}
CALLS, SAMPLES = 8, 3
WAIT_CYCLES = 400_000  # while the host queues a sample
SLOW_MS = 30.0
MOST_ELEMENTS = 2**28
WARPS = (0, 3, 4, 5, 6, 9, 13, 17)
WIDTHS = (0, 64, 256)
FLUSH_SECONDS = 5.0


@dataclass(frozen=True)
class Problem:
    """One system of each size and the plans to time; ``few``: one pass over the factor."""

    dtype: str
    operation: str
    batch: int
    n: int
    nrhs: int
    few: bool

    @property
    def fits(self) -> bool:
        """Whether matrices and right-hand sides are of a size that is worth the time."""
        return self.batch * self.n * max(self.n, self.nrhs) <= MOST_ELEMENTS

    def plans(self) -> tuple[SolvePlan, ...]:
        """The library's own plan first."""
        if self.few:
            most = 17 if self.n > 32 else 1
            return tuple(SolvePlan(warps=warps) for warps in WARPS if warps <= most)
        made = [SolvePlan(False), SolvePlan(False, together=1), SolvePlan(False, together=2)]
        if self.n > 256:
            made += [SolvePlan(False, width=width) for width in WIDTHS[1:]]
        elif self.n > 64:
            made.append(SolvePlan(False, width=64))
        return tuple(made)


def problems() -> Iterator[Problem]:
    """All problems, what matters most first."""
    main = {"float32": "T", "float64": "T", "complex64": "N", "complex128": "N"}
    sizes = (512, 128, 64, 256, 1024, 129, 65)
    for dtype in ("float32", "float64"):
        for n, batch in itertools.product(sizes, (1, 64, 1024)):
            yield Problem(dtype, main[dtype], batch, n, 1, True)
            yield Problem(dtype, main[dtype], batch, n, n, False)
    for dtype in ("complex64", "complex128"):
        for n, batch in itertools.product((128, 512, 64, 256), (1, 64, 1024)):
            yield Problem(dtype, main[dtype], batch, n, 1, True)
            yield Problem(dtype, main[dtype], batch, n, n, False)
    for dtype, n in itertools.product(("float32", "float64"), (512, 128, 256)):
        for batch in (1, 64, 1024):
            yield Problem(dtype, "N", batch, n, 1, True)
            yield Problem(dtype, "N", batch, n, n, False)
    for n, batch in itertools.product((512, 128, 2048), (1, 8, 256)):
        for nrhs in (1, 4):
            yield Problem("float32", "T", batch, n, nrhs, True)
        yield Problem("float32", "T", batch, n, 64, False)


def timed(
    library: SolveLibrary, inputs: Sequence[Any], operation: str, plan: SolvePlan
) -> list[float]:
    """Milliseconds of a call, in samples; in place, so the numbers change from call to call."""
    lu, pivots, b = inputs
    x = column_major(b)
    samples = []
    for _ in range(SAMPLES):
        x.copy_(b)
        torch.cuda._sleep(WAIT_CYCLES)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(CALLS):
            library.solve(lu, pivots, x, operation, plan)
        end.record()
        end.synchronize()
        samples.append(float(start.elapsed_time(end)) / CALLS)
        if samples[-1] > SLOW_MS:
            break
    return samples


def judged(
    library: SolveLibrary, a: Any, inputs: Sequence[Any], operation: str, plan: SolvePlan
) -> float:
    """The worst residual in units of n eps, of at most 64 items and 64 columns."""
    lu, pivots, b = inputs
    x = column_major(b)
    library.solve(lu, pivots, x, operation, plan)
    part = slice(0, 64), slice(None), slice(0, 64)
    return float(solve_residual(operated(a[:64], operation), x[part], b[part]).max())


def measure(
    libraries: dict[str, SolveLibrary], problem: Problem
) -> Iterator[tuple[dict[str, Any], bool]]:
    """A point of the record for every plan, and whether its answer is right."""
    dtype = DTYPES[problem.dtype]
    a = random((problem.batch, problem.n, problem.n), dtype, "cuda")
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    b = random((problem.batch, problem.n, problem.nrhs), dtype, "cuda", seed=7)
    inputs = (column_major(lu), pivots, b)
    for name, library in libraries.items():
        for plan in problem.plans() if name == "" else problem.plans()[:1]:
            error = judged(library, a, inputs, problem.operation, plan)
            samples = timed(library, inputs, problem.operation, plan)
            point = {
                "op": "lu_solve",
                "dtype": problem.dtype,
                "m": problem.n,
                "n": problem.n,
                "batch": problem.batch,
                "nrhs": problem.nrhs,
                "operation": problem.operation,
                "backend": "batched_native" if problem.few else "blocked_native",
                "library": name or "this",
                "plan": {"together": plan.together, "warps": plan.warps, "width": plan.width},
                "ms": round(statistics.median(samples), 5),
                "spread": [round(min(samples), 5), round(max(samples), 5)],
                "residual": round(error, 3),
            }
            yield point, error <= LIMIT


def best_of(points: Sequence[dict[str, Any]]) -> str:
    """One line: the library's own plan, the best one, and the other libraries."""
    own = points[0]
    best = min((p for p in points if p["library"] == "this"), key=lambda p: p["ms"])
    others = [f"{p['library']} {p['ms']:.4f}" for p in points if p["library"] != "this"]
    plan = {key: value for key, value in best["plan"].items() if value}
    size = f"{own['dtype']:10} {own['operation']} {own['batch']:4} x {own['n']:4}, {own['nrhs']:4}"
    return f"{size}: {own['ms']:.4f}, best {best['ms']:.4f} {plan or ''} {' '.join(others)}"


def main() -> int:
    """0: all answers were right; 1: some were not."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the record")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=LIBRARY")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds; default: %(default)g")
    parser.add_argument("--kind", choices=("few", "many", "both"), default="both")
    parser.add_argument("--commit", default="", help="for the record")
    options = parser.parse_args()
    started = time.monotonic()
    libraries = {"": SolveLibrary()}
    for other in options.other:
        name, _, path = other.partition("=")
        libraries[name] = SolveLibrary(path)
    meta = {
        "topic": "solve-plans",
        "command": shlex.join(["python3", *sys.argv]),
        "commit": options.commit,
        **machine.machine(torch, True),
    }
    points: list[dict[str, Any]] = []
    wrong = left_out = 0
    flushed = started
    path = options.out / "solve-plans.json"

    def flush() -> None:
        write_atomically(path, record_text(meta, points=points))

    for problem in problems():
        if time.monotonic() - started > options.budget:
            left_out += 1
            continue
        if not problem.fits or options.kind == ("many" if problem.few else "few"):
            continue
        found = list(measure(libraries, problem))
        for point, right in found:
            points.append(point)
            if not right:
                wrong += 1
                print("WRONG", json.dumps(point), flush=True)
        print(best_of([point for point, _ in found]), flush=True)
        if time.monotonic() - flushed > FLUSH_SECONDS:
            flush()
            flushed = time.monotonic()
    flush()
    print(f"{len(points)} plans, {wrong} wrong, {left_out} problems left out for want of time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
