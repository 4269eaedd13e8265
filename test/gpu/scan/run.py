"""Scans the operations of plan.json for cliffs, in stock torch and with the overrides.

    python3 test/gpu/scan/run.py --out FOLDER [--budget SECONDS] [--only OP,OP]

Needs torch with an NVIDIA GPU and a gpu library built for it; build/gpu-test/overrides or
build/overrides in the checkout is used as the cache if it is there. Every job has its share of the
budget, in proportion to its `seconds` in the plan. A job that ends the process, or hangs, is named,
and the next ones go on in a new process. The record `cliffs-<gpu>-<torch>.json` is written whole
after every job: levels as points, each scan with its findings, and the timelines of kernels.
`--collect` adds what a run that was killed had measured of its last job. `tools/readme` makes
docs/cliffs.md and the pictures of the record.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "tools"), str(ROOT)]

from scan_jobs import MODES, jobs, line, partial_scan, run_job, warm_up  # noqa: E402

from aotools.cliff_record import points_of, save  # noqa: E402
from aotools.env import UserError, run_cli  # noqa: E402
from aotools.gputest.record import record_name  # noqa: E402

GRACE = 8.0  # seconds over the budget after which the process of the jobs is ended
CACHES = ("build/gpu-test/overrides", "build/overrides")


class Files:
    """The files in the output folder. ``rows``: one JSON line for each beginning and end of a job;
    ``current``: the scan that is running.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.rows = out / "cliffs-rows.jsonl"
        self.current = out / "cliffs-current.json"

    def read(self) -> list[dict[str, Any]]:
        """The rows; a line that was cut off does not count."""
        rows = []
        text = self.rows.read_text(encoding="utf-8") if self.rows.exists() else ""
        for text_row in text.splitlines():
            with contextlib.suppress(ValueError):
                rows.append(json.loads(text_row))
        return rows

    def tell(self, **row: Any) -> None:
        """Append a row."""
        with self.rows.open("ab") as out:
            out.write(b"\n" + json.dumps(row).encode() + b"\n")  # also after a line cut off

    def clear(self) -> None:
        """Remove what is no record."""
        self.rows.unlink(missing_ok=True)
        self.current.unlink(missing_ok=True)


def write_record(files: Files) -> Path | None:
    """The record of what is told so far; None as long as that is nothing."""
    told = files.read()
    meta = next((row["meta"] for row in told if "meta" in row), None)
    if meta is None:
        return None
    scans = [row["scan"] for row in told if row.get("scan")]
    timelines = [row["timeline"] for row in told if row.get("timeline")]
    checks = [
        {"name": "scan", "params": {"job": row["end"]}, "result": "skip", "value": None}
        | {"reason": row["error"]}
        for row in told
        if row.get("error")
    ]
    name = record_name("cliffs", str(meta["gpu"] or "cpu"), str(meta["torch"]))
    save(files.out / name, meta, points_of(scans), scans, checks, timelines)
    return files.out / name


def end_begun(files: Files, reason: str) -> list[str]:
    """Give an end to the jobs that began and have none, with what their scan had saved; names
    them.
    """
    told = files.read()
    ended = {row["end"] for row in told if "end" in row}
    begun = {row["begin"]: row["job"] for row in told if "begin" in row}
    open_jobs = {name: job for name, job in begun.items() if name not in ended}
    for name, job in open_jobs.items():
        files.tell(end=name, scan=partial_scan(files.current, job), error=reason)
    return list(open_jobs)


# --- the process of the jobs ---


def child(options: argparse.Namespace) -> int:
    """Runs jobs in this process; 3 if the GPU does not answer any more."""
    import torch

    from aten_overrides.measure.machine import clocks, machine

    files = Files(options.out)
    todo = json.loads(options.child)
    cuda = torch.cuda.is_available()
    meta = machine(torch, cuda)
    about = {"topic": "cliffs", "command": options.command, **meta, "commit": options.commit}
    files.tell(meta={**about, "clocks_before": clocks() if meta["gpu"] else None})
    if cuda and (said := warm_up(torch)):
        print(f"does not work here: {said}", flush=True)
    weight = sum(job["seconds"] for job in todo)
    left = options.budget - (time.time() - options.started)
    for job in todo:
        share = max(0.5, left * job["seconds"] / weight)
        begun = time.monotonic()
        files.current.unlink(missing_ok=True)
        files.tell(begin=job["name"], job=job)
        # Ends the process with all threads' stacks told when the job hangs, even within CUDA.
        faulthandler.dump_traceback_later(3 * share + 15, exit=True)
        row: dict[str, Any] = {"end": job["name"]}
        try:
            row |= run_job(torch, job, share, meta, files.current)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            row["scan"] = partial_scan(files.current, job)
        faulthandler.cancel_dump_traceback_later()
        files.tell(**row)
        write_record(files)
        print(f"{line(job['name'], row)}", flush=True)
        weight -= job["seconds"]
        left -= time.monotonic() - begun
        if row.get("error") and cuda and not _answers(torch):
            return 3
    return 0


def _answers(torch: Any) -> bool:
    """Whether CUDA still works in this process."""
    try:
        return float(torch.ones(8, device="cuda").sum()) == 8
    except Exception:
        return False


# --- the process that starts it ---


def run_jobs(todo: list[dict[str, Any]], files: Files, options: argparse.Namespace) -> list[str]:
    """Runs all jobs, in a new process after each that ended it; returns what went wrong."""
    wrong = []
    command = [sys.executable, str(Path(__file__).resolve()), "--out", str(options.out)]
    command += ["--command", options.command, "--budget", str(options.budget)]
    command += ["--started", str(options.started)]
    command += ["--commit", options.commit] if options.commit else []
    while todo:
        left = options.budget - (time.time() - options.started)
        if left < 3:
            wrong.append(f"no time was left for {len(todo)} jobs, the first {todo[0]['name']}")
            break
        try:
            done = subprocess.run(
                [*command, "--child", json.dumps(todo)], timeout=left + GRACE, check=False
            )
            why = f"exit {done.returncode}"
        except subprocess.TimeoutExpired:
            why = "the time budget was over"
        reason = f"the process ended ({why})"
        wrong += [f"{name}: {reason}" for name in end_begun(files, reason)]
        ended = {row["end"] for row in files.read() if "end" in row}
        if not any(job["name"] in ended for job in todo):
            raise UserError(f"nothing could be scanned: {why}; its message is above")
        todo = [job for job in todo if job["name"] not in ended]
    return wrong


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "test/gpu/records")
    parser.add_argument("--budget", type=float, default=115)
    parser.add_argument("--only", help="operations, separated by commas")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try it")
    parser.add_argument("--commit")
    parser.add_argument(
        "--collect", action="store_true", help="make the record of what a run that was ended left"
    )
    parser.add_argument("--command", help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Scans, writes the record; 0 if every job of the plan ran."""
    options = parse()
    if options.child:
        return child(options)
    files = Files(options.out)
    if options.collect:
        return _finish(files, end_begun(files, "the run was ended"))
    if files.rows.exists():
        raise UserError(
            f"{files.rows} is what a run left that was ended: --collect makes its record, or "
            "remove the file"
        )
    cache = next((ROOT / name for name in CACHES if (ROOT / name).is_dir()), None)
    if "ATEN_OVERRIDES_CACHE" not in os.environ and cache is not None:
        os.environ["ATEN_OVERRIDES_CACHE"] = str(cache)
    options.started = time.time()
    options.command = shlex.join(["python3", *sys.argv])
    options.out.mkdir(parents=True, exist_ok=True)
    modes = MODES if options.device == "cuda" else MODES[:1]
    todo = [{**job, "device": options.device} for job in jobs(options.only, modes)]
    if not todo:
        raise UserError(f"--only {options.only}: the plan has no such operation")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the record is written
    try:
        wrong = run_jobs(todo, files, options)
    except KeyboardInterrupt:
        wrong = [f"{name}: the run was ended" for name in end_begun(files, "the run was ended")]
        wrong.append("the run was ended")
    except UserError:
        files.clear()
        raise
    return _finish(files, wrong)


def _finish(files: Files, wrong: list[str]) -> int:
    """Write the record, say what went wrong and remove what is no record; the exit code."""
    path = write_record(files)
    if path is None:
        raise UserError(f"there is nothing to make a record of in {files.out}")
    errors = [f"{row['end']}: {row['error']}" for row in files.read() if row.get("error")]
    files.clear()
    for words in dict.fromkeys([*wrong, *errors]):
        print(words)
    print(path)
    return 1 if wrong or errors else 0


if __name__ == "__main__":
    run_cli(main)
