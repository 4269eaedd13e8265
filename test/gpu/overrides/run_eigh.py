"""Checks and times eigh and eigvalsh of the overrides on this GPU, into a record of their own.

    python3 test/gpu/overrides/run_eigh.py --out FOLDER --cache FOLDER [--budget SECONDS]

`--cache` holds the gpu library: `ATEN_OVERRIDES_CACHE=FOLDER python -m aten_overrides build`.
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

TOPIC = "eigh"
FOLDER = "test/gpu/overrides"
# op, dtype, seconds, options of part_eigh_times.grid
Grids = tuple[tuple[str, str, float, dict[str, Any]], ...]
COARSE = {"batches": (8, 128, 1, 1024), "sizes": (2, 8, 16, 32, 33, 64, 128, 256, 512)}
GRIDS: Grids = (
    ("eigh", "float32", 24, {}),
    ("eigh", "float64", 24, {}),
    ("eigvalsh", "float32", 12, {}),
    ("eigvalsh", "float64", 12, {}),
    ("eigh", "complex64", 5, COARSE),
    ("eigh", "complex128", 5, COARSE),
)
# What a grid that was cut short lacks most: medium batches of large matrices, large ones of small.
MEDIUM = {"batches": (32, 16), "sizes": (192, 256, 384, 512, 128, 64, 33, 32), "loops_from": 192}
LARGER = {"batches": (32, 128), "sizes": (256, 384, 512, 33, 32), "loops_from": 1000}
MANY = {
    "batches": (512, 4096, 16384),
    "sizes": (2, 3, 8, 16, 32, 33, 48, 64),
    "loops_from": 1000,
}
REST: Grids = (
    ("eigh", "float64", 6, MEDIUM),
    ("eigvalsh", "float64", 2, LARGER),
    ("eigvalsh", "float32", 2, LARGER),
    ("eigh", "float32", 2.5, MANY),
    ("eigh", "float64", 2.5, MANY),
    ("eigvalsh", "float32", 1.5, MANY),
    ("eigvalsh", "float64", 1.5, MANY),
)
CHECKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("routes-real", "part_eigh:routes", {"dtypes": ["float32", "float64"]}),
    ("routes-complex", "part_eigh:routes", {"dtypes": ["complex64", "complex128"]}),
    ("limits", "part_eigh:limits", {}),
    ("bad", "part_eigh:bad", {}),
    ("uses", "part_eigh:uses", {}),
    ("capture", "part_eigh_capture:run", {}),
)


def jobs(scale: float) -> list[Job]:
    """The reported shapes, the grids, then the checks, several at once."""
    name = overrides_library.NAME
    made = [Job("times", "reported", name, "part_eigh_times:reported", 20, 60, folder=FOLDER)]
    for part, given in (("grid", GRIDS), ("rest", REST)):
        grids = [
            {"op": op, "dtype": dtype, "seconds": seconds * scale, **options}
            for op, dtype, seconds, options in given
        ]
        length = sum(seconds for _, _, seconds, _ in given) * scale
        made.append(
            Job(
                part,
                "all",
                name,
                "part_eigh_times:grid",
                length + 6,
                length + 30,
                {"grids": grids},
                folder=FOLDER,
            )
        )
    made += [
        Job("checks", title, name, function, 20, 90, options, timed=False, folder=FOLDER)
        for title, function, options in CHECKS
    ]
    return made


def main() -> int:
    """0 if everything ran and no check failed, 1 otherwise, 2 for what the user has to change."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the record")
    parser.add_argument("--cache", type=Path, required=True, help="cache with the gpu library")
    parser.add_argument("--budget", type=float, default=600, help="seconds in all")
    parser.add_argument("--scale", type=float, default=1.0, help="of the seconds of the grids")
    parser.add_argument(
        "--parts",
        default="times,grid,checks",
        help="out of them and rest, what a short grid lacks (default: %(default)s)",
    )
    parser.add_argument("--topic", default=TOPIC, help="of the record (default: %(default)s)")
    parser.add_argument("--commit", help="the commit to state when this is no git checkout")
    options = parser.parse_args()
    started = time.monotonic()
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, *filter(None, [given])])  # the children's
    try:
        wanted = options.parts.split(",")
        log = options.out.absolute() / "eigh.log"
        machine = runner.probe(log)
        cache = options.cache.absolute()
        library = overrides_library.find(cache, str(machine["torch"]))
        os.environ["ATEN_OVERRIDES_CACHE"] = str(cache)
        select = cache / overrides_library.SELECT
        if select.is_file():  # for a machine without a compiler
            os.environ[overrides_library.SELECT_VARIABLE] = str(select)
        found = {library.name: library}
        commit = commit_of_checkout(options.commit, {})
        command = f"python3 test/gpu/overrides/run_eigh.py --parts {options.parts}"
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
        if row["result"] == "fail" or row["name"] in ("goal", "step from 32 to 33", "workspace"):
            print(row["result"], row["name"], row["params"], row["value"], row["reason"][:160])
    print(summary.table(record)[-2000:])
    failed = any(row["result"] == "fail" for row in record.checks)
    return 0 if complete and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
