"""How wrong a patch's choices are, for a pull request's text: over the problems that were measured,
the time of what is chosen by that of the best, by GPU, dtype and batch; the worst by name.

A view takes the folder with the records and gives Markdown; it says so when there is no record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aotools.env import UserError
from aotools.patchset.pr_views import none, records, versions
from aotools.readme import table

GOOD = 1.05  # a choice this close to the best counts as right: repeated runs scatter as much
BANDS = ((1, 1), (2, 3), (4, 16), (17, 256), (257, 1 << 30))
DTYPES = ("float32", "float64", "complex64", "complex128")


@dataclass(frozen=True)
class Case:
    """One problem: time of what is chosen, and of what was before, by that of the best."""

    dtype: str
    batch: int
    where: str  # batch x m x n
    now: float
    before: float | None


def mean(values: Sequence[float]) -> float:
    """Geometric mean; 1 without values."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else 1.0


def _row(cases: Sequence[Case]) -> Sequence[str]:
    misses = [case for case in cases if case.now > GOOD]
    worst = max(cases, key=lambda case: case.now)
    right = 100 * (len(cases) - len(misses)) / len(cases)
    before = [case.before for case in cases if case.before is not None]
    figures = (f"{right:.1f} %", f"{mean([case.now for case in cases]):.3f}", f"{worst.now:.2f}")
    known = (f"{mean(before):.2f}", f"{max(before):.1f}") if before else ("", "")
    return (str(len(cases)), *figures, worst.where if misses else "", *known)


def tables(sets: Mapping[str, Sequence[Case]]) -> str:
    """A row for each set of back ends and dtype; by batch below, folded away."""
    short, long = [], []
    for shown, cases in sets.items():
        for dtype in dict.fromkeys(case.dtype for case in cases):
            own = [case for case in cases if case.dtype == dtype]
            short.append((shown, dtype, *_row(own)))
            for low, high in BANDS:
                if band := [case for case in own if low <= case.batch <= high]:
                    long.append((shown, dtype, _band(low, high), *_row(band)))
    head = ("points", "within 5 %", "mean", "worst", "where", "mean before", "worst before")
    return (
        table(("may use", "dtype", *head), short)
        + "\n\n<details><summary>By batch</summary>\n\n"
        + table(("may use", "dtype", "batch", *head), long)
        + "\n\n</details>\n\nTime of the chosen back end over that of the best; mean: geometric; "
        "where: batch x m x n. "
    )


def _band(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low}-{high}" if high < 1 << 30 else f">= {low}"


def _measured(folder: Path, tables_: Any) -> Iterator[Any]:
    """The tables of a module of tables whose records are all in ``folder``."""
    for path in sorted(tables_.FOLDER.glob("*.json")):
        one = tables_.load(path)
        records = str(one.meta["record"]).split(",")
        if all((folder / name.strip()).is_file() for name in records):
            yield one


# --- LU -------------------------------------------------------------------------------------------

_SETS = {
    "neither": "cuBLAS, cuSOLVER",
    "streams": "cuBLAS, cuSOLVER on streams too",
    "MAGMA": "cuBLAS, cuSOLVER, MAGMA",
    "streams, MAGMA": "all four",
}


def severity(folder: Path) -> str:
    """Of the choice among the libraries for lu_factor."""
    from aten_overrides import _select
    from aten_overrides._errors import UserError as Refused
    from aten_overrides.tables import regret
    from aten_overrides.tables import table as tables_

    measured = {record["meta"]["gpu"]: record for record in records(folder, "library-grid")}
    parts = []
    try:
        library = _select.load()
        for path in sorted((tables_.FOLDER / "libraries").glob("*.json")):
            one = tables_.load(path)
            if one.gpu.name not in measured:
                continue
            costs, sets = one.costs(library), regret.available_sets(one.lanes)
            points = [point for point in one.points if point.op == regret.OP]
            cases = {
                shown: list(_lu_cases(points, costs, sets[name], library))
                for name, shown in _SETS.items()
            }
            parts.append(
                tables(cases) + "Before: the rule of 2.6 to 2.12 (m >= 512). These are the "
                f"{len(one.points)} problems that the rule was fitted to, of one GPU model. "
                f"{versions(measured[one.gpu.name]['meta'])}."
            )
    except Refused as error:
        raise UserError(f"the choice cannot be built here: {error}") from None
    return "\n\n".join(parts) or none("library-grid")


def _where(problem: Any) -> str:
    text = f"{problem.batch} x {problem.m} x {problem.n}"
    return text if problem.pivot else f"{text}, pivot=False"


def _lu_cases(points: Iterable[Any], costs: Any, facts: Any, library: Any) -> Iterator[Case]:
    from aten_overrides import _stock_rule
    from aten_overrides.tables import regret

    for point in points:
        chosen = library.by_thresholds(point.dtype, point.problem, "default", facts)
        old = _stock_rule.lu_factor(point.problem, "default", facts)
        now, before = (regret.of_point(point, costs, facts, name) for name in (chosen, old))
        yield Case(point.dtype, point.problem.batch, _where(point.problem), now, before)


# --- our kernels ----------------------------------------------------------------------------------

NATIVE = "batched_native"


def upstream_rule(dtype: str, batch: int, m: int, n: int) -> str:
    """What main takes without a preference or with "cusolver" outside its own kernel's window: the
    rule of pull request 185344.
    """
    if m != n or batch == 1:
        return "looped_cusolver"
    single = dtype in ("float32", "complex64")
    if batch == 2:
        most = (8400 if single else 2200) * batch
    elif single:
        most = 18600 * batch
    else:
        most = (16600 if dtype == "float64" else 5200) * batch * math.isqrt(batch)
    return "looped_cusolver" if n * n > most else "batched_cublas"


def other_kernel_takes(problem: Any) -> bool:
    """The window of the kernel of pull request 190329, as NativeLU.cpp has it."""
    square = problem.m == problem.n and problem.pivot
    return bool(square and problem.m >= 256 and 4 <= problem.batch <= 65535)


def native(folder: Path) -> str:
    """Of the choice of our kernels against the libraries of the releases before 2.13."""
    return _native(folder, main=False)


def native_main(folder: Path) -> str:
    """Of the same on main: outside its own kernel's window, against its rule, without MAGMA."""
    return _native(folder, main=True)


def _native(folder: Path, *, main: bool) -> str:
    from aten_overrides import _select
    from aten_overrides._errors import UserError as Refused
    from aten_overrides._select import Native
    from aten_overrides.tables import regret
    from aten_overrides.tables import table as tables_

    parts = []
    try:
        library = _select.load()
        for one in _measured(folder, tables_):
            costs = one.costs(library)
            points = [p for p in one.points if p.op == regret.OP and NATIVE in p.ms]
            if main:
                points = [point for point in points if not other_kernel_takes(point.problem)]
            sets = {
                shown: replace(facts, native=Native.USABLE)
                for name, shown in _SETS.items()
                for facts in [regret.available_sets(one.lanes)[name]]
                if not (main and "MAGMA" in name)
            }
            of = _main_cases if main else _lu_cases
            cases = {
                shown: list(of(points, costs, facts, library)) for shown, facts in sets.items()
            }
            parts.append(_gains(points) + "\n\n" + tables(cases) + _native_words(one, points, main))
    except Refused as error:
        raise UserError(f"the choice cannot be built here: {error}") from None
    return "\n\n".join(parts) or none("calibrate")


def _native_words(one: Any, points: Sequence[Any], main: bool) -> str:
    if main:
        rule = (
            "The best: of our kernels, cuBLAS and cuSOLVER. Before: main's rule (pull request "
            "185344), which stays wherever our kernels are not taken. Problems in the window of "
            "main's own kernel are left out: it was not at hand to be measured."
        )
    else:
        rule = "Our kernels may be used besides. Before: the rule of 2.6 to 2.12 (m >= 512)."
    return (
        f"{rule} A back end that was not measured at a problem, such as loops over many matrices, "
        f"counts by its predicted time. These are {len(points)} problems that the choice was "
        f"fitted to, of one GPU model. {versions({**one.meta, 'gpu': one.gpu.name})}."
    )


def _main_cases(points: Iterable[Any], costs: Any, facts: Any, library: Any) -> Iterator[Case]:
    from aten_overrides.tables import regret

    for point in points:
        problem = point.problem
        rule = upstream_rule(point.dtype, problem.batch, problem.m, problem.n)
        streams = facts.lanes >= 2 and problem.batch >= 2
        now = "streamed_cusolver" if rule == "looped_cusolver" and streams else rule
        # As NativeLU.cpp asks: as if cuSOLVER always had streams.
        asked = replace(facts, lanes=max(facts.lanes, 4))
        if library.by_thresholds(point.dtype, problem, "default", asked) == NATIVE:
            now = NATIVE
        ratios = (regret.of_point(point, costs, facts, name) for name in (now, rule))
        yield Case(point.dtype, problem.batch, _where(problem), *ratios)


def _gains(points: Sequence[Any]) -> str:
    """How many times the best library takes, by dtype and batch."""
    rows = []
    for dtype in DTYPES:
        cells = []
        for low, high in BANDS:
            found = [
                min(ms for name, ms in point.ms.items() if name != NATIVE) / point.ms[NATIVE]
                for point in points
                if point.dtype == dtype and low <= point.problem.batch <= high and len(point.ms) > 1
            ]
            cells.append(
                f"{mean(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else ""
            )
        rows.append((dtype, *cells))
    head = ("dtype", *(f"batch {_band(low, high)}" for low, high in BANDS))
    return (
        f"{table(head, rows, numbers=len(BANDS))}\n\nTime of the best library by that of our "
        "kernels, wherever both were measured, taken there or not: geometric mean, least and most."
    )


# --- lu_solve -------------------------------------------------------------------------------------

_SOLVE_SETS = {
    "cuBLAS, cuSOLVER": (False, False),
    "cuBLAS, cuSOLVER on streams too": (True, False),
    "all, with MAGMA's triangular solves": (True, True),
}


def solve(folder: Path) -> str:
    """Of the choice among the libraries for lu_solve."""
    return _solve(folder, main=False)


def solve_main(folder: Path) -> str:
    """The same without MAGMA, which main has not."""
    return _solve(folder, main=True)


def _solve(folder: Path, *, main: bool) -> str:
    from aten_overrides.tables.lu_solve import libraries, thresholds
    from aten_overrides.tables.lu_solve import table as tables_

    parts = []
    for one in _measured(folder, tables_):
        costs = libraries.costs_of(one)
        fitted = libraries.fit(costs)
        sets: dict[str, list[Case]] = {}
        for shown, (lanes, magma) in _SOLVE_SETS.items():
            if main and magma:
                continue
            found = sets.setdefault(shown, [])
            for dtype in DTYPES:
                own = [cost for cost in costs if cost.point.dtype == dtype]
                for ratio, cost in thresholds.regrets(own, fitted[dtype], lanes, magma):
                    point = cost.point
                    old = libraries.before(cost, lanes=False, preferred=False)
                    where = f"{point.batch} x {point.n} x {point.n}, {point.nrhs} right-hand sides"
                    where += ", transposed" if point.transposed else ""
                    before = old / cost.best(lanes, magma)
                    found.append(Case(dtype, point.batch, where, ratio, before))
        parts.append(
            tables(sets) + "Before: PyTorch's rule, which torch 2.11 follows with MAGMA's "
            "triangular solves beyond 512 rows and 8 matrices. These are the "
            f"{len(costs)} problems that the rule was fitted to, of one GPU model. "
            f"{versions({**one.meta, 'gpu': one.gpu})}."
        )
    return "\n\n".join(parts) or none("lu-solve-grid")


# --- eigh -----------------------------------------------------------------------------------------


def eigh(folder: Path) -> str:
    """Of the choice among cuSOLVER's routines for eigh and eigvalsh."""
    from aten_overrides.tables.eigh import fit
    from aten_overrides.tables.eigh import table as tables_

    parts = []
    for one in _measured(folder, tables_):
        fitted = fit.fit(one)
        cases: dict[str, list[Case]] = {}
        for (op, dtype), rows in fitted.items():
            for point in one.of(op, dtype):
                chosen = fit.choose(rows, point.batch, point.n, fit.RANKED)
                if chosen in point.ms:
                    best = min(point.ms.values())
                    stock = point.ms.get(fit.STOCK)
                    where = f"{point.batch} x {point.n} x {point.n}"
                    ratios = (point.ms[chosen] / best, stock / best if stock else None)
                    cases.setdefault(f"`{op}`", []).append(Case(dtype, point.batch, where, *ratios))
        parts.append(
            tables(cases).replace("| may use |", "| operation |") + "Before: torch "
            f"{one.meta['torch']}'s own call. These are problems that the rule was fitted to, of "
            f"one GPU model. {versions({**one.meta, 'gpu': one.gpu})}."
        )
    return "\n\n".join(parts) or none("eigh-grid")


VIEWS = {
    "severity": severity,
    "native severity": native,
    "native severity on main": native_main,
    "solve severity": solve,
    "solve severity on main": solve_main,
    "eigh severity": eigh,
}
