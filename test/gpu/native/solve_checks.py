"""Systems with known factors, and what must hold of their solutions."""

from __future__ import annotations

import torch
from checks import solve_residual
from solve_library import SolveLibrary, SolvePlan

LIMIT = 30.0  # residuals, in units of n eps


def column_major(source: torch.Tensor, lda: int = 0) -> torch.Tensor:
    """A copy whose matrices are column-major, with leading dimension `lda` if that is larger."""
    batch, m, n = source.shape
    whole = torch.empty((batch, n, max(m, lda)), dtype=source.dtype, device=source.device)
    whole.fill_(float("nan"))
    copy = whole[:, :, :m].mT
    copy.copy_(source)
    return copy


def random(shape: tuple[int, ...], dtype: torch.dtype, device: str, seed: int = 0) -> torch.Tensor:
    """Normal random numbers, the same for the same arguments."""
    generator = torch.Generator(device=device).manual_seed(sum(shape) * 31 + seed)
    return torch.randn(shape, dtype=dtype, device=device, generator=generator)


def operated(a: torch.Tensor, operation: str) -> torch.Tensor:
    """A, its transpose or its conjugate transpose."""
    return a if operation == "N" else a.mT if operation == "T" else a.mH


def assert_solves(
    library: SolveLibrary,
    a: torch.Tensor,
    nrhs: int,
    operation: str,
    plan: SolvePlan,
    batch: int = 0,
    lda: int = 0,
) -> torch.Tensor:
    """Factor with torch, solve `batch` right-hand sides (as many as factors if 0) and judge them.

    What lies between the columns must stay as it was. Returns the solutions.
    """
    factors, n, _ = a.shape
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    lu = column_major(lu, lda)
    b = random((batch or factors, n, nrhs), a.dtype, library.device, seed=7)
    x = column_major(b, lda)
    library.solve(lu, pivots, x, operation, plan)
    matrices = operated(a, operation).repeat(max(1, (batch or factors) // factors), 1, 1)
    worst = float(solve_residual(matrices, x, b).max())
    assert worst <= LIMIT, (
        f"residual {worst:.3g} n eps: {tuple(b.shape)} {a.dtype} {operation} {plan}"
    )
    return x
