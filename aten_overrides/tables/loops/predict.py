"""Times of problems between the measured ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

from aten_overrides._loops import LoopQuestion
from aten_overrides.tables.loops.fit import BATCHED, LOOPED, RIVALS, STREAMED
from aten_overrides.tables.loops.table import SOME, LoopTable

ROUTINE_OF = {
    "geqrf": "geqrf",
    "orgqr": "orgqr",
    "ormqr": "ormqr",
    "cholesky": "potrf",
    "cholesky_solve": "potrs",
    "cholesky_inverse": "potrs",
    "ldl_factor": "sytrf",
}


def columns_of(question: LoopQuestion) -> str:
    """The measured number of right-hand sides nearest to the problem's, as in LoopChoice.h."""
    if question.op == "cholesky_inverse":
        return "square"
    if question.op not in ("ormqr", "cholesky_solve"):
        return "none"
    columns = question.nrhs**2
    if question.op == "ormqr":
        return "one" if columns < question.m else "square"
    return "one" if columns < SOME else "some" if columns < SOME * question.m else "square"


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


def predict(table: LoopTable, question: LoopQuestion, rival: str, backend: str) -> float | None:
    """Milliseconds of a back end, by that of square matrices; None outside what was measured."""
    way = {
        "looped_cusolver": LOOPED,
        "streamed_cusolver": STREAMED,
        "batched_cublas": BATCHED,
        "stock": RIVALS[rival],
    }[backend]
    n, more = sorted((question.m, question.n))
    if more > 2 * n:
        return None  # squares were measured
    rows: dict[int, dict[int, float]] = {}
    routine = ROUTINE_OF[question.op]
    if backend == "batched_cublas" and routine != "geqrf":
        return None
    for point in table.of(routine, columns_of(question), question.dtype):
        if way in point.ms:
            rows.setdefault(point.batch, {})[point.n] = math.log(point.ms[way])
    by_batch = {known: _between(row, n) for known, row in rows.items()}
    told = {known: ms for known, ms in by_batch.items() if ms is not None}
    found = _between(told, question.batch) if question.batch > 0 and n > 0 else None
    return None if found is None else math.exp(found)
