"""The points of a bench as a table and as a record's text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Point = Mapping[str, Any]


def rival_name(library: str, backend: str, preference: str) -> str:
    """A short name, unique among the rivals of a problem."""
    if library == "stock":
        return f"stock, {preference}"
    return backend if library in ("direct", "forced") else library


def rival_of(point: Point) -> str:
    """The rival's name of a point."""
    return rival_name(str(point["library"]), str(point["backend"]), str(point["preference"]))


def problem_of(point: Point) -> tuple[Any, ...]:
    """What makes two points rivals of each other."""
    return tuple(point[key] for key in ("op", "dtype", "batch", "n", "nrhs"))


def milliseconds(ms: float) -> str:
    """Three significant digits."""
    return f"{ms:.3g}" if ms < 1000 else f"{ms:.0f}"


UNITS = {"ms": "milliseconds", "gflops": "GFLOP/s (nominal)", "limit_share": "share of the limit"}


def table(points: Sequence[Point], unit: str = "ms") -> str:
    """A table like torch.utils.benchmark.Compare's: a row a problem, a column a rival, the fastest
    of a row marked, spreads over a tenth shown. ``unit``: one of UNITS.
    """
    lines = []
    for op in dict.fromkeys(point["op"] for point in points):
        mine = [point for point in points if point["op"] == op]
        rivals = list(dict.fromkeys(map(rival_of, mine)))
        problems = list(dict.fromkeys(map(problem_of, mine)))
        cells = {(problem_of(point), rival_of(point)): point for point in mine}
        rows = []
        for problem in problems:
            _, dtype, batch, n, nrhs = problem
            best = min(cells[key]["ms"] for key in cells if key[0] == problem)
            label = f"{dtype} {batch} x {n} x {n}" + (f", {nrhs} rhs" if nrhs else "")
            row = [label]
            for rival in rivals:
                point = cells.get((problem, rival))
                row.append(_cell(point, best, unit) if point is not None else "")
            rows.append(row)
        lines.append(_aligned(f"{op}, {UNITS[unit]}", ["", *rivals], rows))
    lines.append("* the fastest of the row; +- where the samples differ by more than a tenth")
    return "\n\n".join(lines)


def _cell(point: Point, best: float, unit: str) -> str:
    low, high = point["spread"]
    spread = (high - low) / 2 / point["ms"]
    text = milliseconds(point[unit])
    if spread > 0.1:
        text += f" +- {milliseconds(spread * point[unit])}"
    return f"{text} *" if point["ms"] <= best else f"{text}  "


def line(points: Sequence[Point]) -> str:
    """An operation in a line: how many problems and rivals, and the overrides against stock."""
    problems = {problem_of(point) for point in points}
    rivals = dict.fromkeys(map(rival_of, points))
    times = {(problem_of(point), rival_of(point)): point["ms"] for point in points}
    ratios = [
        times[problem, "stock, default"] / times[problem, "overrides"]
        for problem in problems
        if {(problem, "stock, default"), (problem, "overrides")} <= times.keys()
    ]
    told = f"{len(problems)} problems, {len(points)} times of {len(rivals)} rivals"
    if ratios:
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        told += f"; stock takes {mean:.2f} times the overrides' time (geometric mean)"
    return told


def _aligned(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [f"[{' ' + title + ' ':-^{sum(widths) + 3 * len(widths) - 3}}]"]
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append(" | ".join(cells).rstrip())
    return "\n".join(lines)
