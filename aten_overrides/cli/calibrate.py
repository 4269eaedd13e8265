"""``aten-overrides calibrate``: measure every back end on this GPU and make a cost table of it."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aten_overrides._errors import UserError
from aten_overrides._files import record_text
from aten_overrides._names import short_name
from aten_overrides.cli import Command

if TYPE_CHECKING:
    from aten_overrides.calibration.grids import Grid

INTERRUPTED = 130
ALL = ("lu_factor", "lu_solve", "eigh")
# How the budget is shared out: the tables of LU have most problems.
SHARE = {"lu_factor": 3, "lu_solve": 2, "eigh": 1}
EPILOG = """\
lu_factor has the table that its choice interpolates in; to those of lu_solve and eigh rankings are
fitted, in place of the ones that are compiled in. What was not measured here stays as compiled in.
"""


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found {text!r}")
    return value


def _ops(text: str) -> tuple[str, ...]:
    names = [short_name(name.strip()) for name in text.split(",")]
    names = ["eigh" if name == "eigvalsh" else name for name in names]  # one table has both
    if "all" in names:
        return ALL
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is nothing to measure for {', '.join(unknown)!r}; known are {', '.join(ALL)}, "
            "all"
        )
    return tuple(name for name in ALL if name in names)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--op",
        type=_ops,
        default=ALL,
        metavar="OP[,OP...]",
        help=f"what to measure: {', '.join(ALL)} or all, which is the default",
    )
    parser.add_argument(
        "--budget",
        type=_seconds,
        default=600.0,
        metavar="SECONDS",
        help="begin no problem after so long; the next run goes on (default: %(default)g)",
    )
    parser.add_argument(
        "--grid", default="quick", help="problems: quick, full or FILE.json:NAME (default: quick)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="table, of one --op; default: the user's"
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="also write every timing; of several operations as FILE-OP.json",
    )
    parser.add_argument(
        "--emit-cpp",
        type=Path,
        metavar="FILE",
        help="also write ATen's thresholds as a header; beside it NativeThresholds.h, those of our "
        "kernels, where they were measured, and the headers of further operations",
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="results under way, of one --op")
    parser.add_argument("--restart", action="store_true", help="forget results under way")
    parser.add_argument(
        "--force", action="store_true", help="replace files that no calibration wrote"
    )


def _library(torch: Any) -> tuple[Any, int]:
    """(gpu library, streams) with the overrides enabled."""
    from aten_overrides import _runtime
    from aten_overrides.tables.build import LANES

    if not torch.cuda.is_available():
        raise UserError(
            "calibrate measures a GPU, and torch sees none; `aten-overrides info` says more"
        )
    status = _runtime.enable(only=_runtime.OPS_MEASURED, strict=True)
    library = _runtime.loaded_library()
    assert library is not None
    if status.lanes != LANES:
        raise UserError(
            f"tables hold times of {LANES} streams, and ATEN_OVERRIDES_STREAMS sets "
            f"{status.lanes}; unset it"
        )
    return library, LANES


def _bench(op: str, torch: Any, library: Any, lanes: int, limit: int) -> Any:
    """What measures an operation."""
    from aten_overrides.calibration.gpu_bench import GpuBench
    from aten_overrides.calibration.other_benches import EighBench, SolveBench

    if op == "lu_factor":
        return GpuBench(torch, library, lanes, limit)
    return (SolveBench if op == "lu_solve" else EighBench)(torch, library, limit)


@dataclass(frozen=True)
class _Job:
    """One operation to measure, and where its results go."""

    op: str
    grid: Grid
    target: Path
    state: Path
    record: Path | None
    headers: tuple[Path, ...]


def _jobs(options: argparse.Namespace, gpu: str) -> list[_Job]:
    from aten_overrides.calibration import grids
    from aten_overrides.tables import build, own, table

    one = len(options.op) == 1
    jobs = []
    for op in options.op:
        if op == "lu_factor":
            users = table.user_folder() / build.file_name(gpu)
        else:
            users = own.target(op, gpu)
        target = options.output or users
        record: Path | None = options.record
        if record is not None and not one:
            record = record.with_name(f"{record.stem}-{op}{record.suffix}")
        state = options.state or target.with_suffix(".calibration")
        headers = _headers(options, op)
        jobs.append(_Job(op, grids.load(options.grid, op), target, state, record, headers))
    return jobs


def run(options: argparse.Namespace) -> int:
    """Measure and write; 0 complete, 1 some problems are left for another run, 130 interrupted."""
    started = time.monotonic()
    from aten_overrides import _info, _runtime
    from aten_overrides.calibration import grids, output

    for name in ("output", "state"):
        if getattr(options, name) is not None and len(options.op) > 1:
            raise UserError(
                f"--{name} is of one operation, and {', '.join(options.op)} are measured; name one "
                "with --op"
            )
    for op in options.op:
        grids.load(options.grid, op)
    for target in (options.record, options.output, *_all_headers(options)):
        if target is not None:
            output.check_target(target, force=options.force)
    torch = _runtime.import_torch()
    library, lanes = _library(torch)
    try:
        facts = output.machine(torch, _info._driver())
        jobs = _jobs(options, facts["gpu"])
        for job in jobs:
            for path in (job.target, job.record):
                if path is not None:
                    output.check_target(path, force=options.force)
        if library.native() != 1:
            print(
                "our own kernels are not measured: they are not built, or not for this GPU; see "
                "aten-overrides info",
                file=sys.stderr,
            )
        left = False
        for place, job in enumerate(jobs):
            shares = [SHARE[later.op] for later in jobs[place:]]
            rest = options.budget - (time.monotonic() - started)
            budget = rest * shares[0] / sum(shares)
            code = _measure(options, job, torch, library, lanes, facts, budget)
            if code == INTERRUPTED:
                return code
            left = left or code != 0
        return int(left)
    finally:
        _runtime.disable()


def _measure(
    options: argparse.Namespace,
    job: _Job,
    torch: Any,
    library: Any,
    lanes: int,
    facts: dict[str, Any],
    budget: float,
) -> int:
    """One operation within ``budget`` seconds; the values of ``run``."""
    from aten_overrides import _runtime
    from aten_overrides.calibration import session, state

    built = _runtime.current_facts()
    setup = {
        key: facts[key] for key in ("gpu", "driver", "torch", "cublas", "cusolver", "sm_count")
    }
    setup |= {"library": built.sha256 if built else "", "grid": job.grid.digest, "lanes": lanes}
    with state.State(job.state, setup, restart=options.restart) as kept:
        if kept.results:
            print(f"{len(kept.results)} problems of {job.op} are measured already", file=sys.stderr)
        try:
            bench = _bench(job.op, torch, library, lanes, job.grid.limit)
            outcome = session.run(bench, job.grid, kept, budget)
        except KeyboardInterrupt:
            print(
                f"interrupted; {len(kept.results)} of {len(job.grid.tasks)} problems of {job.op} "
                f"are kept in {job.state}, and the same command goes on. No table of it was "
                "written.",
                file=sys.stderr,
            )
            return INTERRUPTED
        results = [kept.results[task] for task in job.grid.tasks if task in kept.results]
        _write(options, job, results, facts, lanes)
        print(
            f"{outcome.done} of {outcome.total} problems of {job.op} on {facts['gpu']} in "
            f"{job.target}, {outcome.seconds:.0f} s"
        )
        if outcome.complete:
            kept.remove()
            return 0
        print(f"the budget is over; the same command goes on (results in {job.state})")
        return 1


def stated_command(arguments: Sequence[str]) -> str:
    """The command as a record states it: files by name, without the folders of the machine."""
    words = [Path(word).name if "/" in word else word for word in arguments]
    return shlex.join(["aten-overrides", *words])


def _headers(options: argparse.Namespace, op: str) -> tuple[Path, ...]:
    """The headers asked for of an operation: of lu_factor those of the libraries' thresholds and of
    our kernels', of lu_solve the patches' and the package's. The first operation's first one has
    the name given, the others lie beside it.
    """
    from aten_overrides.calibration.output import HEADERS

    given: Path | None = options.emit_cpp
    if given is None:
        return ()
    names = list(HEADERS[op])
    beside = [given.with_name(name) for name in names]
    if op == options.op[0]:
        beside[0] = given
    return tuple(beside)


def _all_headers(options: argparse.Namespace) -> list[Path]:
    headers = [path for op in options.op for path in _headers(options, op)]
    twice = next((path for path in headers if headers.count(path) > 1), None)
    if twice is not None:
        raise UserError(
            f"--emit-cpp {options.emit_cpp}: that is the name of the other header; name another"
        )
    return headers


def _write(
    options: argparse.Namespace,
    job: _Job,
    results: list[Any],
    facts: dict[str, Any],
    lanes: int,
) -> None:
    from aten_overrides.calibration import output

    if not any(result.times for result in results):
        raise UserError(f"nothing was measured of {job.op}, so no table is written")
    command = stated_command(sys.argv[1:])
    data = output.record(results, facts, command=command, lanes=lanes, grid=options.grid)
    if job.record is not None:
        output.write(job.record, record_text(data["meta"], points=data["points"]))
    output.write(job.target, output.table_text(data, job.record, job.op))
    for path, text in output.headers(job.op, job.target, job.headers).items():
        output.write(path, text)


COMMAND = Command("calibrate", "measure every back end on this GPU", add_arguments, run)
