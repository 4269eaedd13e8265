"""Operations of torch.linalg as data: input, call and nominal work, for batches of n x n."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aten_overrides import _names
from aten_overrides._errors import UserError

COMPLEX_WORK = 4  # a complex multiplication and addition against a real one


@dataclass(frozen=True)
class Operation:
    """``work``: real floating-point operations by (n, nrhs), LAPACK's counts; nominal where an
    iteration decides. input: "general", "positive" definite or "factored" (LU and pivots). rhs:
    whether there are right-hand sides. written: matrices of n x n in the result. entries: of
    torch's linalg library, those that decide its speed; the first that the overrides have is the
    one whose routes `bench` compares, `scan` compares those of all.
    """

    name: str
    run: Callable[[Any, Any, Any, Any], Any]  # torch, a, pivots, b
    work: Callable[[int, int], float]
    input: str = "general"
    rhs: bool = False
    written: int = 1
    entries: tuple[str, ...] = ()


def _cube(factor: float) -> Callable[[int, int], float]:
    return lambda n, nrhs: factor * n**3


OPERATIONS = {
    one.name: one
    for one in (
        Operation(
            "lu_factor_ex",
            lambda torch, a, p, b: torch.linalg.lu_factor_ex(a),
            _cube(2 / 3),
            entries=("lu_factor",),
        ),
        Operation(
            "solve_ex",
            lambda torch, a, p, b: torch.linalg.solve_ex(a, b),
            lambda n, nrhs: 2 / 3 * n**3 + 2 * n**2 * nrhs,
            rhs=True,
            written=0,
            entries=("lu_factor", "lu_solve"),
        ),
        Operation(
            "inv_ex",
            lambda torch, a, p, b: torch.linalg.inv_ex(a),
            _cube(2),
            entries=("lu_factor", "lu_solve"),
        ),
        Operation(
            "lu_solve",
            lambda torch, a, p, b: torch.linalg.lu_solve(a, p, b),
            lambda n, nrhs: 2.0 * n**2 * nrhs,
            input="factored",
            rhs=True,
            written=0,
            entries=("lu_solve",),
        ),
        Operation(
            "slogdet",
            lambda torch, a, p, b: torch.linalg.slogdet(a),
            _cube(2 / 3),
            written=0,
            entries=("lu_factor",),
        ),
        Operation(
            "det",
            lambda torch, a, p, b: torch.linalg.det(a),
            _cube(2 / 3),
            written=0,
            entries=("lu_factor",),
        ),
        Operation("eigh", lambda torch, a, p, b: torch.linalg.eigh(a), _cube(9), entries=("eigh",)),
        Operation(
            "eigvalsh",
            lambda torch, a, p, b: torch.linalg.eigvalsh(a),
            _cube(4 / 3),
            written=0,
            entries=("eigh",),
        ),
        Operation(
            "cholesky_ex",
            lambda torch, a, p, b: torch.linalg.cholesky_ex(a),
            _cube(1 / 3),
            input="positive",
            entries=("cholesky",),
        ),
        Operation(
            "qr",
            lambda torch, a, p, b: torch.linalg.qr(a),
            _cube(8 / 3),
            written=2,
            entries=("geqrf", "orgqr"),
        ),
        Operation(
            "svdvals",
            lambda torch, a, p, b: torch.linalg.svdvals(a),
            _cube(8 / 3),
            written=0,
            entries=("svd",),
        ),
        Operation(
            "svd",
            lambda torch, a, p, b: torch.linalg.svd(a),
            _cube(22),
            written=2,
            entries=("svd",),
        ),
        Operation(
            "lstsq",
            lambda torch, a, p, b: torch.linalg.lstsq(a, b),
            lambda n, nrhs: 4 / 3 * n**3 + 4 * n**2 * nrhs,
            rhs=True,
            written=0,
            entries=("gels", "geqrf", "lstsq"),
        ),
        Operation("matmul", lambda torch, a, p, b: torch.matmul(a, a), _cube(2)),
    )
}


def operation(name: str) -> Operation:
    """The operation of this name; UserError that lists all."""
    short = name.removeprefix("torch.").removeprefix("linalg.")
    if short not in OPERATIONS:
        raise UserError(f"there is no operation {name!r}; known are {', '.join(OPERATIONS)}")
    return OPERATIONS[short]


def overridden(op: Operation) -> str:
    """The entry through which the overrides decide the speed of an operation, "" if none does."""
    return next(iter(all_overridden(op)), "")


def all_overridden(op: Operation) -> tuple[str, ...]:
    """All entries through which the overrides decide the speed of an operation."""
    from aten_overrides import _runtime

    return tuple(entry for entry in op.entries if entry in _runtime.OPS)


def chooses(op: Operation) -> str:
    """The operation by whose name the overrides choose and force a back end for ``op``: eigvalsh
    has its own choice at eigh's entry. "" if they do not.
    """
    entry = overridden(op)
    return op.name if entry and op.name in _names.OPS else entry


def work(op: Operation, dtype: str, batch: int, n: int, nrhs: int) -> float:
    """Real floating-point operations of one call."""
    factor = COMPLEX_WORK if dtype.startswith("complex") else 1
    return factor * batch * op.work(n, nrhs)


class Problems:
    """Inputs of one operation at any n, cut from one random buffer.

    The buffer grows with the largest n only, so between calls nothing is allocated but by torch
    itself. Matrices are normal random numbers (eigh reads their lower triangle); for "positive" and
    "factored" the diagonal is raised in a second buffer.
    """

    def __init__(
        self, torch: Any, op: Operation, dtype: str, batch: int, nrhs: int, device: str
    ) -> None:
        self.torch, self.op, self.batch, self.nrhs = torch, op, batch, nrhs
        self._dtype_name, self._device = dtype, device
        self._source: Any = None
        self._shaped: Any = None

    def _dtype(self) -> Any:
        return getattr(self.torch, self._dtype_name)

    def _buffer(self, count: int) -> Any:
        if self._source is None or self._source.numel() < count:
            self._source = self._shaped = None
            generator = self.torch.Generator(device=self._device).manual_seed(5)
            self._source = self.torch.randn(
                count, dtype=self._dtype(), device=self._device, generator=generator
            )
        return self._source

    def _arguments(self, n: int) -> tuple[Any, Any, Any]:
        """Matrices, pivots (None) and right-hand sides (None) at n."""
        torch, op, batch = self.torch, self.op, self.batch
        count = batch * n * n
        right = batch * n * self.nrhs if op.rhs else 0
        source = self._buffer(count + right)
        a = source[:count].view(batch, n, n)
        b = source[count : count + right].view(batch, n, self.nrhs) if op.rhs else None
        if op.input == "general":
            return a, None, b
        if self._shaped is None or self._shaped.numel() < count:
            self._shaped = torch.empty(source.numel(), dtype=self._dtype(), device=self._device)
        shaped = self._shaped[:count].view(batch, n, n)
        shaped.copy_(a)
        shaped.diagonal(dim1=-2, dim2=-1).fill_(4 * n)
        if op.input != "factored":
            return shaped, None, b
        rows = torch.arange(n, device=self._device)
        pivots = (rows + 1 + rows * 7919 % (n - rows)).to(torch.int32).expand(batch, n)
        # As lu_factor returns it: column by column.
        return shaped.transpose(-2, -1), pivots.contiguous(), b

    def input(self, n: int) -> tuple[Any, Any]:
        """The matrices at n, and the right-hand sides or None."""
        a, _, b = self._arguments(n)
        return a, b

    def call(self, n: int) -> Callable[[], Any]:
        """The call at n, its input ready."""
        a, pivots, b = self._arguments(n)
        return lambda: self.op.run(self.torch, a, pivots, b)
