"""Parts of README on the package: solve_ex against stock, our LU kernels against the libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aotools import readme

NATIVE = "batched_native"
SOLVE_SIZE = 512
SOLVE_BATCHES = (1, 16, 64, 256, 1024)
SOLVE_SIZES = (64, 128, 256, 512, 1024)
SIZES = (32, 64, 128, 256, 512, 1024, 2048)
BATCHES = (1, 4, 64, 256, 1024, 4096)
GRID = (16, 2048)  # of n, for the geometric mean
DTYPES = ("float32", "float64", "complex64", "complex128")


def solve_table() -> str:
    """solve_ex of the stock wheel and with the package enabled, no preference set."""
    found = readme.load_record("overrides")
    if found is None:
        return readme.NO_RECORD
    path, record = found
    times: dict[tuple[str, int], dict[str, float]] = {}
    for row in record["points"]:
        if (row["op"], row["n"], row.get("preference")) == ("solve_ex", SOLVE_SIZE, "default"):
            times.setdefault((row["dtype"], row["batch"]), {})[row["library"]] = row["ms"]
    rows = []
    for dtype in DTYPES:
        for batch in SOLVE_BATCHES:
            both = times.get((dtype, batch), {})
            if {"stock", "overrides"} <= both.keys():
                stock, ours = both["stock"], both["overrides"]
                cells = (readme.milliseconds(stock), readme.milliseconds(ours))
                rows.append((dtype, str(batch), *cells, f"{stock / ours:.1f}x"))
    if not rows:
        return readme.NO_RECORD
    head = ("dtype", "batch", "stock wheel", "package enabled", "faster")
    text = readme.table(head, rows, numbers=4)
    size = f"n = {SOLVE_SIZE}, one right-hand side, no preference set"
    return f"{text}\n\n`solve_ex`, {size}, milliseconds. {readme.caption(path, record['meta'])}"


def _by_problem(
    points: Iterable[Mapping[str, Any]],
) -> dict[tuple[str, int, int], dict[str, float]]:
    """Times by back end of square pivoted problems: (dtype, n, batch)."""
    times: dict[tuple[str, int, int], dict[str, float]] = {}
    for row in points:
        if row["m"] == row["n"] and row.get("pivot", True):
            times.setdefault((row["dtype"], row["n"], row["batch"]), {})[row["backend"]] = row["ms"]
    return times


def advantage(times: Mapping[str, float]) -> float | None:
    """Time of the best other back end by that of our kernels; None if either was not measured."""
    rivals = [ms for backend, ms in times.items() if backend != NATIVE]
    return min(rivals) / times[NATIVE] if rivals and NATIVE in times else None


def native_table() -> str:
    """LU by our kernels in milliseconds, and the factor to the best library route at each point."""
    found = readme.load_record("calibrate")
    if found is None:
        return readme.NO_RECORD
    path, record = found
    times = _by_problem(record["points"])
    rows = []
    for n in SIZES:
        cells = []
        for batch in BATCHES:
            at = times.get(("float32", n, batch), {})
            factor = advantage(at)
            cells.append(
                f"{readme.milliseconds(at[NATIVE])} ({factor:.1f}x)" if factor is not None else ""
            )
        rows.append((str(n), *cells))
    text = readme.table(("n", *(f"batch {batch}" for batch in BATCHES)), rows, numbers=len(BATCHES))
    means = []
    for dtype in DTYPES:
        factors = [
            factor
            for (kind, n, _), at in times.items()
            if kind == dtype and GRID[0] <= n <= GRID[1] and (factor := advantage(at)) is not None
        ]
        if factors:
            mean = math.exp(math.fsum(map(math.log, factors)) / len(factors))
            means.append(
                f"{dtype} {mean:.2f}x over {len(factors)} problems (least {min(factors):.2f}x)"
            )
    return (
        f"{text}\n\nLU, float32, milliseconds, and how many times the best library route takes. "
        f"Geometric mean for n {GRID[0]} to {GRID[1]}: {'; '.join(means)}. "
        f"{readme.caption(path, record['meta'])}"
    )


def lu_solve_table() -> str:
    """LU alone, and what solve_ex and inv_ex take with the package and in stock, float32."""
    found = readme.load_record("lu-solve")
    if found is None:
        return readme.NO_RECORD
    path, record = found
    times: dict[tuple[int, int], dict[tuple[str, str], float]] = {}
    for row in record["points"]:
        one = row["op"] in ("lu_factor_ex", "inv_ex") or (row["op"], row["nrhs"]) == ("solve_ex", 1)
        if one and row["dtype"] == "float32" and row["n"] in SOLVE_SIZES:
            times.setdefault((row["n"], row["batch"]), {})[row["op"], row["backend"]] = row["ms"]
    rows = []
    for (n, batch), at in sorted(times.items()):
        cells = []
        for op in ("solve_ex", "inv_ex"):
            ours, stock = at.get((op, "choice")), at.get((op, "stock"))
            if ours is not None and stock is not None:
                cells += [f"{readme.milliseconds(ours)} ({stock / ours:.1f}x)"]
        alone = at.get(("lu_factor_ex", "choice"))
        if len(cells) == 2 and alone is not None:
            rows.append((str(n), str(batch), readme.milliseconds(alone), *cells))
    head = ("n", "batch", "LU alone", "`solve_ex`, one right-hand side", "`inv_ex`")
    return (
        f"{readme.table(head, rows, numbers=5)}\n\nWith the package, float32, no preference set, "
        "milliseconds, and how many times stock takes. "
        f"{readme.caption(path, record['meta'])}"
    )


PARTS: dict[str, Callable[[], str]] = {
    "package-solve-table": solve_table,
    "native-table": native_table,
    "lu-solve-table": lu_solve_table,
}
