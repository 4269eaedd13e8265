"""Checks and times lu_solve of the overrides on this GPU, into a record of its own.

    python3 test/gpu/overrides/run_lu_solve.py --out FOLDER --cache FOLDER [--budget SECONDS]

`--cache` holds the gpu library: `ATEN_OVERRIDES_CACHE=FOLDER python -m aten_overrides build`.
`python -m aten_overrides.tables.lu_solve.generate` makes the table of the record.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = [str(ROOT / "tools"), str(ROOT)]
sys.path[:0] = FOLDERS

from aotools.env import UserError  # noqa: E402
from aotools.gputest import overrides_library, runner, summary  # noqa: E402
from aotools.gputest.plan import Job  # noqa: E402
from aotools.gputest.record import Record, Row, record_name  # noqa: E402
from aotools.gputest.suite_overrides import built  # noqa: E402
from aotools.gputest.suite_patchset import commit_of_checkout  # noqa: E402

TOPIC = "lu-solve"
FOLDER = "test/gpu/overrides"
FEW, SOME = [1, 0], [3, 8, 64, 2]  # right-hand sides; 0: as many as rows
COARSE = [64, 512, 128, 256, 1024, 32, 16]
# dtype, operations, right-hand sides, sizes (None: all), seconds
PARTS: tuple[tuple[str, str, list[int], list[int] | None, float], ...] = (
    ("float32", "TN", FEW, None, 18),
    ("float64", "TN", FEW, None, 15),
    ("float32", "TN", SOME, None, 18),
    ("complex64", "NC", FEW, COARSE, 9),
    ("complex128", "NC", FEW, COARSE, 9),
    ("float64", "T", SOME, COARSE, 8),
    ("complex64", "N", SOME, COARSE, 5),
    ("complex128", "N", SOME, COARSE, 5),
)


def grids(scale: float) -> list[dict[str, Any]]:
    """Options of part_lu_solve.grid."""
    made = []
    for dtype, operations, columns, sizes, seconds in PARTS:
        given: dict[str, Any] = {"dtype": dtype, "operations": list(operations)}
        given |= {"columns": columns, "seconds": seconds * scale}
        made.append(given if sizes is None else {**given, "sizes": sizes})
    return made


def jobs(scale: float) -> list[Job]:
    """The checks, two at once, then goals and grid."""
    name = overrides_library.NAME
    seconds = sum(part[-1] for part in PARTS) * scale
    checks = [
        Job(
            "checks",
            title,
            name,
            "part_lu_solve:correct",
            20,
            120,
            {"dtypes": dtypes},
            timed=False,
            folder=FOLDER,
        )
        for title, dtypes in (
            ("float", ["float32"]),
            ("double", ["float64"]),
            ("complex", ["complex64"]),
            ("complex-double", ["complex128"]),
        )
    ]
    return [
        *checks,
        Job("goals", "all", name, "part_lu_solve:goals", 25, 90, folder=FOLDER),
        Job(
            "grid",
            "all",
            name,
            "part_lu_solve:grid",
            seconds + 8,
            seconds + 40,
            {"grids": grids(scale)},
            folder=FOLDER,
        ),
    ]


def main() -> int:
    """0 if everything ran and no check failed, 1 otherwise, 2 for what the user has to change."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the record")
    parser.add_argument("--cache", type=Path, required=True, help="cache with the gpu library")
    parser.add_argument("--budget", type=float, default=600, help="seconds in all")
    parser.add_argument("--scale", type=float, default=1.0, help="of the seconds of the grids")
    parser.add_argument("--parts", default="checks,goals,grid", help="default: %(default)s")
    parser.add_argument("--topic", default=TOPIC, help="of the record (default: %(default)s)")
    parser.add_argument("--commit", help="the commit to state when this is no git checkout")
    options = parser.parse_args()
    started = time.monotonic()
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, *filter(None, [given])])  # the children's
    try:
        wanted = options.parts.split(",")
        log = options.out.absolute() / "lu-solve.log"
        machine = runner.probe(log)
        cache = options.cache.absolute()
        library = overrides_library.find(cache, str(machine["torch"]))
        os.environ["ATEN_OVERRIDES_CACHE"] = str(cache)
        select = cache / overrides_library.SELECT
        if select.is_file():  # for a machine without a compiler
            os.environ[overrides_library.SELECT_VARIABLE] = str(select)
        found = {library.name: library}
        commit = commit_of_checkout(options.commit, {})
        command = f"python3 test/gpu/overrides/run_lu_solve.py --parts {options.parts}"
        meta: Row = {"topic": options.topic, "command": command, "commit": commit, **machine}
        meta |= {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "libraries": runner.fingerprint(found),
            "built": {library.name: built(library)},
            "host_cores": os.cpu_count(),
        }
        name = record_name(options.topic, str(meta["gpu"]), str(meta["torch"]))
        record, words = Record.open(options.out.absolute() / name, meta)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{meta['gpu']}, torch {meta['torch']}. {words}".strip(), flush=True)
    left = options.budget - (time.monotonic() - started)
    chosen = [job for job in jobs(options.scale) if job.part in wanted]
    complete = runner.run_jobs(record, chosen, found, budget=left, log=log)
    for row in record.checks:
        if row["result"] == "fail" or row["name"] in ("goal", "grid"):
            params = {key: value for key, value in row["params"].items() if key != "library"}
            print(row["result"], row["name"], params, row["value"], row["reason"][:160])
    print(summary.table(record)[-800:])
    failed = any(row["result"] == "fail" for row in record.checks)
    return 0 if complete and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
