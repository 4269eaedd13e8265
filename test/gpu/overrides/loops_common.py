"""The operations that are loops of cuSOLVER calls, for their checks and measurements: inputs,
torch's call, how wrong a result is, and whether torch runs the very same routine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import common

from aten_overrides._names import LOOP_OPS

OPS = LOOP_OPS
LOOPED, STREAMED, BATCHED, STOCK = (
    "looped_cusolver",
    "streamed_cusolver",
    "batched_cublas",
    "stock",
)
LIMIT = 30.0  # errors, in units of n eps


@dataclass(frozen=True)
class Case:
    """An operation on `batch` matrices m x n. columns: right-hand sides or columns of the other
    matrix; upper: of a triangle; left, adjoint: of ormqr.
    """

    op: str
    dtype: str
    batch: int
    m: int
    n: int
    columns: int = 3
    upper: bool = False
    left: bool = True
    adjoint: bool = False

    @property
    def words(self) -> dict[str, Any]:
        """As parameters of a check."""
        return {"op": self.op, "dtype": self.dtype, "shape": (self.batch, self.m, self.n)}


@dataclass(frozen=True)
class Run:
    """`call` returns the results as a tuple of tensors; `error(results)` is their largest error in
    units of n eps; `looped`: torch's own function runs the loop's routine, so the bits agree.
    """

    call: Callable[[], tuple[Any, ...]]
    error: Callable[[tuple[Any, ...]], float]
    looped: bool
    source: Any


def positive(torch: Any, dtype: str, batch: int, n: int) -> Any:
    """Random Hermitian positive definite matrices."""
    x = common.matrices(torch, dtype, batch, n, n)
    return (x + x.mH) / (2 * max(n, 1) ** 0.5) + 3 * torch.eye(n, dtype=x.dtype, device=x.device)


def _largest(torch: Any, rest: Any, scale: Any, n: int, dtype: str) -> float:
    """The largest norm(rest) / (n eps norm(scale)) over the batch."""
    if rest.numel() == 0:
        return 0.0
    norm = torch.linalg.matrix_norm
    error = norm(rest) / norm(scale).clamp_min(1e-300)
    return common._largest(error) / (max(n, 1) * common.EPS[dtype])


def _wide(torch: Any, tensor: Any) -> Any:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _q_of(torch: Any, reflectors: Any, tau: Any) -> Any:
    """Q of LAPACK's reflectors as m x m matrices in the wide type, by their definition."""
    v, tau = _wide(torch, reflectors), _wide(torch, tau)
    m = v.shape[-2]
    q = torch.eye(m, dtype=v.dtype, device=v.device).expand(*v.shape[:-2], m, m).clone()
    for k in range(tau.shape[-1]):
        column = v[..., k].clone()
        column[..., :k] = 0
        column[..., k] = 1
        step = (q @ column.unsqueeze(-1)) @ column.conj().unsqueeze(-2)
        q = q - tau[..., k, None, None] * step
    return q


def make(torch: Any, case: Case) -> Run:
    """The input of a case on the GPU, the same for the same case, and what to do with it."""
    makers = {
        "geqrf": _geqrf,
        "orgqr": _orgqr,
        "ormqr": _ormqr,
        "cholesky": _cholesky,
        "cholesky_solve": _cholesky_solve,
        "cholesky_inverse": _cholesky_inverse,
        "ldl_factor": _ldl_factor,
    }
    return makers[case.op](torch, case)


def _geqrf(torch: Any, case: Case) -> Run:
    a = common.matrices(torch, case.dtype, case.batch, case.m, case.n)

    def error(found: tuple[Any, ...]) -> float:
        reflectors, tau = found
        q = _q_of(torch, reflectors, tau)
        product = q @ _wide(torch, reflectors).triu()
        return _largest(torch, product - _wide(torch, a), _wide(torch, a), case.m, case.dtype)

    looped = case.m > 256 or case.batch < max(2, case.m // 16)
    return Run(lambda: tuple(torch.geqrf(a)), error, looped, a)


def _reflectors(torch: Any, case: Case) -> tuple[Any, Any]:
    k = min(case.m, case.n)
    reflectors, tau = torch.geqrf(common.matrices(torch, case.dtype, case.batch, case.m, k))
    return reflectors, tau


def _orgqr(torch: Any, case: Case) -> Run:
    reflectors, tau = _reflectors(torch, case)

    def error(found: tuple[Any, ...]) -> float:
        q = _q_of(torch, reflectors, tau)[..., : found[0].shape[-1]]
        return _largest(torch, _wide(torch, found[0]) - q, q, case.m, case.dtype)

    call = partial(torch.linalg.householder_product, reflectors, tau)
    return Run(lambda: (call(),), error, True, reflectors)


def _ormqr(torch: Any, case: Case) -> Run:
    reflectors, tau = _reflectors(torch, case)
    shape = (case.m, case.columns) if case.left else (case.columns, case.m)
    other = common.matrices(torch, case.dtype, case.batch, *shape)

    def error(found: tuple[Any, ...]) -> float:
        q, c = _q_of(torch, reflectors, tau), _wide(torch, other)
        q = q.mH if case.adjoint else q
        right = q @ c if case.left else c @ q
        return _largest(torch, _wide(torch, found[0]) - right, right, case.m, case.dtype)

    call = partial(torch.ormqr, reflectors, tau, other, left=case.left, transpose=case.adjoint)
    return Run(lambda: (call(),), error, True, other)


def _triangle(torch: Any, case: Case, factor: Any) -> Any:
    return factor.mH if case.upper else factor


def _cholesky(torch: Any, case: Case) -> Run:
    a = positive(torch, case.dtype, case.batch, case.n)

    def error(found: tuple[Any, ...]) -> float:
        lower = _triangle(torch, case, _wide(torch, found[0]))
        return _largest(
            torch, lower @ lower.mH - _wide(torch, a), _wide(torch, a), case.n, case.dtype
        )

    call = partial(torch.linalg.cholesky_ex, a, upper=case.upper)
    return Run(lambda: tuple(call()), error, case.batch < 2, a)


def _factor(torch: Any, case: Case) -> tuple[Any, Any]:
    """Factors from torch's own function, which no route of ours changes, and their product."""
    a = positive(torch, case.dtype, case.batch, case.n)
    lower = torch.linalg.cholesky(a.cpu()).to(a.device) if a.numel() else a
    return (lower.mH.contiguous() if case.upper else lower), _wide(torch, a)


def _cholesky_solve(torch: Any, case: Case) -> Run:
    factor, a = _factor(torch, case)
    b = common.matrices(torch, case.dtype, case.batch, case.n, case.columns)

    def error(found: tuple[Any, ...]) -> float:
        rest = a @ _wide(torch, found[0]) - _wide(torch, b)
        return _largest(torch, rest, _wide(torch, b), case.n, case.dtype)

    call = partial(torch.cholesky_solve, b, factor, upper=case.upper)
    return Run(lambda: (call(),), error, case.batch < 2, b)


def _cholesky_inverse(torch: Any, case: Case) -> Run:
    factor, a = _factor(torch, case)

    def error(found: tuple[Any, ...]) -> float:
        eye = torch.eye(case.n, dtype=a.dtype, device=a.device).expand_as(a)
        return _largest(torch, a @ _wide(torch, found[0]) - eye, eye, case.n, case.dtype)

    call = partial(torch.cholesky_inverse, factor, upper=case.upper)
    return Run(lambda: (call(),), error, case.batch < 2, factor)


def _ldl_factor(torch: Any, case: Case) -> Run:
    x = common.matrices(torch, case.dtype, case.batch, case.n, case.n)
    a = x + x.mT
    # Its results are compared with the loop's and torch's bits alone.
    return Run(lambda: tuple(torch.linalg.ldl_factor_ex(a)), lambda found: 0.0, True, a)


def bits(torch: Any, tensor: Any) -> Any:
    """A tensor's bits as integers, so that NaN equals itself."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if not real.is_floating_point():
        return real
    return real.contiguous().view(torch.int64 if real.dtype == torch.float64 else torch.int32)


def same(torch: Any, one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether all tensors agree bit by bit."""
    return len(one) == len(other) and all(
        x.shape == y.shape and torch.equal(bits(torch, x), bits(torch, y))
        for x, y in zip(one, other, strict=True)
    )


def by(library: Any, op: str, route: str, call: Callable[[], Any]) -> Any:
    """The results by one route; "choice" leaves the choice."""
    with common.forced(library, route, op):
        return call()
