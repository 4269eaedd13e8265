"""The ``select`` library: measured table, feasibility and choice, in C++ without torch or CUDA."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from aten_overrides import _compile
from aten_overrides._select.calls import LIBRARY
from aten_overrides._select.calls import Report as Report
from aten_overrides._select.eigh import EighCalls
from aten_overrides._select.facts import Basis, Candidate, Choice, Facts, Native, Problem
from aten_overrides._select.loops import LoopCalls
from aten_overrides._select.lu_factor import LuFactorCalls, Table
from aten_overrides._select.lu_solve import LuSolveCalls
from aten_overrides._select.rankings import Rankings

__all__ = [
    "ALL_UNITS",
    "LIBRARY",
    "TABLE_UNITS",
    "Basis",
    "Candidate",
    "Choice",
    "Facts",
    "Library",
    "Native",
    "Problem",
    "Rankings",
    "Report",
    "Table",
    "fill",
    "load",
    "load_table_part",
]

TABLE_UNITS = ("CostTable.cpp", "Completion.cpp", "TableApi.cpp")
ALL_UNITS = (
    *TABLE_UNITS,
    "TableChoice.cpp",
    "ChoiceApi.cpp",
    "EighApi.cpp",
    "LuSolveApi.cpp",
    "LoopApi.cpp",
    "RankingsApi.cpp",
)


class Library(LuFactorCalls, EighCalls, LuSolveCalls, LoopCalls):
    """The loaded library. With only the table's part, choices are not available."""


@functools.lru_cache(maxsize=4)
def load(linalg: Path | None = None) -> Library:
    """The whole library: the one in the package's folder, else built into the user's cache.

    ``linalg`` names another folder with LinalgChoice.h and LinalgThresholds.h; it is always built.
    """
    installed = Path(__file__).resolve().parents[1] / f"lib{LIBRARY}.so"
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
