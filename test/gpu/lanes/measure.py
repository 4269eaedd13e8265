"""Measures what auxiliary streams gain for every loop of cuSOLVER calls; writes a timing record.

    python3 test/gpu/lanes/measure.py --out FOLDER [--budget 120] [--ops geqrf,potrf] [--dry-run]

For each routine, dtype, n and batch, in one run and in turns: the loop on one stream, the same on
2, 4 and 8 lanes with a handle each, the vendor's batched routine, and torch's own call. Besides:
whether a routine makes the host wait, and whether lanes give the loop's bits. All but torch's call
start from a copy of the input that is made within the time, as torch makes one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "tools"), str(ROOT)]

import library as lanes_library  # noqa: E402
import plan  # noqa: E402
from plan import Guesses, Point  # noqa: E402

from aotools.gputest.record import record_name  # noqa: E402
from aten_overrides._files import record_text, write_atomically  # noqa: E402

Row = dict[str, Any]
FLUSH_SECONDS = 3.0
PROBED = ("float32", "complex128")
PROBE_SIZES = (64, 512)
PROBE_MS = 30.0  # of work before the call whose host time is taken
WAITS = 0.5  # of that time: from here on the host has waited


class Record:
    """The rows so far; the file is written whole every few seconds and at the end."""

    def __init__(self, path: Path, meta: Row) -> None:
        self.path, self.meta = path, meta
        self.points: list[Row] = []
        self.checks: list[Row] = []
        self._written = time.monotonic()

    def check(self, name: str, params: Row, result: str, value: Any, reason: str = "") -> None:
        """Add a check."""
        row = {"name": name, "params": params, "result": result, "value": value, "reason": reason}
        self.checks.append(row)

    def flush(self, now: bool = False) -> None:
        """Write the file if it is time to."""
        if now or time.monotonic() - self._written > FLUSH_SECONDS:
            text = record_text(self.meta, points=self.points, checks=self.checks)
            write_atomically(self.path, text)
            self._written = time.monotonic()


class Measuring:
    """The GPU, the library and the record."""

    def __init__(self, torch: Any, library: lanes_library.Library, record: Record) -> None:
        self.torch, self.library, self.record = torch, library, record
        self.guesses = Guesses()
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def torch_call(self, call: Callable[[], Any]) -> Callable[[], lanes_library.Times]:
        """A timer of one of torch's calls."""

        def once() -> lanes_library.Times:
            started = time.perf_counter()
            self._start.record()
            kept = call()
            self._end.record()
            host = (time.perf_counter() - started) * 1e3
            self._end.synchronize()
            del kept
            return lanes_library.Times(self._start.elapsed_time(self._end), host)

        return once

    def run(self, op: str, wanted: list[Point], seconds: float) -> tuple[int, int]:
        """The points of a routine that fit into the seconds; how many were, and of how many."""
        end = time.monotonic() + seconds
        done = 0
        equal: dict[tuple[str, int], list[int]] = {}
        for point in wanted:
            if time.monotonic() > end:
                break
            try:
                self._point(point, equal)
            except (RuntimeError, MemoryError) as error:
                params = {"op": op, "dtype": point.dtype, "n": point.n, "batch": point.batch}
                self.record.check("point", params, "fail", None, str(error)[:300])
                self.torch.cuda.empty_cache()
            done += 1
            self.record.flush()
        for (dtype, lane_count), (same, all_points) in sorted(equal.items()):
            result = "pass" if same == all_points else "vendor"
            params = {"op": op, "dtype": dtype, "lanes": lane_count}
            self.record.check("lanes give the loop's bits", params, result, [same, all_points])
        return done, len(wanted)

    def _point(self, point: Point, equal: dict[tuple[str, int], list[int]]) -> None:
        import problems

        torch, library = self.torch, self.library
        made = problems.make(torch, point)
        needs = library.prepare(made.problem, max(plan.LANES))
        calls: dict[str, Callable[[], lanes_library.Times]] = {}
        if self.guesses.allowed(point, "looped"):
            calls["looped"] = lambda: library.run(1)
            for count in plan.LANES:
                calls[f"streamed{count}"] = lambda count=count: library.run(count)  # type: ignore[misc]
        if needs.batched:
            calls["batched"] = lambda: library.run(0)
        for name, call in made.stock.items():
            calls[name] = self.torch_call(call)
        calls = {name: call for name, call in calls.items() if self.guesses.allowed(point, name)}
        if not calls:
            return
        same: dict[str, bool] = {}
        loop: tuple[Any, ...] = ()
        first: dict[str, float] = {}
        for name, call in calls.items():
            call()  # lazy loading
            first[name] = call().device
            if name == "looped":
                loop = tuple(tensor.clone() for tensor in made.outputs)
            elif name.startswith("streamed"):
                same[name] = problems.same_bits(torch, made.outputs, loop)
                tally = equal.setdefault((point.dtype, int(name[8:])), [0, 0])
                tally[0] += same[name]
                tally[1] += 1
        samples: dict[str, list[lanes_library.Times]] = {name: [] for name in calls}
        for _ in range(plan.rounds_for(sum(first.values()))):
            for name, call in calls.items():
                samples[name].append(call())
        if loop:
            calls["looped"]()
            repeatable = problems.same_bits(torch, made.outputs, loop)
            if not repeatable:
                params = {"op": point.op, "dtype": point.dtype, "n": point.n, "batch": point.batch}
                self.record.check("the loop repeats its bits", params, "vendor", False)
        times = {
            name: statistics.median(t.device for t in taken) for name, taken in samples.items()
        }
        self.guesses.note(point, times)
        for name, taken in samples.items():
            row = self._row(point, name, taken)
            if name in same:
                row["same_bits"] = same[name]
            if name == "looped":
                row |= {"workspace": needs.device, "host_workspace": needs.host}
            self.record.points.append(row)
        library.release()

    @staticmethod
    def _row(point: Point, name: str, taken: list[lanes_library.Times]) -> Row:
        device = [times.device for times in taken]
        backend = {
            "looped": "looped_cusolver",
            "batched": "batched_cublas" if point.op == "geqrf" else "batched_cusolver",
        }.get(name, name)
        row: Row = {"op": point.op, "dtype": point.dtype, "m": point.n, "n": point.n}
        row |= {"batch": point.batch, "nrhs": point.nrhs, "backend": backend}
        if name.startswith("streamed"):
            row |= {"backend": "streamed_cusolver", "lanes": int(name[8:])}
        if name.startswith("stock"):
            row["backend"] = "stock"
            row["preference"] = "cusolver" if name.endswith("cusolver") else "default"
        row["ms"] = round(statistics.median(device), 4)
        row["spread"] = [round(min(device), 4), round(max(device), 4)]
        row["repeats"] = len(device)
        row["host_ms"] = round(statistics.median(times.host for times in taken), 4)
        return row

    # ---- Does a call make the host wait? ----

    def _cycles(self, ms: float) -> int:
        cycles = 10_000_000
        self.torch.cuda._sleep(cycles)
        sleeping = self.torch_call(lambda: self.torch.cuda._sleep(cycles))()
        return int(cycles * ms / sleeping.device)

    def probe(self, ops: list[str]) -> None:
        """One call behind work that keeps the stream busy: the host returns at once, or waits."""
        import problems

        torch, library = self.torch, self.library
        cycles = self._cycles(PROBE_MS)
        for op, dtype, n, batched in self._probed(ops):
            point = Point(op, dtype, n, 4, {"ormqr": n, "potrs": 1}.get(op, 0))
            params = {"op": op, "dtype": dtype, "n": n, "routine": "batched" if batched else "one"}
            try:
                made = problems.make(torch, point)
                needs = library.prepare(made.problem, 1)
                if batched and not needs.batched:
                    continue
                library.enqueue_one(batched)
                torch.cuda.synchronize()
                idle = library.enqueue_one(batched)
                torch.cuda.synchronize()
                torch.cuda._sleep(cycles)
                host = library.enqueue_one(batched)
                torch.cuda.synchronize()
            except RuntimeError as error:
                self.record.check("synchronises", params, "fail", None, str(error)[:300])
                continue
            waits = host - idle > WAITS * PROBE_MS
            value = {"waits": waits, "host_ms_idle": round(idle, 3), "host_ms_busy": round(host, 3)}
            value["work_before_ms"] = PROBE_MS
            said = "the host waited for the work before the call" if waits else ""
            self.record.check("synchronises", params, "pass", value, said)
        library.release()

    @staticmethod
    def _probed(ops: list[str]) -> Iterator[tuple[str, str, int, bool]]:
        for op in ops:
            for dtype in PROBED:
                for n in (32, *PROBE_SIZES) if op == "gesvdj" else PROBE_SIZES:
                    for batched in (False, True):
                        yield op, dtype, n, batched


def torch_only(measuring: Measuring, seconds: float) -> None:
    """torch's qr and svd by each driver, which are made of several of the routines."""
    torch = measuring.torch
    end = time.monotonic() + seconds
    calls = {"qr": lambda a: torch.linalg.qr(a)}
    for driver in ("gesvdj", "gesvda", "gesvd", None):
        name = f"svdvals-{driver or 'default'}"
        calls[name] = lambda a, driver=driver: torch.linalg.svdvals(a, driver=driver)  # type: ignore[misc]
    for n in (32, 64, 256):
        for batch in (4, 64):
            for dtype in ("float32", "float64"):
                a = torch.randn(batch, n, n, dtype=getattr(torch, dtype), device="cuda")
                for op, call in calls.items():
                    if time.monotonic() > end:
                        return
                    timer = measuring.torch_call(lambda a=a, call=call: call(a))  # type: ignore[misc]
                    if timer().device > 1000:
                        continue
                    taken = [timer() for _ in range(3)]
                    point = Point(op, dtype, n, batch)
                    measuring.record.points.append(measuring._row(point, "stock", taken))
                measuring.record.flush()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="folder of the record")
    parser.add_argument("--budget", type=float, default=120, help="seconds in all (%(default)s)")
    parser.add_argument("--ops", default=",".join(plan.SECONDS), help="routines (%(default)s)")
    parser.add_argument("--commit", default="unknown", help="the commit to state in the record")
    parser.add_argument(
        "--library",
        type=Path,
        default=ROOT / ".scratch/lanes" / lanes_library.NAME,
        help="of library.py build; built there if it is missing",
    )
    parser.add_argument(
        "--rest", action="store_true", help="what a run of all leaves out for want of time"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan")
    options = parser.parse_args(arguments)
    unknown = [op for op in options.ops.split(",") if op not in plan.SECONDS]
    if unknown:
        parser.error(f"unknown routines {', '.join(unknown)}; known are {', '.join(plan.SECONDS)}")
    if options.out is None and not options.dry_run:
        parser.error("--out FOLDER is needed (or --dry-run)")
    return options


def main(arguments: list[str] | None = None) -> int:
    """0 if all points were measured or left out for want of time, 1 if one failed, 2: no start."""
    options = parse(arguments)
    if options.dry_run:
        print(plan.describe())
        return 0
    started = time.monotonic()
    import torch

    if not torch.cuda.is_available():
        print("error: there is no CUDA GPU here; --dry-run shows the plan", file=sys.stderr)
        return 2
    from aten_overrides.measure.machine import clocks, machine

    meta: Row = {
        "topic": "lanes",
        "command": f"python3 test/gpu/lanes/measure.py --budget {options.budget:g}"
        + (" --rest" if options.rest else ""),
        "commit": options.commit,
        **machine(torch, True),
        "clocks": clocks(),
    }
    path = options.library
    if not path.is_file():
        path = lanes_library.build(torch, path.parent)
    name = record_name(
        "lanes-rest" if options.rest else "lanes", str(meta["gpu"]), str(meta["torch"])
    )
    options.out.mkdir(parents=True, exist_ok=True)
    record = Record(options.out / name, meta)
    measuring = Measuring(torch, lanes_library.Library(path), record)
    seconds = plan.REST_SECONDS if options.rest else plan.SECONDS
    ops = [op for op in options.ops.split(",") if op in seconds]
    try:
        if options.rest:
            measuring.guesses.call_ms = plan.REST_CALL_MS
        else:
            measuring.probe(ops)
        record.flush(now=True)
        left = options.budget - (time.monotonic() - started)
        share = sum(seconds[op] for op in ops)
        scale = max(0.0, left - (0 if options.rest else 5)) / share
        deadline = time.monotonic()
        for op in ops:
            deadline += seconds[op] * scale  # what one leaves is the next one's
            points = list(plan.rest(op) if options.rest else plan.points(op))
            done, of = measuring.run(op, points, deadline - time.monotonic())
            record.check("grid", {"op": op}, "pass" if done else "skip", {"points": done, "of": of})
            print(f"{op}: {done} of {of} points", flush=True)
        if not options.rest:
            torch_only(measuring, options.budget - (time.monotonic() - started))
    finally:
        record.flush(now=True)
    print(f"{record.path}: {len(record.points)} rows in {time.monotonic() - started:.0f} s")
    return 1 if any(row["result"] == "fail" for row in record.checks) else 0


if __name__ == "__main__":
    sys.exit(main())
