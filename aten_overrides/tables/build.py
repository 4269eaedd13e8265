"""Make the cost table of a GPU from a timing record: ``python -m aten_overrides.tables.build``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._files import table_text
from aten_overrides._names import BACKENDS, op_name
from aten_overrides._select import Problem
from aten_overrides.tables import command
from aten_overrides.tables.table import FOLDER, FORMAT, Point, axes_of

LANES = 4  # the default of the auxiliary streams
_META = ("command", "commit", "date", "driver", "torch", "cuda", "cublas", "cusolver", "magma")


def read_record(path: Path) -> dict[str, Any]:
    """A timing record: an object with ``meta`` and ``points``; raises UserError otherwise."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"the record {path} cannot be read: {error}") from error
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("meta"), dict)
        or not isinstance(data.get("points"), list)
    ):
        raise UserError(
            f"{path} is not a timing record: it needs an object 'meta' and a list 'points'"
        )
    return data


def belongs(point: dict[str, Any]) -> bool:
    """Whether a recorded time goes into the table.

    Left out: streams in another number than the table's, and stock where it is no back end of its
    own but cuSOLVER or cuBLAS plus overhead.
    """
    if point["backend"] == "streamed_cusolver":
        return bool(point["lanes"] == LANES)
    if point["backend"] == "stock":
        return bool(point["route"] == "magma")
    return point["backend"] in BACKENDS


def points_of(record: dict[str, Any], source: Path) -> tuple[Point, ...]:
    """The record's times by problem, in the order in which the problems first appear."""
    times: dict[tuple[str, str, Problem], dict[str, float]] = {}
    for i, point in enumerate(record["points"]):
        try:
            problem = Problem(point["batch"], point["m"], point["n"], point.get("pivot", True))
            key = (op_name(point["op"]), point["dtype"], problem)
            if not belongs(point):
                continue
            by_backend = times.setdefault(key, {})
            if point["backend"] in by_backend:
                raise UserError(f"{source}: point {i} repeats an earlier one: {point}")
            by_backend[point["backend"]] = point["ms"]
        except KeyError as error:
            raise UserError(f"{source}: point {i} lacks the key {error}: {point}") from error
    return tuple(
        Point(op, dtype, problem, {name: ms[name] for name in BACKENDS if name in ms})
        for (op, dtype, problem), ms in times.items()
    )


def render(record: dict[str, Any], source: Path) -> str:
    """Text of the table of a record."""
    meta = record["meta"]
    points = points_of(record, source)
    try:
        head = {
            "format": FORMAT,
            "gpu": {
                "name": meta["gpu"],
                "compute_capability": meta["compute_capability"],
                "sm_count": meta["sm_count"],
            },
            "meta": {
                "record": source.name,
                **({"made_by": meta["made_by"]} if "made_by" in meta else {}),
                **{key: meta[key] for key in _META},
            },
            "lanes": LANES,
            "axes": axes_of(points),
        }
    except KeyError as error:
        raise UserError(f"{source}: 'meta' lacks the key {error}") from error
    rows = [
        {
            "op": point.op,
            "dtype": point.dtype,
            "batch": point.problem.batch,
            "m": point.problem.m,
            "n": point.problem.n,
            "pivot": point.problem.pivot,
            "ms": point.ms,
        }
        for point in points
    ]
    return table_text(head, rows)


def file_name(gpu: str) -> str:
    """``NVIDIA H200`` -> ``nvidia-h200.json``."""
    return "-".join(gpu.lower().split()) + ".json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 done or same, 1 the file differs, 2 an error."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--record", type=Path, required=True, help="timing record to read")
        parser.add_argument(
            "--output", type=Path, help="table to write; default: beside this program"
        )

    def texts(options: argparse.Namespace) -> dict[Path, str]:
        record = read_record(options.record)
        output = options.output or FOLDER / file_name(record["meta"]["gpu"])
        return {output: render(record, options.record)}

    return command.run("aten_overrides.tables.build", __doc__, arguments, add, texts)


if __name__ == "__main__":
    sys.exit(main())
