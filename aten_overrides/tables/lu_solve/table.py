"""The table of one GPU: milliseconds by back end, from a timing record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._names import LU_SOLVE_BACKENDS
from aten_overrides.tables.measured import Kind, MeasuredTable, Times

FOLDER = Path(__file__).resolve().parent
OP = "lu_solve"


@dataclass(frozen=True)
class Point:
    """Milliseconds of one problem by back end. ``transposed``: A^T X = B, or A^H X = B."""

    dtype: str
    transposed: bool
    batch: int
    n: int
    nrhs: int
    ms: Mapping[str, float]


class SolveTable(MeasuredTable[Point]):
    """Times of one GPU. An empty one, of no GPU, leaves the choice to the rule in the source."""

    def of(self, dtype: str, transposed: bool) -> tuple[Point, ...]:
        """The points of one dtype, with transposition or without."""
        return tuple(p for p in self.points if (p.dtype, p.transposed) == (dtype, transposed))


def _point(row: Mapping[str, Any]) -> Point:
    nrhs = row["nrhs"]
    if type(nrhs) is not int or not 1 <= nrhs < 2**63 or not isinstance(row["transposed"], bool):
        raise UserError(f"{row['nrhs']!r} right-hand sides, transposed {row['transposed']!r}")
    sizes = (row["batch"], row["n"], row["nrhs"])
    return Point(row["dtype"], row["transposed"], *sizes, row["ms"])


def _times(record: Path, data: Mapping[str, Any]) -> Times:
    times: Times = {}
    for point in data["points"]:
        if point.get("op") != OP or point.get("backend") not in LU_SOLVE_BACKENDS:
            continue
        try:
            transposed = {"N": False, "T": True, "C": True}[point["operation"]]
            key = (point["dtype"], transposed, point["batch"], point["n"], point["nrhs"])
            times.setdefault(key, {})[point["backend"]] = point["ms"]
        except KeyError as error:
            raise UserError(f"{record}: a point lacks {error}: {point}") from error
    return times


KIND = Kind(
    name=OP,
    table=SolveTable,
    folder=FOLDER,
    meta=("record", "command", "commit", "date", "driver", "torch", "cuda", "cublas", "cusolver"),
    names=("dtype", "transposed", "batch", "n", "nrhs"),
    ways=LU_SOLVE_BACKENDS,
    point=_point,
    times=_times,
)
DEFAULT = KIND.default
from_records, render, load = KIND.from_records, KIND.render, KIND.load
