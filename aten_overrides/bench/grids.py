"""Grids of problems as data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._names import dtype_name
from aten_overrides.measure.operations import operation

GRIDS = Path(__file__).with_name("grids.json")
_KEYS = {"op", "dtypes", "n", "batch", "nrhs"}


@dataclass(frozen=True)
class Case:
    """``batch`` problems of n x n; nrhs: right-hand sides, 0 where the operation has none."""

    op: str
    dtype: str
    batch: int
    n: int
    nrhs: int


def names() -> list[str]:
    """The grids that there are."""
    return list(json.loads(GRIDS.read_text(encoding="utf-8")))


def load(name: str) -> list[Case]:
    """The cases of a grid, a name of grids.json or a .json file with such a list. UserError for
    what is not one.
    """
    if name.endswith(".json"):
        try:
            rows = json.loads(Path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"--grid {name} cannot be read: {error}") from error
        return cases(rows, name)
    known = json.loads(GRIDS.read_text(encoding="utf-8"))
    if name not in known:
        raise UserError(f"there is no grid {name!r}; known are {', '.join(known)}, or a .json file")
    return cases(known[name], name)


def _numbers(row: Mapping[str, Any], key: str, name: str) -> list[int]:
    values: list[int] = row.get(key, [1])
    good = isinstance(values, list) and all(isinstance(one, int) and one > 0 for one in values)
    if not good or not values:
        raise UserError(f"the grid {name}: {key} must be a list of sizes from 1 on, found {values}")
    return values


def cases(rows: Sequence[Mapping[str, Any]], name: str) -> list[Case]:
    """Every combination of every row, each once."""
    found: dict[Case, None] = {}
    for row in rows if isinstance(rows, list) else [{}]:
        missing = {"op", "dtypes", "n", "batch"} - set(row)
        if missing or set(row) - _KEYS:
            raise UserError(
                f"the grid {name}: a row has op, dtypes, n, batch and perhaps nrhs, found {row}"
            )
        op = operation(row["op"])
        for dtype in map(dtype_name, row["dtypes"]):
            for n in _numbers(row, "n", name):
                for batch in _numbers(row, "batch", name):
                    for nrhs in _numbers(row, "nrhs", name) if op.rhs else [0]:
                        found[Case(op.name, dtype, batch, n, nrhs)] = None
    return list(found)
