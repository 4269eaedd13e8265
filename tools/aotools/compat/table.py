"""What the README's table of features and releases of torch says, from the record of
tools/compat.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from aotools.compat.features import FEATURES, WORKS

NO_RECORD = "*No record yet: `tools/compat` makes it.*"


def head(record: Mapping[str, Any]) -> list[str]:
    """The first line: releases with their CUDA."""
    torch = record["meta"]["torch"]
    return ["", *(f"{version}, CUDA {about['cuda']}" for version, about in torch.items())]


def rows_and_notes(
    record: Mapping[str, Any], on_a_gpu: Iterable[str]
) -> tuple[list[list[str]], list[str]]:
    """A row for each feature, and the notes to which the cells refer by number.

    `on_a_gpu`: the versions of torch, as "2.11.0+cu130", with which the package has a record from
    a GPU.
    """
    versions = list(record["meta"]["torch"])
    found = {(row["name"], row["params"]["torch"]): row for row in record["checks"]}
    notes: list[str] = []

    def cell(name: str, version: str) -> str:
        check = found.get((name, version))
        if check is None:
            return "not tried"
        if check["params"]["verdict"] == WORKS:
            return "yes"
        if check["reason"] not in notes:
            notes.append(check["reason"])
        return f"{check['params']['verdict']} ({notes.index(check['reason']) + 1})"

    def held(version: str) -> str:
        value = found.get(("tell", version), {}).get("value") or {}
        return ", ".join(value.get("held by torch", ())) or "none"

    rows = [[f.what, *(cell(f.name, version) for version in versions)] for f in FEATURES]
    rows.append(["pieces that torch holds itself, by `info`", *map(held, versions)])
    ran = {full.partition("+")[0] for full in on_a_gpu}
    rows.append(["ran on a GPU", *("yes" if version in ran else "no" for version in versions)])
    return rows, notes


def foot(record: Mapping[str, Any], notes: Iterable[str], link: str) -> str:
    """The notes as a numbered list, then with what and when it was found out."""
    about = record["meta"]["torch"].values()
    dates = sorted({one["date"] for one in about})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    made_with = sorted({one["compiler"] for one in about if one["compiler"]})
    lines = [
        f"{number}. {textwrap.shorten(note, 300, placeholder=' ...')}"
        for number, note in enumerate(notes, 1)
    ]
    made = (
        f"Wheels from PyPI on Linux x86-64, {', '.join(made_with)}, without a GPU, {span}; "
        f"[record]({link}), made by `tools/compat`."
    )
    return "\n".join([*lines, *([""] if lines else []), made])
