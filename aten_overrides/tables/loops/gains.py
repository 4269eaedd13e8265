"""What streams gain over the loop, by routine, as README.md states it:
``python -m aten_overrides.tables.loops.gains RECORD...``.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LANES = (2, 4, 8)
HEAD = (
    "| routine | makes the host wait | points | 2 streams | 4 streams | 8 streams |",
    "|---|---|---|---|---|---|",
)


def _gains(points: Sequence[dict[str, Any]]) -> dict[tuple[str, int], list[float]]:
    """Time of the loop / time on so many streams, by routine and streams."""
    times: dict[tuple[Any, ...], dict[int, float]] = {}
    for point in points:
        if point["backend"] in ("looped_cusolver", "streamed_cusolver"):
            key = tuple(point[name] for name in ("op", "dtype", "batch", "n", "nrhs"))
            times.setdefault(key, {})[point.get("lanes", 1)] = point["ms"]
    found: dict[tuple[str, int], list[float]] = {}
    for key, ms in times.items():
        for lanes in LANES:
            if 1 in ms and lanes in ms:
                found.setdefault((key[0], lanes), []).append(ms[1] / ms[lanes])
    return found


def rows(records: Sequence[Path]) -> Iterator[str]:
    """Lines of a table: geometric means, and for 4 streams the least and the most."""
    points: list[dict[str, Any]] = []
    waits: dict[str, set[bool]] = {}
    for record in records:
        data = json.loads(record.read_text(encoding="utf-8"))
        points += data["points"]
        for check in data["checks"]:
            if check["name"] == "synchronises" and check["params"]["routine"] == "one":
                waits.setdefault(check["params"]["op"], set()).add(check["value"]["waits"])
    found = _gains(points)
    yield from HEAD
    for routine in dict.fromkeys(op for op, _ in found):
        said = {frozenset({True}): "yes", frozenset({False}): "no"}
        cells = [routine, said.get(frozenset(waits.get(routine, ())), "in part")]
        cells.append(str(len(found[routine, LANES[0]])))
        for lanes in LANES:
            gains = found[routine, lanes]
            cell = f"{statistics.geometric_mean(gains):.2f}"
            cells.append(f"{cell} ({min(gains):.2f} to {max(gains):.2f})" if lanes == 4 else cell)
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(rows([Path(name) for name in sys.argv[1:]])))
