"""What the tables that are merged from timing records have in common: merging, and their files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from aten_overrides._errors import UserError

Key = TypeVar("Key")
_SAME = ("gpu", "driver", "torch", "cusolver")


def merge(
    records: Sequence[tuple[Path, Mapping[str, Any]]],
    op: str,
    wanted: Sequence[str],
    times_of: Callable[[Path, Mapping[str, Any]], dict[Key, dict[str, float]]],
) -> tuple[dict[Key, dict[str, float]], dict[str, Any]]:
    """The times of records of one machine, each with its file, and the last one's meta data with
    the names of all. A problem that several hold has the times of the last one alone.

    op: names the table in errors; wanted: the meta data that each has to have, but "record".
    """
    times: dict[Key, dict[str, float]] = {}
    meta: dict[str, Any] = {}
    for record, data in records:
        found = times_of(record, data)
        before, meta = meta, dict(data["meta"])
        missing = [key for key in ("gpu", *wanted) if key not in meta and key != "record"]
        if missing or not found:
            lacks = f"'meta' lacks {', '.join(missing)}"
            what = lacks if missing else f"it has no times of {op}"
            raise UserError(f"{record} makes no table of {op}: {what}; make one on a GPU")
        for key in _SAME if before else ():
            if before[key] != meta[key]:
                raise UserError(
                    f"{record} is of {key} {meta[key]}, the one before of {before[key]}; records "
                    "of one table are of one machine"
                )
        times |= found
    meta["record"] = ", ".join(record.name for record, _ in records)
    return times, meta


def read(path: Path, expected: int) -> Any:
    """The data of a table's file in this format, an object; None if there is no such file.
    UserError if it cannot be read or has another format.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"the table {path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f"the table {path} must be an object, found {type(data).__name__}")
    if data.get("format") != expected:
        raise UserError(f"{path} has format {data.get('format')}, this program reads {expected}")
    return data
