"""The problems that a calibration measures, of every operation that it knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aten_overrides._select import Problem

ITEM_BYTES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
# Real operations per operation, and what one of them costs against float32, roughly.
_WEIGHT = {"float32": 1, "float64": 1, "complex64": 4, "complex128": 4}
Line = tuple[tuple[object, ...], int]


class AnyTask(Protocol):
    """A problem of some operation in one dtype. Equal ones are the same problem."""

    @property
    def dtype(self) -> str: ...
    @property
    def bytes(self) -> int:
        """Bytes of the input."""

    @property
    def work(self) -> int:
        """Operations, up to a factor."""

    @property
    def label(self) -> str:
        """What a progress bar shows."""

    @property
    def over_batch(self) -> Line:
        """What it has in common with problems of another batch, and its batch."""

    @property
    def over_size(self) -> Line | None:
        """Likewise of another n, and its n; None: it is not compared."""

    def to_json(self) -> dict[str, Any]:
        """As a line of the state file."""

    def to_record(self) -> dict[str, Any]:
        """As a point of a record."""


@dataclass(frozen=True)
class Task:
    """A problem of lu_factor."""

    dtype: str
    problem: Problem

    @property
    def bytes(self) -> int:
        """Bytes of the matrices."""
        p = self.problem
        return p.batch * p.m * p.n * ITEM_BYTES[self.dtype]

    @property
    def work(self) -> int:
        """Operations, up to a factor."""
        p = self.problem
        return p.batch * p.m * p.n * min(p.m, p.n) * _WEIGHT[self.dtype]

    @property
    def label(self) -> str:
        """What a progress bar shows."""
        return f"{self.dtype} {self.problem.batch} x {self.problem.m} x {self.problem.n}"

    @property
    def over_batch(self) -> Line:
        """See AnyTask."""
        p = self.problem
        return (self.dtype, p.pivot, p.m, p.n), p.batch

    @property
    def over_size(self) -> Line | None:
        """See AnyTask: square ones."""
        p = self.problem
        return ((self.dtype, p.pivot, p.batch), p.n) if p.m == p.n else None

    def to_json(self) -> dict[str, Any]:
        """The names of a table's point."""
        p = self.problem
        names = {"op": "lu_factor", "dtype": self.dtype, "batch": p.batch, "m": p.m, "n": p.n}
        return {**names, "pivot": p.pivot}

    def to_record(self) -> dict[str, Any]:
        """As a point of a record."""
        return {**self.to_json(), "op": "lu_factor_ex", "nrhs": 0}


@dataclass(frozen=True)
class SolveTask:
    """A problem of lu_solve: ``nrhs`` right-hand sides for each of ``batch`` factors."""

    dtype: str
    transposed: bool
    batch: int
    n: int
    nrhs: int

    @property
    def bytes(self) -> int:
        """Bytes of the factors and right-hand sides."""
        return self.batch * self.n * (self.n + self.nrhs) * ITEM_BYTES[self.dtype]

    @property
    def work(self) -> int:
        """Operations, up to a factor."""
        return self.batch * self.n * self.n * self.nrhs * _WEIGHT[self.dtype]

    @property
    def label(self) -> str:
        """What a progress bar shows."""
        return f"lu_solve {self.dtype} {self.batch} x {self.n}, {self.nrhs} rhs"

    @property
    def over_batch(self) -> Line:
        """See AnyTask."""
        return (self.dtype, self.transposed, self.n, self.nrhs), self.batch

    @property
    def over_size(self) -> Line | None:
        """See AnyTask: with the same number of right-hand sides, or as many as rows."""
        columns = "n" if self.nrhs == self.n else self.nrhs
        return (self.dtype, self.transposed, self.batch, columns), self.n

    def to_json(self) -> dict[str, Any]:
        """As a line of the state file."""
        names = {"op": "lu_solve", "dtype": self.dtype, "transposed": self.transposed}
        return {**names, "batch": self.batch, "n": self.n, "nrhs": self.nrhs}

    def to_record(self) -> dict[str, Any]:
        """As a point of a record."""
        names = self.to_json()
        transposed = names.pop("transposed")
        how = ("C" if self.dtype.startswith("complex") else "T") if transposed else "N"
        return {**names, "operation": how}


@dataclass(frozen=True)
class EighTask:
    """A problem of eigh, or of eigvalsh: without eigenvectors."""

    op: str
    dtype: str
    batch: int
    n: int

    @property
    def bytes(self) -> int:
        """Bytes of the matrices."""
        return self.batch * self.n * self.n * ITEM_BYTES[self.dtype]

    @property
    def work(self) -> int:
        """Operations, up to a factor."""
        return self.batch * self.n**3 * _WEIGHT[self.dtype]

    @property
    def label(self) -> str:
        """What a progress bar shows."""
        return f"{self.op} {self.dtype} {self.batch} x {self.n}"

    @property
    def over_batch(self) -> Line:
        """See AnyTask."""
        return (self.op, self.dtype, self.n), self.batch

    @property
    def over_size(self) -> Line | None:
        """See AnyTask."""
        return (self.op, self.dtype, self.batch), self.n

    def to_json(self) -> dict[str, Any]:
        """As a line of the state file."""
        return {"op": self.op, "dtype": self.dtype, "batch": self.batch, "n": self.n}

    def to_record(self) -> dict[str, Any]:
        """As a point of a record."""
        return self.to_json()


def of_json(raw: Mapping[str, Any]) -> AnyTask:
    """The task of a line of the state file. KeyError, TypeError or ValueError if it is none."""
    if raw["op"] == "lu_factor":
        return Task(raw["dtype"], Problem(raw["batch"], raw["m"], raw["n"], raw["pivot"]))
    if raw["op"] == "lu_solve":
        sizes = (raw["batch"], raw["n"], raw["nrhs"])
        return SolveTask(raw["dtype"], raw["transposed"], *sizes)
    if raw["op"] in ("eigh", "eigvalsh"):
        return EighTask(raw["op"], raw["dtype"], raw["batch"], raw["n"])
    raise ValueError(f"no operation is called {raw['op']!r}")
