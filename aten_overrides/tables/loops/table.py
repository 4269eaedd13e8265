"""The table of one GPU: milliseconds of each way to run a routine, from a timing record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._names import one_of
from aten_overrides.tables.measured import Kind, MeasuredTable, Times

FOLDER = Path(__file__).resolve().parent
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


class LoopTable(MeasuredTable[Point]):
    """Times of one GPU. An empty one, of no GPU, leaves everything to torch's own functions."""

    def of(self, routine: str, columns: str, dtype: str) -> tuple[Point, ...]:
        """The points of one routine, number of right-hand sides and dtype."""
        wanted = (routine, columns, dtype)
        return tuple(p for p in self.points if (p.routine, p.columns, p.dtype) == wanted)


def _point(row: Mapping[str, Any]) -> Point:
    one_of("routine", row["routine"], ROUTINES)
    if type(row["nrhs"]) is not int or row["nrhs"] < 0:
        raise UserError(f"{row['nrhs']!r} right-hand sides")
    sizes = (row["batch"], row["n"], row["nrhs"])
    return Point(row["routine"], row["dtype"], *sizes, row["ms"])


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


KIND = Kind(
    name="the loops",
    table=LoopTable,
    folder=FOLDER,
    meta=("record", "command", "commit", "date", "driver", "torch", "cuda", "cusolver"),
    names=("routine", "dtype", "batch", "n", "nrhs"),
    ways=WAYS,
    point=_point,
    times=_times,
    alphabetical=False,
)
DEFAULT = KIND.default
from_records, render, load = KIND.from_records, KIND.render, KIND.load
