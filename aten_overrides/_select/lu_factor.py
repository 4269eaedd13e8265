"""The choice for lu_factor: by ATen's thresholds, and by a table of measured times."""

from __future__ import annotations

import ctypes

from aten_overrides._names import BACKENDS, DTYPES, OPS, PREFERENCES
from aten_overrides._select.calls import Calls, Report
from aten_overrides._select.facts import (
    Basis,
    Candidate,
    Choice,
    Facts,
    Problem,
    unpack,
    unpack_facts,
)


class LuFactorCalls(Calls):
    """Questions about lu_factor."""

    def table(self, lanes: int) -> Table:
        """A new, empty table whose streamed times were measured with ``lanes`` streams."""
        return Table(self, lanes)

    def infeasible(
        self, op: str, dtype: str, backend: str, problem: Problem, facts: Facts
    ) -> str | None:
        """Why the back end cannot take the problem, or None if it can."""
        return self._text(
            "infeasible",
            OPS.index(op),
            DTYPES.index(dtype),
            BACKENDS.index(backend),
            *unpack(problem),
            *unpack_facts(facts),
        )

    def by_thresholds(self, dtype: str, problem: Problem, preference: str, facts: Facts) -> str:
        """The back end that ATen's thresholds take for an LU factorization."""
        chosen = self.call(
            "lu_factor_by_thresholds",
            DTYPES.index(dtype),
            *unpack(problem),
            PREFERENCES.index(preference),
            *unpack_facts(facts),
        )
        return BACKENDS[chosen]

    def backend_names(self) -> tuple[str, ...]:
        """Names in the library's own order, to be compared with ours."""
        return self._names("backend_name")


class Table:
    """Times of one GPU in the library; ``add`` them all, then ``finish``, then ask."""

    def __init__(self, library: Calls, lanes: int) -> None:
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
            *unpack(problem),
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
                *unpack(problem),
                ctypes.byref(ms),
            )
        )
        return (None if basis is Basis.NONE else ms.value), basis

    def choose(self, dtype: str, problem: Problem, preference: str, facts: Facts) -> Choice:
        """Choice for an LU factorization, with a time or a reason for every back end."""
        report = Report()
        failed = self._library.call(
            "lu_factor",
            self._handle,
            DTYPES.index(dtype),
            *unpack(problem),
            PREFERENCES.index(preference),
            *unpack_facts(facts),
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
