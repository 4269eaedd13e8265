"""Common parts of the checks and measurements of eigh and eigvalsh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common

ROUTES = (
    "batched_cusolver",
    "jacobi_batched_cusolver",
    "looped_cusolver",
    "streamed_cusolver",
    "stock",
)
BATCHED = ROUTES[:2]
JACOBI = ROUTES[1]
MOST_JACOBI_ROWS = 64  # kMostJacobiRows: beyond, the loop runs in its place
LIMIT = 30.0  # errors, in units of n eps


def hermitian(torch: Any, dtype: str, batch: int, n: int) -> Any:
    """Random Hermitian matrices, the same for the same arguments."""
    a = common.matrices(torch, dtype, batch, n, n)
    return (a + a.mH) / 2


def errors(torch: Any, a: Any, values: Any, vectors: Any) -> float:
    """The largest of norm(A V - V W) / norm(A) and norm(V^H V - 1), in n eps, over the batch;
    infinite where the eigenvalues do not ascend.
    """
    n = int(a.shape[-1])
    eps = common.EPS[str(a.dtype).removeprefix("torch.")]
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, v, w = a.to(wide), vectors.to(wide), values.double()
    norm = torch.linalg.matrix_norm(a)
    norm = torch.where(norm == 0, torch.ones_like(norm), norm)
    rest = torch.linalg.matrix_norm(a @ v - v * w.unsqueeze(-2)) / norm
    eye = torch.eye(n, dtype=wide, device=a.device)
    skew = torch.linalg.matrix_norm(v.mH @ v - eye)
    if not bool((w[..., 1:] >= w[..., :-1]).all()):
        return float("inf")
    return max(common._largest(rest), common._largest(skew)) / (n * eps)


def value_error(torch: Any, a: Any, values: Any, expected: Any) -> float:
    """Largest difference of eigenvalues in n eps norm(A)."""
    eps = common.EPS[str(a.dtype).removeprefix("torch.")]
    norm = torch.linalg.matrix_norm(a).double().clamp_min(1e-300)
    rest = (values.double() - expected.double()).abs().amax(-1) / norm
    return common._largest(rest) / (int(a.shape[-1]) * eps)


def direct(
    torch: Any, library: Any, a: Any, *, upper: bool = False, vectors: bool = True
) -> tuple[Any, Any, Any]:
    """Values, vectors and infos of the library's own function, without torch's look at the infos
    and without the one for NaN before syevjBatched.
    """
    dtype = str(a.dtype).removeprefix("torch.")
    batch, n = int(a.shape[0]), int(a.shape[-1])
    work = a.mT.contiguous().mT
    values = torch.empty(batch, n, dtype=a.real.dtype, device="cuda")
    infos = torch.zeros(batch, dtype=torch.int32, device="cuda")
    library.eigh(
        dtype,
        (batch, n),
        work.data_ptr(),
        values.data_ptr(),
        infos.data_ptr(),
        upper=upper,
        vectors=vectors,
        unmarked=True,
    )
    return values, work, infos


def outcome(call: Callable[[], Any]) -> str:
    """What a call ends with: the name of the error's class and its first words, or "returns"."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    return "returns"
