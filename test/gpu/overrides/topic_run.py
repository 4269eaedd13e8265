"""Runs the jobs of one topic of the overrides on this GPU, into a record of its own."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = [str(ROOT / "tools"), str(ROOT)]
sys.path[:0] = FOLDERS

from aotools.env import UserError  # noqa: E402
from aotools.gputest import overrides_library, runner, summary  # noqa: E402
from aotools.gputest.plan import Job  # noqa: E402
from aotools.gputest.record import Record, Row, record_name  # noqa: E402
from aotools.gputest.suite_overrides import built  # noqa: E402
from aotools.gputest.suite_patchset import commit_of_checkout  # noqa: E402

FOLDER = "test/gpu/overrides"


@dataclass(frozen=True)
class Topic:
    """What a script of a topic runs, and what it prints of the record."""

    name: str
    script: str
    description: str
    jobs: Callable[[float], list[Job]]  # by the scale of the grids' seconds
    parts: str
    shown: tuple[str, ...]  # checks that are printed when they passed too
    parts_help: str = "default: %(default)s"
    unsaid: tuple[str, ...] = ()  # parameters that are not printed
    most: int = 800  # characters of the summary


def run(topic: Topic) -> int:
    """0 if everything ran and no check failed, 1 otherwise, 2 for what the user has to change."""
    parser = argparse.ArgumentParser(description=topic.description)
    parser.add_argument("--out", type=Path, required=True, help="folder of the record")
    parser.add_argument("--cache", type=Path, required=True, help="cache with the gpu library")
    parser.add_argument("--budget", type=float, default=600, help="seconds in all")
    parser.add_argument("--scale", type=float, default=1.0, help="of the seconds of the grids")
    parser.add_argument("--parts", default=topic.parts, help=topic.parts_help)
    parser.add_argument("--topic", default=topic.name, help="of the record (default: %(default)s)")
    parser.add_argument("--commit", help="the commit to state when this is no git checkout")
    parser.add_argument(
        "--gpus", default="", help="spread the jobs over these GPUs of one model: 0,1"
    )
    options = parser.parse_args()
    started = time.monotonic()
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, *filter(None, [given])])  # the children's
    try:
        wanted = options.parts.split(",")
        log = options.out.absolute() / f"{topic.name}.log"
        gpus = runner.parse_gpus(options.gpus)
        machine = runner.probe(log, gpus)
        cache = options.cache.absolute()
        library = overrides_library.find(cache, str(machine["torch"]))
        os.environ["ATEN_OVERRIDES_CACHE"] = str(cache)
        select = cache / overrides_library.SELECT
        if select.is_file():  # for a machine without a compiler
            os.environ[overrides_library.SELECT_VARIABLE] = str(select)
        found = {library.name: library}
        commit = commit_of_checkout(options.commit, {})
        command = f"python3 {FOLDER}/{topic.script} --parts {options.parts}"
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
    chosen = [job for job in topic.jobs(options.scale) if job.part in wanted]
    complete = runner.run_jobs(record, chosen, found, budget=left, log=log, gpus=gpus)
    for row in record.checks:
        if row["result"] == "fail" or row["name"] in topic.shown:
            params = {k: v for k, v in row["params"].items() if k not in topic.unsaid}
            print(row["result"], row["name"], params, row["value"], row["reason"][:160])
    print(summary.table(record)[-topic.most :])
    failed = any(row["result"] == "fail" for row in record.checks)
    return 0 if complete and not failed else 1
