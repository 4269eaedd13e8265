"""`tools/gpu-test patchset`: measures and checks the relinked patch series."""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from aotools.env import ROOT, UserError
from aotools.gputest import libraries, plan, runner, summary
from aotools.gputest.record import Record, Row, record_name

TOPIC = "patchset"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the suite's options."""
    add_options(parser, plan.PARTS)


def add_options(parser: argparse.ArgumentParser, names: Mapping[str, str]) -> None:
    """Adds what every suite takes; `names` are its parts and what they do."""
    parts = "; ".join(f"{name}: {text}" for name, text in names.items())
    records = ROOT / "test/gpu/records"
    parser.add_argument(
        "--out", type=Path, default=records, help="folder of the record (test/gpu/records)"
    )
    parser.add_argument(
        "--parts", default=",".join(names), help=f"comma list, all by default. {parts}"
    )
    parser.add_argument(
        "--budget", type=float, default=1800, help="seconds in all; what does not fit is left out"
    )
    parser.add_argument(
        "--libs", type=Path, default=libraries.DEFAULT, help="folder made by `tools/gpu-test pack`"
    )
    parser.add_argument(
        "--tests", type=Path, help="upstream's test_linalg.py of 2.6.0 (default: in --libs)"
    )
    parser.add_argument("--resume", type=Path, help="go on from this record if --out holds none")
    parser.add_argument("--again", action="store_true", help="run also what the record has already")
    parser.add_argument(
        "--logs", type=Path, default=ROOT / "build/gpu-test-logs", help="folder for output of jobs"
    )
    parser.add_argument("--commit", help="the commit to state when this is no git checkout")
    parser.add_argument(
        "--gpus",
        default="",
        help="spread the jobs over these GPUs of one model, named as in CUDA_VISIBLE_DEVICES: 0,1",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the plan with an estimate of its time"
    )


def plan_text(jobs: list[plan.Job]) -> str:
    """The plan as a table: job, library, estimated seconds, time-out."""
    lines = [f"{'job':33} {'library':18} {'about':>6} {'limit':>6}"]
    total = 0.0
    for group in runner.groups(jobs):
        total += max(
            max(job.seconds for job in group), sum(job.seconds for job in group) / runner.TOGETHER
        )
        for job in group:
            beside = "" if job.timed else "  with others at once"
            lines.append(
                f"{job.title:33} {job.library:18} {job.seconds:4.0f} s {job.timeout:4.0f} s{beside}"
            )
    lines.append(f"{len(jobs)} jobs, about {total / 60:.1f} minutes on an H200")
    return "\n".join(lines)


def commit_of_checkout(stated: str | None, noted: Row) -> str | None:
    """The commit to write down: the checkout's, else what was stated or packed; "-dirty" for
    changed code.
    """
    if stated:
        return stated
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "tools"], capture_output=True, text=True
        )
    except OSError:
        return noted.get("commit")
    if head.returncode != 0:
        return noted.get("commit")
    return head.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")


def command(parts: list[str]) -> str:
    """The command as a record states it, without folders of the machine."""
    return f"tools/gpu-test patchset --parts {','.join(parts)}"


def built(library: libraries.Library) -> Row:
    """What a record says of how a library was built: nothing of the machine that did it."""
    wanted = ("base", "patches", "entries", "torch", "cuda", "compiler", "date")
    facts = {key: library.facts[key] for key in wanted if key in library.facts}
    return facts | {"magma": library.facts.get("magma", {}).get("mode")}


def upstream_tests(arguments: argparse.Namespace) -> Path:
    """The folder or file of upstream's tests: --tests, else what was packed, else the applied
    tree's.
    """
    if arguments.tests:
        return Path(arguments.tests)
    packed = Path(arguments.libs) / "upstream"
    return packed if packed.is_dir() else ROOT / "build/v2.6.0/src/test/test_linalg.py"


def run(arguments: argparse.Namespace) -> int:
    """Runs the suite; 0 when everything ran and no check failed, 1 otherwise."""
    if not 0 < arguments.budget < math.inf:  # nan neither
        raise UserError(f"--budget {arguments.budget}: a positive number of seconds is needed")
    parts = plan.parse_parts(arguments.parts)
    gpus = runner.parse_gpus(arguments.gpus)
    tests = upstream_tests(arguments).absolute()
    jobs = plan.jobs(parts, tests)
    if arguments.dry_run:
        print(plan_text(jobs))
        return 0
    log = arguments.logs.absolute() / "patchset.log"
    machine = runner.probe(log, gpus)
    found = libraries.find(arguments.libs)
    needed = {name for job in jobs for name in (job.library, *job.also)} - {plan.STOCK}
    libraries.require(arguments.libs, found, needed)
    noted = libraries.manifest(arguments.libs)
    commit = commit_of_checkout(arguments.commit, noted)
    meta: Row = {"topic": TOPIC, "command": command(parts), "commit": commit, **machine}
    meta |= {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "libraries": runner.fingerprint(found),
    }
    meta |= {
        "built": {name: built(library) for name, library in found.items()},
        "host_cores": os.cpu_count(),
    }
    name = record_name(TOPIC, str(meta["gpu"]), str(meta["torch"]))
    record, words = Record.open(arguments.out.absolute() / name, meta, arguments.resume)
    # A run that goes on with a record: the command that would make all of it.
    before = {title.partition("/")[0] for title in record.jobs}
    record.meta["command"] = command([part for part in plan.PARTS if part in {*before, *parts}])
    print(
        f"{meta['gpu']}, driver {meta['driver']}, torch {meta['torch']}. {words}".strip(),
        flush=True,
    )
    os.environ["ATEN_OVERRIDES_GPU_TEST_LOGS"] = str(arguments.logs.absolute())
    complete = runner.run_jobs(
        record,
        jobs,
        found,
        budget=arguments.budget,
        log=log,
        again=arguments.again,
        gpus=gpus,
    )
    record.put("summary", summary.checks(record), {"state": "done"})
    print(summary.table(record))
    print(f"record: {record.path}")
    failed = any(row["result"] == "fail" for row in record.checks)
    return 0 if complete and not failed else 1
