"""``aten-overrides bench``: the project's own numbers, with the rivals in the same run."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides.cli import Command

EPILOG = """\
Rivals: torch as it is and with each preferred library; the overrides; each of their back ends, that
is cuBLAS's, cuSOLVER's and our own routines, called directly where the operation is one routine
(lu_factor_ex and eigh, with a copy of the matrices, which they overwrite), else forced within
torch's operation; CuPy and JAX where they are installed and have the operation (JAX's times include
its wait for the result). All rivals of a problem are timed in the same rounds, in random order, by
events behind a flushed L2 cache. The limit is measured in the same run: the nominal work at the
speed of a large matrix product without TF32, or the matrices read and the result written once at
the speed of a copy, whichever is longer. The record of --out is written whole after every problem.

exit code: 0 all was timed, 1 something was left out for want of time, 2 nothing could be timed.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--grid", default="readme", help="readme, lu, small or a .json file; default: readme"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is one")
    parser.add_argument(
        "--budget", type=float, default=300, metavar="SECONDS", help="default: %(default)g"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write a record there")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the share of the limit")
    parser.add_argument("--no-others", action="store_true", help="leave out CuPy and JAX")
    parser.add_argument("--commit", help="the commit, for the record")
    parser.add_argument(
        "--unit", choices=("ms", "gflops", "limit_share"), default="ms", help="of the table"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="a line an operation, in place of progress and table"
    )


def run(options: argparse.Namespace) -> int:
    """Time the grid; print the table, write record and picture."""
    from aten_overrides._files import record_text, write_atomically
    from aten_overrides._runtime import import_torch
    from aten_overrides.bench import grids, picture, report
    from aten_overrides.bench.rivals import Rivals
    from aten_overrides.bench.run import Bench, bench
    from aten_overrides.measure import machine, style
    from aten_overrides.measure.clock import clock_for

    started = time.monotonic()
    cases = grids.load(options.grid)
    if not options.budget > 0:
        raise UserError(f"--budget must be above 0 seconds, found {options.budget}")
    for path in (options.out, options.png.resolve().parent if options.png else None):
        if path is not None and not path.is_dir():
            raise UserError(f"there is no folder {path}")
    if options.png:
        style.pyplot()  # say so now if it is missing
    torch = import_torch()
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here; --device cpu times the CPU")
    meta = {
        "topic": "bench",
        "command": shlex.join(["aten-overrides", *sys.argv[1:]]),
        "commit": options.commit,
        **machine.machine(torch, device == "cuda"),
        "grid": options.grid,
    }
    if device == "cuda":
        meta["clocks_before"] = machine.clocks()
    rivals = Rivals(torch, device, not options.no_others)
    meta["others"] = rivals.versions()

    def save(found: Bench) -> None:
        if options.out is None or not found.points:
            return
        assert found.limits is not None
        meta["limits"] = {"bytes_per_second": found.limits.bytes_per_second, **found.limits.flops}
        meta["left_out"] = len(found.left_out)
        gpu, version = str(meta["gpu"] or "cpu"), str(meta["torch"]).partition("+")[0]
        name = f"bench-{'-'.join(gpu.lower().split())}-torch{version}.json"
        text = record_text(meta, points=found.points, checks=found.checks)
        write_atomically(options.out / name, text)

    def tell(number: int, found: Bench) -> None:
        """After each case: an interruption then loses that case at most."""
        save(found)
        case, following = cases[number], cases[number + 1 : number + 2]
        if not options.quiet:
            words = f"{case.op} {case.dtype} {case.batch} x {case.n}"
            print(f"{number + 1} of {len(cases)}: {words}", file=sys.stderr)
        elif [one.op for one in following] != [case.op]:
            mine = [point for point in found.points if point["op"] == case.op]
            passed = time.monotonic() - started
            print(f"{case.op}: {report.line(mine)}; {passed:.0f} s so far", flush=True)

    left = options.budget - (time.monotonic() - started)
    found = bench(cases, rivals, clock_for(torch, device == "cuda"), left, tell)
    if not found.points:
        reasons = "; ".join(sorted({row["reason"] for row in found.checks})) or "no time"
        raise UserError(f"nothing could be timed: {reasons}")
    save(found)
    if not options.quiet:
        print(report.table(found.points, options.unit))
    _tell_missing(found.checks, options.quiet)
    if found.left_out:
        print(
            f"{len(found.left_out)} problems were left out: --budget {options.budget:g} s is over "
            "or the device answers no more"
        )
    if options.png is not None:
        picture.draw_limit(meta, found.points, options.png)
    return 1 if found.left_out else 0


def _tell_missing(checks: list[dict[str, Any]], short: bool) -> None:
    """What was not timed, each with its reason; in short: how often each rival, and a reason."""
    reasons: dict[str, list[str]] = {}
    for row in checks:
        if not short:
            print(f"not timed: {row['params']}: {row['reason']}")
        reasons.setdefault(str(row["params"].get("rival", row["name"])), []).append(row["reason"])
    for rival, said in reasons.items() if short else ():
        most = max(dict.fromkeys(said), key=said.count)
        print(f"not timed: {rival}, {len(said)} times: {most}")


COMMAND = Command("bench", "time operations against their rivals", add_arguments, run)
