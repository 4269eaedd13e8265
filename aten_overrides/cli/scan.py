"""``aten-overrides scan``: find the sizes at which a callable becomes slower by a step."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._names import PREFERENCES, dtype_name
from aten_overrides.cli import Command

LEAST_SIZES = 5
EPILOG = """\
A jump is where time grows from one size to the next by more than the curve's trend, by --factor
or more. It is a step if the curve stays there, a drop if it comes back by a jump (a stretch of slow
sizes), a tooth if it fades over the next sizes. Jumps that the noise leaves open are AMBIGUOUS.

exit code: 0 no cliff, 1 found (from --fail-over on), 2 could not measure: the time ended, sizes
were skipped, or an AMBIGUOUS jump may be large enough.

FUNCTION takes one size. If it returns a callable, that one is timed and FUNCTION prepares it,
untimed. Its attribute `work`, a function of the size too, gives the operations of one call.
"""


def sizes(text: str) -> tuple[int, int, int]:
    """``100:180`` or ``100:1000:4`` -> (first, last, step)."""
    try:
        parts = [int(part) for part in text.split(":")]
    except ValueError:
        parts = []
    if len(parts) == 2:
        parts.append(1)
    if len(parts) != 3 or parts[0] < 1 or parts[2] < 1:
        raise argparse.ArgumentTypeError(
            f"expected FIRST:LAST or FIRST:LAST:STEP with sizes from 1 on, as 480:544; found {text}"
        )
    first, last, step = parts
    if (last - first) // step + 1 < LEAST_SIZES:
        raise argparse.ArgumentTypeError(f"{text} holds fewer than {LEAST_SIZES} sizes")
    return first, last, step


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--op", help="an operation of torch.linalg, as solve_ex")
    what.add_argument("--callable", metavar="MODULE:FUNCTION", help="any function of a size")
    what.add_argument(
        "--self-test", action="store_true", help="search curves with known cliffs, without a clock"
    )
    parser.add_argument("--n", type=sizes, metavar="FIRST:LAST[:STEP]", help="the sizes")
    parser.add_argument("--batch", type=int, default=1, help="matrices; default: 1")
    parser.add_argument("--dtype", default="float32", help="default: %(default)s")
    parser.add_argument("--nrhs", type=int, default=1, help="right-hand sides; default: 1")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is one")
    parser.add_argument("--prefer", choices=PREFERENCES, help="preferred linalg library")
    parser.add_argument("--overrides", action="store_true", help="enable the overrides")
    parser.add_argument("--clock", choices=("auto", "cuda", "wall"), default="auto")
    parser.add_argument(
        "--budget", type=float, default=60, metavar="SECONDS", help="default: %(default)g"
    )
    parser.add_argument(
        "--factor", type=float, default=1.12, help="least jump to report; default: %(default)g"
    )
    parser.add_argument(
        "--fail-over", type=float, metavar="FACTOR", help="least jump for exit code 1"
    )
    parser.add_argument("--baseline", type=Path, help="an earlier scan's JSON: report changes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    parser.add_argument("--resume", action="store_true", help="go on with the file of --json")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the curve and the kernels")
    parser.add_argument(
        "--no-explain", action="store_true", help="leave out kernels and other back ends"
    )
    parser.add_argument("--curves", type=int, default=200, help=argparse.SUPPRESS)


def _check(options: argparse.Namespace) -> None:
    if options.n is None:
        raise UserError("--n is missing: which sizes, as 480:544")
    for name in ("batch", "nrhs"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name} must be at least 1, found {getattr(options, name)}")
    if not options.factor > 1.02:
        raise UserError(f"--factor must be above 1.02, found {options.factor}: noise is no cliff")
    if options.fail_over is not None and options.fail_over < options.factor:
        raise UserError(
            f"--fail-over {options.fail_over} is below --factor {options.factor}, so such jumps "
            "are not looked for: lower --factor as well"
        )
    if not options.budget > 0:
        raise UserError(f"--budget must be above 0 seconds, found {options.budget}")
    if options.resume and options.json is None:
        raise UserError("--resume goes on with the file of --json, which is missing")
    for path in (options.json, options.png):
        if path is not None and not path.resolve().parent.is_dir():
            raise UserError(f"the folder of {path} does not exist")


def _torch(needed: bool) -> Any | None:
    try:
        import torch
    except Exception as error:
        if needed:
            raise UserError(
                f"torch cannot be imported by {sys.executable} ({error}), and --op is torch's; "
                "--callable works without it"
            ) from error
        return None
    return torch


def _device(torch: Any | None, asked: str | None) -> str:
    available = torch is not None and bool(torch.cuda.is_available())
    if asked == "cuda" and not available:
        raise UserError("--device cuda: torch sees no GPU here; --device cpu scans on the CPU")
    return asked or ("cuda" if available else "cpu")


def _self_test(curves: int) -> int:
    from aten_overrides.scan.selftest import self_test
    from aten_overrides.scan.synthetic import BUSY, NOISE, OUTLIERS

    goal = self_test(curves, curves)
    print(f"noise {NOISE:.0%}, {OUTLIERS:.1%} of the samples up to three times too long:\n{goal}")
    busy = self_test(curves, curves, outliers=BUSY)
    print(f"the same with {BUSY:.0%} of the samples too long, for comparison:\n{busy}")
    print("goals (first case): 95 % found, at most 1 % of clean curves with a finding:", end=" ")
    print("held" if goal.good else "MISSED")
    return 0 if goal.good else 1


def run(options: argparse.Namespace) -> int:
    """Scan, report, and return the exit code."""
    if options.self_test:
        return _self_test(options.curves)
    _check(options)
    from aten_overrides.measure import style
    from aten_overrides.measure.operations import operation
    from aten_overrides.scan import picture
    from aten_overrides.scan.report import report
    from aten_overrides.scan.run import MOST_EXPLAINED, read, scan
    from aten_overrides.scan.search import Settings
    from aten_overrides.scan.target import Target
    from aten_overrides.scan.verdict import changes, check_baseline, outcome

    if options.png is not None:
        style.pyplot()  # say so now if it is missing
    baseline = read(options.baseline) if options.baseline is not None else None
    torch = _torch(needed=options.op is not None)
    target = Target(
        op=operation(options.op).name if options.op else "",
        path=options.callable or "",
        dtype=dtype_name(options.dtype) if options.op else "",
        batch=options.batch,
        nrhs=options.nrhs,
        device=_device(torch, options.device),
        prefer=options.prefer or "",
        overrides=options.overrides,
    )
    fail_over = options.fail_over or options.factor
    found = scan(
        target,
        options.n,
        Settings(factor=options.factor),
        options.budget,
        torch=torch,
        clock=options.clock,
        path=options.json,
        resume=options.resume,
        explain=0 if options.no_explain else MOST_EXPLAINED,
        command=shlex.join(["aten-overrides", *sys.argv[1:]]),
    )
    if baseline is not None:
        check_baseline(found, baseline)
    result = outcome(found, fail_over, baseline)
    compared = changes(found, baseline, fail_over) if baseline is not None else None
    print(report(found, result, compared))
    if options.png is not None and found.levels:
        picture.draw(found, options.png)
    return result.code


COMMAND = Command(
    "scan", "find sizes at which a callable becomes slower by a step", add_arguments, run
)
