"""lu_solve by every route: right answers, and times of all routes over a grid and at goals."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import common

from aotools.gputest.session import Session

OURS = ("batched_native", "blocked_native")
LIBRARIES = ("batched_cublas", "triangular_cublas", "streamed_cusolver", "looped_cusolver")
ROUTES = (*OURS, *LIBRARIES, "stock")
OPERATIONS = ("T", "N", "C")
LIMIT = 30.0  # residuals, in units of n eps

SHAPES = (  # batch, n, right-hand sides
    (1, 1, 1),
    (3, 5, 1),
    (4, 33, 2),
    (4, 64, 3),
    (7, 129, 9),
    (2, 200, 200),
    (3, 513, 1),
    (2, 300, 140),
    (600, 40, 1),
)

COLUMNS = 524300  # torch's triangular solve is wrong from 524281 on, up to CUDA 13.1

FAR = 3.0  # a route so far behind has one sample
SLOW_MS = 150.0  # no route but the best is worth more at one point
QUEUED_MS = 3.0  # below, a sample waits on the GPU until the host has queued it
WAIT_CYCLES = 250_000
MOST_ELEMENTS = 2**28
LOOPED_BATCH, LOOPED_ROWS = 8, 64  # loops are timed up to this batch and from this n on
BATCHES = (64, 1, 1024, 8, 2)
SIZES = (64, 128, 512, 256, 1024, 32, 16, 65, 129, 8, 2048, 3)
ALL = 0  # as many right-hand sides as rows


def solve(torch: Any, factors: tuple[Any, Any], b: Any, operation: str) -> Any:
    """A X = B, or with A's transpose (of real matrices) or conjugate transpose."""
    return torch.linalg.lu_solve(*factors, b, adjoint=operation != "N")


def of(a: Any, operation: str) -> Any:
    """The matrix that an operation solves with."""
    return a if operation == "N" else a.mH


def operations(dtype: str) -> tuple[str, ...]:
    """Those that torch can ask for."""
    return ("N", "C") if dtype.startswith("complex") else ("T", "N")


def counted(library: Any, route: str, call: Callable[[], Any]) -> tuple[Any, bool]:
    """The result, and whether the call took the route."""
    before = library.counts().get(("lu_solve", route), 0)
    with common.forced(library, route, "lu_solve"):
        result = call()
    return result, library.counts().get(("lu_solve", route), 0) == before + 1


def correct(session: Session) -> None:
    """Every route against the definition, then shared factors, capture, bits and many columns."""
    library = common.enable()
    for dtype in session.options.get("dtypes", common.DTYPES):
        for route in ROUTES:
            _route(session, library, route, dtype)
        _shared(session, library, dtype)
        _uses(session, library, dtype)
    common.disable()


def _route(session: Session, library: Any, route: str, dtype: str) -> None:
    torch = session.torch
    worst: dict[str, float] = {}
    missed: list[str] = []
    with session.check("routes", route=route, dtype=dtype) as check:
        for batch, n, k in SHAPES:
            if route in LIBRARIES[2:] and not 1 < batch < 100:
                continue
            a = common.matrices(torch, dtype, batch, n, n)
            b = common.matrices(torch, dtype, batch, n, k)
            factors = torch.linalg.lu_factor_ex(a)[:2]
            for operation in operations(dtype):
                x, taken = counted(library, route, partial(solve, torch, factors, b, operation))
                error = common.solve_error(torch, of(a, operation), x, b)
                worst[operation] = max(worst.get(operation, 0.0), error)
                right = b.mT.contiguous()
                call = partial(
                    torch.linalg.lu_solve, *factors, right, left=False, adjoint=operation != "N"
                )
                x, also = counted(library, route, call)
                error = common.solve_error(torch, of(a, operation).mT, x.mT, b)
                worst[operation + ", left=False"] = max(
                    worst.get(operation + ", left=False", 0.0), error
                )
                if not (taken and also):
                    missed.append(str((batch, n, k, operation)))
        check.value = {key: round(value, 3) for key, value in worst.items()}
        check.ok = max(worst.values()) < LIMIT and not missed
        check.reason = "" if not missed else f"another route at {', '.join(missed)}"[:300]


def _shared(session: Session, library: Any, dtype: str) -> None:
    """Factors that serve several right-hand sides, in every pattern, and nothing materialised."""
    torch = session.torch
    n = 96
    for route in ROUTES:
        with session.check("shared factors", route=route, dtype=dtype) as check:
            worst = 0.0
            for own, b_batch in (
                ((), (6,)),
                ((1,), (5,)),
                ((3, 1), (3, 4)),
                ((1, 3), (4, 3)),
                ((2, 1, 3), (2, 4, 3)),
                ((1, 3, 1), (2, 3, 4)),
            ):
                a = common.matrices(torch, dtype, max(1, math.prod(own)), n, n).view(*own, n, n)
                b = common.matrices(torch, dtype, math.prod(b_batch), n, 3).view(*b_batch, n, 3)
                factors = torch.linalg.lu_factor_ex(a)[:2]
                for operation in operations(dtype):
                    with common.forced(library, route, "lu_solve"):
                        x = solve(torch, factors, b, operation)
                    matrix = of(a, operation).expand(*b_batch, n, n)
                    worst = max(worst, common.solve_error(torch, matrix, x, b))
            check.value, check.ok = round(worst, 3), worst < LIMIT
    with session.check("one factor, nothing materialised", dtype=dtype) as check:
        a = common.matrices(torch, dtype, 1, 512, 512)[0]
        b = common.matrices(torch, dtype, 400, 512, 1)
        torch.linalg.solve_ex(a, b)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        x = torch.linalg.solve_ex(a, b).result
        peak = (torch.cuda.max_memory_allocated() - before) / (a.numel() * a.element_size())
        error = common.solve_error(torch, a.expand(400, 512, 512), x, b)
        check.value = {"peak in matrices": round(peak, 2), "error": round(error, 3)}
        check.ok = peak < 8 and error < LIMIT


def _uses(session: Session, library: Any, dtype: str) -> None:
    """Capture and replay on new data, equal bits, and bad items that stay by themselves."""
    torch = session.torch
    for route, k in (("batched_native", 1), ("batched_native", 5), ("blocked_native", 160)):
        with session.check("capture, bits, bad items", route=route, dtype=dtype, nrhs=k) as check:
            a = common.matrices(torch, dtype, 12, 150, 150)
            factors = torch.linalg.lu_factor_ex(a)[:2]
            b = common.matrices(torch, dtype, 12, 150, k)
            with common.forced(library, route, "lu_solve"):
                first = solve(torch, factors, b, "T")
                same = all(torch.equal(first, solve(torch, factors, b, "T")) for _ in range(20))
                held = b.clone()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    captured = solve(torch, factors, held, "T")
                held.copy_(2 * b)
                graph.replay()
                replayed = torch.equal(captured, 2 * first)
                factors[0][3, 70, 70] = 0
                factors[0][7, 70, 70] = math.nan
                bad = solve(torch, factors, b, "T")
            kept = [i for i in range(12) if i not in (3, 7)]
            apart = torch.equal(bad[kept], first[kept])
            reached = not bool(torch.isfinite(bad[7]).all()) and not bool(
                torch.isfinite(bad[3]).all()
            )
            check.value = [same, replayed, apart, reached]
            check.ok = all(check.value)
    if dtype != "float32":
        return
    for route in (*OURS, *LIBRARIES[:2], "choice"):
        with session.check("columns", case="187717", route=route, nrhs=COLUMNS) as check:
            a = common.matrices(torch, dtype, 2, 24, 24)
            b = common.matrices(torch, dtype, 2, 24, COLUMNS)
            factors = torch.linalg.lu_factor_ex(a)[:2]
            errors = []
            for operation in operations(dtype):
                with common.forced(library, route, "lu_solve"):
                    x = solve(torch, factors, b, operation)
                for first in (0, COLUMNS // 2 - 50, COLUMNS - 100):
                    part = slice(first, first + 100)
                    rows = x[..., part], b[..., part]
                    errors.append(common.solve_error(torch, of(a, operation), *rows))
            check.value, check.ok = round(max(errors), 3), max(errors) < LIMIT


# ---- Times ----


def clock(session: Session, call: Callable[[], Any]) -> Callable[[float | None], float]:
    """Milliseconds of one call, given about what it takes (None: unknown, and not waited for)."""
    once = session.clock(call)
    wait = session.torch.cuda._sleep

    def sample(about: float | None) -> float:
        if about is None or about > QUEUED_MS:
            return once()
        start, end = (session.torch.cuda.Event(enable_timing=True) for _ in range(2))
        wait(WAIT_CYCLES)
        start.record()
        kept = call()
        end.record()
        end.synchronize()
        del kept
        return float(start.elapsed_time(end))

    return sample


def brief(session: Session, call: Callable[[], Any], best: float | None) -> list[float]:
    """A few samples after a warm-up; one if the call is slow or far behind the best route."""
    sample = clock(session, call)
    first = sample(None)
    if first > SLOW_MS + 250 or (best is not None and first > FAR * best + 250):
        return [first]
    second = sample(first)
    if second > SLOW_MS or (best is not None and second > FAR * best + 0.05):
        return [second]
    return [sample(second) for _ in range(4)]


def problems(sizes: Sequence[int], columns: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Batch, n and right-hand sides of a grid, what matters most first."""
    for n in sizes:
        for batch in BATCHES:
            for k in columns:
                nrhs = n if k == ALL else k
                fits = batch * n * n <= MOST_ELEMENTS and batch * n * nrhs <= MOST_ELEMENTS
                if fits and not (k != ALL and nrhs > 8 and nrhs >= n):
                    yield batch, n, nrhs


def grid(session: Session) -> None:
    """All routes; options: grids, each with dtype, operations, columns (0: as many as rows) and
    seconds.
    """
    library = common.enable()
    for given in session.options["grids"]:
        dtype, seconds = given["dtype"], given["seconds"]
        end = time.monotonic() + seconds
        asked = list(problems(given.get("sizes", SIZES), given["columns"]))
        done = 0
        with session.check("grid", dtype=dtype, columns=given["columns"]) as check:
            held: tuple[Any, ...] = ()
            for batch, n, nrhs in asked:
                if time.monotonic() > end:
                    break
                if held[:2] != (batch, n):
                    held = ()
                    a = common.matrices(session.torch, dtype, batch, n, n)
                    held = (batch, n, session.torch.linalg.lu_factor_ex(a)[:2])
                    del a
                _point(session, library, given["operations"], dtype, held, nrhs)
                done += 1
            check.value, check.ok = {"problems": done, "of": len(asked)}, done > 0
            check.reason = "" if done == len(asked) else "the seconds given to it were over"
    common.disable()


def _point(
    session: Session,
    library: Any,
    asked: Sequence[str],
    dtype: str,
    held: tuple[Any, ...],
    nrhs: int,
) -> None:
    batch, n, factors = held
    b = common.matrices(session.torch, dtype, batch, n, nrhs)
    for operation in asked:
        best: float | None = None
        for route in ROUTES:
            if route in LIBRARIES[2:] and (
                batch > LOOPED_BATCH
                or n < LOOPED_ROWS
                or (route == "streamed_cusolver") != (batch >= 2)
            ):
                continue
            if route == "batched_native" and nrhs > 16:
                continue
            call = partial(solve, session.torch, factors, b, operation)
            with common.forced(library, route, "lu_solve"):
                samples = brief(session, call, best)
            ms = statistics.median(samples)
            best = ms if best is None else min(best, ms)
            session.point(
                "lu_solve",
                dtype,
                (batch, n, n),
                common.timing(samples, common.far_note(samples)),
                nrhs=nrhs,
                backend=route,
                operation=operation,
            )
