"""Auxiliary streams of the composed patches on a GPU: bits, captures and times against the loop.

    tools/patchset relink --tree TREE --wheel 2.11.0 --entries lu_factor,geqrf,orgqr,ormqr \
        --out build/main-composed/torch-2.11.0       # anywhere; TREE has the composed patches
    PYTHONPATH=tools python3 test/gpu/composed/run_streams.py \
        --library build/main-composed/torch-2.11.0 --out FOLDER      # on the GPU machine

Writes composed-streams-<gpu>-torch<version>.json with the checks and points; about 3 minutes, and
is written anew after every shape.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import re
import shlex
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aotools.env import write_file
from aotools.patchset import loader
from aotools.patchset.relink import SONAME

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
MIB = 512
Results = tuple[torch.Tensor, ...]


def operations(a: torch.Tensor, c: torch.Tensor) -> dict[str, Callable[[], Results]]:
    """What is called: each for a batch of tall matrices `a` (b, m, n) and `c` (b, m, k)."""
    reflectors, tau = torch.geqrf(a)
    return {
        "lu_factor_ex": lambda: tuple(torch.linalg.lu_factor_ex(a)),
        "lu_factor_ex, pivot=False": lambda: tuple(torch.linalg.lu_factor_ex(a, pivot=False)),
        "geqrf": lambda: tuple(torch.geqrf(a)),
        "householder_product": lambda: (torch.linalg.householder_product(reflectors, tau),),
        "ormqr": lambda: (torch.ormqr(reflectors, tau, c),),
        "ormqr, transpose": lambda: (torch.ormqr(reflectors, tau, c, transpose=True),),
    }


def same(one: Results, two: Results) -> bool:
    """Whether all bits are equal, NaNs among them."""
    return all(
        torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        for x, y in zip(one, two, strict=True)
    )


def milliseconds(call: Callable[[], Results], repeats: int = 5) -> tuple[float, list[float]]:
    """Median, and least and most, of single calls between events."""
    call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times), [min(times), max(times)]


def captured(call: Callable[[], Results]) -> Results:
    """The results of a replay of a graph that holds the call."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = call()
    for result in results:
        result.zero_()
    graph.replay()
    torch.cuda.synchronize()
    return results


def run(
    lanes: Callable[[int], None],
    checks: list[dict[str, Any]],
    points: list[dict[str, Any]],
    save: Callable[[], None],
) -> None:
    """All checks and points; a failure of one is written down and the rest goes on."""
    for dtype in DTYPES:
        for batch, m, n in ((2, 300, 40), (9, 300, 140), (64, 600, 512), (64, 1100, 1024)):
            generator = torch.Generator("cuda").manual_seed(1)
            make = {"dtype": dtype, "device": "cuda", "generator": generator}
            a = torch.randn(batch, m, n, **make)
            c = torch.randn(batch, m, 64, **make)
            a[batch // 2, :, 0] = 0  # singular: its info is 1
            lanes(1)
            for name, call in operations(a, c).items():
                about = {"op": name, "dtype": str(dtype)[6:], "m": m, "n": n, "batch": batch}
                try:
                    lanes(1)
                    wanted = call()
                    lanes(4)
                    runs = [call() for _ in range(3)]
                    equal = all(same(wanted, one) for one in runs)
                    checks.append(check("bits as the loop's", about, equal))
                    equal = same(wanted, captured(call))
                    checks.append(check("bits as the loop's, from a graph", about, equal))
                    for count, backend in ((1, "looped_cusolver"), (4, "streamed_cusolver")):
                        lanes(count)
                        ms, spread = milliseconds(call)
                        row = {**about, "nrhs": 0, "backend": backend, "lanes": count}
                        points.append({**row, "ms": round(ms, 4), "spread": spread})
                except RuntimeError as error:
                    checks.append(check("runs", about, False, str(error).splitlines()[0]))
            save()


def check(name: str, params: dict[str, Any], passed: bool, reason: str = "") -> dict[str, Any]:
    """One row of the record's checks."""
    result = "pass" if passed else "fail"
    return {"name": name, "params": params, "result": result, "value": passed, "reason": reason}


def main() -> int:
    """Runs everything and writes the record; 1 when a check failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--library", type=Path, required=True, help="folder made by relink")
    parser.add_argument("--out", type=Path, required=True, help="folder of the record")
    parser.add_argument("--commit", default="unknown", help="the commit to state")
    options = parser.parse_args()
    loaded = loader.load(options.library)
    handle = ctypes.CDLL(str(options.library.resolve() / SONAME))
    handle.aten_linalg_patched_lanes.argtypes = [ctypes.c_int, ctypes.c_int64]
    handle.aten_linalg_patched_loops_always(1)  # also what LoopThresholds.h has off
    torch.backends.cuda.preferred_linalg_library("cusolver")

    def lanes(count: int) -> None:
        if handle.aten_linalg_patched_lanes(count, MIB) != 0:
            raise RuntimeError(f"{count} lanes were refused")

    checks: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    gpu = torch.cuda.get_device_name()
    meta = {
        "command": shlex.join(sys.argv),
        "commit": options.commit,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "gpu": gpu,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "library": loaded.facts.get("library"),
    }
    slug = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
    version = torch.__version__.partition("+")[0]
    place = options.out / f"composed-streams-{slug}-torch{version}.json"

    def save() -> None:
        record = {"meta": meta, "points": points, "checks": checks}
        write_file(place, json.dumps(record, indent=1) + "\n")

    run(lanes, checks, points, save)
    failed = [one for one in checks if one["result"] == "fail"]
    print(f"{len(checks) - len(failed)} checks passed, {len(failed)} failed, {len(points)} points")
    for one in failed[:10]:
        print(f"  {one['name']}: {one['params']} {one['reason']}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
