"""Generate the thresholds of our own kernels: ``python -m aten_overrides.tables.native``.

They say where the kernels were measured to be faster than every back end of the libraries, by a
margin: for a range of batches, below which number of rows. `thresholds.py` chooses among the
libraries elsewhere. Nothing is said above the largest measured sides, for rectangular matrices
without pivoting, or below the smallest measured min(m, n) of a rectangular one: there the
libraries stay.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aten_overrides import _compile, _select
from aten_overrides._names import DTYPES
from aten_overrides._select import Basis, Facts, Native, Problem
from aten_overrides._select import Table as Costs
from aten_overrides.tables import command, fit, regret, rows, thresholds
from aten_overrides.tables.table import FOLDER, CostTable, Point, load

HEADER = _compile.CSRC / "linalg" / "NativeThresholds.h"
NATIVE = "batched_native"
KINDS = ("Pivoted", "Unpivoted", "Rectangular")
MARGIN = math.log(1.03)  # by which our kernels have to be ahead
MARGIN_EXTRAPOLATED = math.log(1.25)
WEIGHT_EXTRAPOLATED = 0.05
PRICE_OF_ROW = 0.3  # in units of the summed log regret
# Taking our kernels where a library is faster costs so many times what the opposite does.
STEEP = 20.0


@dataclass(frozen=True)
class NativeRow:
    """From ``batch`` up to the next row's: native below so many rows of a matrix, where cuSOLVER
    has one stream and where it has lanes.
    """

    batch: int
    loop: int
    lanes: int


@dataclass(frozen=True)
class NativeThresholds:
    """Rows by kind (KINDS) and dtype; rectangular ones hold for min(m, n) of at least
    ``rectangular_from`` and n of at most ``rectangular_to``.
    """

    rectangular_from: int
    rectangular_to: int
    rows: Mapping[tuple[str, str], tuple[NativeRow, ...]]


# Gain of our kernels by (batch, m): log(best library / native), margins taken off, and weight.
Gains = dict[tuple[int, int], list[tuple[float, float]]]


def _gain(
    costs: Costs, dtype: str, problem: Problem, point: Point | None, lanes: bool
) -> tuple[float, float] | None:
    def log_ms(backend: str) -> tuple[float, bool] | None:
        if point is not None and backend in point.ms:
            return math.log(point.ms[backend]), True
        ms, basis = costs.predict(fit.OP, dtype, backend, problem)
        return None if ms is None else (math.log(ms), basis < Basis.EXTRAPOLATED)

    own = log_ms(NATIVE)
    facts = Facts(lanes=4 if lanes else 0, stock=True)
    libraries = [log_ms(name) for name in regret.feasible(problem, facts)]
    told = [found for found in libraries if found is not None]
    if own is None or not told:
        return None
    # A library's extrapolated time counts only where nothing better is known: from large n down to
    # small ones it comes out much too short.
    best = min([ms for ms, exact in told if exact] or [ms for ms, _ in told])
    margin = MARGIN + (0.0 if own[1] else MARGIN_EXTRAPOLATED)
    return best - own[0] - margin, 1.0 if own[1] else WEIGHT_EXTRAPOLATED


def gains(points: Sequence[Point], costs: Costs, dtype: str, kind: str, lanes: bool) -> Gains:
    """What our kernels gain where they were measured, and for squares also between the batches."""
    own = {}
    for point in points:
        p = point.problem
        square = p.m == p.n
        of_kind = (
            (square and p.pivot == (kind == "Pivoted"))
            if kind != "Rectangular"
            else (not square and p.pivot)
        )
        if point.dtype == dtype and NATIVE in point.ms and of_kind:
            own[p] = point
    found: Gains = {}
    problems = list(own)
    if kind != "Rectangular" and own:
        batches = fit.refined({p.batch for p in own}, fit.WIDEST_BATCH)
        cells = itertools.product(batches, sorted({p.n for p in own}))
        problems = [Problem(batch, n, n, kind == "Pivoted") for batch, n in cells]
    for problem in problems:
        gain = _gain(costs, dtype, problem, own.get(problem), lanes)
        if gain is not None:
            found.setdefault((problem.batch, problem.m), []).append(gain)
    return found


def _cost(gain: float, weight: float, native: bool) -> float:
    if not native:
        return weight * max(gain, 0.0)
    # What was extrapolated weighs little, so that it makes no row of its own.
    steep = 1.0 if weight == WEIGHT_EXTRAPOLATED else STEEP
    return weight * steep * max(-gain, 0.0)


def cut(found: Gains, batches: Sequence[int]) -> tuple[float, int]:
    """Cost and m of the cheapest limit for some batches: native below it.

    Between two measured m it lies where the worst of the batches crosses. Where our kernels are
    ahead to the end, it is the largest m of all batches: more matrices only help them.
    """
    sides = sorted({m for batch, m in found if batch in batches})
    cells = {
        side: [cell for batch in batches for cell in found.get((batch, side), [])] for side in sides
    }
    options = []
    for i in range(len(sides) + 1):
        cost = sum(_cost(*cell, native=True) for side in sides[:i] for cell in cells[side])
        cost += sum(_cost(*cell, native=False) for side in sides[i:] for cell in cells[side])
        options.append((cost, i))
    cost, count = min(options, key=lambda option: (round(option[0], 9), option[1]))
    if count == 0:
        return cost, 0
    if count == len(sides):
        return cost, max(m for _, m in found) + 1
    low = sides[count - 1]
    high = sides[count]
    below, above = (min(gain for gain, _ in cells[side]) for side in (low, high))
    where = below / (below - above) if below > 0 > above else 0.0
    side = low * math.pow(high / low, where)
    return cost, min(max(math.floor(side), low + 1), high)


def fit_rows(loop: Gains, lanes: Gains) -> tuple[NativeRow, ...]:
    """The cheapest partition of the batches into rows, one or both of whose limits differ."""
    batches = sorted({batch for batch, _ in (*loop, *lanes)})
    if not batches:
        return (NativeRow(1, 0, 0),)
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for stop in range(1, len(batches) + 1):
        options = []
        for start in range(stop):
            members = batches[start:stop]
            if members[0] == 1 and len(members) > 1:
                continue  # one matrix is a case of its own: nothing to stream, no batch to share
            cost = cut(loop, members)[0] + cut(lanes, members)[0] + PRICE_OF_ROW
            options.append((best[start][0] + cost, (*best[start][1], start)))
        best.append(min(options, key=lambda option: (round(option[0], 9), option[1])))
    starts = best[-1][1]
    made: list[NativeRow] = []
    for start, stop in zip(starts, (*starts[1:], len(batches)), strict=True):
        members = batches[start:stop]
        first = 1 if start == 0 else math.isqrt(batches[start - 1] * batches[start]) + 1
        row = NativeRow(first, cut(loop, members)[1], cut(lanes, members)[1])
        if not made or (made[-1].loop, made[-1].lanes) != (row.loop, row.lanes):
            made.append(row)
    return tuple(made)


def fit_native(
    table: CostTable, library: _select.Library, points: Sequence[Point] | None = None
) -> NativeThresholds:
    """Thresholds of our kernels, fitted to the table or to some of its points."""
    used = tuple(table.points if points is None else points)
    costs = CostTable(table.path, table.gpu, table.meta, table.lanes, used).costs(library)
    made = {}
    for kind, dtype in itertools.product(KINDS, DTYPES):
        loop, lanes = (gains(used, costs, dtype, kind, streams) for streams in (False, True))
        made[kind, dtype] = fit_rows(loop, lanes)
    shapes = [
        (p.problem.m, p.problem.n)
        for p in used
        if p.problem.m != p.problem.n and p.problem.pivot and NATIVE in p.ms
    ]
    smallest = min((min(shape) for shape in shapes), default=rows.NEVER)
    return NativeThresholds(smallest, max((n for _, n in shapes), default=0), made)


def fastest(own: NativeThresholds, dtype: str, problem: Problem, lanes: bool) -> bool:
    """LinalgChoice.h's native_is_fastest, for rows that no header holds yet."""
    square = problem.m == problem.n
    if not square and (
        not problem.pivot
        or min(problem.m, problem.n) < own.rectangular_from
        or problem.n > own.rectangular_to
    ):
        return False
    kind = "Rectangular" if not square else "Pivoted" if problem.pivot else "Unpivoted"
    listed = own.rows[kind, dtype]
    row = [listed[0], *(entry for entry in listed if entry.batch <= problem.batch)][-1]
    return problem.m < (row.lanes if lanes else row.loop)


def choose(
    own: NativeThresholds, libraries: rows.Thresholds, dtype: str, problem: Problem, facts: Facts
) -> str:
    """What choose_lu_factor takes with the default preference."""
    lanes = facts.lanes >= 2 and problem.batch >= 2
    lanes = lanes and facts.lanes >= min(problem.batch, libraries.lanes)
    usable = NATIVE in regret.feasible(problem, facts)
    if usable and fastest(own, dtype, problem, lanes):
        return NATIVE
    return rows.choose(libraries, dtype, problem, facts)


def available_sets(lanes: int) -> dict[str, Facts]:
    """As of the libraries, each with our kernels."""
    sets = regret.available_sets(lanes)
    return {name: replace(facts, native=Native.USABLE) for name, facts in sets.items()}


# --- the header -----------------------------------------------------------------------------------

_STRUCTS = """\
// Holds from this batch up to that of the next row: native for matrices of fewer rows than this,
// where cuSOLVER is called in a loop on the current stream, and where on auxiliary streams.
struct NativeRow {{
  int64_t batch;
  int64_t loop;
  int64_t lanes;
}};

// The smallest min(m, n) and the largest n measured for m != n.
inline constexpr int64_t kNativeRectangularFrom = {rectangular_from};
inline constexpr int64_t kNativeRectangularTo = {rectangular_to};

// What was measured on: compute capability, times ten.
inline constexpr int kNativeCapability = {capability};
"""


def render(
    table: CostTable, own: NativeThresholds, libraries: rows.Thresholds, costs: Costs
) -> str:
    """Text of NativeThresholds.h: the comment with its figures, then the rows."""
    major, minor = table.gpu.capability
    smallest = own.rectangular_from
    structs = _STRUCTS.format(
        rectangular_from="INT64_MAX" if smallest == rows.NEVER else smallest,
        rectangular_to=own.rectangular_to,
        capability=10 * major + minor,
    )
    lines = ["#pragma once", "", *_comment(table, own, libraries, costs), ""]
    lines += ["#include <cstdint>", "", "namespace at::native::linalg_choice {", ""]
    lines += [*structs.splitlines(), ""]
    for kind, dtype in itertools.product(KINDS, DTYPES):
        name = f"kNative{kind}{thresholds.CPP_DTYPES[dtype]}"
        lines += [f"inline constexpr NativeRow {name}[] = {{"]
        lines += [f"    {{{r.batch}, {r.loop}, {r.lanes}}}," for r in own.rows[kind, dtype]]
        lines += ["};", ""]
    lines += ["}  // namespace at::native::linalg_choice", ""]
    return "\n".join(lines)


def _comment(
    table: CostTable, own: NativeThresholds, libraries: rows.Thresholds, costs: Costs
) -> Iterator[str]:
    made_by = f"python -m aten_overrides.tables.native --table {table.path.name} --write"
    yield from thresholds.paragraph(f"Do not edit: generated by `{made_by}`.")
    yield "//"
    measured = replace(table, points=tuple(p for p in table.points if NATIVE in p.ms))
    yield from thresholds.paragraph(
        "Where our own LU kernels (native/) are ahead of every back end of the libraries, fitted "
        f"to {thresholds.measured(measured)}. Beyond the measured sides and for rectangular "
        "matrices without pivoting the libraries stay."
    )
    yield "//"
    yield from thresholds.paragraph(
        "Time taken / time of the best back end over these problems, the libraries' own choice "
        "(LinalgThresholds.h) elsewhere: geometric mean and worst, by what a build or call has:"
    )
    sets = available_sets(table.lanes)
    yield "//" + " " * 15 + "".join(f"{name:<18}" for name in sets).rstrip()
    for dtype in DTYPES:
        points = measured.of(fit.OP, dtype)
        cells = []
        for facts in sets.values():
            found = regret.over(
                points, costs, facts, lambda d, p, f: choose(own, libraries, d, p, f)
            )
            cells.append(f"{found.mean:.4f}  {found.worst:.3f}")
        yield f"//   {dtype:<12}" + "".join(f"{cell:<18}" for cell in cells).rstrip()


def generate(table: CostTable, libraries: CostTable) -> str:
    """Fit both tables and render the header."""
    library = _select.load_table_part()
    own = fit_native(table, library)
    return render(table, own, fit.fit(libraries, library), table.costs(library))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 done or same, 1 the file differs, 2 an error."""

    def add(parser: argparse.ArgumentParser) -> None:
        command.add_table(parser, FOLDER, HEADER)

    def texts(options: argparse.Namespace) -> dict[Path, str]:
        libraries = load(thresholds.LIBRARIES / "nvidia-h200.json")  # what ATen's header is made of
        return {options.output: generate(load(command.named(options.table, FOLDER)), libraries)}

    return command.run("aten_overrides.tables.native", __doc__, arguments, add, texts)


if __name__ == "__main__":
    sys.exit(main())
