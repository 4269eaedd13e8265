"""Allocator calls, overhead of small calls, streams against the loop."""

from __future__ import annotations

import statistics
from functools import partial

import common

import aten_overrides
from aotools.gputest.session import Session


def allocs(session: Session) -> None:
    """Allocator calls of one lu_factor_ex: at most 6 and the same for every batch."""
    torch = session.torch
    library = common.enable()
    for route in ("choice", *common.LU_ROUTES):
        counts = {}
        for batch in (1, 2, 16, 256, 1024):
            a = common.matrices(torch, "float32", batch, 512, 512)
            library.force_route("lu_factor", None if route == "choice" else route)
            torch.linalg.lu_factor_ex(a)  # creates handles
            counts[batch] = common.allocations(torch, partial(torch.linalg.lu_factor_ex, a))
        library.force_route("lu_factor", None)
        with session.check("allocations", op="lu_factor_ex", n=512, route=route) as check:
            check.value = counts
            check.ok = max(counts.values()) <= 6


def overhead(session: Session) -> None:
    """Host time of lu_factor_ex on (2, 8, 8) float32, ours less stock's, in turns."""
    torch = session.torch
    a = common.matrices(torch, "float32", 2, 8, 8)

    def call() -> object:
        return torch.linalg.lu_factor_ex(a)

    ours: list[float] = []
    stock: list[float] = []
    for _ in range(6):
        aten_overrides.disable()
        stock += common.host_microseconds(torch, call)
        aten_overrides.enable()
        ours += common.host_microseconds(torch, call)
    with session.check(
        "overhead", op="lu_factor_ex", shape=[2, 8, 8], dtype="float32", unit="us"
    ) as check:
        added = statistics.median(ours) - statistics.median(stock)
        check.value = {
            "ours": round(statistics.median(ours), 3),
            "stock": round(statistics.median(stock), 3),
            "added": round(added, 3),
        }
        check.ok = added <= 3.0


def streams(session: Session) -> None:
    """streamed_cusolver against the loop at batch 64: speed, bits, memory."""
    torch = session.torch
    library = common.enable()
    free = torch.cuda.mem_get_info()[0]
    runs = int(session.options.get("runs", 40))
    for lanes in (4, 8):
        library.configure(strict=False, stock=1, lanes=lanes, memory_mib=1024)
        for n in (512, 768, 1024):
            a = common.matrices(torch, "float32", 64, n, n)
            times = {}
            for route in ("looped_cusolver", "streamed_cusolver"):
                with common.forced(library, route):
                    timing = common.quick(session, partial(torch.linalg.lu_factor_ex, a))
                times[route] = timing.ms
                session.point(
                    "lu_factor_ex", "float32", (64, n, n), timing, backend=route, lanes=lanes
                )
            with session.check("streams over loop", n=n, batch=64, lanes=lanes) as check:
                gain = times["looped_cusolver"] / times["streamed_cusolver"]
                check.value, check.ok = round(gain, 2), gain >= 2.3
            with session.check(
                "streams bit-identical to the loop", n=n, lanes=lanes, runs=runs
            ) as check:
                with common.forced(library, "looped_cusolver"):
                    expected = torch.linalg.lu_factor_ex(a)
                with common.forced(library, "streamed_cusolver"):
                    wrong = 0
                    for _ in range(runs):
                        found = torch.linalg.lu_factor_ex(a)
                        same = all(torch.equal(x, y) for x, y in zip(expected, found, strict=True))
                        wrong += not same
                check.value, check.ok = wrong, wrong == 0
    with session.check("memory of the handles", unit="MiB") as check:
        torch.cuda.empty_cache()
        check.value = {
            "all": (free - torch.cuda.mem_get_info()[0]) >> 20,
            "handles": library.call("created_lanes", 0),
            "limit": library.limits()[1],
        }
        check.ok = library.call("created_lanes", 0) * 100 <= library.limits()[1]
