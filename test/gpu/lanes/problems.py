"""The inputs and outputs of a point on the GPU, and torch's own call for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from library import DTYPES, OPS, Problem
from plan import Point

DRIVERS = {"gesvdj": "gesvdj", "gesvd": "gesvd"}


@dataclass
class Buffers:
    """A point's tensors, in the order of memory: (batch, columns, rows) for matrices.

    ``outputs`` is what two routes are compared by, ``stock`` torch's calls by their names.
    """

    problem: Problem
    outputs: tuple[Any, ...]
    stock: dict[str, Callable[[], Any]]
    kept: list[Any] = field(default_factory=list)


def bits(torch: Any, tensor: Any) -> Any:
    """A tensor's bits as integers, so that NaN equals itself."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    if not real.is_floating_point():
        return real
    return real.contiguous().view(torch.int64 if real.dtype == torch.float64 else torch.int32)


def same_bits(torch: Any, one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether all tensors agree bit by bit."""
    return all(torch.equal(bits(torch, a), bits(torch, b)) for a, b in zip(one, other, strict=True))


def _symmetric(torch: Any, x: Any, conjugate: bool) -> Any:
    return x + (x.mH if conjugate else x.mT)


def _stock(torch: Any, point: Point, source: Any, tau: Any, sides: Any) -> Callable[[], Any]:
    """torch's call on the same matrices, given column by column as a clone of them would be."""
    op, a = point.op, source.mT
    if op == "geqrf":
        return lambda: torch.geqrf(a)
    if op == "orgqr":
        return lambda: torch.linalg.householder_product(a, tau)
    if op == "ormqr":
        return lambda: torch.ormqr(a, tau, sides.mT, left=True, transpose=True)
    if op == "potrf":
        return lambda: torch.linalg.cholesky_ex(a)
    if op == "potrs":
        return lambda: torch.cholesky_solve(sides.mT, a)
    if op == "sytrf":
        return lambda: torch.linalg.ldl_factor_ex(a)
    if op in DRIVERS:
        return lambda: torch.linalg.svd(a, full_matrices=False, driver=DRIVERS[op])
    return lambda: torch.linalg.eig(a)


def make(torch: Any, point: Point) -> Buffers:
    """The tensors of a point, the same for the same point."""
    dtype = getattr(torch, point.dtype)
    real = torch.empty(0, dtype=dtype).real.dtype
    wide = (
        dtype if dtype.is_complex else getattr(torch, f"complex{64 if real.itemsize == 4 else 128}")
    )
    n, batch, op = point.n, point.batch, point.op
    generator = torch.Generator(device="cuda").manual_seed(n * 1009 + batch)

    def random(columns: int) -> Any:
        return torch.randn(batch, columns, n, dtype=dtype, device="cuda", generator=generator)

    source = random(n)
    if op in ("potrf", "potrs"):
        source = _symmetric(torch, source, conjugate=True) / (2 * n**0.5)
        source.diagonal(dim1=-2, dim2=-1).add_(3)
    if op == "potrs":
        source = torch.linalg.cholesky(source).mT.contiguous()
    if op == "sytrf":
        source = _symmetric(torch, source, conjugate=False).contiguous()
    tau = torch.empty(batch, n, dtype=dtype, device="cuda")
    if op in ("orgqr", "ormqr"):
        reflectors, tau = torch.geqrf(source.mT)
        source = reflectors.mT.contiguous()
    sides = random(point.nrhs) if point.nrhs else None
    a = source if sides is not None else torch.empty_like(source)
    b = torch.empty_like(sides) if sides is not None else None
    c: Any = tau
    d: Any = None
    infos = torch.zeros(batch, dtype=torch.int32, device="cuda")
    pivots = torch.zeros(batch, n, dtype=torch.int32, device="cuda")
    if op in DRIVERS:
        b, d = torch.empty_like(source), torch.empty_like(source)
        c = torch.empty(batch, n, dtype=real, device="cuda")
    if op == "geev":
        d = torch.empty_like(source)
        c = torch.empty(batch, n, dtype=wide, device="cuda")
    outputs = {
        "geqrf": (a, c),
        "orgqr": (a,),
        "ormqr": (b,),
        "potrf": (a, infos),
        "potrs": (b,),
        "sytrf": (a, pivots, infos),
        "gesvdj": (b, c, d, infos),
        "gesvd": (b, c, d, infos),
        "geev": (c, d, infos),
    }[op]
    call = _stock(torch, point, source, tau, sides)
    stock = {"stock": call}
    if op == "potrs":
        stock["stock_cusolver"] = _preferring(torch, "cusolver", call)
    kept = [source, sides, a, b, c, d, infos, pivots]

    def address(tensor: Any) -> int | None:
        return None if tensor is None else int(tensor.data_ptr())

    problem = Problem(
        OPS.index(op),
        DTYPES.index(point.dtype),
        batch,
        n,
        n,
        point.nrhs,
        address(a),
        address(b),
        address(c),
        address(d),
        None if sides is not None else address(source),
        address(sides),
        address(pivots),
        address(infos),
        int(torch.cuda.current_stream().cuda_stream) or None,
    )
    return Buffers(problem, outputs, stock, kept)


def _preferring(torch: Any, name: str, call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        torch.backends.cuda.preferred_linalg_library(name)
        try:
            return call()
        finally:
            torch.backends.cuda.preferred_linalg_library("default")

    return run
