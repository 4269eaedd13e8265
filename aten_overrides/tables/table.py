"""Read and check a cost table; the format is described in README.md."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides._cache import data_dir
from aten_overrides._device import Gpu
from aten_overrides._errors import UserError
from aten_overrides._names import BACKENDS, DTYPES, OPS
from aten_overrides._select import Library, Problem, fill
from aten_overrides._select import Table as Costs

FOLDER = Path(__file__).resolve().parent
FORMAT = 1
_META_REQUIRED = ("record", "date", "torch")


@dataclass(frozen=True)
class Point:
    """Milliseconds of one problem by back end."""

    op: str
    dtype: str
    problem: Problem
    ms: Mapping[str, float]


@dataclass(frozen=True)
class CostTable:
    """A checked table. ``lanes``: streams behind the streamed times."""

    path: Path
    gpu: Gpu
    meta: Mapping[str, Any]
    lanes: int
    points: tuple[Point, ...]

    def of(self, op: str, dtype: str) -> tuple[Point, ...]:
        """The points of one operation and dtype, in the file's order."""
        return tuple(p for p in self.points if p.op == op and p.dtype == dtype)

    def ops(self) -> tuple[str, ...]:
        """Operations that the table has, in standard order."""
        present = {point.op for point in self.points}
        return tuple(op for op in OPS if op in present)

    def costs(self, library: Library) -> Costs:
        """The same times in the select library, ready to predict."""
        return fill(library, self.lanes, self._times())

    def _times(self) -> Iterator[tuple[str, str, str, Problem, float]]:
        for point in self.points:
            for backend, ms in point.ms.items():
                yield point.op, point.dtype, backend, point.problem, ms


def axes_of(points: tuple[Point, ...]) -> dict[str, dict[str, list[Any]]]:
    """The ``axes`` entry that belongs to the points."""
    axes: dict[str, dict[str, list[Any]]] = {}
    for op in OPS:
        problems = [point.problem for point in points if point.op == op]
        if problems:
            axes[op] = {
                "batch": sorted({p.batch for p in problems}),
                "n": sorted({p.n for p in problems if p.m == p.n}),
                "rectangular": [
                    list(s) for s in sorted({(p.m, p.n) for p in problems if p.m != p.n})
                ],
            }
    return axes


def user_folder() -> Path:
    """Where `aten-overrides calibrate` keeps the tables of this user's GPUs."""
    return data_dir() / "tables"


def files() -> dict[str, Path]:
    """All tables by name; the user's own in place of the package's."""
    folders = (FOLDER, user_folder())
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.json"))}


def find(gpu: str) -> Path:
    """File of the table of a GPU named ``h200`` or ``nvidia-h200``, or a path to a .json file."""
    if gpu.endswith(".json"):
        return Path(gpu)
    known = files()
    wanted = gpu.strip().lower().replace(" ", "-").replace("_", "-")
    matches = [name for name in known if name == wanted or name.split("-", 1)[-1] == wanted]
    if len(matches) != 1:
        raise UserError(
            f"there is no cost table for the GPU {gpu!r}; there are tables for {', '.join(known)}. "
            "Name one of them, or a .json file in the format of aten_overrides/tables/README.md"
        )
    return known[matches[0]]


def load(path: Path) -> CostTable:
    """Read a table. Raises UserError that names the file, the place and what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the cost table {path} cannot be read: {error}") from error
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UserError(f"the cost table {path} is not JSON: {error}") from error
    return _Reader(path).table(data)


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, where: str, found: str) -> UserError:
        return UserError(
            f"the cost table {self.path} is not valid: {where}: {found} "
            "(format: aten_overrides/tables/README.md)"
        )

    def entry(self, data: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
        value = data.get(key)
        # bool is an int to Python, but not in a table.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            found = "missing" if key not in data else f"{value!r}"
            raise self.fail(where, f"{key!r} must be of type {kind.__name__}, found {found}")
        return value

    def table(self, data: Any) -> CostTable:
        if not isinstance(data, dict):
            raise self.fail("top level", f"must be an object, found {type(data).__name__}")
        if data.get("format") != FORMAT:
            raise self.fail("'format'", f"must be {FORMAT}, found {data.get('format')!r}")
        gpu = self.entry(data, "gpu", dict, "top level")
        meta = self.entry(data, "meta", dict, "top level")
        for key in _META_REQUIRED:
            self.entry(meta, key, str, "'meta'")
        lanes = self.entry(data, "lanes", int, "top level")
        if not 2 <= lanes <= 1024:
            raise self.fail("'lanes'", f"must be between 2 and 1024, found {lanes}")
        points = tuple(
            self.point(entry, f"point {i}")
            for i, entry in enumerate(self.entry(data, "points", list, "top level"))
        )
        if not points:
            raise self.fail("'points'", "there is none")
        self.no_duplicates(points)
        axes = self.entry(data, "axes", dict, "top level")
        if axes != (expected := axes_of(points)):
            differing = sorted(op for op in {*axes, *expected} if axes.get(op) != expected.get(op))
            raise self.fail("'axes'", f"does not fit the points of {', '.join(differing)}")
        return CostTable(
            self.path,
            Gpu(
                self.entry(gpu, "name", str, "'gpu'"),
                self.entry(gpu, "compute_capability", str, "'gpu'"),
                self.entry(gpu, "sm_count", int, "'gpu'"),
            ),
            meta,
            lanes,
            points,
        )

    def point(self, entry: Any, where: str) -> Point:
        if not isinstance(entry, dict):
            raise self.fail(where, f"must be an object, found {entry!r}")
        names: dict[str, str] = {}
        for key, known in (("op", OPS), ("dtype", DTYPES)):
            names[key] = self.entry(entry, key, str, where)
            if names[key] not in known:
                raise self.fail(where, f"unknown {key} {names[key]!r}, known: {', '.join(known)}")
        sizes = {key: self.entry(entry, key, int, where) for key in ("batch", "m", "n")}
        for key, size in sizes.items():
            if not 1 <= size < 2**63:
                raise self.fail(where, f"{key!r} must be at least 1, found {size}")
        ms = self.entry(entry, "ms", dict, where)
        for backend, value in ms.items():
            if backend not in BACKENDS:
                known_names = ", ".join(BACKENDS)
                raise self.fail(where, f"unknown back end {backend!r}, known: {known_names}")
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self.fail(where, f"{backend}: a time must be a number, found {value!r}")
            if not (math.isfinite(value) and value > 0):
                raise self.fail(where, f"{backend}: a time must be positive, found {value!r}")
        if not ms:
            raise self.fail(where, "'ms' has no back end")
        pivot = self.entry(entry, "pivot", bool, where)
        return Point(names["op"], names["dtype"], Problem(**sizes, pivot=pivot), ms)

    def no_duplicates(self, points: tuple[Point, ...]) -> None:
        seen: dict[tuple[str, str, Problem], int] = {}
        for i, point in enumerate(points):
            first = seen.setdefault((point.op, point.dtype, point.problem), i)
            if first != i:
                raise self.fail(f"point {i}", f"the same problem as point {first}")
