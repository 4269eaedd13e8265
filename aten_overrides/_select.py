"""The ``select`` library: measured table, feasibility and choice, in C++ without torch or CUDA."""

from __future__ import annotations

import ctypes
import enum
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides import _compile
from aten_overrides._errors import UserError
from aten_overrides._loops import LoopQuestion, RawLoop
from aten_overrides._names import (
    BACKENDS,
    DTYPES,
    EIGH_BACKENDS,
    EIGH_OPS,
    LOOP_BACKENDS,
    LOOP_OPS,
    LOOP_RIVALS,
    LU_SOLVE_BACKENDS,
    OPS,
    PREFERENCES,
)

TABLE_UNITS = ("CostTable.cpp", "Completion.cpp", "TableApi.cpp")
ALL_UNITS = (
    *TABLE_UNITS,
    "TableChoice.cpp",
    "ChoiceApi.cpp",
    "EighApi.cpp",
    "LuSolveApi.cpp",
    "LoopApi.cpp",
)
LIBRARY = "aten_overrides_select"


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


class _Candidate(ctypes.Structure):
    _fields_ = (
        ("ms", ctypes.c_double),
        ("reason", ctypes.c_char_p),
        ("allowed", ctypes.c_int32),
        ("basis", ctypes.c_int32),
    )


class _Report(ctypes.Structure):
    _fields_ = (
        ("candidates", _Candidate * len(BACKENDS)),
        ("by_table", ctypes.c_int32),
        ("by_thresholds", ctypes.c_int32),
        ("measured", ctypes.c_int32),
    )


_I32, _I64 = ctypes.c_int32, ctypes.c_int64
_PROBLEM = (_I64, _I64, _I64, _I32)
_FACTS = (_I32, _I32, _I32, _I32)
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "table_new": (ctypes.c_void_p, (_I32,)),
    "table_free": (None, (ctypes.c_void_p,)),
    "table_add": (
        _I32,
        (ctypes.c_void_p, _I32, _I32, _I32, *_PROBLEM, ctypes.c_double, ctypes.c_char_p, _I32),
    ),
    "table_finish": (_I32, (ctypes.c_void_p,)),
    "table_predict": (
        _I32,
        (ctypes.c_void_p, _I32, _I32, _I32, *_PROBLEM, ctypes.POINTER(ctypes.c_double)),
    ),
    "lu_factor": (
        _I32,
        (ctypes.c_void_p, _I32, *_PROBLEM, _I32, *_FACTS, ctypes.POINTER(_Report)),
    ),
    "lu_factor_by_thresholds": (_I32, (_I32, *_PROBLEM, _I32, *_FACTS)),
    "infeasible": (ctypes.c_char_p, (_I32, _I32, _I32, *_PROBLEM, *_FACTS)),
    "backend_name": (ctypes.c_char_p, (_I32,)),
    "eigh": (_I32, (_I32, _I64, _I64, *(_I32,) * 6)),
    "eigh_infeasible": (ctypes.c_char_p, (_I32, _I64, _I64, *(_I32,) * 5)),
    "eigh_per_call": (_I64, (_I32, _I64, _I64)),
    "eigh_backend_name": (ctypes.c_char_p, (_I32,)),
    "lu_solve": (_I32, (_I32, _I64, _I64, _I64, *(_I32,) * 7, _I64)),
    "lu_solve_rejected": (ctypes.c_char_p, (_I32, _I32, _I64, _I64, _I64, *(_I32,) * 7, _I64)),
    "lu_solve_backend_name": (ctypes.c_char_p, (_I32,)),
    "loop_backend": (_I32, (ctypes.POINTER(RawLoop),)),
    "loop_infeasible": (ctypes.c_char_p, (ctypes.POINTER(RawLoop), _I32)),
    "loop_rival": (_I32, (ctypes.POINTER(RawLoop),)),
    "loop_measured": (_I32, (_I32,)),
    "loop_backend_name": (ctypes.c_char_p, (_I32,)),
}
_INT64_MAX = 2**63 - 1


class Library:
    """The loaded library. With only the table's part, choices are not available."""

    def __init__(self, path: Path) -> None:
        self._functions: dict[str, Any] = {}
        try:
            self._dll = ctypes.CDLL(str(path))
        except OSError as error:
            raise UserError(
                f"the select library {path} cannot be loaded: {error}; remove the file to have it "
                "built again"
            ) from error
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._dll, f"{LIBRARY}_{name}", None)
            if function is not None:
                function.restype = result
                function.argtypes = list(arguments)
                self._functions[name] = function
        if "backend_name" in self._functions and self.backend_names() != BACKENDS:
            raise UserError(
                f"the select library {path} is of another version: it knows the back ends "
                f"{', '.join(self.backend_names())}, and this package {', '.join(BACKENDS)}; "
                "remove the file to have it built again"
            )

    def call(self, name: str, *arguments: object) -> Any:
        """Call the library's function of this name."""
        return self._functions[name](*arguments)

    def table(self, lanes: int) -> Table:
        """A new, empty table whose streamed times were measured with ``lanes`` streams."""
        return Table(self, lanes)

    def infeasible(
        self, op: str, dtype: str, backend: str, problem: Problem, facts: Facts
    ) -> str | None:
        """Why the back end cannot take the problem, or None if it can."""
        reason = self.call(
            "infeasible",
            OPS.index(op),
            DTYPES.index(dtype),
            BACKENDS.index(backend),
            *_unpack(problem),
            *_unpack_facts(facts),
        )
        return None if reason is None else str(reason.decode())

    def by_thresholds(self, dtype: str, problem: Problem, preference: str, facts: Facts) -> str:
        """The back end that ATen's thresholds take for an LU factorization."""
        chosen = self.call(
            "lu_factor_by_thresholds",
            DTYPES.index(dtype),
            *_unpack(problem),
            PREFERENCES.index(preference),
            *_unpack_facts(facts),
        )
        return BACKENDS[chosen]

    def eigh(
        self,
        op: str,
        dtype: str,
        problem: Problem,
        preference: str,
        facts: Facts,
        batched: bool = True,
    ) -> str:
        """The back end that eigh or eigvalsh takes; ``batched``: cuSOLVER has XsyevBatched."""
        batch, _, n, _ = _unpack(problem)
        chosen = self.call(
            "eigh",
            DTYPES.index(dtype),
            batch,
            n,
            op == EIGH_OPS[0],
            PREFERENCES.index(preference),
            facts.lanes,
            batched,
            facts.stock,
            facts.capturing,
        )
        return EIGH_BACKENDS[chosen]

    def eigh_infeasible(
        self, backend: str, problem: Problem, facts: Facts, batched: bool = True
    ) -> str | None:
        """Why a back end cannot take a problem of eigh or eigvalsh, or None if it can."""
        batch, _, n, _ = _unpack(problem)
        number = EIGH_BACKENDS.index(backend)
        given = (True, facts.lanes, batched, facts.stock, facts.capturing)
        reason = self.call("eigh_infeasible", number, batch, n, *given)
        return None if reason is None else str(reason.decode())

    def eigh_per_call(self, backend: str, batch: int, n: int) -> int:
        """How many matrices one call of a batched routine gets."""
        return int(self.call("eigh_per_call", EIGH_BACKENDS.index(backend), batch, n))

    def eigh_backend_names(self) -> tuple[str, ...]:
        """Names of eigh's back ends in the library's own order."""
        names: list[str] = []
        while (name := self.call("eigh_backend_name", len(names))) is not None:
            names.append(str(name.decode()))
        return tuple(names)

    def lu_solve(
        self,
        dtype: str,
        sizes: tuple[int, int, int],
        preference: str,
        facts: Facts,
        *,
        transposed: bool = False,
        regular: bool = True,
        most_rows: int = 8192,
    ) -> str:
        """The back end that lu_solve takes for (batch, n, right-hand sides); ``regular``: factor
        item % (number of factors) serves item; ``most_rows``: up to which our kernels have room.
        """
        way = (transposed, regular, PREFERENCES.index(preference))
        given = (DTYPES.index(dtype), *sizes, *way, *_unpack_facts(facts), most_rows)
        return LU_SOLVE_BACKENDS[self.call("lu_solve", *given)]

    def lu_solve_rejected(
        self,
        backend: str,
        dtype: str,
        sizes: tuple[int, int, int],
        preference: str,
        facts: Facts,
        *,
        transposed: bool = False,
        regular: bool = True,
        most_rows: int = 8192,
    ) -> str | None:
        """Why ``lu_solve`` leaves a back end out of account; None if it does not."""
        way = (transposed, regular, PREFERENCES.index(preference))
        given = (DTYPES.index(dtype), *sizes, *way, *_unpack_facts(facts), most_rows)
        number = LU_SOLVE_BACKENDS.index(backend)
        reason = self.call("lu_solve_rejected", number, *given)
        return None if reason is None else str(reason.decode())

    def lu_solve_backend_names(self) -> tuple[str, ...]:
        """Names of lu_solve's back ends in the library's own order."""
        names: list[str] = []
        while (name := self.call("lu_solve_backend_name", len(names))) is not None:
            names.append(str(name.decode()))
        return tuple(names)

    def loop(self, question: LoopQuestion) -> str:
        """The back end that an operation of LOOP_OPS takes."""
        return LOOP_BACKENDS[self.call("loop_backend", ctypes.byref(question.raw()))]

    def loop_infeasible(self, backend: str, question: LoopQuestion) -> str | None:
        """Why a back end cannot take a problem of LOOP_OPS, or None if it can."""
        number = LOOP_BACKENDS.index(backend)
        reason = self.call("loop_infeasible", ctypes.byref(question.raw()), number)
        return None if reason is None else str(reason.decode())

    def loop_rival(self, question: LoopQuestion) -> str:
        """What torch's own function does with a problem: one of LOOP_RIVALS."""
        return LOOP_RIVALS[self.call("loop_rival", ctypes.byref(question.raw()))]

    def loop_measured(self, op: str) -> bool:
        """Whether an operation of LOOP_OPS leaves torch's own function anywhere."""
        return bool(self.call("loop_measured", LOOP_OPS.index(op)))

    def loop_backend_names(self) -> tuple[str, ...]:
        """Names of the back ends of LOOP_OPS in the library's own order."""
        names: list[str] = []
        while (name := self.call("loop_backend_name", len(names))) is not None:
            names.append(str(name.decode()))
        return tuple(names)

    def backend_names(self) -> tuple[str, ...]:
        """Names in the library's own order, to be compared with ours."""
        names: list[str] = []
        while (name := self.call("backend_name", len(names))) is not None:
            names.append(str(name.decode()))
        return tuple(names)


class Table:
    """Times of one GPU in the library; ``add`` them all, then ``finish``, then ask."""

    def __init__(self, library: Library, lanes: int) -> None:
        self._library = library
        self._handle = library.call("table_new", lanes)
        if not self._handle:
            raise MemoryError("no memory for a cost table")

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            self._library.call("table_free", handle)

    def add(self, op: str, dtype: str, backend: str, problem: Problem, ms: float) -> None:
        """Add one measured time in milliseconds. Raises ValueError with the reason if refused."""
        why = ctypes.create_string_buffer(200)
        refused = self._library.call(
            "table_add",
            self._handle,
            OPS.index(op),
            DTYPES.index(dtype),
            BACKENDS.index(backend),
            *_unpack(problem),
            ms,
            why,
            len(why),
        )
        if refused:
            raise ValueError(why.value.decode())

    def finish(self) -> None:
        """Complete the grids."""
        if self._library.call("table_finish", self._handle):
            raise MemoryError("no memory for a cost table")

    def predict(
        self, op: str, dtype: str, backend: str, problem: Problem
    ) -> tuple[float | None, Basis]:
        """Predicted milliseconds and how they were obtained; (None, NONE) if nothing would tell."""
        ms = ctypes.c_double()
        basis = Basis(
            self._library.call(
                "table_predict",
                self._handle,
                OPS.index(op),
                DTYPES.index(dtype),
                BACKENDS.index(backend),
                *_unpack(problem),
                ctypes.byref(ms),
            )
        )
        return (None if basis is Basis.NONE else ms.value), basis

    def choose(self, dtype: str, problem: Problem, preference: str, facts: Facts) -> Choice:
        """Choice for an LU factorization, with a time or a reason for every back end."""
        report = _Report()
        failed = self._library.call(
            "lu_factor",
            self._handle,
            DTYPES.index(dtype),
            *_unpack(problem),
            PREFERENCES.index(preference),
            *_unpack_facts(facts),
            ctypes.byref(report),
        )
        if failed:
            raise ValueError(f"unknown dtype {dtype!r} or preference {preference!r}")
        candidates = tuple(
            Candidate(
                name,
                bool(given.allowed),
                None if given.basis == Basis.NONE else given.ms,
                Basis(given.basis),
                given.reason.decode(),
            )
            for name, given in zip(BACKENDS, report.candidates, strict=True)
        )
        return Choice(
            BACKENDS[report.by_table],
            BACKENDS[report.by_thresholds],
            bool(report.measured),
            candidates,
        )


def _unpack(problem: Problem) -> tuple[int, int, int, bool]:
    for size in (problem.batch, problem.m, problem.n):
        if not 0 <= size <= _INT64_MAX:
            raise UserError(f"a size must be between 0 and 2^63 - 1, found {size}")
    return problem.batch, problem.m, problem.n, problem.pivot


def _unpack_facts(facts: Facts) -> tuple[int, bool, bool, int]:
    return facts.lanes, facts.stock, facts.capturing, int(facts.native)


@functools.lru_cache(maxsize=4)
def load(linalg: Path | None = None) -> Library:
    """The whole library: the one installed beside this file, else built into the user's cache.

    ``linalg`` names another folder with LinalgChoice.h and LinalgThresholds.h; it is always built.
    """
    installed = Path(__file__).resolve().parent / f"lib{LIBRARY}.so"
    if linalg is None and installed.is_file():
        return Library(installed)
    return Library(_compile.build(LIBRARY, ALL_UNITS, linalg))


@functools.lru_cache(maxsize=1)
def load_table_part() -> Library:
    """Only the table's part, which needs no thresholds; the thresholds are made with it."""
    return Library(_compile.build(f"{LIBRARY}_table", TABLE_UNITS))


def fill(
    library: Library,
    lanes: int,
    times: Iterable[tuple[str, str, str, Problem, float]],
) -> Table:
    """A finished table of (op, dtype, backend, problem, milliseconds)."""
    table = library.table(lanes)
    for op, dtype, backend, problem, ms in times:
        table.add(op, dtype, backend, problem, ms)
    table.finish()
    return table
