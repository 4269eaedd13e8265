"""Times of problems between the measured ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

from aten_overrides._select import Basis
from aten_overrides.tables.lu_solve.fit import row_columns
from aten_overrides.tables.lu_solve.table import SolveTable


def between(known: Mapping[int, float], at: int) -> float | None:
    """Logarithm of a time at a size, linear over the logarithm of the size; None outside."""
    if at in known:
        return known[at]
    below = max((size for size in known if size < at), default=None)
    above = min((size for size in known if size > at), default=None)
    if below is None or above is None:
        return None
    share = math.log(at / below) / math.log(above / below)
    return known[below] * (1 - share) + known[above] * share


def _columns(
    table: SolveTable, dtype: str, transposed: bool, backend: str
) -> dict[int, dict[int, dict[int, float]]]:
    """Logarithms of times by batch, row of the fit (0: as many right-hand sides as rows) and n. A
    batch and row measured in the other direction alone serves both, as in the fit.
    """
    found: dict[int, dict[int, dict[int, float]]] = {}
    measured = set()
    for direction in (transposed, not transposed):
        points = table.of(dtype, direction)
        known = {(point.batch, column) for point in points for column in row_columns(point)}
        for point in points:
            for column in row_columns(point) if backend in point.ms else ():
                if (point.batch, column) not in measured:
                    times = found.setdefault(point.batch, {}).setdefault(column, {})
                    times[point.n] = math.log(point.ms[backend])
        measured |= known
    return found


def predict(
    table: SolveTable,
    dtype: str,
    transposed: bool,
    sizes: tuple[int, int, int],
    backend: str,
) -> tuple[float | None, Basis]:
    """Milliseconds of (batch, n, right-hand sides) and how they were obtained: measured, or
    interpolated over n, then right-hand sides, then batch. (None, NONE) outside what was measured.
    """
    batch, n, nrhs = sizes
    if min(sizes) < 1:
        return None, Basis.NONE
    columns = _columns(table, dtype, transposed, backend)
    by_batch: dict[int, float] = {}
    for known, rows in columns.items():
        at_n = {}
        for column, times in rows.items():
            ms = between(times, n)
            if ms is not None:
                at_n[column or n] = ms
        ms = between(at_n, nrhs)
        if ms is not None:
            by_batch[known] = ms
    found = between(by_batch, batch)
    if found is None:
        return None, Basis.NONE
    here = columns.get(batch, {})
    measured = n in here.get(nrhs, {}) or (nrhs == n and n in here.get(0, {}))
    return math.exp(found), Basis.MEASURED if measured else Basis.INTERPOLATED
