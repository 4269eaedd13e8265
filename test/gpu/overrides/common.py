"""Common parts of the GPU scripts of the overrides."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aten_overrides
from aotools.gputest.session import Session, Timing
from aten_overrides import _runtime
from aten_overrides._gpu import Library

DTYPES = ("float32", "float64", "complex64", "complex128")
LU_ROUTES = ("stock", "batched_cublas", "streamed_cusolver", "looped_cusolver")
EPS = {"float32": 2.0**-23, "complex64": 2.0**-23, "float64": 2.0**-52, "complex128": 2.0**-52}


def enable(**settings: Any) -> Library:
    """Enables the overrides and returns the library."""
    aten_overrides.enable(**settings)
    library = _runtime.loaded_library()
    assert library is not None
    return library


@contextmanager
def forced(library: Library, route: str, op: str = "lu_factor") -> Iterator[None]:
    """Makes every call of the operation take one route."""
    library.force_route(op, route)
    try:
        yield
    finally:
        library.force_route(op, None)


def matrices(torch: Any, dtype: str, batch: int, m: int, n: int) -> Any:
    """Random matrices, the same for the same arguments."""
    generator = torch.Generator(device="cuda").manual_seed(batch * 1000003 + m * 1009 + n)
    return torch.randn(batch, m, n, dtype=getattr(torch, dtype), device="cuda", generator=generator)


def factor_error(torch: Any, a: Any, lu: Any, pivots: Any) -> float:
    """Largest norm(P L U - A) / (n eps norm(A)) over the batch, products in a wider type."""
    dtype = str(a.dtype).removeprefix("torch.")
    wide = torch.complex128 if a.is_complex() else torch.float64
    p, lower, upper = torch.lu_unpack(lu, pivots)
    product = p.to(wide) @ (lower.to(wide) @ upper.to(wide))
    norm = torch.linalg.matrix_norm(a.to(wide))
    error = torch.linalg.matrix_norm(product - a.to(wide)) / norm
    largest: float = error.max().item()
    return largest / (int(max(a.shape[-2:])) * EPS[dtype])


def solve_error(torch: Any, a: Any, x: Any, b: Any) -> float:
    """Largest norm(A X - B) / (n eps norm(A) norm(X)) over the batch, products in a wider type."""
    dtype = str(a.dtype).removeprefix("torch.")
    wide = torch.complex128 if a.is_complex() else torch.float64
    rest = torch.linalg.matrix_norm(a.to(wide) @ x.to(wide) - b.to(wide))
    scale = torch.linalg.matrix_norm(a.to(wide)) * torch.linalg.matrix_norm(x.to(wide))
    largest: float = (rest / scale).max().item()
    return largest / (int(a.shape[-1]) * EPS[dtype])


def quick(session: Session, call: Callable[[], Any], best: float | None = None) -> Timing:
    """A short timing on the stream's clock: 7 samples under 5 ms, 3 under 60 ms, else 2; one if the
    first shows over twice the best time.
    """
    once = session.clock(call)
    first = once()
    if best is not None and first > 2 * best + 250:
        return Timing(first, (first, first), 1, "one call: more than twice the best route's time")
    if best is not None and first > 2 * best:
        first = once()  # the first may have loaded a kernel
        if first > 2 * best:
            return Timing(
                first, (first, first), 1, "one call: more than twice the best route's time"
            )
    count = 7 if first < 5 else 3 if first < 60 else 2
    samples = [once() for _ in range(count)]
    return Timing(statistics.median(samples), (min(samples), max(samples)), count)


def host_microseconds(
    torch: Any, call: Callable[[], Any], calls: int = 150, rounds: int = 9
) -> list[float]:
    """Microseconds that the host spends on a call, by rounds. So few calls fit into the launch
    queue, so the host never waits for the GPU.
    """
    for _ in range(100):
        call()
    rows = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(calls):
            call()
        rows.append((time.perf_counter() - started) / calls * 1e6)
    torch.cuda.synchronize()
    return rows


def allocations(torch: Any, call: Callable[[], Any]) -> int:
    """Calls of the caching allocator in one call of the operation."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    kept = call()
    after = torch.cuda.memory_stats()["allocation.all.allocated"]
    del kept
    return int(after - before)
