"""The points of a bench as a table and as a record's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Point = Mapping[str, Any]


def rival_of(point: Point) -> str:
    """The rival's name, as in ``rivals.Rival.name``."""
    if point["library"] == "stock":
        return f"stock, {point['preference']}"
    library, backend = str(point["library"]), str(point["backend"])
    return backend if library == "direct" else library


def problem_of(point: Point) -> tuple[Any, ...]:
    """What makes two points rivals of each other."""
    return tuple(point[key] for key in ("op", "dtype", "batch", "n", "nrhs"))


def milliseconds(ms: float) -> str:
    """Three significant digits."""
    return f"{ms:.3g}" if ms < 1000 else f"{ms:.0f}"


def table(points: Sequence[Point]) -> str:
    """A table like torch.utils.benchmark.Compare's: a row a problem, a column a rival, the fastest
    of a row marked, spreads over a tenth shown.
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
                row.append(_cell(point, best) if point is not None else "")
            rows.append(row)
        lines.append(_aligned(f"{op}, milliseconds", ["", *rivals], rows))
    lines.append("* the fastest of the row; +- where the samples differ by more than a tenth")
    return "\n\n".join(lines)


def _cell(point: Point, best: float) -> str:
    low, high = point["spread"]
    spread = (high - low) / 2
    text = milliseconds(point["ms"])
    if spread > 0.1 * point["ms"]:
        text += f" +- {milliseconds(spread)}"
    return f"{text} *" if point["ms"] <= best else f"{text}  "


def _aligned(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [f"[{' ' + title + ' ':-^{sum(widths) + 3 * len(widths) - 3}}]"]
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append(" | ".join(cells).rstrip())
    return "\n".join(lines)
