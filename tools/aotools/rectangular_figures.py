"""The README's table of LU of rectangular batches and without row exchanges.
``PARTS`` are generated parts for aotools.readme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aotools import readme

TOPIC = "lu-rectangular"
NO_RECORD = (
    "*No record yet: `test/gpu/overrides/run_rectangular.py` on a machine with a GPU makes it.*"
)
DTYPES = ("float32", "float64", "complex64", "complex128")
SHOWN = "float32"
BATCHES = (1, 4, 64, 256, 1024)
WORST, JITTER_MS = 1.10, 0.005  # as part_rectangular has them

# library, back end, preference
Way = tuple[str, str, str]
CHOICE: Way = ("overrides", "choice", "default")
CUSOLVER: Way = ("overrides", "choice", "cusolver")
NATIVE: Way = ("overrides", "batched_native", "default")
STOCK: Way = ("stock", "stock", "default")
STOCK_CUSOLVER: Way = ("stock", "stock", "cusolver")

# dtype, m, n, pivot, batch
Problem = tuple[str, int, int, bool, int]


def _times(points: Iterable[Mapping[str, Any]]) -> dict[Problem, dict[Way, float]]:
    """Milliseconds by problem and way, of the problems at which the choice was measured."""
    times: dict[Problem, dict[Way, float]] = {}
    for row in points:
        problem = (row["dtype"], row["m"], row["n"], row["pivot"], row["batch"])
        way = (row["library"], row["backend"], row["preference"])
        times.setdefault(problem, {})[way] = row["ms"]
    return {problem: at for problem, at in times.items() if CHOICE in at}


def _mean(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    return f"{math.exp(math.fsum(map(math.log, ratios)) / len(ratios)):.2f}x"


def _rivals(at: Mapping[Way, float]) -> float | None:
    """The best that is not ours: stock under either preference, or a routine of a library."""
    ours = (CHOICE, CUSOLVER, NATIVE)
    return min((ms for way, ms in at.items() if way not in ours), default=None)


def _behind(at: Mapping[Way, float]) -> bool:
    best = min(ms for way, ms in at.items() if way != CUSOLVER)
    return at[CHOICE] > WORST * best and at[CHOICE] - best > JITTER_MS


def times_table() -> str:
    """Milliseconds of the choice by shape and batch, float32, and how many times stock takes."""
    found = readme.load_record(TOPIC)
    if found is None:
        return NO_RECORD
    path, record = found
    times = _times(record["points"])
    shapes = sorted({(not pivot, m, n) for dtype, m, n, pivot, _ in times if dtype == SHOWN})
    rows = []
    for plain, m, n in shapes:
        cells = []
        for batch in BATCHES:
            at = times.get((SHOWN, m, n, not plain, batch), {})
            text = readme.milliseconds(at[CHOICE]) if at else ""
            cells.append(f"{text} ({at[STOCK] / at[CHOICE]:.1f}x)" if STOCK in at else text)
        rows.append((f"{m} x {n}" + (", pivot=False" if plain else ""), *cells))
    head = ("m x n", *(f"batch {batch}" for batch in BATCHES))
    return (
        f"{readme.table(head, rows, numbers=len(BATCHES))}\n\n`lu_factor_ex`, {SHOWN}, with the "
        "package, no preference set, milliseconds, and how many times stock takes. "
        f"{readme.caption(path, record['meta'])}"
    )


def means_table() -> str:
    """Geometric means by dtype, rectangular and pivot=False, and where the choice was behind."""
    found = readme.load_record(TOPIC)
    if found is None:
        return NO_RECORD
    path, record = found
    times = _times(record["points"])
    rows = []
    for pivot, kind in ((True, "rectangular"), (False, "square, pivot=False")):
        for dtype in DTYPES:
            at = [all_of for p, all_of in times.items() if (p[0], p[3]) == (dtype, pivot)]
            if not at:
                continue
            stock = [each[STOCK] / each[CHOICE] for each in at if STOCK in each]
            loop = [each[STOCK_CUSOLVER] / each[CHOICE] for each in at if STOCK_CUSOLVER in each]
            rivals = [best / each[CHOICE] for each in at if (best := _rivals(each)) is not None]
            least = f" (least {min(stock):.2f}x)" if stock else ""
            cells = (f"{_mean(stock)}{least}", _mean(loop), _mean(rivals))
            rows.append((kind, dtype, str(len(at)), *cells, str(sum(map(_behind, at)))))
    head = (
        "LU",
        "dtype",
        "problems",
        "over stock",
        'over stock, "cusolver"',
        "over the best rival",
        "behind the best by over 1.10",
    )
    return (
        f"{readme.table(head, rows, numbers=5)}\n\nGeometric means. The rivals are stock under "
        "either preference and every routine of the libraries that can be forced; the best of the "
        f"last column includes our kernels. {readme.caption(path, record['meta'])}"
    )


PARTS: dict[str, Callable[[], str]] = {
    "lu-rectangular-means": means_table,
    "lu-rectangular-table": times_table,
}
