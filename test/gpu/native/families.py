"""Matrix families for the LU tests: each maps (batch, n, dtype, generator) to a CUDA tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch

Family = Callable[[int, int, torch.dtype, torch.Generator], torch.Tensor]


def random(batch: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Standard normal entries."""
    return rectangular(batch, n, n, dtype, generator)


def rectangular(
    batch: int, m: int, n: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Standard normal entries, (batch, m, n)."""
    return torch.randn((batch, m, n), dtype=dtype, device="cuda", generator=generator)


def _index(n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(n, device="cuda", dtype=torch.float64).to(dtype)


def _graded(n: int, dtype: torch.dtype) -> torch.Tensor:
    exponents = torch.arange(n, device="cuda", dtype=torch.float64) / max(n - 1, 1)
    return torch.pow(10.0, -8 * exponents).to(dtype)


def _orthogonal(batch: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.linalg.qr(random(batch, n, dtype, generator)).Q


def _conditioned(power: float) -> Family:
    def make(batch: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        left = _orthogonal(batch, n, dtype, generator)
        right = _orthogonal(batch, n, dtype, generator)
        exponents = torch.arange(n, device="cuda", dtype=torch.float64) / max(n - 1, 1)
        return (left * torch.pow(10.0, -power * exponents).to(dtype)) @ right

    return make


def _hilbert(batch: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    i = _index(n, dtype)
    return (1 / (i[:, None] + i[None, :] + 1)).expand(batch, n, n)


def _ties(batch: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.sign(random(batch, n, dtype, generator).real).to(dtype)


def _near_zero_pivots(
    batch: int, n: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    a = random(batch, n, dtype, generator)
    a.diagonal(dim1=-2, dim2=-1).mul_(torch.finfo(dtype).tiny)
    return a


def _permutation(
    batch: int, n: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    order = torch.rand((batch, n), device="cuda", generator=generator).argsort(dim=1)
    return torch.nn.functional.one_hot(order, n).to(dtype)


def _wilkinson(batch: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    a = torch.eye(n, device="cuda", dtype=dtype) - torch.ones(
        (n, n), device="cuda", dtype=dtype
    ).tril(-1)
    a[:, -1] = 1
    return a.expand(batch, n, n)


def _scaled(fraction: float) -> Family:
    def make(batch: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        largest = torch.finfo(dtype).max
        return random(batch, n, dtype, generator) * float(largest) ** fraction

    return make


def _rank_deficient(
    batch: int, n: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    half = max(n // 2, 1)
    return rectangular(batch, n, half, dtype, generator) @ rectangular(
        batch, half, n, dtype, generator
    )


def _zero_column(
    batch: int, n: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    a = random(batch, n, dtype, generator)
    a[torch.arange(batch), :, torch.arange(batch) % n] = 0
    return a


FAMILIES: dict[str, Family] = {
    "random": random,
    "orthogonal": _orthogonal,
    "graded rows": lambda b, n, t, g: random(b, n, t, g) * _graded(n, t)[:, None],
    "graded columns": lambda b, n, t, g: random(b, n, t, g) * _graded(n, t),
    "graded rows upwards": lambda b, n, t, g: random(b, n, t, g) * _graded(n, t).flip(0)[:, None],
    "condition 1e2": _conditioned(2),
    "condition 1e8": _conditioned(8),
    "condition 1e15": _conditioned(15),
    "Hilbert": _hilbert,
    "ties": _ties,
    "near-zero pivots": _near_zero_pivots,
    "permutation": _permutation,
    "identity": lambda b, n, t, g: torch.eye(n, dtype=t, device="cuda").expand(b, n, n),
    "zero": lambda b, n, t, g: torch.zeros((b, n, n), dtype=t, device="cuda"),
    "constant": lambda b, n, t, g: torch.full((b, n, n), 3, dtype=t, device="cuda"),
    "huge": _scaled(0.9),
    "tiny": _scaled(-0.8),
    "rank deficient": _rank_deficient,
    "zero column": _zero_column,
    "lower triangular": lambda b, n, t, g: random(b, n, t, g).tril(),
    "Wilkinson growth": lambda b, n, t, g: _wilkinson(b, n, t, g),
}
