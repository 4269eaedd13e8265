"""A user's own tables of lu_solve and eigh: where they lie, when they are used, what is made of
them.

A choice is fitted to the points of the user's table and, outside what those cover, to those of the
package's: a short calibration then changes nothing that it did not measure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides import _device
from aten_overrides._device import Gpu
from aten_overrides._errors import UserError
from aten_overrides._names import DTYPES, EIGH_BACKENDS, EIGH_OPS, LU_SOLVE_BACKENDS
from aten_overrides.tables import table as lu_table
from aten_overrides.tables.build import file_name
from aten_overrides.tables.eigh import fit as eigh_fit
from aten_overrides.tables.eigh.table import KIND as EIGH
from aten_overrides.tables.lu_solve import fit as solve_fit
from aten_overrides.tables.lu_solve.table import KIND as LU_SOLVE
from aten_overrides.tables.measured import OF_THE_USER, Kind, MeasuredTable
from aten_overrides.tables.nearest import COMMAND, distance

KINDS: Mapping[str, Kind[Any]] = {"lu_solve": LU_SOLVE, "eigh": EIGH}
OPS = tuple(KINDS)


@dataclass(frozen=True)
class Used:
    """The table that an operation's choice goes by. own: a user's file, else the one compiled in;
    here: it was measured on such a GPU as is here, or there is none here; notes: what was left out.
    """

    op: str
    table: MeasuredTable[Any]
    own: bool
    here: bool
    notes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Where the choice comes from, in words."""
        date, gpu = self.table.meta.get("date", "an unknown day"), self.table.gpu
        if not self.own:
            where = f"compiled in, measured on {gpu} ({date})"
        elif self.here:
            return f"measured on this GPU on {date}"
        else:
            where = f"measured on {gpu} on {date}"
        return where if self.here else f"{where}; not measured here. Measure: {self.remedy}"

    @property
    def remedy(self) -> str:
        """The command that measures on the GPU here."""
        return f"{COMMAND} --op {self.op}"


def folder(op: str) -> Path:
    """Where `aten-overrides calibrate` keeps the tables of an operation: beside those of LU."""
    return lu_table.user_folder() / op


def target(op: str, gpu: str) -> Path:
    """The file of a GPU's table."""
    return folder(op) / file_name(gpu)


def load(op: str, path: Path) -> MeasuredTable[Any]:
    """A user's table, checked. UserError that says what was asked, what was found, what to do."""
    remedy = f"{COMMAND} --op {op} makes it again"
    try:
        table: MeasuredTable[Any] = KINDS[op].load(path)
        if not table.gpu:
            raise UserError(f"there is no table {path}")
        wanted = (*KINDS[op].meta, *OF_THE_USER)
        missing = [key for key in wanted if key not in table.meta]
        if missing:
            lacks = ", ".join(map(repr, missing))
            raise UserError(f"{path} does not say where it is from: 'meta' lacks {lacks}")
        if file_name(table.gpu) != path.name:
            raise UserError(
                f"{path} is of {table.gpu}, whose table is called {file_name(table.gpu)}"
            )
        if not table.points:
            raise UserError(f"{path} has no points")
    except (UserError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"the user's table of {op} is refused: {error}; {remedy}") from error
    return table


def _compiled_device(table: MeasuredTable[Any]) -> Gpu | None:
    """The GPU behind the table that is compiled in: LU's table knows more of it."""
    path = lu_table.FOLDER / file_name(table.gpu)
    return lu_table.load(path).gpu if path.is_file() else None


def compiled(op: str) -> Used:
    """The choice that was compiled in, whatever the GPU."""
    return Used(op, KINDS[op].load(), own=False, here=True)


def named(op: str, gpu: str | None) -> Used:
    """The table that a user names, as ``explain --gpu`` has it: a .json file, or a GPU's name;
    None: that for the GPU here. UserError if a file cannot be read.
    """
    if gpu is None:
        return for_gpu(op, _device.gpu())
    if gpu.endswith(".json"):
        path = Path(gpu)
        if not path.is_file():
            raise UserError(f"the table {gpu} cannot be read: there is no such file")
        table: MeasuredTable[Any] = KINDS[op].load(path)
        return Used(op, table, own=table.device is not None, here=True)
    wanted = gpu.strip().lower().replace(" ", "-").replace("_", "-")
    for path in sorted(folder(op).glob("*.json")):
        if wanted in (path.stem, path.stem.split("-", 1)[-1]):
            return Used(op, load(op, path), own=True, here=True)
    return compiled(op)


def for_gpu(op: str, gpu: Gpu | None) -> Used:
    """The table for a GPU (None: there is none here): the user's own of that name, else the one
    compiled in or a user's of another GPU, whichever is nearest. A file that is wrong is left out,
    with a note.
    """
    package: MeasuredTable[Any] = KINDS[op].load()
    if gpu is None:
        return compiled(op)
    tables: list[MeasuredTable[Any]] = []
    notes: list[str] = []
    for path in sorted(folder(op).glob("*.json")):
        try:
            tables.append(load(op, path))
        except UserError as error:
            notes.append(str(error))
    for table in tables:
        if table.gpu == gpu.name:
            return Used(op, table, own=True, here=True, notes=tuple(notes))
    if package.gpu == gpu.name:
        return Used(op, package, own=False, here=True, notes=tuple(notes))
    devices = [(_compiled_device(package), package), *((table.device, table) for table in tables)]
    known = [(device, table) for device, table in devices if device is not None]
    if not known:
        return Used(op, package, own=False, here=False, notes=tuple(notes))
    _, nearest = min(known, key=lambda pair: distance(gpu, pair[0]))
    return Used(op, nearest, own=nearest is not package, here=False, notes=tuple(notes))


def versions_note(used: Used, torch: str) -> str:
    """That the table was measured with another torch than this one, empty if it was not: other
    libraries may have other times.
    """
    there = str(used.table.meta.get("torch", ""))
    if not used.own or there == torch:
        return ""
    return (
        f"the table of {used.op} was measured with torch {there}, and this is {torch}; measure "
        f"again: {used.remedy} --restart"
    )


# ---- What is fitted to ----


def _line(op: str, point: Any) -> list[tuple[object, ...]]:
    """The rows that a point belongs to."""
    if op == "eigh":
        return [(point.op, point.dtype)]
    return [(point.dtype, point.transposed, column) for column in solve_fit.row_columns(point)]


class _Covered:
    """Where a table's points tell: between their batches, and there between their sizes."""

    def __init__(self, op: str, points: Iterable[Any]) -> None:
        self._op = op
        self._spans: dict[tuple[object, ...], dict[int, tuple[int, int]]] = {}
        for point in points:
            for line in _line(op, point):
                spans = self._spans.setdefault(line, {})
                low, high = spans.get(point.batch, (point.n, point.n))
                spans[point.batch] = (min(low, point.n), max(high, point.n))

    def _on(self, line: tuple[object, ...], point: Any) -> bool:
        spans = self._spans.get(line, {})
        below = max((batch for batch in spans if batch <= point.batch), default=None)
        above = min((batch for batch in spans if batch >= point.batch), default=None)
        if below is None or above is None:
            return False
        return all(spans[batch][0] <= point.n <= spans[batch][1] for batch in (below, above))

    def beyond(self, others: Sequence[Any]) -> Iterator[Any]:
        """For each line and batch the others' points at smaller and larger n, of the nearest batch
        that has the n, as if they were of this batch.
        """
        by_line: dict[tuple[object, ...], dict[int, list[Any]]] = {}
        for point in others:
            for line in _line(self._op, point):
                by_line.setdefault(line, {}).setdefault(point.n, []).append(point)
        for line, spans in self._spans.items():
            for batch, (low, high) in spans.items():
                for n, there in by_line.get(line, {}).items():
                    if not low <= n <= high:
                        nearest = min(there, key=lambda p: abs(math.log(p.batch / batch)))
                        yield dataclasses.replace(nearest, batch=batch)

    def __contains__(self, point: Any) -> bool:
        return any(self._on(line, point) or self._between(line, point)
                   for line in _line(self._op, point))  # fmt: skip

    def _between(self, line: tuple[object, ...], point: Any) -> bool:
        """Whether fewer and more right-hand sides were measured at such sizes."""
        if self._op == "eigh" or line[-1] == solve_fit.AS_MANY_AS_ROWS:
            return False
        own = [c for c in solve_fit.COLUMNS if self._on((*line[:-1], c), point)]
        return any(c <= point.nrhs for c in own) and any(c >= point.nrhs for c in own)


def _alike(one: MeasuredTable[Any], other: MeasuredTable[Any]) -> bool:
    same = all(one.meta.get(key) == other.meta.get(key) for key in ("torch", "cuda", "cusolver"))
    return one.gpu == other.gpu and same


def combined(op: str, table: MeasuredTable[Any]) -> MeasuredTable[Any]:
    """The table with the points of the package's own: all if they are of the same GPU and versions,
    else those alone that lie outside what the table covers, and for each of its batches those of
    the nearest batch there at smaller and larger n, as a row holds for all n. Times of different
    GPUs are never compared: a fit compares the back ends of one point.
    """
    kind = KINDS[op]
    package = kind.load()
    others = list(package.points)
    if not _alike(package, table):
        covered = _Covered(op, table.points)
        outside = [point for point in others if point not in covered]
        others = [*covered.beyond(others), *outside]
    made = {
        tuple(getattr(point, name) for name in kind.names): point
        for point in (*others, *table.points)
    }
    found: MeasuredTable[Any] = kind.table(table.gpu, table.meta, tuple(made.values()), table.path)
    return found


def _encoded(rows: Sequence[Any], from_n: int, names: Sequence[str]) -> list[int]:
    numbers = [from_n, len(rows)]
    for row in rows:
        numbers += [row.batch, getattr(row, "nrhs", 0), len(row.segments)]
        for segment in row.segments:
            numbers += [segment.from_n, *(names.index(name) for name in segment.ranking)]
    return numbers


def numbers(op: str, table: MeasuredTable[Any]) -> list[int]:
    """The rankings of a user's table and, where it does not tell, of the package's, as libraries
    take them: csrc/package/select/Rankings.h.
    """
    return numbers_of(op, combined(op, table))


def numbers_of(op: str, made: Any) -> list[int]:
    """The rankings fitted to a table as it is; back ends without a time come last."""
    if op == "eigh":
        fitted = eigh_fit.fit(made)
        found = [len(eigh_fit.RANKED)]
        for dtype in DTYPES:
            for name in reversed(EIGH_OPS):
                rows = fitted[name, dtype]
                found += _encoded(rows.rows, rows.lanes_from, EIGH_BACKENDS)
        return found
    solve = solve_fit.fit(made)
    found = [len(solve_fit.RANKED)]
    for dtype in DTYPES:
        from_n = solve_fit.lanes_from([*made.of(dtype, False), *made.of(dtype, True)])
        for transposed in (False, True):
            found += _encoded(solve[dtype, transposed].rows, from_n, LU_SOLVE_BACKENDS)
    return found
