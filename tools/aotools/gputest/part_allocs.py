"""How often one call asks the allocator: once for the batch, or once for every matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aotools.gputest.session import Session, measure

BATCHES = (1, 16, 1024)
N = 512
TALL = (520, 500)
FEW = 16  # allocations that a call may need, whatever its batch
SMALL, LARGE = 4, 12  # batches of the other operations
Call = tuple[str, tuple[int, int, int], Callable[[], Any]]  # op, (batch, m, n), the call


def other_calls(torch: Any) -> Iterator[Call]:
    """The other operations whose workspaces leave the loop, at two batches each."""
    for batch in (SMALL, LARGE):
        a = torch.randn(batch, *TALL, device="cuda")
        h = torch.randn(batch, 40, 40, device="cuda")
        h = h + h.mT
        reflectors, tau = torch.geqrf(a)
        shape = (batch, *TALL)
        product = partial(torch.linalg.householder_product, reflectors, tau)
        yield "geqrf", shape, partial(torch.geqrf, a)
        yield "ormqr", shape, partial(torch.ormqr, reflectors, tau, a)
        yield "householder_product", shape, product
        yield "eigh", (batch, 40, 40), partial(torch.linalg.eigh, h)


def routes(session: Session) -> list[tuple[str, int]]:
    """The lu_factor routes to look at: what the library does by itself, and its loops."""
    if not session.patched.has_routes:
        return [("choice", 0)]
    return [("choice", 0), ("looped_cusolver", 0), ("streamed_cusolver", 4)]


def _lu_calls(session: Session) -> Iterator[tuple[str, int, Call]]:
    torch = session.torch
    for batch in BATCHES:
        a = torch.randn(batch, N, N, device="cuda")
        for backend, lanes in routes(session):
            if not lanes or batch > 1:
                call = partial(torch.linalg.lu_factor_ex, a)
                yield backend, lanes, ("lu_factor_ex", (batch, N, N), call)


def count(session: Session) -> None:
    """Points with `allocations`: calls of the caching allocator in one call of the operation."""
    torch = session.torch
    device = torch.cuda.current_device()

    def allocations(fn: Callable[[], Any]) -> int:
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats(device)["allocation.all.allocated"]
        fn()
        after = torch.cuda.memory_stats(device)["allocation.all.allocated"]
        return int(after - before)

    def point(backend: str, lanes: int, call: Call) -> None:
        op, shape, fn = call
        with session.check("allocations", op=op, batch=shape[0], backend=backend) as check:
            # This also creates streams and handles, which are not counted.
            timing = measure(session.clock(fn))
            number = allocations(fn)
            more = {"lanes": lanes} if lanes else {}
            session.point(
                op,
                "float32",
                shape,
                timing,
                backend=backend,
                preference="cusolver",
                allocations=number,
                **more,
            )
            check.value = number
            check.ok = number <= FEW
            if not session.patched.has_routes:
                check.skip, check.reason = True, "counted for comparison"

    assert session.patched.loaded
    session.prefer("cusolver")
    for backend, lanes, call in _lu_calls(session):
        if session.patched.has_routes:
            session.patched.route(backend, lanes)
        point(backend, lanes, call)
    if session.patched.has_routes:
        session.patched.route("choice")
    for call in other_calls(torch):
        point("choice", 0, call)


def uncached(session: Session) -> None:
    """The same calls of lu_factor_ex in milliseconds of the host's clock, every allocation a
    cudaMalloc.
    """
    assert session.patched.loaded
    session.prefer("cusolver")
    for backend, lanes, (op, shape, fn) in _lu_calls(session):
        if session.patched.has_routes:
            session.patched.route(backend, lanes)
        more: dict[str, Any] = {"lanes": lanes} if lanes else {}
        timing = measure(session.wall_clock(fn))
        session.point(
            op,
            "float32",
            shape,
            timing,
            backend=backend,
            preference="cusolver",
            caching=False,
            **more,
        )
