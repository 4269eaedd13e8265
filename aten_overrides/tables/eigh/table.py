"""The table of one GPU: milliseconds by back end, from a timing record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._names import EIGH_BACKENDS, EIGH_OPS, one_of
from aten_overrides.tables.measured import Kind, MeasuredTable, Times

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Point:
    """Milliseconds of one problem by back end; ``op``: eigh, or eigvalsh without vectors."""

    op: str
    dtype: str
    batch: int
    n: int
    ms: Mapping[str, float]


class EighTable(MeasuredTable[Point]):
    """Times of one GPU. An empty one, of no GPU, leaves everything to stock."""

    def of(self, op: str, dtype: str) -> tuple[Point, ...]:
        """The points of one operation and dtype."""
        return tuple(point for point in self.points if (point.op, point.dtype) == (op, dtype))


def _point(row: Mapping[str, Any]) -> Point:
    one_of("operation", row["op"], EIGH_OPS)
    return Point(row["op"], row["dtype"], row["batch"], row["n"], row["ms"])


def _times(record: Path, data: Mapping[str, Any]) -> Times:
    times: Times = {}
    for point in data["points"]:
        if (
            point.get("op") in EIGH_OPS
            and point.get("backend") in EIGH_BACKENDS
            and point.get("clock", "stream") == "stream"  # all by one clock
        ):
            try:
                key = (point["op"], point["dtype"], point["batch"], point["n"])
                times.setdefault(key, {})[point["backend"]] = point["ms"]
            except KeyError as error:
                raise UserError(f"{record}: a point lacks {error}: {point}") from error
    return times


KIND = Kind(
    name="eigh",
    table=EighTable,
    folder=FOLDER,
    meta=("record", "command", "commit", "date", "driver", "torch", "cuda", "cusolver"),
    names=("op", "dtype", "batch", "n"),
    ways=EIGH_BACKENDS,
    point=_point,
    times=_times,
)
DEFAULT = KIND.default
from_records, render, load = KIND.from_records, KIND.render, KIND.load
