"""The record of tools/compat: one file for all versions of torch, each replaced when it is tried
anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aotools.compat.features import RESULTS, Verdict
from aotools.env import ROOT, UserError, make_folder, write_file

TOPIC = "compat"
PATH = ROOT / "test/records/compat.json"


def load(path: Path) -> dict[str, Any]:
    """The record, an empty one if there is none; UserError if it cannot be understood."""
    if not path.exists():
        return {"meta": {"topic": TOPIC, "gpu": "none", "torch": {}}, "points": [], "checks": []}
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["meta"]["topic"] == TOPIC:
            return found
        problem = f"its topic is {found['meta']['topic']!r}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = str(error)
    raise UserError(
        f"{path} is no record of tools/compat ({problem}), so it is left alone; name "
        "another file with --out"
    )


def checks_of(version: str, verdicts: Mapping[str, Verdict]) -> list[dict[str, Any]]:
    """The verdicts as rows of a check record; what is refused or not possible counts as skipped."""
    return [
        {
            "name": name,
            "params": {"torch": version, "verdict": verdict.state},
            "result": RESULTS[verdict.state],
            "value": verdict.value,
            "reason": without_folders(verdict.reason),
        }
        for name, verdict in verdicts.items()
    ]


def without_folders(text: str) -> str:
    """`text` with absolute paths cut to their last parts: a record holds no folders of a
    machine.
    """
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+([\w.+-]+)", r"\1", text)[:400]


def key(version: str) -> tuple[int, ...]:
    """A version's place in the order."""
    return tuple(int(part) for part in version.split("."))


def replace(
    record: Mapping[str, Any],
    version: str,
    about: Mapping[str, Any],
    verdicts: Mapping[str, Verdict],
) -> dict[str, Any]:
    """The record with what was found about this version, and all others as they were."""
    torch = {**record["meta"]["torch"], version: dict(about)}
    kept = [row for row in record["checks"] if row["params"]["torch"] != version]
    checks = kept + checks_of(version, verdicts)
    checks.sort(key=lambda row: key(row["params"]["torch"]))  # stable: features keep their order
    meta = {**record["meta"], "torch": {name: torch[name] for name in sorted(torch, key=key)}}
    return {**record, "meta": meta, "checks": checks}


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Writes the record whole or not at all."""
    make_folder(path.parent)
    write_file(path, json.dumps(record, indent=1) + "\n")
