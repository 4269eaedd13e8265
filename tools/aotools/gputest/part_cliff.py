"""solve_ex around n = 512, where PyTorch up to 2.12 changed from one batched call to one call per
matrix.

Beside it, at the same points and in the same process, lu_factor_ex by the library's own choice and
by every route: the regret of the choice is against these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from aotools.gputest.plan import DTYPES
from aotools.gputest.session import Session, Timing, measure

SIZES = (511, 512, 513)
BATCHES = (1, 16, 64, 256, 1024)
BYTE_CAP = 8e9  # of the matrices of one point
# Likely best first: a later route that takes over twice the best time is timed once.
ROUTES = (
    ("stock", 0),
    ("batched_cublas", 0),
    ("streamed_cusolver", 4),
    ("streamed_cusolver", 8),
    ("looped_cusolver", 0),
)


def residual(torch: Any, a: Any, x: Any, b: Any) -> float:
    """The worst ||Ax - b|| / (||A|| ||x|| + ||b||) of a batch, Frobenius norms."""
    r = torch.linalg.matrix_norm(a @ x - b)
    scale = torch.linalg.matrix_norm(a) * torch.linalg.matrix_norm(x) + torch.linalg.matrix_norm(b)
    return float((r / scale).max())


def run(session: Session) -> None:
    """Writes the points of one library; options: preferences, also_float32, routes."""
    torch = session.torch
    if session.library != "stock":
        assert session.patched.loaded
    for dtype in DTYPES:
        preferences = list(session.options["preferences"])
        if dtype == "float32":
            preferences += session.options.get("also_float32", [])
        for n in SIZES:
            for batch in BATCHES:
                size = batch * n * n * torch.empty(0, dtype=getattr(torch, dtype)).element_size()
                free, _ = torch.cuda.mem_get_info()
                free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
                if size > BYTE_CAP or 4 * size > free:
                    with session.check(
                        "point", op="solve_ex", dtype=dtype, n=n, batch=batch
                    ) as check:
                        check.skip = True
                        check.reason = (
                            f"{size / 1e9:.1f} GB of matrices, {free / 1e9:.1f} GB are free"
                        )
                    continue
                _point(session, dtype, n, batch, preferences)


def _point(session: Session, dtype: str, n: int, batch: int, preferences: list[str]) -> None:
    torch = session.torch
    kind = getattr(torch, dtype)
    a = torch.randn(batch, n, n, dtype=kind, device="cuda")
    b = torch.randn(batch, n, 1, dtype=kind, device="cuda")
    shape = (batch, n, n)

    def guarded(name: str, backend: str, preference: str, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:  # one route that fails must not cost the others
            with session.check(
                name, dtype=dtype, n=n, batch=batch, backend=backend, preference=preference
            ):
                raise RuntimeError(str(error)) from error

    def solve(preference: str) -> None:
        session.prefer(preference)
        timing = measure(session.clock(lambda: torch.linalg.solve_ex(a, b)))
        error = (
            residual(torch, a, torch.linalg.solve_ex(a, b).result, b) if timing.ms < 200 else None
        )
        more = {} if error is None else {"residual": float(f"{error:.3g}")}
        session.point("solve_ex", dtype, shape, timing, nrhs=1, preference=preference, **more)

    def factor(backend: str, preference: str, best: float | None, lanes: int = 0) -> Timing:
        session.prefer(preference)
        timing = measure(session.clock(lambda: torch.linalg.lu_factor_ex(a)), best)
        more = {"lanes": lanes} if lanes else {}
        session.point(
            "lu_factor_ex", dtype, shape, timing, backend=backend, preference=preference, **more
        )
        return timing

    for preference in preferences:
        guarded("solve_ex", "choice", preference, partial(solve, preference))
    if session.options.get("routes"):
        best: list[float] = []

        def choose(preference: str) -> None:
            best.append(factor("choice", preference, None).ms)

        def forced(backend: str, lanes: int) -> None:
            with session.patched.forced(backend, lanes):
                best.append(factor(backend, "default", min(best, default=None), lanes).ms)

        session.patched.limits(4, 512)  # the default, for the choice
        for preference in ("default", "cusolver", "cublas"):
            guarded("lu_factor_ex", "choice", preference, partial(choose, preference))
        session.patched.limits(8, 1024)
        for backend, lanes in ROUTES:
            if lanes and batch < 2:
                continue
            guarded("lu_factor_ex", backend, "default", partial(forced, backend, lanes))
        session.patched.limits(4, 512)
    session.prefer("default")
