"""What streams gain for the loops of cuSOLVER calls, where LoopThresholds.h has them on and where
off, for a pull request's text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotools import env
from aotools.env import UserError
from aotools.patchset.pr_severity import DTYPES, mean
from aotools.patchset.pr_views import none, versions
from aotools.readme import table

LOOPS = env.ROOT / "aten_overrides/csrc/linalg/LoopThresholds.h"
RIVALS = {"potrf": "batched_cusolver"}  # what a batch goes to otherwise; else the loop


def loops(*routines: str) -> Any:
    """A view of what four streams gain for the routines, over what a batch goes to otherwise."""

    def view(folder: Path) -> str:
        parts = []
        for meta, points in _lane_records(folder):
            rows: list[Sequence[str]] = []
            for routine in routines:
                times: dict[tuple[str, int, int, int], dict[tuple[str, int], float]] = {}
                for row in points:
                    if row["op"] == routine:
                        at = (row["dtype"], row["batch"], row["n"], row["nrhs"])
                        found = times.setdefault(at, {})
                        found[row["backend"], row.get("lanes", 0)] = row["ms"]
                rows += _loop_rows(routine, times)
            head = ("routine", "dtype", "batch", "on: points", "mean", "least", "at")
            rival = "; potrf: over potrfBatched" if "potrf" in routines else ""
            parts.append(
                f"{table((*head, 'off: points', 'most', 'at'), rows)}\n\nGain: time of the loop on "
                f"one stream by that on four{rival}. On, off: by LoopThresholds.h; the least where "
                "it is on, the most where it is off. The call itself, from a copy of its input. "
                f"{versions(meta)}."
            )
        return "\n\n".join(parts) or none("lanes")

    return view


def _lane_records(folder: Path) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """All records of the topic, of which several make a grid, by GPU."""
    found: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["meta"]["topic"] == "lanes":
            found.setdefault(data["meta"]["gpu"], (data["meta"], []))[1].extend(data["points"])
    yield from found.values()


def _loop_rows(
    routine: str, times: Mapping[tuple[str, int, int, int], Mapping[tuple[str, int], float]]
) -> Iterator[Sequence[str]]:
    rival = (RIVALS.get(routine, "looped_cusolver"), 0)
    is_on = loop_threshold(routine)
    gains: dict[tuple[str, int], dict[bool, list[tuple[float, str]]]] = {}
    for (dtype, batch, n, nrhs), found in sorted(times.items()):
        streamed = found.get(("streamed_cusolver", 4))
        if streamed and rival in found:
            at = f"n = {n}" + (f", {nrhs} right-hand sides" if nrhs else "")
            sides = gains.setdefault((dtype, batch), {True: [], False: []})
            sides[is_on(n, batch)].append((found[rival] / streamed, at))
    for dtype in DTYPES:
        for (kind, batch), sides in gains.items():
            if kind == dtype:
                yield (routine, dtype, str(batch), *_on(sides[True]), *_off(sides[False]))


def _on(gains: Sequence[tuple[float, str]]) -> Sequence[str]:
    if not gains:
        return ("0", "", "", "")
    least, at = min(gains)
    return (str(len(gains)), f"{mean([gain for gain, _ in gains]):.2f}", f"{least:.2f}", at)


def _off(gains: Sequence[tuple[float, str]]) -> Sequence[str]:
    if not gains:
        return ("0", "", "")
    most, at = max(gains)
    return (str(len(gains)), f"{most:.2f}", at)


def loop_threshold(routine: str, path: Path = LOOPS) -> Callable[[int, int], bool]:
    """Whether LoopThresholds.h turns the routine's loop on, by n and batch; never for one that it
    does not have. UserError when its rows cannot be read.
    """
    bounds = {"kNever": math.inf, "kAny": math.inf}
    found = re.findall(r"\{Loop::(\w+), (\w+), (\w+), (\w+)\},", path.read_text(encoding="utf-8"))
    if not found:
        raise UserError(f"{path} has no rows of the form {{Loop::Name, n, batch, batch}},")
    rows = {name.lower(): [bounds.get(part) or int(part) for part in row] for name, *row in found}
    least_n, least_batch, most_batch = rows.get(routine, [math.inf] * 3)
    return lambda n, batch: n >= least_n and least_batch <= batch <= most_batch


VIEWS = {
    "loops of QR": loops("geqrf", "orgqr", "ormqr"),
    "loops of Cholesky": loops("potrf"),
    "loops": loops("geqrf", "orgqr", "ormqr", "potrf", "potrs", "sytrf", "gesvdj", "gesvd", "geev"),
}
