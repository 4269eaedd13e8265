"""What the tables of eigh, lu_solve and the loops have in common: points, files, records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from aten_overrides._device import Gpu
from aten_overrides._errors import UserError
from aten_overrides._files import table_text
from aten_overrides._names import DTYPES, one_of
from aten_overrides.tables.build import file_name, read_record
from aten_overrides.tables.records import merge, read

FORMAT = 1
# Of a user's own table, besides what every table has to say.
OF_THE_USER = ("made_by", "compute_capability", "sm_count")


class AnyPoint(Protocol):
    """Milliseconds of one problem by back end."""

    @property
    def dtype(self) -> str: ...
    @property
    def batch(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def ms(self) -> Mapping[str, float]: ...


P = TypeVar("P", bound=AnyPoint)


@dataclass(frozen=True)
class MeasuredTable(Generic[P]):
    """Times of one GPU. An empty one, of no GPU, chooses nothing."""

    gpu: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    points: tuple[P, ...] = ()
    path: Path = Path()

    @property
    def device(self) -> Gpu | None:
        """The GPU as far as the table tells: those of users do."""
        if not self.meta.keys() >= {"compute_capability", "sm_count"}:
            return None
        return Gpu(self.gpu, str(self.meta["compute_capability"]), int(self.meta["sm_count"]))


T = TypeVar("T", bound=MeasuredTable[Any])
Times = dict[tuple[Any, ...], dict[str, float]]


@dataclass(frozen=True)
class Kind(Generic[T]):
    """The tables of one operation.

    name: in errors; folder: of the package's own; names: of a point besides its times; ways: what a
    time may be of; point: makes one of a row, and raises UserError, KeyError or TypeError where
    sizes are wrong; times: the times of a record by the values of ``names``.
    """

    name: str
    table: Callable[[str, Mapping[str, Any], tuple[Any, ...], Path], T]
    folder: Path
    meta: tuple[str, ...]
    names: tuple[str, ...]
    ways: tuple[str, ...]
    point: Callable[[Mapping[str, Any]], Any]
    times: Callable[[Path, Mapping[str, Any]], Times]
    alphabetical: bool = True  # the times of a point; else as in the record

    @property
    def default(self) -> Path:
        """The file of the package's own table."""
        return self.folder / "nvidia-h200.json"

    def points_of(self, rows: Iterable[Mapping[str, Any]], source: Path) -> tuple[Any, ...]:
        """The points of a file's rows. UserError that names the row and what is wrong with it."""
        points, seen = [], set()
        for row in rows:
            try:
                one_of("dtype", row["dtype"], DTYPES)
                if not row["ms"]:
                    raise UserError("it has no time")
                for way, ms in row["ms"].items():
                    one_of("back end", way, self.ways)
                    if isinstance(ms, bool) or not (math.isfinite(ms) and ms > 0):
                        raise UserError(f"{way} takes {ms} ms")
                for name in ("batch", "n"):
                    if type(row[name]) is not int or not 1 <= row[name] < 2**63:
                        raise UserError(f"{name} {row[name]!r}")
                key = tuple(row[name] for name in self.names)
                if key in seen:
                    raise UserError("the same problem is there twice")
                seen.add(key)
                points.append(self.point(row))
            except (UserError, KeyError, TypeError, AttributeError) as error:
                raise UserError(f"{source}: the point {row} is wrong: {error}") from error
        return tuple(points)

    def _made(self, times: Times, meta: Mapping[str, Any], source: Path) -> T:
        rows = [
            {
                **dict(zip(self.names, key, strict=True)),
                "ms": dict(sorted(ms.items()) if self.alphabetical else ms),
            }
            for key, ms in sorted(times.items())
        ]
        kept = {key: meta[key] for key in (*self.meta, *OF_THE_USER) if key in meta}
        if "made_by" not in kept:
            kept = {key: meta[key] for key in self.meta}
        path = self.folder / file_name(meta["gpu"])
        return self.table(meta["gpu"], kept, self.points_of(rows, source), path)

    def from_records(self, records: Sequence[Path]) -> T:
        """The table of timing records of one machine. A problem that several hold has the times of
        the last one alone; meta data are the last one's. Other operations are left out.
        """
        named = [(record, read_record(record)) for record in records]
        times, meta = merge(named, self.name, self.meta, self.times)
        return self._made(times, meta, records[-1])

    def of_record(self, data: Mapping[str, Any], source: Path) -> T:
        """The table of one record that is at hand; ``source`` names it."""
        times, meta = merge([(source, data)], self.name, self.meta, self.times)
        return self._made(times, meta, source)

    def render(self, table: T) -> str:
        """Text of the table's file."""
        head = {"format": FORMAT, "gpu": table.gpu, "meta": dict(table.meta)}
        rows = [
            {**{name: getattr(point, name) for name in self.names}, "ms": dict(point.ms)}
            for point in table.points
        ]
        return table_text(head, rows)

    def load(self, path: Path | None = None) -> T:
        """The table of a file, the package's own unless given; the empty one if there is no such
        file. UserError that names the file and what is wrong with it.
        """
        path = path or self.default
        data = read(path, FORMAT)
        if data is None:
            return self.table("", {}, (), path)
        gpu, meta, rows = data.get("gpu"), data.get("meta"), data.get("points")
        if not (isinstance(gpu, str) and isinstance(meta, dict) and isinstance(rows, list)):
            raise UserError(
                f"{path} is no table of {self.name}: it needs 'gpu' (a name), 'meta' (an object) "
                f"and 'points' (a list), and has {', '.join(map(repr, data)) or 'nothing'}"
            )
        return self.table(gpu, meta, self.points_of(rows, path), path)
