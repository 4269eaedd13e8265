"""The table of one GPU: milliseconds by back end, from a timing record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._files import table_text
from aten_overrides._names import DTYPES, LU_SOLVE_BACKENDS, one_of
from aten_overrides.tables.build import file_name
from aten_overrides.tables.records import merge, read

FOLDER = Path(__file__).resolve().parent
FORMAT = 1
DEFAULT = FOLDER / "nvidia-h200.json"
OP = "lu_solve"
_META = ("record", "command", "commit", "date", "driver", "torch", "cuda", "cublas", "cusolver")


@dataclass(frozen=True)
class Point:
    """Milliseconds of one problem by back end. ``transposed``: A^T X = B, or A^H X = B."""

    dtype: str
    transposed: bool
    batch: int
    n: int
    nrhs: int
    ms: Mapping[str, float]


@dataclass(frozen=True)
class SolveTable:
    """Times of one GPU. An empty one, of no GPU, leaves the choice to the rule in the source."""

    gpu: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    points: tuple[Point, ...] = ()
    path: Path = DEFAULT

    def of(self, dtype: str, transposed: bool) -> tuple[Point, ...]:
        """The points of one dtype, with transposition or without."""
        return tuple(p for p in self.points if (p.dtype, p.transposed) == (dtype, transposed))


def _points(rows: Iterable[Mapping[str, Any]], source: Path) -> tuple[Point, ...]:
    points = []
    for row in rows:
        try:
            one_of("dtype", row["dtype"], DTYPES)
            for backend, ms in row["ms"].items():
                one_of("back end", backend, LU_SOLVE_BACKENDS)
                if not (math.isfinite(ms) and ms > 0):
                    raise UserError(f"{backend} takes {ms} ms")
            sizes = (row["batch"], row["n"], row["nrhs"])
            if min(sizes) < 1 or not isinstance(row["transposed"], bool):
                raise UserError(f"sizes {sizes}, transposed {row['transposed']!r}")
            points.append(Point(row["dtype"], row["transposed"], *sizes, row["ms"]))
        except (UserError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{source}: the point {row} is wrong: {error}") from error
    return tuple(points)


Times = dict[tuple[str, bool, int, int, int], dict[str, float]]


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


def from_records(records: Sequence[Path]) -> SolveTable:
    """The table of timing records of one machine. A problem that several hold has the times of the
    last one alone; meta data are the last one's. Other operations are left out.
    """
    times, meta = merge(records, OP, _META, _times)
    names = ("dtype", "transposed", "batch", "n", "nrhs")
    rows = [
        {**dict(zip(names, key, strict=True)), "ms": dict(sorted(ms.items()))}
        for key, ms in sorted(times.items())
    ]
    path = FOLDER / file_name(meta["gpu"])
    kept = {key: meta[key] for key in _META}
    return SolveTable(meta["gpu"], kept, _points(rows, records[-1]), path)


def render(table: SolveTable) -> str:
    """Text of the table's file."""
    head = {"format": FORMAT, "gpu": table.gpu, "meta": dict(table.meta)}
    rows = [
        {
            "dtype": p.dtype,
            "transposed": p.transposed,
            "batch": p.batch,
            "n": p.n,
            "nrhs": p.nrhs,
            "ms": dict(p.ms),
        }
        for p in table.points
    ]
    return table_text(head, rows)


def load(path: Path = DEFAULT) -> SolveTable:
    """The table of a file; the empty one if there is no such file. UserError if it is wrong."""
    try:
        data = read(path, FORMAT)
        if data is None:
            return SolveTable(path=path)
        return SolveTable(data["gpu"], data["meta"], _points(data["points"], path), path)
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is no table of lu_solve: {error}") from error
