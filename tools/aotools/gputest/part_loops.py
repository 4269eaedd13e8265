"""The other loops of cuSOLVER calls: on auxiliary streams against one stream, whatever the
thresholds say of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from aotools.gputest.part_lanes import capture
from aotools.gputest.part_unchanged import flat, same
from aotools.gputest.session import Check, Session, measure

# In the order of LoopThresholds.h.
LOOPS = ("getrs", "potrf", "potrs", "geqrf", "orgqr", "ormqr", "syevd", "syevj")
# Entries that a relinked library leaves to the wheel.
MORE_ENTRIES = ("cholesky_solve_helper", "cholesky_inverse")
# dtype, batch, n; at the last one eigh goes to syevd one by one.
SHAPES = (("float32", 16, 512), ("float64", 16, 512), ("float32", 4, 512), ("complex64", 8, 320))
RHS = 64
LANES = 4
RUNS = 5
LOSS = 1.05  # a loop that the thresholds turn on may take that much of the one on one stream


@dataclass(frozen=True)
class Case:
    """A call that reaches a loop; `inputs` are what a replay gets new numbers for."""

    op: str
    loop: str
    batch: int
    n: int
    inputs: tuple[Any, ...]
    call: Callable[[], Any]
    nrhs: int = 0
    rival: str = "looped_cusolver"  # with one lane
    capturable: bool = True


def definite(torch: Any, a: Any) -> Any:
    """Hermitian positive definite matrices made of `a`."""
    n = a.shape[-1]
    return a @ a.mH + n * torch.eye(n, dtype=a.dtype, device="cuda")


def cases(torch: Any, dtype: str, batch: int, n: int) -> Iterator[Case]:
    """The calls, on inputs of a fixed seed. Not lu_solve, whose choice depends on the lanes: part
    `solve` has it.
    """
    kind = getattr(torch, dtype)
    generator = torch.Generator("cuda").manual_seed(7)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, dtype=kind, device="cuda", generator=generator)

    a, b = random(batch, n, n), random(batch, n, RHS)
    reflectors, tau = torch.geqrf(a)
    positive = definite(torch, a)
    lower = torch.linalg.cholesky(positive)
    linalg = torch.linalg
    product = partial(linalg.householder_product, reflectors, tau)
    yield Case("geqrf", "geqrf", batch, n, (a,), partial(torch.geqrf, a))
    yield Case("householder_product", "orgqr", batch, n, (), product)
    yield Case("ormqr", "ormqr", batch, n, (b,), partial(torch.ormqr, reflectors, tau, b), nrhs=RHS)
    solve = partial(torch.cholesky_solve, b, lower)
    yield Case("cholesky_solve", "potrs", batch, n, (b,), solve, nrhs=RHS)
    yield Case("cholesky_inverse", "potrs", batch, n, (), partial(torch.cholesky_inverse, lower))
    if batch <= LANES:  # else potrfBatched takes them
        factor = partial(linalg.cholesky_ex, positive)
        yield Case("cholesky_ex", "potrf", batch, n, (), factor, rival="batched_cusolver")
    if dtype == "complex64":
        hermitian = a + a.mH
        eigh = partial(linalg.eigh, hermitian)
        yield Case("eigh", "syevd", batch, n, (), eigh, capturable=False)


@contextmanager
def lanes(session: Session, count: int) -> Iterator[None]:
    """All loops on `count` lanes for the block."""
    lib = session.patched
    lib.limits(count, 1024)
    lib.loops_always(count > 1)
    try:
        yield
    finally:
        lib.loops_always(False)
        lib.limits(LANES, 1024)


def prepare(session: Session) -> None:
    """Takes the entries that reach the loops, and the preference that does."""
    lib = session.patched
    lib.loaded.select([*lib.loaded.facts["entries"], *MORE_ENTRIES])
    session.prefer("cusolver")


def run(session: Session) -> None:
    """Time and bits on four lanes against one, infos of a bad matrix, capture and replay."""
    prepare(session)
    torch = session.torch
    late = []
    for dtype, batch, n in SHAPES:
        for case in cases(torch, dtype, batch, n):
            compare(session, dtype, case)
            if case.capturable:
                late.append((dtype, case))
        if batch <= LANES:
            bad_matrices(session, dtype, batch, n)
    for dtype, case in late:  # a capture that fails may leave its mark
        replay(session, dtype, case)


def compare(session: Session, dtype: str, case: Case) -> None:
    """One case: times of the loop and of the lanes, and whether the bits are the same."""
    torch, lib = session.torch, session.patched
    at = {"op": case.op, "loop": case.loop, "dtype": dtype, "batch": case.batch, "n": case.n}
    shape = (case.batch, case.n, case.n)
    point = partial(session.point, case.op, dtype, shape, preference="cusolver", nrhs=case.nrhs)
    with session.check("loops: speed-up over one stream", **at) as check:
        on = lib.loop_on(LOOPS.index(case.loop), case.n, case.batch)
        with lanes(session, 1):
            loop = measure(session.clock(case.call))
            want = flat(case.call())
        point(loop, backend=case.rival)
        with lanes(session, LANES):
            timing = measure(session.clock(case.call))
        point(timing, backend="streamed_cusolver", lanes=LANES)
        gain = loop.ms / timing.ms
        check.value = {"gain": round(gain, 2), "on": on}
        check.reason = f"{loop.ms:.3f} ms -> {timing.ms:.3f} ms"
        check.ok = not on or timing.ms <= LOSS * loop.ms
    if case.rival != "looped_cusolver":
        return
    with session.check("loops: bits equal to one stream's", **at, runs=RUNS) as check:
        with lanes(session, LANES):
            differing = sum(not same(torch, flat(case.call()), want) for _ in range(RUNS))
        check.ok, check.value = differing == 0, differing


def bad_matrices(session: Session, dtype: str, batch: int, n: int) -> None:
    """On lanes: the info of a matrix that is not definite, and no other matrix changed by it."""
    torch = session.torch
    a = torch.randn(batch, n, n, dtype=getattr(torch, dtype), device="cuda")
    matrices = definite(torch, a)
    bad = batch // 2 + 1  # on an auxiliary stream
    others = [i for i in range(batch) if i != bad]
    at = {"op": "cholesky_ex", "dtype": dtype, "batch": batch, "n": n}
    with session.check("loops: info of a bad matrix", **at) as check, lanes(session, LANES):
        good = flat(torch.linalg.cholesky_ex(matrices))
        matrices[bad, n // 2] = 0  # no longer positive from here on
        got = flat(torch.linalg.cholesky_ex(matrices))
        info = got[-1].tolist()
        kept = all(torch.equal(x[others], y[others]) for x, y in zip(got, good, strict=True))
        check.value = {"info": info[bad], "others": sorted({info[i] for i in others})}
        check.ok = check.value == {"info": n // 2 + 1, "others": [0]} and kept
        check.reason = "" if kept else "another matrix changed"


def replay(session: Session, dtype: str, case: Case) -> None:
    """Captures the call on lanes and replays it on new numbers; a skip where one stream cannot be
    captured either.
    """
    torch = session.torch
    at = {"op": case.op, "loop": case.loop, "dtype": dtype, "batch": case.batch, "n": case.n}
    name = "loops: graph replay equals the eager call"
    with session.check(name, **at) as check, lanes(session, LANES):
        try:
            graph, out = capture(torch, case.call)
        except RuntimeError as error:
            _refused(session, case, check, error)
            return
        for tensor in case.inputs:
            tensor.copy_(torch.randn_like(tensor))
        graph.replay()
        torch.cuda.synchronize()
        check.ok = same(torch, flat(out), flat(case.call()))
        check.value = "" if check.ok else "bits differ"


def _refused(session: Session, case: Case, check: Check, error: RuntimeError) -> None:
    torch = session.torch
    torch.cuda.synchronize()
    with lanes(session, 1):
        try:
            capture(torch, case.call)
        except RuntimeError:
            check.skip = True
            check.reason = f"on one stream it cannot be captured either: {error}"[:300]
        else:
            check.ok, check.reason = False, f"only on lanes: {error}"[:300]
    torch.cuda.synchronize()
