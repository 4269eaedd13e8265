"""The record of test/gpu/scan/run.py; imports little, as it runs where the GPU is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotools.env import write_file
from aten_overrides._files import record_text


def points_of(scans: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every measured size of every scan as a point of DESIGN's form; its job is the scan's
    position.
    """
    points = []
    for number, scan in enumerate(scans):
        target = scan["target"]
        library = "overrides" if target["overrides"] else "stock"
        rhs = target["nrhs"] if target["op"] in ("solve_ex", "lu_solve", "lstsq") else 0
        for size, (ms, low, high, count) in scan["levels"].items():
            points.append(
                {
                    "op": target["op"],
                    "dtype": target["dtype"],
                    "m": int(size),
                    "n": int(size),
                    "batch": target["batch"],
                    "nrhs": rhs,
                    "backend": "choice" if target["overrides"] else "stock",
                    "preference": target["prefer"] or "default",
                    "library": library,
                    "ms": ms,
                    "spread": [low, high],
                    "repeats": count,
                    "job": str(number),
                }
            )
    return points


def save(
    path: Path,
    meta: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
    scans: Sequence[Mapping[str, Any]],
    checks: Sequence[Mapping[str, Any]],
    timelines: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Writes the record, one row a line. Levels stand among the points only."""
    bare = [{**scan, "levels": None} for scan in scans]
    lists = {"points": points, "scans": bare, "timelines": timelines, "checks": checks}
    write_file(path, record_text(meta, **lists))
