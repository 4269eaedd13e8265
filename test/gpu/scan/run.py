"""Scans the operations of plan.json for cliffs, in stock torch and with the overrides.

    python3 test/gpu/scan/run.py --out FOLDER [--budget SECONDS] [--only OP,OP]

Needs torch with an NVIDIA GPU and a gpu library built for it; build/overrides in the checkout is
used as the cache if it is there. Every scan has its share of the budget, in proportion to its
`seconds` in the plan. A scan that ends the process is named and the next ones go on in a new one.
The record `cliffs-<gpu>-<torch>.json` holds the levels as points, and each scan with its findings;
`python -m aotools.cliffs` makes docs/cliffs.md of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]

from aotools.cliff_record import points_of, save  # noqa: E402
from aotools.env import UserError, run_cli  # noqa: E402
from aotools.gputest.record import record_name  # noqa: E402

MOST_BARS = 150  # of a stored trace
MODES = ("stock", "overrides")


def jobs(only: str | None) -> list[dict[str, Any]]:
    """The scans of the plan, stock before overrides."""
    plan = json.loads((HERE / "plan.json").read_text(encoding="utf-8"))
    wanted = only.split(",") if only else None
    return [
        {**job, "mode": mode, "name": f"{number}/{mode}"}
        for number, job in enumerate(plan)
        for mode in MODES
        if wanted is None or job["op"] in wanted
    ]


def one_scan(torch: Any, job: dict[str, Any], seconds: float, meta: dict[str, Any]) -> Any:
    """Runs one job; None where the overrides do not have its operation."""
    from aten_overrides.measure.operations import operation, overridden
    from aten_overrides.scan.run import scan
    from aten_overrides.scan.search import Settings
    from aten_overrides.scan.target import Target

    ours = job["mode"] == "overrides"
    if ours and not overridden(operation(job["op"])):
        return None
    target = Target(
        op=job["op"],
        dtype=job["dtype"],
        batch=job["batch"],
        nrhs=job.get("nrhs", 1),
        device=job.get("device", "cuda"),
        prefer=job.get("prefer", ""),
        overrides=ours,
    )
    first, last, step = job["n"]
    settings = Settings()
    return scan(target, (first, last, step), settings, seconds, torch=torch, explain=2, meta=meta)


def short(data: dict[str, Any]) -> dict[str, Any]:
    """A scan for the record: without the single samples, with shorter traces."""
    from aten_overrides.scan.kernels import Bar, joined

    for finding in data["findings"]:
        for trace in finding["traces"]:
            if trace is not None:
                bars = joined([Bar(*bar) for bar in trace["bars"]], trace["span_us"], MOST_BARS)
                trace["bars"] = [[bar.start, bar.length, bar.name, bar.lane] for bar in bars]
    return {**data, "samples": []}


def child(arguments: argparse.Namespace) -> int:
    """Runs jobs in this process; one JSON line for each beginning and end."""
    import torch

    from aten_overrides._errors import UserError as PackageError
    from aten_overrides.measure.machine import clocks, machine

    todo = json.loads(arguments.child)
    with arguments.rows.open("a", encoding="utf-8") as out:

        def tell(**row: Any) -> None:
            out.write(json.dumps(row) + "\n")
            out.flush()

        meta = machine(torch, torch.cuda.is_available())
        tell(meta={**meta, "clocks_before": clocks() if meta["gpu"] else None})
        weight = sum(job["seconds"] for job in todo)
        left = arguments.budget - (time.time() - arguments.started)
        for job in todo:
            share = max(0.5, left * job["seconds"] / weight)
            begun = time.monotonic()
            tell(begin=job["name"])
            try:
                found = one_scan(torch, job, share, meta)
                told = None if found is None else short(found.json())
                tell(end=job["name"], scan=told)
            except PackageError as error:
                tell(end=job["name"], scan=None, error=str(error))
            weight -= job["seconds"]
            left -= time.monotonic() - begun
    return 0


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The child's rows; a last line that was cut off does not count."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def run_jobs(todo: list[dict[str, Any]], rows: Path, options: argparse.Namespace) -> list[str]:
    """Runs all jobs, in a new process after each that ended it; returns what went wrong."""
    wrong = []
    while todo:
        left = options.budget - (time.time() - options.started)
        if left < 3:
            wrong.append(f"no time was left for {len(todo)} scans")
            break
        command = [sys.executable, str(Path(__file__)), "--rows", str(rows)]
        command += ["--child", json.dumps(todo), "--started", str(options.started)]
        command += ["--budget", str(options.budget)]
        try:
            done = subprocess.run(command, timeout=left + 15, check=False)
            why = f"exit {done.returncode}"
        except subprocess.TimeoutExpired:
            why = "took longer than its share"
        told = read_rows(rows)
        ended = {row["end"] for row in told if "end" in row}
        begun = [row["begin"] for row in told if "begin" in row and row["begin"] not in ended]
        if not ended and not begun:
            raise UserError(f"nothing could be scanned: {why}; its message is above")
        ended.update(begun)
        wrong += [f"{name}: the process ended ({why})" for name in begun]
        with rows.open("a", encoding="utf-8") as out:
            out.writelines(json.dumps({"end": name, "scan": None}) + "\n" for name in begun)
        todo = [job for job in todo if job["name"] not in ended]
    return wrong


def main() -> int:
    """Scans, writes the record; 0 if every job of the plan ran."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "test/gpu/records")
    parser.add_argument("--budget", type=float, default=115)
    parser.add_argument("--only", help="operations, separated by commas")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try it")
    parser.add_argument("--commit")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    if "ATEN_OVERRIDES_CACHE" not in os.environ and (ROOT / "build/overrides").is_dir():
        os.environ["ATEN_OVERRIDES_CACHE"] = str(ROOT / "build/overrides")
    options.started = time.time()
    options.out.mkdir(parents=True, exist_ok=True)
    todo = [{**job, "device": options.device} for job in jobs(options.only)]
    if options.device == "cpu":
        todo = [job for job in todo if job["mode"] == "stock"]
    rows = options.out / "cliffs-rows.jsonl"
    rows.unlink(missing_ok=True)
    wrong = run_jobs(todo, rows, options)
    told = read_rows(rows)
    rows.unlink()
    meta = next(row["meta"] for row in told if "meta" in row)
    meta = {"topic": "cliffs", "command": shlex.join(["python3", *sys.argv]), **meta}
    meta["commit"] = options.commit
    scans = [row["scan"] for row in told if row.get("scan")]
    checks = [
        {"name": "scan", "params": {"job": row["end"]}, "result": "skip", "value": None}
        | {"reason": row["error"]}
        for row in told
        if row.get("error")
    ]
    name = record_name("cliffs", str(meta["gpu"] or "cpu"), str(meta["torch"]))
    save(options.out / name, meta, points_of(scans), scans, checks)
    for scan in scans:
        target, findings = scan["target"], scan["findings"]
        told_findings = ", ".join(
            f"{one['kind']} {one['size']} {one['factor']:.2f}x"
            for one in findings
            if one["confidence"] != "AMBIGUOUS"
        )
        print(
            f"{target['op']} {target['dtype']} b{target['batch']} {target['prefer']} "
            f"{'overrides' if target['overrides'] else 'stock'}: {len(scan['levels'])} sizes, "
            f"{scan['seconds']} s{'' if scan['complete'] else ', cut'}: {told_findings or '-'}"
        )
    for words in [*wrong, *(f"{row['end']}: {row['error']}" for row in told if row.get("error"))]:
        print(words)
    return 1 if wrong else 0


if __name__ == "__main__":
    run_cli(main)
