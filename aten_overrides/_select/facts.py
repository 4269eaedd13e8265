"""What is asked of the select library and what it answers, in Python."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from aten_overrides._errors import UserError

_INT64_MAX = 2**63 - 1


class Basis(enum.IntEnum):
    """How a time was obtained."""

    MEASURED = 0
    INTERPOLATED = 1
    EXTRAPOLATED = 2
    NONE = 3


@dataclass(frozen=True)
class Problem:
    """``batch`` matrices of m rows and n columns; ``pivot``: with row exchanges."""

    batch: int
    m: int
    n: int
    pivot: bool = True


class Native(enum.IntEnum):
    """Whether our own kernels can run: Choice.h's Native."""

    NOT_BUILT = 0
    USABLE = 1
    NOT_FOR_THIS_GPU = 2
    DRIVER_TOO_OLD = 3


@dataclass(frozen=True)
class Facts:
    """What a build and a call allow.

    lanes: streams usable at once, below 2 none; stock: MAGMA (in the package: the wheel's own
    function) may be used; capturing: the call is captured into a CUDA graph; native: whether our
    own kernels can run, unless said otherwise not, as in ATen without them.
    """

    lanes: int = 4
    stock: bool = True
    capturing: bool = False
    native: Native = Native.NOT_BUILT


@dataclass(frozen=True)
class Candidate:
    """One back end: its predicted time, or the reason why it is not taken into account."""

    backend: str
    allowed: bool
    ms: float | None
    basis: Basis
    reason: str


@dataclass(frozen=True)
class Choice:
    """What the table and ATen's thresholds choose; ``measured``: the table had a time to go by."""

    by_table: str
    by_thresholds: str
    measured: bool
    candidates: tuple[Candidate, ...]


def unpack(problem: Problem) -> tuple[int, int, int, bool]:
    """As arguments of a function. UserError for a size that is none."""
    for size in (problem.batch, problem.m, problem.n):
        if not 0 <= size <= _INT64_MAX:
            raise UserError(f"a size must be between 0 and 2^63 - 1, found {size}")
    return problem.batch, problem.m, problem.n, problem.pivot


def unpack_facts(facts: Facts) -> tuple[int, bool, bool, int]:
    """As arguments of a function."""
    return facts.lanes, facts.stock, facts.capturing, int(facts.native)
