"""The table of one GPU: milliseconds by back end, from a timing record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._files import table_text
from aten_overrides._names import DTYPES, EIGH_BACKENDS, EIGH_OPS, one_of
from aten_overrides.tables.build import file_name
from aten_overrides.tables.records import merge, read

FOLDER = Path(__file__).resolve().parent
FORMAT = 1
DEFAULT = FOLDER / "nvidia-h200.json"
_META = ("record", "command", "commit", "date", "driver", "torch", "cuda", "cusolver")


@dataclass(frozen=True)
class Point:
    """Milliseconds of one problem by back end; ``op``: eigh, or eigvalsh without vectors."""

    op: str
    dtype: str
    batch: int
    n: int
    ms: Mapping[str, float]


@dataclass(frozen=True)
class EighTable:
    """Times of one GPU. An empty one, of no GPU, leaves everything to stock."""

    gpu: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    path: Path = DEFAULT

    def of(self, op: str, dtype: str) -> tuple[Point, ...]:
        """The points of one operation and dtype."""
        return tuple(point for point in self.points if (point.op, point.dtype) == (op, dtype))


def _points(rows: Iterable[Mapping[str, Any]], source: Path) -> tuple[Point, ...]:
    points = []
    for row in rows:
        try:
            one_of("operation", row["op"], EIGH_OPS)
            one_of("dtype", row["dtype"], DTYPES)
            for backend, ms in row["ms"].items():
                one_of("back end", backend, EIGH_BACKENDS)
                if not (math.isfinite(ms) and ms > 0):
                    raise UserError(f"{backend} takes {ms} ms")
            if row["batch"] < 1 or row["n"] < 1:
                raise UserError(f"batch {row['batch']}, n {row['n']}")
            points.append(Point(row["op"], row["dtype"], row["batch"], row["n"], row["ms"]))
        except (UserError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{source}: the point {row} is wrong: {error}") from error
    return tuple(points)


Times = dict[tuple[str, str, int, int], dict[str, float]]


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


def from_records(records: Sequence[Path]) -> EighTable:
    """The table of timing records of one machine. A problem that several hold has the times of the
    last one alone; meta data are the last one's. Other operations and rivals are left out.
    """
    times, meta = merge(records, "eigh", _META, _times)
    rows = [
        {"op": op, "dtype": dtype, "batch": batch, "n": n, "ms": dict(sorted(ms.items()))}
        for (op, dtype, batch, n), ms in sorted(times.items())
    ]
    path = FOLDER / file_name(meta["gpu"])
    kept = {key: meta[key] for key in _META}
    return EighTable(meta["gpu"], kept, _points(rows, records[-1]), path)


def render(table: EighTable) -> str:
    """Text of the table's file."""
    head = {"format": FORMAT, "gpu": table.gpu, "meta": dict(table.meta)}
    rows = [
        {"op": p.op, "dtype": p.dtype, "batch": p.batch, "n": p.n, "ms": dict(p.ms)}
        for p in table.points
    ]
    return table_text(head, rows)


def load(path: Path = DEFAULT) -> EighTable:
    """The table of a file; the empty one if there is no such file. UserError if it is wrong."""
    try:
        data = read(path, FORMAT)
        if data is None:
            return EighTable(path=path)
        return EighTable(data["gpu"], data["meta"], _points(data["points"], path), path)
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is no table of eigh: {error}") from error
