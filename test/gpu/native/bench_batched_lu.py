"""Times the batched LU kernels against the library routes in one run; writes a timing record.

Example: BATCHED_LU_LIBRARY=... python test/gpu/native/bench_batched_lu.py --out record.json

Without --sizes it goes through the standard points, the most important first, until the budget is
spent: the table (float32), the smoothness scan, the other types, the rest of the grid.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import scan_sizes
import torch
from library import Library, Plan, column_major

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}
GETRF = {"float32": "S", "float64": "D", "complex64": "C", "complex128": "Z"}
COPIES = 16  # at most, of each problem: more than the L2 cache holds where that is possible
COPY_BYTES = 256 << 20
SIZES = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 511, 512, 513, 768, 1024, 2048]
BATCHES = [1, 4, 64, 256, 1024, 4096]
LIMIT_BYTES = 5 << 30
Parts = list[tuple[str, list[str], Sequence[int], Sequence[int]]]
TABLE = ((32, 64, 128, 256, 512, 1024, 2048), (1, 4, 64, 256, 1024, 4096))
SCAN_BATCHES = (1, 64, 256)
OTHERS = ((32, 64, 128, 256, 512, 1024), (1, 64, 512))
SLOW_MS = 20.0  # a rival slower than this is timed on one copy


@dataclass(frozen=True)
class Point:
    """`batch` n x n matrices of a type, and the part of the standard points that it belongs to."""

    part: str
    dtype: str
    n: int
    batch: int


def timed(
    calls: list[Callable[[], object]], restore: Callable[[], object], repeats: int, graph: bool
) -> tuple[float, float, float]:
    """Median, least and largest milliseconds of one of `calls`, which work on buffers of their own.

    All buffers are restored, then all calls run between two events. With `graph` they are captured
    once and replayed, so that launches from Python do not count.
    """
    restore()
    calls[0]()
    torch.cuda.synchronize()

    def run() -> None:
        for call in calls:
            call()

    replay: Callable[[], object] = run
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            run()
        replay = captured.replay
    times = []
    for index in range(repeats + 1):
        restore()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        replay()
        end.record()
        torch.cuda.synchronize()
        if index:
            times.append(begin.elapsed_time(end) / len(calls))
    return statistics.median(times), min(times), max(times)


class Vendor:
    """cuBLAS's getrfBatched through ctypes, on torch's handle."""

    def __init__(self) -> None:
        torch.cuda.current_blas_handle()
        maps = Path("/proc/self/maps").read_text().split()
        path = next(word for word in maps if "libcublas.so" in word)
        self._library = ctypes.CDLL(path)

    def call(
        self, name: str, work: torch.Tensor, pivots: torch.Tensor, info: torch.Tensor
    ) -> Callable[[], None]:
        """A closure that factors `work` (batch, n, n) in place."""
        batch, n, _ = work.shape
        step = work.stride(0) * work.element_size()
        pointers = torch.arange(batch, device="cuda", dtype=torch.int64) * step + work.data_ptr()
        routine = getattr(self._library, f"cublas{GETRF[name]}getrfBatched")

        def run() -> None:
            status = routine(
                ctypes.c_void_p(torch.cuda.current_blas_handle()),
                n,
                ctypes.c_void_p(pointers.data_ptr()),
                n,
                ctypes.c_void_p(pivots.data_ptr()),
                ctypes.c_void_p(info.data_ptr()),
                batch,
            )
            if status != 0:
                raise RuntimeError(f"getrfBatched returned status {status}")

        return run


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--sizes", default="", help="these n instead of the standard points")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument(
        "--plans",
        default="",
        help="further plans, as route:leaf:outer:resident,... (blocked:32:128:1); 0: as planned",
    )
    parser.add_argument(
        "--rivals",
        default="batched_cublas,stock,looped_cusolver,streamed_cusolver",
        help="the last two need the package aten_overrides with its GPU library; left out without",
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--budget", type=float, default=120, help="stop after so many seconds")
    return parser.parse_args(arguments)


def source_commit() -> str:
    """The commit of the sources, or what BATCHED_LU_COMMIT says where there is no git."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        asked = ""
    return asked or os.environ.get("BATCHED_LU_COMMIT", "unknown")


def metadata(command: list[str]) -> dict[str, str]:
    """What a record says about where it comes from."""
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "command": " ".join(command),
        "date": datetime.datetime.now(tz=datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name(),
        "driver": driver,
        "commit": source_commit(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


@dataclass(frozen=True)
class Rival:
    """One way to factor: the call, whether a graph may capture it, what surrounds the timing."""

    call: Callable[[], object]
    graph: bool
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


@contextlib.contextmanager
def forced(route: str) -> Iterator[None]:
    """All LU of torch.linalg by one back end of the package; raises its errors."""
    from aten_overrides import _runtime

    with _runtime.enabled("lu_factor"):
        library = _runtime.loaded_library()
        if library is None:
            raise RuntimeError("aten_overrides is enabled without its GPU library")
        before = library.counts().get(("lu_factor", route), 0)
        library.force_route("lu_factor", route)
        try:
            yield
            if library.counts().get(("lu_factor", route), 0) == before:
                raise RuntimeError(f"no call went by {route}")
        finally:
            library.force_route("lu_factor", None)


def usable(rivals: list[str]) -> list[str]:
    """Those that work here; says which are left out and why."""
    found = []
    for rival in rivals:
        if rival.endswith("_cusolver"):
            try:
                with forced(rival):
                    torch.linalg.lu_factor_ex(torch.randn(8, 64, 64, device="cuda"))
            except Exception as error:
                print(f"without {rival}: {error}", flush=True)
                continue
        found.append(rival)
    return found


def plans(options: argparse.Namespace, n: int) -> dict[str, Plan]:
    """The library's own plan, and the further ones asked for that make sense at n."""
    found = {"batched_native": Plan()}
    for text in filter(None, options.plans.split(",")):
        route, *numbers = text.split(":")
        plan = Plan(route, *map(int, numbers))
        small = plan.route == "blocked" and n <= plan.leaf // 2
        if not small and not (plan.route == "block" and n > 160):
            found[f"batched_native {text}"] = plan
    return found


def ways(
    library: Library, vendor: Vendor, options: argparse.Namespace, point: Point, work: torch.Tensor
) -> dict[str, Rival]:
    """What to time at one point, on a buffer of its own."""
    batch, _, n = work.shape
    pivots = torch.empty((batch, n), dtype=torch.int32, device="cuda")
    info = torch.empty((batch,), dtype=torch.int32, device="cuda")
    found: dict[str, Rival] = {}
    for label, plan in plans(options, n).items():
        space = library.workspace(work, plan=plan)

        def native(plan: Plan = plan, space: torch.Tensor = space) -> None:
            library.factor(work, pivots, info, plan=plan, workspace=space)

        found[label] = Rival(native, True)
    if point.part == "scan":
        return found
    outputs = (work, pivots, info)

    def stock() -> None:
        torch.linalg.lu_factor_ex(work, out=outputs)

    for rival in options.usable:
        if rival == "batched_cublas":
            found[rival] = Rival(vendor.call(point.dtype, work, pivots, info), True)
        elif rival == "stock":
            found[rival] = Rival(stock, False)
        else:
            found[rival] = Rival(stock, False, functools.partial(forced, rival))
    return found


def one_by_one(call: Callable[[], object], restore: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of a first and a second call."""
    times = []
    for _ in range(2):
        restore()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return times[0], times[1]


def points(options: argparse.Namespace) -> Iterator[Point]:
    """The points asked for, or the standard ones by importance; each once."""
    dtypes = options.dtypes.split(",")
    batches = list(map(int, options.batches.split(",")))
    if options.sizes:
        sizes = list(map(int, options.sizes.split(",")))
        parts: Parts = [("asked", dtypes, sizes, batches)]
    else:
        parts = [
            ("table", dtypes[:1], *TABLE),
            ("scan", dtypes[:1], scan_sizes.sizes(), SCAN_BATCHES),
            ("types", dtypes[1:], *OTHERS),
            ("grid", dtypes, SIZES, batches),
        ]
    seen = set()
    for part, names, wanted, counts in parts:
        for batch, name, n in itertools.product(counts, names, wanted):
            fits = batch * n * n * DTYPES[name].itemsize <= LIMIT_BYTES
            if fits and (name, n, batch) not in seen:
                seen.add((name, n, batch))
                yield Point(part, name, n, batch)


def measure(
    library: Library,
    vendor: Vendor,
    options: argparse.Namespace,
    point: Point,
    source: torch.Tensor,
    left: Callable[[], float],
) -> dict[str, tuple[float, float, float]]:
    """Median, least and largest milliseconds of every way at a point, while time is left."""
    size = source.numel() * source.element_size()
    works = [torch.empty_like(source) for _ in range(max(1, min(COPIES, COPY_BYTES // size)))]

    def restore() -> None:
        for work in works:
            work.copy_(source)

    made = [ways(library, vendor, options, point, work) for work in works]
    times = {}
    for label, way in made[0].items():
        if left() <= 0:
            break
        with way.around():
            first, second = (0.0, 0.0) if way.graph else one_by_one(way.call, restore)
            if second > SLOW_MS:
                times[label] = (second, min(first, second), max(first, second))
                continue
            repeats = options.repeats if label.startswith("batched_native") else 3
            times[label] = timed([one[label].call for one in made], restore, repeats, way.graph)
    return times


def scan(found: list[dict[str, object]]) -> list[dict[str, object]]:
    """The smoothness of float32 over n from the points: time over what the neighbours predict."""
    rows: list[dict[str, object]] = []
    named = set(scan_sizes.sizes())
    for batch in SCAN_BATCHES:
        times = {
            int(str(one["n"])): float(str(one["ms"]))
            for one in found
            if one["backend"] == "batched_native"
            and one["dtype"] == "float32"
            and one["batch"] == batch
            and one["n"] in named
        }
        ratios = scan_sizes.ratios(times)
        rows += [{"n": n, "batch": batch, "ratio": round(ratio, 4)} for n, ratio in ratios]
        if ratios:
            listed = ", ".join(f"{n}: {ratio:.3f}" for n, ratio in scan_sizes.worst(ratios))
            print(f"scan, batch {batch}, {len(ratios)} sizes, most above: {listed}", flush=True)
    return rows


def main(arguments: list[str]) -> int:
    """Time points until done or out of time; print a line for each and write the record."""
    options = parse(arguments)
    ends = time.monotonic() + options.budget
    library, vendor = Library(), Vendor()
    options.usable = usable(list(filter(None, options.rivals.split(","))))
    found: list[dict[str, object]] = []
    generator = torch.Generator(device="cuda").manual_seed(1)
    for point in points(options):
        if time.monotonic() > ends:
            print(f"out of time before {point}", flush=True)
            break
        source = column_major(point.batch, point.n, point.n, DTYPES[point.dtype])
        source.normal_(generator=generator)
        times = measure(library, vendor, options, point, source, lambda: ends - time.monotonic())
        for label, (median, least, most) in times.items():
            found.append(
                {
                    "op": "lu_factor_ex",
                    "dtype": point.dtype,
                    "m": point.n,
                    "n": point.n,
                    "batch": point.batch,
                    "nrhs": 0,
                    "backend": label,
                    "ms": round(median, 5),
                    "spread": [round(least, 5), round(most, 5)],
                }
            )
        if point.part != "scan":
            line = (f"{k.removeprefix('batched_native')}={v[0]:.4f}" for k, v in times.items())
            print(point.dtype, point.n, point.batch, *line, flush=True)
    record = {
        "meta": metadata([Path(sys.argv[0]).name, *arguments]),
        "points": found,
        "scan": scan(found),
    }
    part = options.out.with_suffix(".part")
    part.write_text(json.dumps(record, indent=1))
    part.replace(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
