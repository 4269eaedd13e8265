"""Tables of a pull request's text from the record of the composed patches: what ran on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from aotools.patchset.pr_views import Record, checks, none, records, versions
from aotools.readme import milliseconds, table

TOPIC = "composed"
WITHIN = (
    "The composed patches in the sources of the release that they were made on, in a stock wheel: "
    "main's own rule and kernel are not in it."
)


def _view(made: Callable[[Record], str]) -> Callable[[Path], str]:
    def view(folder: Path) -> str:
        parts = [
            f"{made(record)}\n\n{WITHIN} {versions(record['meta'])}."
            for record in records(folder, TOPIC)
        ]
        return "\n\n".join(parts) or none(TOPIC)

    return view


def _shape(row: dict[str, Any]) -> tuple[str, ...]:
    pivot = "yes" if row.get("pivot", True) else "no"
    return (row["dtype"], str(row["batch"]), f"{row['m']} x {row['n']}", pivot)


HEAD = ("dtype", "batch", "m x n", "pivot")


def lanes(record: Record) -> str:
    """lu_factor_ex on one stream and on four."""
    times: dict[tuple[str, ...], dict[str, float]] = {}
    for row in record["points"]:
        if row.get("job") == "streams/lu":
            times.setdefault(_shape(row), {})[row["backend"]] = row["ms"]
    rows = [
        (*at, milliseconds(one), milliseconds(four), f"{one / four:.2f}")
        for at, found in times.items()
        if (one := found.get("looped_cusolver")) and (four := found.get("streamed_cusolver"))
    ]
    text = table((*HEAD, "the loop", "4 streams", "gain"), rows, numbers=3)
    said = checks(record, "composed: lanes")
    return f"{text}\n\n`lu_factor_ex`, milliseconds, one matrix singular.\n\n{said}"


def choices(*preferences: str) -> Callable[[Record], str]:
    """lu_factor_ex of the stock wheel and by preference."""

    def made(record: Record) -> str:
        times: dict[tuple[str, ...], dict[str, float]] = {}
        for row in record["points"]:
            if row.get("job") == "choices/times":
                stock = row["backend"] == "stock"
                name = "stock" if stock else str(row["preference"])
                times.setdefault(_shape(row), {})[name] = row["ms"]
        rows = []
        for at, found in times.items():
            if "stock" in found and preferences[0] in found:
                cells = [milliseconds(found[name]) if name in found else "" for name in preferences]
                ratio = f"{found['stock'] / found[preferences[0]]:.2f}"
                rows.append((*at, milliseconds(found["stock"]), *cells, ratio))
        head = (*HEAD, "stock", *(f'"{name}"' for name in preferences))
        text = table((*head, f'stock / "{preferences[0]}"'), rows, numbers=len(preferences) + 2)
        return f"{text}\n\n`lu_factor_ex`, milliseconds."

    return made


def _checks(*prefixes: str) -> Callable[[Record], str]:
    return lambda record: checks(record, *prefixes)


VIEWS = {
    "composed lanes": _view(lanes),
    "composed native": _view(choices("default", "native", "cusolver")),
    "composed native checks": _view(_checks("composed: native", "composed: default")),
    "composed cublas": _view(choices("cublas", "default", "cusolver")),
    "composed cublas checks": _view(_checks("composed: cublas")),
    "composed loops": _view(_checks("loops: ")),
    "composed solve": _view(_checks("solve: ")),
    "composed routes": _view(_checks("routes: ")),
    "composed tests": _view(_checks("composed: the tests")),
}
