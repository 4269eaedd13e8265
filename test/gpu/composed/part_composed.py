"""What the composed patches add, each by a job: choices, bits, streams, loops, upstream's tests."""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from aotools.gputest import part_loops, part_upstream
from aotools.gputest.part_lanes import capture
from aotools.gputest.part_unchanged import flat, same
from aotools.gputest.plan import DTYPES
from aotools.gputest.session import Session, Timing

ROUNDS = 7
REGRET = 1.10  # the default may take that much of the wheel's time
LOSS = 1.05
LANES, MIB = 4, 512
RUNS = 10

# batch, m, n, pivot: outside the window of upstream's own kernel, by its reasons, and two inside.
POINTS = (
    (1, 64, 64, True),
    (1, 512, 512, True),
    (1, 1024, 1024, True),
    (2, 256, 256, True),
    (2, 1024, 1024, True),
    (3, 512, 512, True),
    (16, 128, 128, True),
    (256, 32, 32, True),
    (1024, 128, 128, True),
    (4096, 16, 16, True),
    (16, 600, 300, True),
    (64, 300, 512, True),
    (64, 512, 512, False),
    (1024, 64, 64, False),
    (64, 512, 512, True),
    (16, 1024, 1024, True),
)
BITS = ((1, 64, 64), (2, 300, 300), (3, 513, 513), (40, 100, 100), (9, 300, 140), (9, 70, 160))
STREAMED = ((64, 512, 512, True), (64, 768, 768, True), (16, 600, 512, True), (9, 300, 300, False))
TESTS = (
    "test_preferred_linalg_library_cublas",
    "test_lu_factor_on_auxiliary_streams",
    "test_qr_on_auxiliary_streams",
    "test_cholesky_on_auxiliary_streams",
    "test_linalg_lu_solve_back_ends",
    "test_linalg_lu_solve_shared_factors",
    "test_lu_factor_native",
    "test_lu_factor_native_singular",
)
UNCHANGED = ("eigh", "cholesky_solve", "cholesky_inverse")  # of part_loops, by these patches
DOUBLE_ONLY = ("test_linalg_lu_solve_shared_factors",)


def matrices(torch: Any, dtype: str, batch: int, m: int, n: int, pivot: bool = True) -> Any:
    """Random matrices (batch, m, n); without pivoting well conditioned in every leading block."""
    a = torch.randn(batch, m, n, dtype=getattr(torch, dtype), device="cuda")
    if not pivot:
        a += 2 * max(m, n) * torch.eye(m, n, dtype=a.dtype, device="cuda")
    return a


def in_turns(calls: dict[str, Callable[[], float]]) -> dict[str, Timing]:
    """Each call's time, the calls in turns after one to warm up; fewer rounds for slow ones."""
    slowest = max(max(once(), once()) for once in calls.values())
    rounds = ROUNDS if slowest < 40 else 3
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, once in calls.items():
            samples[name].append(once())
    return {
        name: Timing(statistics.median(found), (min(found), max(found)), rounds)
        for name, found in samples.items()
    }


def times(session: Session) -> None:
    """lu_factor_ex of the wheel, and by "default", "cusolver", "cublas" and "native"; the default
    must not be slower than the wheel's.
    """
    torch, lib = session.torch, session.patched
    lib.limits(LANES, MIB)
    for dtype, (batch, m, n, pivot) in product(DTYPES, POINTS):
        a = matrices(torch, dtype, batch, m, n, pivot)
        once = session.clock(partial(torch.linalg.lu_factor_ex, a, pivot=pivot))

        def preferred(name: str, once: Callable[[], float] = once) -> float:
            session.prefer(name)
            try:
                return once()
            finally:
                session.prefer("default")

        def stock(once: Callable[[], float] = once) -> float:
            with lib.forced("stock"):
                return once()

        names = ["default", "cusolver", "native"]
        if pivot and m == n <= 512 and batch > 1:  # else far behind, or no routine
            names.append("cublas")
        calls: dict[str, Callable[[], float]] = {name: partial(preferred, name) for name in names}
        at = {"dtype": dtype, "batch": batch, "m": m, "n": n, "pivot": pivot}
        with session.check("composed: default against the wheel", **at) as check:
            found = in_turns({**calls, "stock": stock})
            for name, timing in found.items():
                how = {"backend": "stock"} if name == "stock" else {"preference": name}
                more = {"pivot": pivot, **how}
                session.point("lu_factor_ex", dtype, (batch, m, n), timing, **more)
            took = found["default"].ms / found["stock"].ms
            check.value = {name: round(timing.ms, 4) for name, timing in found.items()}
            check.ok = took <= REGRET
            check.reason = f"{took:.2f} of the wheel's time"


def bits(session: Session) -> None:
    """By "native" the same bits again, and from a graph. By "cublas" the bits of cuBLAS's routine,
    called directly, and of the loop for shapes that it has no routine for.
    """
    torch, lib = session.torch, session.patched
    lib.limits(1, MIB)
    for dtype, (batch, m, n) in product(DTYPES, BITS):
        a = matrices(torch, dtype, batch, m, n)
        factor = partial(torch.linalg.lu_factor_ex, a)
        at = {"dtype": dtype, "batch": batch, "m": m, "n": n}
        session.prefer("native")
        with session.check("composed: native, bits of repeated calls", **at, runs=RUNS) as check:
            want = flat(factor())
            differing = sum(not same(torch, flat(factor()), want) for _ in range(RUNS))
            check.ok, check.value = differing == 0, differing
        with session.check("composed: native, graph replay on other matrices", **at) as check:
            graph, out = capture(torch, factor)
            a.copy_(torch.randn_like(a))
            graph.replay()
            torch.cuda.synchronize()
            check.ok = same(torch, flat(out), flat(factor()))
        session.prefer("cublas")
        route = "batched_cublas" if m == n else "looped_cusolver"
        with session.check("composed: cublas, bits of the routine", **at, route=route) as check:
            got = flat(factor())
            with lib.forced(route):
                check.ok = same(torch, got, flat(factor()))
        if m == n:
            lu, pivots, _ = factor()
            b = torch.randn(batch, n, 3, dtype=a.dtype, device="cuda")
            solve = partial(torch.linalg.lu_solve, lu, pivots, b)
            with session.check("composed: cublas, lu_solve's bits", **at) as check:
                got = flat(solve())
                with lib.solve_forced("batched_cublas"):
                    check.ok = same(torch, got, flat(solve()))
        session.prefer("default")


def streams(session: Session) -> None:
    """lu_factor_ex on four lanes against one: time, bits, a side stream, a graph; one matrix is
    singular.
    """
    torch, lib = session.torch, session.patched
    session.prefer("cusolver")
    side = torch.cuda.Stream()
    for dtype, (batch, m, n, pivot) in product(DTYPES, STREAMED):
        a = matrices(torch, dtype, batch, m, n, pivot)
        a[batch // 2, :, 0] = 0
        factor = partial(torch.linalg.lu_factor_ex, a, pivot=pivot)
        once = session.clock(factor)

        def on(lanes: int, once: Callable[[], float] = once) -> float:
            lib.limits(lanes, MIB)
            return once()

        at = {"dtype": dtype, "batch": batch, "m": m, "n": n, "pivot": pivot}
        with session.check("composed: lanes against the loop", **at) as check:
            calls: dict[str, Callable[[], float]] = {"looped_cusolver": partial(on, 1)}
            calls["streamed_cusolver"] = partial(on, LANES)
            found = in_turns(calls)
            for backend, timing in found.items():
                more = {"backend": backend, "preference": "cusolver", "pivot": pivot}
                session.point("lu_factor_ex", dtype, (batch, m, n), timing, **more)
            loop, lanes = found["looped_cusolver"].ms, found["streamed_cusolver"].ms
            check.value, check.ok = round(loop / lanes, 2), lanes <= LOSS * loop
            check.reason = f"{loop:.3f} ms -> {lanes:.3f} ms"
        lib.limits(1, MIB)
        want = flat(factor())
        lib.limits(LANES, MIB)
        with session.check("composed: lanes, bits of the loop", **at, runs=RUNS) as check:
            differing = sum(not same(torch, flat(factor()), want) for _ in range(RUNS))
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                differing += not same(torch, flat(factor()), want)
            torch.cuda.current_stream().wait_stream(side)
            check.ok, check.value = differing == 0 and int(want[2][batch // 2]) == 1, differing
        with session.check("composed: lanes, bits from a graph", **at) as check:
            graph, out = capture(torch, factor)
            for tensor in flat(out):
                tensor.zero_()
            graph.replay()
            torch.cuda.synchronize()
            check.ok = same(torch, flat(out), want)
    session.prefer("default")


def loops(session: Session) -> None:
    """geqrf, orgqr, ormqr and potrf on four lanes against one, as `tools/gpu-test patchset`
    has them for the series.
    """
    session.prefer("cusolver")
    late = []
    for dtype, batch, n in part_loops.SHAPES:
        for case in part_loops.cases(session.torch, dtype, batch, n):
            if case.op in UNCHANGED:
                continue
            part_loops.compare(session, dtype, case)
            late.append((dtype, case))
        if batch <= part_loops.LANES:
            part_loops.bad_matrices(session, dtype, batch, n)
    for dtype, case in late:
        part_loops.replay(session, dtype, case)
    session.prefer("default")


def wanted(text: str) -> list[str]:
    """The ids of the tests that the patches add, in a file that has them; the others' names are
    told by an error.
    """
    if lacking := [name for name in TESTS if not re.search(rf"^    def {name}\(", text, re.M)]:
        raise ValueError(f"the file has no {', '.join(lacking)}: is it the patched one?")
    return [
        f"TestLinalgCUDA::{name}_cuda_{dtype}"
        for name, dtype in product(TESTS, DTYPES)
        if name not in DOUBLE_ONLY or dtype in ("float64", "complex128")
    ]


def upstream(session: Session) -> None:
    """The tests that the patches add to upstream's file."""
    text = Path(session.options["tests"]).read_text(encoding="utf-8")
    names = wanted(text)
    with tempfile.TemporaryDirectory(prefix="upstream-") as folder:
        file = Path(folder) / "test_linalg.py"
        file.write_text(part_upstream.for_later_torch(text), encoding="utf-8")
        settings = part_upstream.config(session, session.library, 0, 1, only=names)
        settings["preference"] = True
        shard = part_upstream.Shard(session.library, settings, Path(folder), "added")
        deadline = time.monotonic() + session.timeout - 15
        part_upstream.run_shards([shard], file, "cuda", deadline)
    with session.check("composed: the tests that the patches add pass") as check:
        results = shard.outcomes.results
        by = {name: found["outcome"] for name, found in results.items()}
        bad = [f"{name}: {results[name]['message']}" for name in by if by[name] != "passed"]
        lacking = [name for name in names if name not in by]
        check.value = {"passed": len(by) - len(bad), "bad": bad[:8], "did not run": lacking}
        check.ok = not bad and not lacking and not shard.trouble
        check.reason = shard.trouble[:300]
