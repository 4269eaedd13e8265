"""lu_solve: whether every route is right, and what unpatched and patched libraries take.

The times of all routes at the same points stand beside those of the choice, so that its regret is
known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import product
from typing import Any

from aotools.gputest.plan import DTYPES
from aotools.gputest.session import Session, measure

ROUTES = (
    ("batched_cublas", 0),
    ("triangular_cublas", 0),
    ("streamed_cusolver", 4),
    ("looped_cusolver", 0),
)
LOOPED = ("streamed_cusolver", "looped_cusolver")
SIZES = (1, 33, 64, 129, 300, 520)
BATCHES = (1, 3, 9, 40)
SHARED = (((), (6,)), ((1,), (6,)), ((3, 1), (3, 4)), ((1, 4), (3, 4)), ((2, 1, 3), (2, 4, 3)))
SHARED_ROWS = 96
COLUMNS = 524300  # cuBLAS's batched triangular solve is wrong from 524281 on, up to CUDA 13.1
LARGE = 65536  # matrices: one over the limit of a vendor's batched call
LIMIT = 30.0  # of ||A X - B|| / (||A|| ||X|| n eps)

# dtype, batch, n, right-hand sides, transposed: where rules change, and what inv and solve call.
POINTS = (
    ("float32", 1, 128, 1, True),
    ("float32", 2, 64, 1, True),
    ("float32", 2, 256, 8, True),
    ("float32", 2, 1024, 2, False),
    ("float32", 3, 512, 1, True),
    ("float32", 8, 65, 3, True),
    ("float32", 8, 256, 8, False),
    ("float32", 8, 512, 512, True),
    ("float32", 9, 129, 1, True),
    ("float32", 32, 300, 1, True),
    ("float32", 64, 512, 1, True),
    ("float32", 64, 512, 512, False),
    ("float32", 200, 256, 3, True),
    ("float32", 1024, 128, 3, True),
    ("float32", 1024, 256, 1, True),
    ("float32", 1024, 64, 64, True),
    ("float64", 2, 512, 8, True),
    ("float64", 8, 256, 64, True),
    ("float64", 256, 256, 2, True),
    ("complex64", 8, 512, 2, False),
    ("complex128", 512, 128, 3, False),
)
PREFERENCES = ("default", "cusolver")
MOST_LOOPED = 64  # matrices: a loop over more is far behind


def matrices(session: Session, dtype: str, *shape: int) -> Any:
    """Random matrices whose LU exchanges rows and is well conditioned."""
    torch = session.torch
    a = torch.randn(*shape, dtype=getattr(torch, dtype), device="cuda")
    if shape[-2] == shape[-1]:
        a = a + 2 * shape[-1] ** 0.5 * torch.eye(shape[-1], dtype=a.dtype, device="cuda").flip(-2)
    return a


def error(torch: Any, a: Any, x: Any, b: Any) -> float:
    """The worst ||A X - B|| / (||A|| ||X|| n eps) of a batch, in double precision."""
    double = torch.complex128 if a.is_complex() else torch.float64
    unit = a.shape[-1] * torch.finfo(a.dtype).eps
    a, x, b = (each.to(double) for each in (a, x, b))
    scale = torch.linalg.matrix_norm(a) * torch.linalg.matrix_norm(x) * unit
    return float((torch.linalg.matrix_norm(a @ x - b) / scale).max())


def correct(session: Session) -> None:
    """Every route, then the choice under each preference, for N, T or C, both sides."""
    lib = session.patched
    lib.limits(4, 512)
    for dtype in DTYPES:
        for route, lanes in (*ROUTES, ("stock", 0)):
            with lib.solve_forced(route, lanes):
                _sizes(session, dtype, route, "default")
                _shared(session, dtype, route, "default")
        for preference in ("default", "cusolver", "cublas"):
            session.prefer(preference)
            _sizes(session, dtype, "choice", preference)
            _shared(session, dtype, "choice", preference)
            session.prefer("default")
    for dtype in ("float32", "complex128"):
        for route, lanes in ROUTES:
            with lib.solve_forced(route, lanes):
                _limits(session, dtype, route, "default")
        for preference in ("default", "cusolver"):
            session.prefer(preference)
            _limits(session, dtype, "choice", preference)
            session.prefer("default")
    _captured(session)


Case = Callable[[], tuple[str, float]]


def _row(
    session: Session, name: str, cases: list[Case], how: dict[str, str], vendor: bool = False
) -> None:
    """One check of several cases, which give their description and their error."""
    with session.check(name, **how) as check:
        worst, where, wrong = 0.0, "", []
        check.vendor = vendor
        for case in cases:
            at, ratio = case()
            if not ratio <= LIMIT:
                wrong.append(f"{at}: {ratio:.3g}")
            if not ratio <= worst:
                worst, where = ratio, at
        check.value = {"cases": len(cases), "worst": float(f"{worst:.3g}"), "at": where}
        check.ok, check.reason = not wrong, "; ".join(wrong)[:600]


def _sizes(session: Session, dtype: str, backend: str, preference: str) -> None:
    torch = session.torch

    @lru_cache(maxsize=1)
    def factored(batch: int, n: int) -> tuple[Any, Any, Any]:
        a = matrices(session, dtype, batch, n, n)
        lu, pivots, _ = torch.linalg.lu_factor_ex(a)
        return a, lu, pivots

    def case(batch: int, n: int, nrhs: int, adjoint: bool, left: bool) -> tuple[str, float]:
        a, lu, pivots = factored(batch, n)
        b = matrices(session, dtype, batch, n, nrhs)
        side = b if left else b.mT.contiguous()
        x = torch.linalg.lu_solve(lu, pivots, side, adjoint=adjoint, left=left)
        at = f"({batch}, {n}, {nrhs}){' adjoint' * adjoint}{'' if left else ' right'}"
        of = a.mH if adjoint else a
        return at, error(torch, of, x, b) if left else error(torch, of.mT, x.mT, b)

    cases: list[Case] = []
    for batch, n in product(BATCHES, SIZES):
        if (backend in LOOPED and batch > 9) or (backend == "streamed_cusolver" and batch == 1):
            continue
        for at, nrhs in enumerate(sorted({1, 2, 3, 16, n})):
            for adjoint in (False, True):
                left = (at + adjoint) % 2 == 0  # sides and operations in turn
                cases.append(partial(case, batch, n, nrhs, adjoint, left))
    how = {"dtype": dtype, "backend": backend, "preference": preference}
    _row(session, "solve: residual", cases, how, backend == "stock")


def _shared(session: Session, dtype: str, backend: str, preference: str) -> None:
    torch = session.torch

    def case(
        own: tuple[int, ...], sides: tuple[int, ...], nrhs: int, adj: bool
    ) -> tuple[str, float]:
        a = matrices(session, dtype, *own, SHARED_ROWS, SHARED_ROWS)
        b = matrices(session, dtype, *sides, SHARED_ROWS, nrhs)
        lu, pivots, _ = torch.linalg.lu_factor_ex(a)
        x = torch.linalg.lu_solve(lu, pivots, b, adjoint=adj)
        return f"{own} for {sides}, {nrhs}", error(torch, a.mH if adj else a, x, b)

    cases: list[Case] = [
        partial(case, own, sides, nrhs, adjoint)
        for own, sides in SHARED
        for nrhs in (1, 5)
        for adjoint in (False, True)
    ]
    how = {"dtype": dtype, "backend": backend, "preference": preference}
    _row(session, "solve: shared factors", cases, how, backend == "stock")


def _limits(session: Session, dtype: str, backend: str, preference: str) -> None:
    torch = session.torch

    def case(batch: int, n: int, nrhs: int, adjoint: bool) -> tuple[str, float]:
        a, b = matrices(session, dtype, batch, n, n), matrices(session, dtype, batch, n, nrhs)
        lu, pivots, _ = torch.linalg.lu_factor_ex(a)
        x = torch.linalg.lu_solve(lu, pivots, b, adjoint=adjoint)
        return f"({batch}, {n}, {nrhs})", error(torch, a.mH if adjoint else a, x, b)

    shapes = [(2, 3, COLUMNS), (2, 20, COLUMNS)]
    if backend not in LOOPED:
        shapes.append((LARGE, 3, 1))
    cases: list[Case] = [partial(case, *shape, adj) for shape in shapes for adj in (False, True)]
    how = {"dtype": dtype, "backend": backend, "preference": preference}
    _row(session, "solve: limits of cuBLAS", cases, how)


def _captured(session: Session) -> None:
    """The choice in a CUDA graph, where its default is MAGMA without one, too."""
    torch = session.torch
    for batch, n, nrhs in ((1, 40, 1), (2, 130, 3), (8, 300, 2), (40, 600, 70)):
        with session.check("solve: captured", batch=batch, n=n, nrhs=nrhs) as check:
            a, b = (matrices(session, "float64", batch, n, k) for k in (n, nrhs))
            lu, pivots, _ = torch.linalg.lu_factor_ex(a)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.linalg.lu_solve(lu, pivots, b)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                x = torch.linalg.lu_solve(lu, pivots, b)
            b.copy_(matrices(session, "float64", batch, n, nrhs))
            graph.replay()
            check.value = round(error(torch, a, x, b), 3)
            check.ok = check.value <= LIMIT


def times(session: Session) -> None:
    """lu_solve at POINTS: by choice, without a preference and with "cusolver", and where the
    library has routes to force, by each of them and by the wheel's own function.
    """
    session.patched.loaded.entries()  # loads it
    if session.options.get("routes"):
        session.patched.limits(4, 512)
    for point in POINTS:
        dtype, batch, n, nrhs, transposed = point
        name = {"dtype": dtype, "batch": batch, "n": n, "nrhs": nrhs, "transposed": transposed}
        with session.check("solve: point", **name) as check:
            check.value = _times(session, point)
            check.ok = True


def _times(session: Session, point: tuple[str, int, int, int, bool]) -> int:
    """Writes the times of one point and returns how many."""
    torch = session.torch
    dtype, batch, n, nrhs, transposed = point
    a, b = matrices(session, dtype, batch, n, n), matrices(session, dtype, batch, n, nrhs)
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    once = session.clock(partial(torch.linalg.lu_solve, lu, pivots, b, adjoint=transposed))
    operation = "N" if not transposed else "C" if dtype.startswith("complex") else "T"
    more = {"nrhs": nrhs, "operation": operation}
    best, made = None, 0
    for preference in PREFERENCES:
        session.prefer(preference)
        timing = measure(once, best)
        session.point("lu_solve", dtype, (batch, n, n), timing, preference=preference, **more)
        best = min(timing.ms, best or timing.ms)
        made += 1
    session.prefer("default")
    for backend, lanes in (*ROUTES, ("stock", 0)) if session.options.get("routes") else ():
        if (backend in LOOPED and batch > MOST_LOOPED) or (lanes and batch < 2):
            continue
        with session.patched.solve_forced(backend, lanes):
            timing = measure(once, best)
        how = {"backend": backend, **({"lanes": lanes} if lanes else {})}
        session.point("lu_solve", dtype, (batch, n, n), timing, **how, **more)
        made += 1
    return made
