"""Times the batched LU kernels against the library routes in one run; writes a timing record.

Example: BATCHED_LU_LIBRARY=... python test/gpu/native/bench_batched_lu.py --out record.json
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument(
        "--plans",
        default="",
        help="further plans, as route:leaf:outer:resident,... (blocked:32:128:1); 0: as planned",
    )
    parser.add_argument("--rivals", default="", help="any of batched_cublas,stock,cusolver")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=120, help="stop after this long")
    return parser.parse_args(arguments)


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
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
    }


def point_calls(
    library: Library,
    vendor: Vendor,
    options: argparse.Namespace,
    name: str,
    work: torch.Tensor,
) -> dict[str, tuple[Callable[[], object], bool]]:
    """What to time at one point: label to (call, may be captured)."""
    batch, _, n = work.shape
    pivots = torch.empty((batch, n), dtype=torch.int32, device="cuda")
    info = torch.empty((batch,), dtype=torch.int32, device="cuda")
    calls: dict[str, tuple[Callable[[], object], bool]] = {}
    plans: dict[str, Plan] = {"batched_native": Plan()}
    for text in filter(None, options.plans.split(",")):
        route, *numbers = text.split(":")
        plans[f"batched_native {text}"] = Plan(route, *map(int, numbers))
    for label, plan in plans.items():
        if plan.route == "blocked" and n <= plan.leaf // 2:
            continue
        if plan.route == "block" and n > 160:
            continue
        space = library.workspace(work, plan=plan)

        def native(plan: Plan = plan, space: torch.Tensor = space) -> None:
            library.factor(work, pivots, info, plan=plan, workspace=space)

        calls[label] = (native, True)
    rivals = options.rivals.split(",")
    if "batched_cublas" in rivals:
        calls["batched_cublas"] = (vendor.call(name, work, pivots, info), True)
    outputs = (work, pivots, info)
    for label, preference in (("stock", "default"), ("cusolver", "cusolver")):
        if label in rivals:

            def stock(preference: str = preference) -> None:
                torch.backends.cuda.preferred_linalg_library(preference)
                torch.linalg.lu_factor_ex(work, out=outputs)

            calls[label] = (stock, False)
    return calls


def main(arguments: list[str]) -> int:
    """Time every point until done or out of time; print a table and write the record."""
    options = parse(arguments)
    library, vendor = Library(), Vendor()
    began = time.monotonic()
    points = []
    generator = torch.Generator(device="cuda").manual_seed(1)
    for name in options.dtypes.split(","):
        for n in map(int, options.sizes.split(",")):
            for batch in map(int, options.batches.split(",")):
                size = batch * n * n * DTYPES[name].itemsize
                if size > LIMIT_BYTES or time.monotonic() - began > options.seconds:
                    continue
                copies = max(1, min(COPIES, COPY_BYTES // size))
                source = column_major(batch, n, n, DTYPES[name])
                source.normal_(generator=generator)
                works = [torch.empty_like(source) for _ in range(copies)]

                def restore(
                    works: list[torch.Tensor] = works, source: torch.Tensor = source
                ) -> None:
                    for work in works:
                        work.copy_(source)

                made = [point_calls(library, vendor, options, name, work) for work in works]
                line = []
                for label, (_, graph) in made[0].items():
                    repeats = options.repeats if label.startswith("batched_native") else 3
                    calls = [one[label][0] for one in made]
                    median, least, most = timed(calls, restore, repeats, graph)
                    points.append(
                        {
                            "op": "lu_factor_ex",
                            "dtype": name,
                            "m": n,
                            "n": n,
                            "batch": batch,
                            "nrhs": 0,
                            "backend": label,
                            "ms": round(median, 5),
                            "spread": [round(least, 5), round(most, 5)],
                        }
                    )
                    line.append(f"{label.removeprefix('batched_native')}={median:.4f}")
                print(name, n, batch, *line, flush=True)
    torch.backends.cuda.preferred_linalg_library("default")
    record = {"meta": metadata([Path(sys.argv[0]).name, *arguments]), "points": points}
    options.out.write_text(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
