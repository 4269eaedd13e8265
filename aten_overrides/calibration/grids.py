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

FILE = Path(__file__).resolve().parent / "grids.json"
OP = "lu_factor"
ITEM_BYTES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
# Real operations per operation, and what one of them costs against float32, roughly.
_WEIGHT = {"float32": 1, "float64": 1, "complex64": 4, "complex128": 4}


@dataclass(frozen=True)
class Task:
    """A problem of lu_factor in one dtype."""

    dtype: str
    problem: Problem

    @property
    def bytes(self) -> int:
        """Bytes of the matrices."""
        p = self.problem
        return p.batch * p.m * p.n * ITEM_BYTES[self.dtype]

    @property
    def work(self) -> int:
        """Operations, up to a factor."""
        p = self.problem
        return p.batch * p.m * p.n * min(p.m, p.n) * _WEIGHT[self.dtype]

    def to_json(self) -> dict[str, Any]:
        """The names of a table's point."""
        p = self.problem
        names = {"op": OP, "dtype": self.dtype, "batch": p.batch, "m": p.m, "n": p.n}
        return {**names, "pivot": p.pivot}


@dataclass(frozen=True)
class Grid:
    """Tasks in the order in which they are measured, none of more than ``limit`` bytes."""

    name: str
    tasks: tuple[Task, ...]
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


def _tasks(block: Any, path: Path) -> Iterator[Task]:
    if not isinstance(block, dict) or block.get("op") != OP:
        raise _fail(path, f"a block must be an object with 'op': {OP!r}, found {block!r}")
    dtypes, pivot = block.get("dtypes"), block.get("pivot")
    if not isinstance(dtypes, list) or not set(dtypes) <= set(DTYPES) or not dtypes:
        raise _fail(path, f"'dtypes' must be some of {', '.join(DTYPES)}, found {dtypes!r}")
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


def load(name: str) -> Grid:
    """The grid of this name, or of a file: ``FILE.json:NAME`` or ``FILE.json`` for its "full".

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
    tasks: dict[Task, None] = {}
    for block in _blocks(data, wanted, path, ()):
        found = [task for task in _tasks(block, path) if task.bytes <= limit]
        tasks.update(dict.fromkeys(sorted(found, key=lambda task: task.work)))
    if not tasks:
        raise _fail(path, f"grid {wanted!r} has no problem of at most {limit} bytes")
    return Grid(name, tuple(tasks), limit)
