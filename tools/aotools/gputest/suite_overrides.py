"""`tools/gpu-test overrides`: measures and checks the package's overrides on a stock wheel."""

from __future__ import annotations

import argparse
import os
import time

from aotools.env import UserError
from aotools.gputest import (
    libraries,
    overrides_library,
    plan_overrides,
    runner,
    suite_patchset,
    summary,
)
from aotools.gputest.record import Record, Row, record_name

TOPIC = "overrides"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the suite's options."""
    suite_patchset.add_options(parser, plan_overrides.PARTS)


def command(parts: list[str]) -> str:
    """The command as a record states it, without folders of the machine."""
    return f"tools/gpu-test overrides --parts {','.join(parts)}"


def built(library: libraries.Library) -> Row:
    """What a record says of how the library was built: nothing of the machine that did it."""
    wanted = ("api", "compiler", "cuda_headers", "date", "native", "sources", "torch")
    return {key: library.facts[key] for key in wanted if key in library.facts}


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite; 0 when everything ran and no check failed, 1 otherwise."""
    if arguments.budget <= 0:
        raise UserError(f"--budget {arguments.budget}: a positive number of seconds is needed")
    parts = plan_overrides.parse_parts(arguments.parts)
    gpus = runner.parse_gpus(arguments.gpus)
    libs = arguments.libs.absolute()
    tests = arguments.tests or libs / "upstream" / "test_linalg.py"
    jobs = plan_overrides.jobs(parts, tests.absolute())
    cache = libs / overrides_library.NAME
    overrides_library.require_present(cache)
    if arguments.dry_run:
        print(suite_patchset.plan_text(jobs))
        return 0
    if not tests.is_file() and any(part.startswith("upstream") for part in parts):
        raise UserError(
            f"{tests}: upstream's tests are not there. Make them by `tools/gpu-test pack`, name "
            "them by --tests, or leave the parts upstream and upstream-rest out by --parts"
        )
    log = arguments.logs.absolute() / f"{TOPIC}.log"
    started = time.monotonic()
    machine = runner.probe(log, gpus)
    library = overrides_library.find(cache, str(machine["torch"]))
    found = {library.name: library}
    os.environ.update(overrides_library.environment(libs))
    commit = suite_patchset.commit_of_checkout(arguments.commit, libraries.manifest(libs))
    meta: Row = {"topic": TOPIC, "command": command(parts), "commit": commit, **machine}
    meta |= {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "libraries": runner.fingerprint(found),
        "built": {library.name: built(library)},
        "host_cores": os.cpu_count(),
    }
    name = record_name(TOPIC, str(meta["gpu"]), str(meta["torch"]))
    record, words = Record.open(arguments.out.absolute() / name, meta, arguments.resume)
    before = {title.partition("/")[0] for title in record.jobs}
    every = [part for part in plan_overrides.PARTS if part in {*before, *parts}]
    record.meta["command"] = command(every)
    print(
        f"{meta['gpu']}, driver {meta['driver']}, torch {meta['torch']}. {words}".strip(),
        flush=True,
    )
    left = arguments.budget - (time.monotonic() - started)
    complete = runner.run_jobs(
        record, jobs, found, budget=left, log=log, again=arguments.again, gpus=gpus
    )
    print(summary.table(record))
    print(f"record: {record.path}")
    failed = any(row["result"] == "fail" for row in record.checks)
    return 0 if complete and not failed else 1
