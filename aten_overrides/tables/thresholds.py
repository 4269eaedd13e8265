"""Generate the thresholds that ATen gets: ``python -m aten_overrides.tables.thresholds``."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from aten_overrides import _compile, _select
from aten_overrides._names import DTYPES
from aten_overrides.tables import command, regret
from aten_overrides.tables.fit import CUBLAS, LEAPING, OP, fit
from aten_overrides.tables.rows import (
    NEVER,
    Crossover,
    Rectangular,
    SquareRow,
    Thresholds,
    choose,
)
from aten_overrides.tables.table import FOLDER, CostTable, load

HEADER = _compile.CSRC / "linalg" / "LinalgThresholds.h"
# Tables of the back ends that ATen has, without our kernels: what the thresholds are fitted to.
LIBRARIES = FOLDER / "libraries"
WIDTH = 100
CPP_DTYPES = dict(zip(DTYPES, ("Float", "Double", "ComplexFloat", "ComplexDouble"), strict=True))

_STRUCTS = """\
inline constexpr int64_t kNever = INT64_MAX;

// Auxiliary streams behind every entry named lanes.
inline constexpr int kMeasuredLanes = {lanes};

// Square n x n: MAGMA, if it may be used, for stock_from <= n < stock_below; else
// cuBLAS below cusolver_from and cuSOLVER from there on.
struct Crossover {{
  int64_t cusolver_from;
  int64_t stock_from;
  int64_t stock_below;
}};

// Holds from this batch up to that of the next row: where cuSOLVER is called in a
// loop on the current stream, and where on auxiliary streams.
struct SquareRow {{
  int64_t batch;
  Crossover loop;
  Crossover lanes;
}};

// Rectangular m x n from kRectangularFrom on: MAGMA, if it may be used, from this batch on;
// else cuSOLVER.
// MAGMA's time leaps between {below} and {above} rows: tall is for m >= kTallFrom.
struct RectangularRow {{
  int64_t wide;
  int64_t tall;
}};

struct Rectangular {{
  RectangularRow loop;
  RectangularRow lanes;
}};

// The smallest min(m, n) measured for m != n; below it nothing is known, and PyTorch's rule holds.
inline constexpr int64_t kRectangularFrom = {rectangular_from};

inline constexpr int64_t kTallFrom = {tall_from};
"""

_LEAP = """\
// In double and with pivoting, cuBLAS takes {ratio} times as long for n = {below} as for
// n = {above}: it may be the fastest again from there on, so n >= kLeap has its own rows.
inline constexpr int64_t kLeap = {leap};
"""

_LEAP_UNTOLD = """\
// In double and with pivoting, n >= kLeap has rows of its own: elsewhere cuBLAS was measured to
// be slower just below than from there on.
inline constexpr int64_t kLeap = {leap};
"""


def render(table: CostTable, thresholds: Thresholds, costs: _select.Table) -> str:
    """Text of LinalgThresholds.h: the comment with its figures, then the rows."""
    heights = sorted({p.problem.m for p in table.points if p.problem.m != p.problem.n})
    structs = _STRUCTS.format(
        lanes=thresholds.lanes,
        rectangular_from=_number(thresholds.rectangular_from),
        tall_from=thresholds.tall_from,
        below=max(m for m in heights if m < thresholds.tall_from),
        above=min(m for m in heights if m >= thresholds.tall_from),
    )
    lines = [
        "#pragma once",
        "",
        *_comment(table, thresholds, costs),
        "",
        "#include <cstdint>",
        "",
        "namespace at::native::linalg_choice {",
        "",
        *structs.splitlines(),
        "",
        *_leap(table, thresholds.leap).splitlines(),
        "",
    ]
    for dtype in DTYPES:
        lines += _rows(f"kPivoted{CPP_DTYPES[dtype]}", thresholds.dtypes[dtype].pivoted)
        if thresholds.dtypes[dtype].from_leap:
            lines += _rows(
                f"kPivoted{CPP_DTYPES[dtype]}FromLeap", thresholds.dtypes[dtype].from_leap
            )
    for dtype in DTYPES:
        lines += _rows(f"kUnpivoted{CPP_DTYPES[dtype]}", thresholds.dtypes[dtype].unpivoted)
    lines += ["inline constexpr Rectangular kRectangular[] = {"]
    for dtype in DTYPES:
        rows = thresholds.dtypes[dtype]
        entry = f"{{{_rectangular(rows.loop)}, {_rectangular(rows.lanes)}}}"
        lines += [f"    {entry},  // {CPP_DTYPES[dtype]}"]
    lines += ["};", "", "}  // namespace at::native::linalg_choice", ""]
    return "\n".join(lines)


def _number(value: int) -> str:
    return "kNever" if value == NEVER else str(value)


def _braced(values: Iterable[int]) -> str:
    return "{" + ", ".join(_number(value) for value in values) + "}"


def _crossover(crossover: Crossover) -> str:
    return _braced((crossover.cusolver_from, crossover.stock_from, crossover.stock_below))


def _square(row: SquareRow) -> str:
    return f"{{{row.batch}, {_crossover(row.loop)}, {_crossover(row.lanes)}}}"


def _rows(name: str, square: Iterable[SquareRow]) -> list[str]:
    return [
        f"inline constexpr SquareRow {name}[] = {{",
        *(f"    {_square(row)}," for row in square),
        "};",
        "",
    ]


def _rectangular(row: Rectangular) -> str:
    return _braced((row.wide, row.tall))


def _leap(table: CostTable, leap: int) -> str:
    times: dict[int, dict[int, float]] = {}
    for dtype in LEAPING:
        for point in table.of(OP, dtype):
            problem = point.problem
            if problem.m == problem.n and problem.pivot and CUBLAS in point.ms:
                times.setdefault(problem.n, {})[problem.batch] = point.ms[CUBLAS]
    below = max((n for n in times if n < leap), default=None)
    above = min((n for n in times if n >= leap), default=None)
    common = set() if below is None or above is None else times[below].keys() & times[above].keys()
    if below is None or above is None or not common:
        return _LEAP_UNTOLD.format(leap=leap)
    ratios = [times[below][b] / times[above][b] for b in common]
    ratio = f"{min(ratios):.1f} to {max(ratios):.1f}"
    return _LEAP.format(ratio=ratio, below=below, above=above, leap=leap)


def paragraph(text: str) -> list[str]:
    """Lines of a comment."""
    return [f"// {line}" for line in textwrap.wrap(text, WIDTH - 3, break_on_hyphens=False)]


def _comment(table: CostTable, thresholds: Thresholds, costs: _select.Table) -> Iterator[str]:
    command = f"python -m aten_overrides.tables.thresholds --table {table.path.name} --write"
    yield from paragraph(f"Do not edit: generated by `{command}`.")
    yield "//"
    yield from paragraph(
        f"Crossovers between the back ends of LU factorization, fitted to {measured(table)}. "
        "Between the measured sizes they follow interpolated times; beyond the largest batch the "
        "last row holds."
    )
    yield "//"
    yield from paragraph(
        "Time taken / time of the best back end over these problems, geometric mean and worst, by "
        "what a build or call has:"
    )
    sets = regret.available_sets(thresholds.lanes)
    yield "//" + " " * 15 + "".join(f"{name:<18}" for name in sets).rstrip()
    for dtype in DTYPES:
        points = table.of(OP, dtype)
        cells = []
        for facts in sets.values():
            found = regret.over(points, costs, facts, lambda d, p, f: choose(thresholds, d, p, f))
            cells.append(f"{found.mean:.4f}  {found.worst:.3f}")
        yield f"//   {dtype:<12}" + "".join(f"{cell:<18}" for cell in cells).rstrip()


def measured(table: CostTable) -> str:
    """How many problems of which grids on which GPU, with date and versions."""
    problems = [point.problem for point in table.points if point.op == OP]
    meta = table.meta
    versions = ", ".join(
        f"{label} {meta[key]}"
        for key, label in (
            ("driver", "driver"),
            ("torch", "torch"),
            ("cublas", "cuBLAS"),
            ("cusolver", "cuSOLVER"),
            ("magma", "MAGMA"),
        )
        if meta.get(key)
    )
    # The grids have holes, so each has its number of problems with it.
    grids = []
    for pivot in (True, False):
        square = [p for p in problems if p.m == p.n and p.pivot == pivot]
        if square:
            grids.append(
                f"{len(square)} square {'with' if pivot else 'without'} pivoting, of "
                f"{_range('n', [p.n for p in square])} x "
                f"{_range('batch', [p.batch for p in square])}"
            )
    rectangular = [p for p in problems if p.m != p.n]
    if rectangular:
        shapes = {(p.m, p.n) for p in rectangular}
        grids.append(
            f"{len(rectangular)} rectangular, of {len(shapes)} shapes x "
            f"{_range('batch', [p.batch for p in rectangular])}"
        )
    return (
        f"{len(problems)} problems measured on one {table.gpu.name} ({meta['date']}; {versions}): "
        f"four dtypes together, {'; '.join(grids)}"
    )


def _range(name: str, values: Sequence[int]) -> str:
    different = sorted(set(values))
    return f"{name} {different[0]}-{different[-1]} ({len(different)} values)"


def generate(table: CostTable) -> str:
    """Fit the table and render the header."""
    library = _select.load_table_part()
    return render(table, fit(table, library), table.costs(library))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 done or same, 1 the file differs, 2 an error."""

    def add(parser: argparse.ArgumentParser) -> None:
        command.add_table(parser, LIBRARIES, HEADER)

    def texts(options: argparse.Namespace) -> dict[Path, str]:
        return {options.output: generate(load(command.named(options.table, LIBRARIES)))}

    return command.run("aten_overrides.tables.thresholds", __doc__, arguments, add, texts)


if __name__ == "__main__":
    sys.exit(main())
