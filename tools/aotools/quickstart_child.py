"""Runs in a process of its own with the torch to be shown: loads the library, reports, measures.

python -m aotools.quickstart_child LIBRARY REPORT [--measure]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from aotools.env import UserError, write_file
from aotools.patchset import loader
from aotools.progress import Bar

BATCHES = (1, 4, 16, 64, 256)
SIZES = (511, 512)
PREFERENCES = ("cusolver", "default")


def report(library: Path, *, measure: bool) -> dict[str, Any]:
    """What loading shows: whose the entries are, and with a GPU the times of both libraries."""
    import torch

    loaded = loader.load(library)
    entries = [
        {"name": entry.name, "owner": entry.owner, "file": entry.current.file}
        if entry.current is not None
        else {"name": entry.name, "owner": entry.owner, "file": "(cannot be read)"}
        for entry in loaded.entries()
    ]
    loaded.restore()
    back = set(loaded.table().values()) <= {"wheel", "unknown"}
    loaded.install()
    made: dict[str, Any] = {"entries": entries, "back": back, "torch": str(torch.__version__)}
    if torch.cuda.is_available():
        made["gpu"] = torch.cuda.get_device_name()
        if measure:
            made["meta"], made["points"] = _measure(torch, loaded)
    return made


def _measure(torch: Any, loaded: loader.Library) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Times solve_ex with the wheel's functions and with ours, at the same points in turn."""
    from aotools.gputest.session import Session, measure

    rows: list[dict[str, Any]] = []

    class Collected:
        def write(self, row: Mapping[str, Any]) -> None:
            rows.append(dict(row))

    session = Session(Collected(), "stock", {}, {})  # type: ignore[arg-type]
    total = len(BATCHES) * len(SIZES) * len(PREFERENCES)
    with Bar("timing solve_ex", total, show=lambda count: f"{count:.0f}") as bar:
        for preference in PREFERENCES:
            session.prefer(preference)
            for batch in BATCHES:
                for n in SIZES:
                    a = torch.randn(batch, n, n, device="cuda")
                    b = torch.randn(batch, n, 1, device="cuda")
                    for session.library in ("stock", "patched"):
                        (loaded.restore if session.library == "stock" else loaded.install)()
                        timing = measure(session.clock(partial(torch.linalg.solve_ex, a, b)))
                        more = {"nrhs": 1, "preference": preference}
                        session.point("solve_ex", "float32", (batch, n, n), timing, **more)
                    bar.update(len(rows) / 2)
        session.prefer("default")
    meta = {
        "gpu": torch.cuda.get_device_name(),
        "torch": str(torch.__version__),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    return meta, rows


def main() -> int:
    """Writes the report as JSON; an error the user can act on goes into it as "error"."""
    library, out, *rest = sys.argv[1:]
    try:
        made = report(Path(library), measure="--measure" in rest)
    except UserError as error:
        made = {"error": str(error)}
    write_file(Path(out), json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
