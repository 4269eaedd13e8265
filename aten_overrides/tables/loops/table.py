"""The table of one GPU: milliseconds of each way to run a routine, from a timing record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._files import table_text
from aten_overrides._names import DTYPES, one_of
from aten_overrides.tables.build import file_name
from aten_overrides.tables.records import merge, read

FOLDER = Path(__file__).resolve().parent
FORMAT = 1
DEFAULT = FOLDER / "nvidia-h200.json"
_META = ("record", "command", "commit", "date", "driver", "torch", "cuda", "cusolver")
# LAPACK's names, in the order of LoopBackend.h's Routine.
ROUTINES = ("geqrf", "orgqr", "ormqr", "potrf", "potrs", "sytrf")
# In the order of LoopBackend.h's Columns.
COLUMNS = ("none", "one", "some", "square")
SOME = 32  # kSomeColumns
# stock: torch's own call with the default preference; stock_cusolver: with that preference.
WAYS = ("looped", "streamed2", "streamed4", "streamed8", "batched", "stock", "stock_cusolver")


@dataclass(frozen=True)
class Point:
    """Milliseconds of ``batch`` n x n matrices, ``nrhs`` right-hand sides (0: none), by WAYS."""

    routine: str
    dtype: str
    batch: int
    n: int
    nrhs: int
    ms: Mapping[str, float]

    @property
    def columns(self) -> str:
        """Which of COLUMNS the right-hand sides are."""
        if self.nrhs == 0:
            return "none"
        return "one" if self.nrhs == 1 else "square" if self.nrhs == self.n else "some"


@dataclass(frozen=True)
class LoopTable:
    """Times of one GPU. An empty one, of no GPU, leaves everything to torch's own functions."""

    gpu: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    path: Path = DEFAULT

    def of(self, routine: str, columns: str, dtype: str) -> tuple[Point, ...]:
        """The points of one routine, number of right-hand sides and dtype."""
        wanted = (routine, columns, dtype)
        return tuple(p for p in self.points if (p.routine, p.columns, p.dtype) == wanted)


def _points(rows: Iterable[Mapping[str, Any]], source: Path) -> tuple[Point, ...]:
    points = []
    for row in rows:
        try:
            one_of("routine", row["routine"], ROUTINES)
            one_of("dtype", row["dtype"], DTYPES)
            for way, ms in row["ms"].items():
                one_of("way", way, WAYS)
                if not (math.isfinite(ms) and ms > 0):
                    raise UserError(f"{way} takes {ms} ms")
            if row["batch"] < 1 or row["n"] < 1 or row["nrhs"] < 0:
                raise UserError(f"batch {row['batch']}, n {row['n']}, nrhs {row['nrhs']}")
            sizes = (row["batch"], row["n"], row["nrhs"])
            points.append(Point(row["routine"], row["dtype"], *sizes, row["ms"]))
        except (UserError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{source}: the point {row} is wrong: {error}") from error
    return tuple(points)


def _way(point: Mapping[str, Any]) -> str | None:
    """Which of WAYS a record's point is."""
    backend = str(point["backend"])
    if backend == "streamed_cusolver":
        name = f"streamed{point['lanes']}"
        return name if name in WAYS else None
    if backend == "stock":
        return "stock" if point["preference"] == "default" else f"stock_{point['preference']}"
    return {
        "looped_cusolver": "looped",
        "batched_cublas": "batched",
        "batched_cusolver": "batched",
    }.get(backend)


Times = dict[tuple[str, str, int, int, int], dict[str, float]]


def _times(record: Path, data: Mapping[str, Any]) -> Times:
    times: Times = {}
    for point in data["points"]:
        if point.get("op") not in ROUTINES:
            continue
        try:
            way = _way(point)
            key = (point["op"], point["dtype"], point["batch"], point["n"], point["nrhs"])
            if way is not None:
                times.setdefault(key, {})[way] = point["ms"]
        except KeyError as error:
            raise UserError(f"{record}: a point lacks {error}: {point}") from error
    return times


def from_records(records: Sequence[Path]) -> LoopTable:
    """The table of timing records of one machine. A problem that several hold has the times of the
    last one alone; meta data are the last one's. Other routines are left out.
    """
    times, meta = merge(records, "the loops", _META, _times)
    rows = [
        {"routine": op, "dtype": dtype, "batch": batch, "n": n, "nrhs": nrhs, "ms": ms}
        for (op, dtype, batch, n, nrhs), ms in sorted(times.items())
    ]
    path = FOLDER / file_name(meta["gpu"])
    kept = {key: meta[key] for key in _META}
    return LoopTable(meta["gpu"], kept, _points(rows, records[-1]), path)


def render(table: LoopTable) -> str:
    """Text of the table's file."""
    head = {"format": FORMAT, "gpu": table.gpu, "meta": dict(table.meta)}
    rows = [
        {
            "routine": p.routine,
            "dtype": p.dtype,
            "batch": p.batch,
            "n": p.n,
            "nrhs": p.nrhs,
            "ms": dict(p.ms),
        }
        for p in table.points
    ]
    return table_text(head, rows)


def load(path: Path = DEFAULT) -> LoopTable:
    """The table of a file; the empty one if there is no such file. UserError if it is wrong."""
    try:
        data = read(path, FORMAT)
        if data is None:
            return LoopTable(path=path)
        return LoopTable(data["gpu"], data["meta"], _points(data["points"], path), path)
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is no table of the loops: {error}") from error
