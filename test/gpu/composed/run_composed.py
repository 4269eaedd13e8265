"""The patches composed of the edits for upstream's main, on a GPU, in a stock wheel.

    tools/patchset compose --base main --onto TREE --to PATCHES   # TREE: PyTorch, without patches
    cd TREE && git am --keep-non-patch PATCHES/*.patch; cd -
    tools/patchset relink --tree TREE --wheel 2.11.0 --architectures 90 --out LIBRARY \\
        --entries lu_factor,lu_solve,cholesky,geqrf,orgqr,ormqr,lstsq
    python3 test/gpu/composed/run_composed.py --library LIBRARY --patches PATCHES \\
        --tests TREE/test/test_linalg.py --out FOLDER              # on the GPU machine

Writes composed-<gpu>-torch<version>.json, whole after every job; about 100 seconds on an H200.
What is measured is the code that the edits add, within the sources of the release that TREE holds:
main's own kernel and rules are not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = [str(ROOT / "tools"), str(ROOT)]
sys.path[:0] = FOLDERS

from aotools.env import UserError  # noqa: E402
from aotools.gputest import libraries, runner, summary  # noqa: E402
from aotools.gputest.plan import Job  # noqa: E402
from aotools.gputest.record import Record, Row, record_name  # noqa: E402
from aotools.gputest.suite_patchset import built, commit_of_checkout  # noqa: E402
from aotools.patchset import base as bases  # noqa: E402

TOPIC = "composed"
NAME = "composed"  # of the library
FOLDER = "test/gpu/composed"
PARTS = ("choices", "streams", "loops", "solve", "routes", "upstream")


def jobs(parts: list[str], tests: Path | None) -> list[Job]:
    """What is timed first, each alone; then the checks, several at once."""
    made = [
        Job("choices", "times", NAME, "part_composed:times", 12, 40, folder=FOLDER),
        Job("choices", "bits", NAME, "part_composed:bits", 8, 40, folder=FOLDER),
        Job("streams", "lu", NAME, "part_composed:streams", 12, 45, folder=FOLDER),
        Job("loops", "all", NAME, "part_composed:loops", 15, 45, folder=FOLDER),
        Job("solve", "times", NAME, "part_solve:times", 8, 40, {"routes": True}),
        Job("solve", "correct", NAME, "part_solve:correct", 14, 90, timed=False),
        Job("routes", "all", NAME, "part_routes:run", 10, 60, timed=False),
    ]
    if tests is not None:
        options = {"tests": str(tests)}
        function = "part_composed:upstream"
        made.append(
            Job("upstream", "added", NAME, function, 40, 120, options, timed=False, folder=FOLDER)
        )
    return [job for job in made if job.part in parts]


def find(folder: Path) -> libraries.Library:
    """The library that relink made; UserError when the folder holds none."""
    files = sorted(folder.absolute().glob("*.so"))
    if not files:
        raise UserError(f"--library {folder} holds no library; `tools/patchset relink` makes one")
    facts: Row = {}
    for text in sorted(folder.absolute().glob("*.json")):
        facts |= json.loads(text.read_text(encoding="utf-8"))
    return libraries.Library(NAME, files[0], libraries.sha256(files[0]), facts)


def composed(folder: Path | None) -> list[Row]:
    """What `built` says of patches: the composed ones by their names in the series, where they have
    no number.
    """
    if folder is None:
        return []
    return [
        {
            "name": re.sub(r"^\d+-", "", patch.name),
            "sha256": patch.sha256,
            "code_sha256": patch.code_sha256,
        }
        for patch in bases.load(folder.absolute().name, folder.absolute().parent).patches()
    ]


def main() -> int:
    """0 when everything ran and no check failed, 1 otherwise, 2 for what the user has to change."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--library", type=Path, required=True, help="folder made by relink")
    parser.add_argument("--patches", type=Path, help="folder made by compose: to state them")
    parser.add_argument("--tests", type=Path, help="the patched test_linalg.py: its added tests")
    parser.add_argument("--out", type=Path, required=True, help="folder of the record")
    parser.add_argument("--budget", type=float, default=180, help="seconds in all")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--commit", help="the commit to state when this is no git checkout")
    options = parser.parse_args()
    started = time.monotonic()
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, *filter(None, [given])])  # the children's
    try:
        parts = options.parts.split(",")
        if unknown := sorted(set(parts) - set(PARTS)):
            raise UserError(f"--parts {unknown[0]}: there are {', '.join(PARTS)}")
        library = find(options.library)
        found = {NAME: library}
        log = options.out.absolute() / f"{TOPIC}.log"
        meta: Row = {
            "topic": TOPIC,
            "command": f"python3 {FOLDER}/run_composed.py --parts {options.parts}",
            "commit": commit_of_checkout(options.commit, {}),
            **runner.probe(log),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "libraries": runner.fingerprint(found),
            "built": {NAME: {**built(library), "patches": composed(options.patches)}},
            "host_cores": os.cpu_count(),
        }
        place = options.out.absolute() / record_name(TOPIC, str(meta["gpu"]), str(meta["torch"]))
        record, words = Record.open(place, meta)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{meta['gpu']}, torch {meta['torch']}. {words}".strip(), flush=True)
    left = options.budget - (time.monotonic() - started)
    tests = options.tests.absolute() if options.tests else None
    complete = runner.run_jobs(record, jobs(parts, tests), found, budget=left, log=log)
    failed = [row for row in record.checks if row["result"] == "fail"]
    for row in failed[:12]:
        print("fail", row["name"], row["params"], str(row["value"])[:80], row["reason"][:120])
    print(summary.table(record)[-900:])
    return 0 if complete and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
