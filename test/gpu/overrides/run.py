"""GPU checks and measurements of the overrides: one command, a child process and a time limit per
part.

    python3 test/gpu/overrides/run.py --out FOLDER [--parts smoke,allocs] [--budget SECONDS]

Needs torch with an NVIDIA GPU and a gpu library built for it (`aten-overrides build`);
build/overrides in the checkout is used as the cache if it is there. Parts run in order, the cheap
ones first; what does not fit into the budget is left out and named. Rows go into a record after
every part.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "tools"), str(ROOT)]

from aotools.env import run_cli  # noqa: E402
from aotools.gputest.record import Record, record_name  # noqa: E402
from aotools.gputest.runner import probe, read_rows  # noqa: E402
from aotools.gputest.session import Rows, Session  # noqa: E402

# name: (module:function, time limit in seconds)
PARTS = {
    "smoke": ("part_smoke:run", 120),
    "allocs": ("part_small:allocs", 60),
    "overhead": ("part_small:overhead", 60),
    "graphs": ("part_graphs:run", 60),
    "streams": ("part_small:streams", 60),
    "threads": ("part_threads:streams", 60),
    "cliff": ("part_cliff:run", 120),
    "regret": ("part_regret:run", 200),
    "fresh": ("part_threads:fresh", 150),
    "solve": ("part_solve:run", 90),
    "kinds": ("part_kinds:run", 240),
    "lifetime": ("part_lifetime:run", 200),
    "compile": ("part_lifetime:compiled", 300),
}


def child(name: str, rows: Path, options: dict[str, object]) -> int:
    """Runs one part in this process."""
    module, _, function = PARTS[name][0].partition(":")
    with rows.open("a", encoding="utf-8") as out:
        session = Session(Rows(out), "overrides", {}, options)
        getattr(importlib.import_module(module), function)(session)
        Rows(out).write({"end": True})
    return 0


def run_part(
    name: str, limit: float, options: dict[str, object]
) -> tuple[str, list[dict[str, object]], str]:
    """State, rows and the end of the output of one part."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows"
        command = [sys.executable, str(Path(__file__)), "--child", name, "--rows", str(rows)]
        command += ["--options", json.dumps(options)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=limit, check=False
            )
            text, state = done.stdout + done.stderr, "done" if done.returncode == 0 else "crashed"
        except subprocess.TimeoutExpired as late:
            text, state = str(late.stderr or ""), "timed out"
        found, ended = read_rows(rows)
        return state if ended or state != "done" else "crashed", found, text[-1500:]


def main() -> int:
    """Runs the parts; 0 if all ran and no check failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "test/gpu/records")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--budget", type=float, default=600)
    parser.add_argument(
        "--options", default="{}", help='JSON for the parts, e.g. {"thinned": false}'
    )
    parser.add_argument("--commit")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    options = json.loads(arguments.options)
    if arguments.child:
        return child(arguments.child, arguments.rows, options)
    if "ATEN_OVERRIDES_CACHE" not in os.environ and (ROOT / "build/overrides").is_dir():
        os.environ["ATEN_OVERRIDES_CACHE"] = str(ROOT / "build/overrides")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])
    started = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    machine = probe(arguments.out / "probe.log")
    meta = {
        "topic": "overrides",
        "command": shlex.join(["python3", "test/gpu/overrides/run.py", *sys.argv[1:]]),
        "commit": arguments.commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        **machine,
        "libraries": {},
    }
    name = record_name("overrides", str(meta["gpu"]), str(meta["torch"]))
    record, words = Record.open(arguments.out / name, meta)
    print(words, flush=True)
    complete = True
    for part in arguments.parts.split(","):
        left = arguments.budget - (time.monotonic() - started)
        if left < 10:
            print(f"-- {part}: not run, {left:.0f} s are left", flush=True)
            complete = False
            continue
        begun = time.monotonic()
        state, rows, text = run_part(part, min(PARTS[part][1], left), options)
        seconds = round(time.monotonic() - begun, 1)
        record.put(part, rows, {"state": state, "seconds": seconds})
        bad = [row for row in rows if row.get("result") == "fail"]
        print(f"-- {part}: {state}, {len(rows)} rows, {len(bad)} failed, {seconds} s", flush=True)
        for row in bad[:8]:
            print(
                f"   FAIL {row['name']} {row['params']} {row['value']} {row['reason']}", flush=True
            )
        if state != "done":
            print(text, flush=True)
        complete = complete and state == "done" and not bad
    for row in record.checks:
        if row["name"] in (
            "regret",
            "overhead",
            "allocations",
            "memory of the handles",
            "streams over loop",
            "cliff",
        ):
            print(row["result"], row["name"], row["params"], row["value"], row["reason"])
    return 0 if complete else 1


if __name__ == "__main__":
    run_cli(main)
