"""Times of problems between the measured ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

from aten_overrides._select import Basis
from aten_overrides.tables.eigh.table import EighTable

STOCK_STEP = 32  # torch's own function calls another routine beyond, up to 200 times slower


def _between(known: Mapping[int, float], at: int) -> float | None:
    """Logarithm of a time at a size, linear over the logarithm of the size; None outside."""
    if at in known:
        return known[at]
    below = max((size for size in known if size < at), default=None)
    above = min((size for size in known if size > at), default=None)
    if below is None or above is None:
        return None
    share = math.log(at / below) / math.log(above / below)
    return known[below] * (1 - share) + known[above] * share


def predict(
    table: EighTable, op: str, dtype: str, batch: int, n: int, backend: str
) -> tuple[float | None, Basis]:
    """Milliseconds and how they were obtained: measured, or interpolated over n and then batch.
    (None, NONE) outside what was measured.
    """
    rows: dict[int, dict[int, float]] = {}
    for point in table.of(op, dtype):
        beyond_step = (point.n > STOCK_STEP) != (n > STOCK_STEP)
        if backend in point.ms and not (backend == "stock" and beyond_step):
            rows.setdefault(point.batch, {})[point.n] = math.log(point.ms[backend])
    by_batch = {known: _between(row, n) for known, row in rows.items()}
    told = {known: ms for known, ms in by_batch.items() if ms is not None}
    found = _between(told, batch) if batch > 0 and n > 0 else None
    if found is None:
        return None, Basis.NONE
    measured = n in rows.get(batch, {})
    return math.exp(found), Basis.MEASURED if measured else Basis.INTERPOLATED
