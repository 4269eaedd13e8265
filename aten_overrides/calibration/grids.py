"""Which problems to measure, as data: grids.json, or a file of the user's in the same format."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._names import DTYPES
from aten_overrides._select import Problem
from aten_overrides.calibration.tasks import AnyTask, EighTask, SolveTask, Task

FILE = Path(__file__).resolve().parent / "grids.json"
OP = "lu_factor"
# The operations of a block, by that of the table that they are for.
BLOCKS = {OP: (OP,), "lu_solve": ("lu_solve",), "eigh": ("eigh", "eigvalsh")}
OPS = tuple(BLOCKS)


@dataclass(frozen=True)
class Grid:
    """Tasks in the order in which they are measured, none of more than ``limit`` bytes."""

    name: str
    tasks: tuple[AnyTask, ...]
    limit: int

    @property
    def digest(self) -> str:
        """Changes with the tasks."""
        text = json.dumps([task.to_json() for task in self.tasks])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fail(path: Path, what: str) -> UserError:
    return UserError(f"the grids {path} are not valid: {what}; see {FILE} for the format")


def _numbers(block: dict[str, Any], key: str, path: Path) -> list[int]:
    values = block.get(key)
    good = isinstance(values, list) and values and all(type(v) is int and v > 0 for v in values)
    if not good:
        raise _fail(path, f"{key!r} must be a list of integers above 0, found {values!r}")
    assert isinstance(values, list)
    return values


def _flags(block: dict[str, Any], key: str, path: Path) -> list[bool]:
    values = block.get(key)
    if not isinstance(values, list) or not values or any(type(v) is not bool for v in values):
        raise _fail(path, f"{key!r} must be a list of true and false, found {values!r}")
    return values


def _op(block: Any, path: Path) -> str:
    known = [name for names in BLOCKS.values() for name in names]
    op = block.get("op") if isinstance(block, dict) else None
    if op not in known:
        raise _fail(path, f"a block must be an object with 'op': one of {known}, found {block!r}")
    return str(op)


def _tasks(block: Any, path: Path) -> Iterator[AnyTask]:
    op = _op(block, path)
    dtypes = block.get("dtypes")
    if not isinstance(dtypes, list) or not set(dtypes) <= set(DTYPES) or not dtypes:
        raise _fail(path, f"'dtypes' must be some of {', '.join(DTYPES)}, found {dtypes!r}")
    if op == OP:
        yield from _lu_tasks(block, path, dtypes)
        return
    sizes, batches = _numbers(block, "n", path), _numbers(block, "batch", path)
    if op != "lu_solve":
        for n, batch, dtype in itertools.product(sizes, batches, dtypes):
            yield EighTask(op, dtype, batch, n)
        return
    columns = _numbers(block, "nrhs", path) if "nrhs" in block else []
    as_many = block.get("as_many_as_rows", False)
    if type(as_many) is not bool or not (columns or as_many):
        raise _fail(path, "'nrhs' must be given, or 'as_many_as_rows': true")
    for n, batch, dtype in itertools.product(sizes, batches, dtypes):
        for transposed in _flags(block, "transposed", path):
            for nrhs in dict.fromkeys([*columns, *([n] if as_many else [])]):
                yield SolveTask(dtype, transposed, batch, n, nrhs)


def _lu_tasks(block: dict[str, Any], path: Path, dtypes: list[str]) -> Iterator[Task]:
    pivot = block.get("pivot")
    if not isinstance(pivot, bool):
        raise _fail(path, f"'pivot' must be true or false, found {pivot!r}")
    if "shapes" in block:
        pairs = block["shapes"]
        if not isinstance(pairs, list) or any(
            not isinstance(p, list) or len(p) != 2 for p in pairs
        ):
            raise _fail(path, f"'shapes' must be a list of [m, n], found {pairs!r}")
        shapes = [_numbers({"shapes": pair}, "shapes", path) for pair in pairs]
    else:
        shapes = [[n, n] for n in _numbers(block, "n", path)]
    batches = _numbers(block, "batch", path)
    for (m, n), batch, dtype in itertools.product(shapes, batches, dtypes):
        yield Task(dtype, Problem(batch, m, n, pivot))


def _blocks(data: dict[str, Any], name: str, path: Path, seen: tuple[str, ...]) -> Iterator[Any]:
    grid = data.get(name)
    if name == "limits" or not isinstance(grid, dict):
        known = ", ".join(sorted(set(data) - {"limits"}))
        raise UserError(f"there is no grid {name!r} in {path}; known are {known}")
    if name in seen:
        raise _fail(path, f"grid {name!r} includes itself")
    for other in grid.get("include", []):
        yield from _blocks(data, other, path, (*seen, name))
    yield from grid.get("blocks", [])


def load(name: str, op: str = OP) -> Grid:
    """The grid of this name, or of a file: ``FILE.json:NAME`` or ``FILE.json`` for its "full";
    the blocks for the table of ``op`` alone.

    Within a block the cheap tasks come first, whatever their dtype. UserError for an unknown name
    and for a file that is not valid.
    """
    path, wanted = FILE, name
    if ".json" in name:
        file, _, rest = name.partition(".json")
        path, wanted = Path(file + ".json"), rest.lstrip(":") or "full"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"the grids {path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise _fail(path, f"must be an object, found {type(data).__name__}")
    limits = data.get("limits")
    limit = limits.get("bytes") if isinstance(limits, dict) else None
    if type(limit) is not int or limit < 1:
        raise _fail(path, f"'limits' must name 'bytes' above 0, found {limits!r}")
    tasks: dict[AnyTask, None] = {}
    for block in _blocks(data, wanted, path, ()):
        if _op(block, path) not in BLOCKS[op]:
            continue
        found = [task for task in _tasks(block, path) if task.bytes <= limit]
        tasks.update(dict.fromkeys(sorted(found, key=lambda task: task.work)))
    if not tasks:
        raise _fail(path, f"grid {wanted!r} has no problem of at most {limit} bytes for {op}")
    return Grid(name, tuple(tasks), limit)
