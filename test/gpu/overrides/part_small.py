"""Allocator calls, overhead of small calls, streams against the loop."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import common

from aotools.gputest.session import Session

ALLOCATIONS, OVERHEAD_US, GAIN = 6, 3.0, 2.3
BATCHES = (1, 2, 16, 256, 1024)
N = 512
STREAM_SIZES = (512, 768, 1024)
BIT_SHAPES = ((16, 512), (16, 640), (16, 1024), (5, 513))
HANDLE_MIB = 100  # of device memory that a cuSOLVER handle takes, measured with CUDA 13.0


def allocs(session: Session) -> None:
    """Allocator calls of one lu_factor_ex: at most 6 and the same for every batch."""
    torch = session.torch
    library = common.enable()
    for route in ("choice", *common.lu_routes(library)):
        counts = {}
        with common.forced(library, route):
            for batch in BATCHES:
                a = common.matrices(torch, "float32", batch, N, N)
                torch.linalg.lu_factor_ex(a)  # creates handles
                counts[str(batch)] = common.allocations(
                    torch, partial(torch.linalg.lu_factor_ex, a)
                )
        with session.check("allocations", op="lu_factor_ex", n=N, route=route) as check:
            check.value = counts
            check.ok = max(counts.values()) <= ALLOCATIONS
    common.disable()


def overhead(session: Session) -> None:
    """Host time of lu_factor_ex on (2, 8, 8) float32, ours less stock's, in turns."""
    torch = session.torch
    library = common.enable()
    a = common.matrices(torch, "float32", 2, 8, 8)

    def call() -> object:
        return torch.linalg.lu_factor_ex(a)

    ours: list[float] = []
    stock: list[float] = []
    for _ in range(6):
        common.switch(torch, library, False)
        stock += common.host_microseconds(torch, call)
        common.switch(torch, library, True)
        ours += common.host_microseconds(torch, call)
    with session.check(
        "overhead", op="lu_factor_ex", shape=[2, 8, 8], dtype="float32", unit="us"
    ) as check:
        added = statistics.median(ours) - statistics.median(stock)
        check.value = {
            "ours": round(statistics.median(ours), 3),
            "stock": round(statistics.median(stock), 3),
            "added": round(added, 3),
            "least added": round(min(ours) - min(stock), 3),
            "rounds": len(ours),
        }
        check.ok = added <= OVERHEAD_US
    common.disable()


def _speed(session: Session, library: Any, lanes: int) -> None:
    torch = session.torch
    for n in STREAM_SIZES:
        a = common.matrices(torch, "float32", 64, n, n)
        samples = common.in_turns(
            session,
            dict.fromkeys(
                ("looped_cusolver", "streamed_cusolver"), partial(torch.linalg.lu_factor_ex, a)
            ),
            partial(library.force_route, "lu_factor"),
            far=100,
        )
        library.force_route("lu_factor", None)
        for route, found in samples.items():
            session.point(
                "lu_factor_ex",
                "float32",
                (64, n, n),
                common.timing(found),
                backend=route,
                lanes=lanes,
            )
        with session.check("streams over loop", n=n, batch=64, lanes=lanes) as check:
            gain = statistics.median(samples["looped_cusolver"]) / statistics.median(
                samples["streamed_cusolver"]
            )
            check.value, check.ok = round(gain, 2), gain >= GAIN


def _bits(session: Session, library: Any, runs: int) -> None:
    torch = session.torch
    for batch, n in BIT_SHAPES:
        with session.check("streams bit-identical to the loop", batch=batch, n=n) as check:
            a = common.matrices(torch, "float32", batch, n, n)
            with common.forced(library, "looped_cusolver"):
                expected = torch.linalg.lu_factor_ex(a)
            wrong = torch.zeros((), dtype=torch.int64, device="cuda")
            before = library.counts().get(("lu_factor", "streamed_cusolver"), 0)
            with common.forced(library, "streamed_cusolver"):
                for _ in range(runs):
                    found = torch.linalg.lu_factor_ex(a)
                    differs = [(x != y).any() for x, y in zip(expected[:2], found[:2], strict=True)]
                    wrong += differs[0] | differs[1]  # counted on the GPU: no wait between calls
            streamed = library.counts().get(("lu_factor", "streamed_cusolver"), 0) - before
            check.value = {"runs": streamed, "differ": int(wrong)}
            check.ok = int(wrong) == 0 and streamed == runs


def _memory(session: Session, library: Any, lanes: int, limit: int) -> None:
    """Device memory that the handles of the auxiliary streams take, for fresh ones."""
    torch = session.torch
    library.release_lanes()
    torch.cuda.empty_cache()
    a = common.matrices(torch, "float32", 64, N, N)
    with common.forced(library, "looped_cusolver"):
        torch.linalg.lu_factor_ex(a)
    torch.cuda.synchronize()
    with session.check("memory of the handles", lanes=lanes, limit=limit, unit="MiB") as check:
        library.configure(
            strict=False, stock=common.stock_kind(torch), lanes=lanes, memory_mib=limit
        )
        reserved, free = torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]
        with common.forced(library, "streamed_cusolver"):
            torch.linalg.lu_factor_ex(a)
        torch.cuda.synchronize()
        cached = torch.cuda.memory_reserved() - reserved
        taken = (free - torch.cuda.mem_get_info()[0] - cached) / 2**20
        handles = int(library.call("created_lanes", 0))
        check.value = {"taken": round(taken, 1), "handles": handles}
        check.ok = taken <= limit and handles == min(lanes - 1, limit // HANDLE_MIB)


def streams(session: Session) -> None:
    """streamed_cusolver against the loop: speed at batch 64, bits in 1000 runs, memory."""
    torch = session.torch
    library = common.enable()
    lanes, limit = library.limits()  # as a user gets them
    _bits(session, library, int(session.options.get("runs", 1000)))
    _memory(session, library, 8, 1024)
    _memory(session, library, 8, 200)
    _memory(session, library, lanes, limit)
    _speed(session, library, lanes)
    library.configure(strict=False, stock=common.stock_kind(torch), lanes=8, memory_mib=1024)
    _speed(session, library, 8)
    common.disable()


REPORTED: tuple[tuple[str, str, str, tuple[int, int], int], ...] = (
    ("B102", "lu_factor_ex", "float64", (256, 256), 0),
    ("B102", "lu_factor_ex", "float32", (1, 4096), 0),
    ("B103", "solve_ex", "float32", (10_000, 2), 1),
    ("B103", "solve_ex", "float32", (1_000_000, 3), 1),
    ("B103", "inv_ex", "float32", (10_000, 3), 0),
    ("B105", "inv_ex", "float32", (32, 512), 0),
    ("B107", "solve_ex", "float32", (1, 30), 1),
)


def reported(session: Session) -> None:
    """Shapes that were reported as slow: ours is not slower than stock."""
    torch = session.torch
    library = common.enable()
    for case, op, dtype, (batch, n), sides in REPORTED:
        a = common.matrices(torch, dtype, batch, n, n)
        inputs = (a, common.matrices(torch, dtype, batch, n, sides)) if sides else (a,)
        samples = common.in_turns(
            session,
            dict.fromkeys(("overrides", "stock"), partial(getattr(torch.linalg, op), *inputs)),
            lambda who: common.switch(torch, library, who == "overrides"),
            far=100,
        )
        common.switch(torch, library, True)
        for who, found in samples.items():
            timed = common.timing(found)
            session.point(op, dtype, (batch, n, n), timed, nrhs=sides, library=who)
        with session.check("not slower", case=case, op=op, dtype=dtype, batch=batch, n=n) as check:
            pairs = zip(samples["overrides"], samples["stock"], strict=False)
            ratio = statistics.median(ours / stock for ours, stock in pairs)
            # Calls of some 50 microseconds vary by as much as 3 of them.
            slack = 0.003 / statistics.median(samples["stock"])
            check.value, check.ok = round(ratio, 3), ratio <= 1.05 + slack
    common.disable()
