"""What must hold of an LU factorisation, judged in a wider type on the GPU."""

from __future__ import annotations

import torch

WIDER = {
    torch.float32: torch.float64,
    torch.float64: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex128: torch.complex128,
}


def permutation(pivots: torch.Tensor, m: int) -> torch.Tensor:
    """Row order (batch, m) that the 1-based exchanges `pivots` (batch, k) make."""
    batch, steps = pivots.shape
    order = torch.arange(m, device=pivots.device).expand(batch, m).contiguous()
    items = torch.arange(batch, device=pivots.device)
    for k in range(steps):
        other = pivots[:, k].long() - 1
        top = order[:, k].clone()
        order[:, k] = order[items, other]
        order[items, other] = top
    return order


def residual(a: torch.Tensor, lu: torch.Tensor, pivots: torch.Tensor) -> torch.Tensor:
    """norm(P A - L U) / (eps norm(A) max(m, n)) per item, 1-norms, in a wider type.

    Zero for an exact factorisation of a zero matrix; NaN where the factors are not finite.
    """
    m, n = a.shape[-2:]
    steps = min(m, n)
    wide = WIDER[a.dtype]
    order = permutation(pivots, m)
    target = torch.gather(a.to(wide), 1, order[:, :, None].expand(-1, -1, n))
    factors = lu.to(wide)
    lower = factors[:, :, :steps].tril(-1)
    lower.diagonal(dim1=-2, dim2=-1).add_(1)
    product = lower @ factors[:, :steps, :].triu()
    eps = torch.finfo(a.dtype).eps
    norm = torch.linalg.matrix_norm(a.to(wide), ord=1)
    error = torch.linalg.matrix_norm(product - target, ord=1)
    scale = eps * max(m, n) * norm
    return torch.where((error == 0) & (norm == 0), torch.zeros_like(error), error / scale)


def solve_residual(a: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """norm(A X - B) / (n eps norm(A) norm(X)) per item, 1-norms, in a wider type."""
    wide = WIDER[a.dtype]
    error = torch.linalg.matrix_norm(a.to(wide) @ x.to(wide) - b.to(wide), ord=1)
    size = torch.linalg.matrix_norm(a.to(wide), ord=1) * torch.linalg.matrix_norm(x.to(wide), ord=1)
    return error / (a.shape[-1] * torch.finfo(a.dtype).eps * size)


def largest_multiplier(lu: torch.Tensor) -> torch.Tensor:
    """Largest modulus below the diagonal, per item."""
    steps = min(lu.shape[-2:])
    return lu[:, :, :steps].tril(-1).abs().amax(dim=(-2, -1))


def assert_pivots_valid(pivots: torch.Tensor, m: int) -> None:
    """k <= pivot[k] <= m for every item, 1-based."""
    first = torch.arange(1, pivots.shape[1] + 1, device=pivots.device, dtype=torch.int32)
    assert bool(((pivots >= first) & (pivots <= m)).all()), "a pivot lies outside its range"


def assert_info_agrees(lu: torch.Tensor, info: torch.Tensor) -> None:
    """info names the first exactly zero diagonal entry of U, per item."""
    zero = lu.diagonal(dim1=-2, dim2=-1) == 0
    first = torch.where(
        zero.any(dim=1), zero.to(torch.int32).argmax(dim=1) + 1, torch.zeros_like(info)
    )
    assert torch.equal(first.to(torch.int32), info), "info disagrees with U's diagonal"


def assert_factored(
    a: torch.Tensor,
    lu: torch.Tensor,
    pivots: torch.Tensor,
    info: torch.Tensor,
    pivot: bool = True,
) -> None:
    """Every item: residual <= 30 n eps norm(A), pivots valid, multipliers bounded, info right."""
    m = a.shape[1]
    assert_pivots_valid(pivots, m)
    worst = float(residual(a, lu, pivots).max())
    assert worst <= 30, (
        f"residual of {worst:.3g} times n eps norm(A), for {tuple(a.shape)} {a.dtype}"
    )
    if pivot:
        eps = torch.finfo(a.dtype).eps
        # |re| + |im| orders complex pivots, so a modulus may reach the square root of two.
        bound = (2**0.5 if a.is_complex() else 1) * (1 + 8 * eps)
        most = float(largest_multiplier(lu).max()) if lu.numel() else 0.0
        assert most <= bound, f"a multiplier of modulus {most}"
    else:
        first = torch.arange(1, pivots.shape[1] + 1, device=pivots.device, dtype=torch.int32)
        assert bool((pivots == first).all()), "pivots must be the identity without pivoting"
    assert_info_agrees(lu, info)
