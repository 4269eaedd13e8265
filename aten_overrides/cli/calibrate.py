"""``aten-overrides calibrate``: measure every back end on this GPU and make a cost table of it."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._files import record_text
from aten_overrides.cli import Command

INTERRUPTED = 130
EPILOG = """\
This table is of lu_factor. The choices for lu_solve and eigh read no table at run time: they are
compiled in, and `aten-overrides info` says of which GPU's measurements.
"""


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, found {text!r}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EPILOG
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
    parser.add_argument("--output", type=Path, metavar="FILE", help="table; default: the user's")
    parser.add_argument("--record", type=Path, metavar="FILE", help="also write every timing")
    parser.add_argument(
        "--emit-cpp",
        type=Path,
        metavar="FILE",
        help="also write ATen's thresholds as a header, and beside it NativeThresholds.h, those of "
        "our kernels, where they were measured",
    )
    parser.add_argument("--state", type=Path, metavar="FILE", help="results under way")
    parser.add_argument("--restart", action="store_true", help="forget results under way")
    parser.add_argument(
        "--force", action="store_true", help="replace files that no calibration wrote"
    )


def _bench(torch: Any, limit: int) -> tuple[Any, Any, int]:
    """(bench, gpu library, streams) with the overrides enabled."""
    from aten_overrides import _runtime
    from aten_overrides.calibration.gpu_bench import GpuBench
    from aten_overrides.tables.build import LANES

    if not torch.cuda.is_available():
        raise UserError(
            "calibrate measures a GPU, and torch sees none; `aten-overrides info` says more"
        )
    status = _runtime.enable(strict=True)
    library = _runtime.loaded_library()
    assert library is not None
    if status.lanes != LANES:
        raise UserError(
            f"tables hold times of {LANES} streams, and ATEN_OVERRIDES_STREAMS sets "
            f"{status.lanes}; unset it"
        )
    return GpuBench(torch, library, LANES, limit), library, LANES


def run(options: argparse.Namespace) -> int:
    """Measure and write; 0 complete, 1 some problems are left for another run, 130 interrupted."""
    started = time.monotonic()
    from aten_overrides import _info, _runtime
    from aten_overrides.calibration import grids, output, session, state
    from aten_overrides.tables import build, table

    grid = grids.load(options.grid)
    torch = _runtime.import_torch()
    for target in (options.record, *_headers(options), options.output):
        if target is not None:
            output.check_target(target, force=options.force)
    bench, library, lanes = _bench(torch, grid.limit)
    try:
        facts = output.machine(torch, _info._driver())
        built = _runtime.current_facts()
        target = options.output or table.user_folder() / build.file_name(facts["gpu"])
        output.check_target(target, force=options.force)
        if library.native() != 1:
            print(
                "our own kernels are not measured: they are not built, or not for this GPU; see "
                "aten-overrides info",
                file=sys.stderr,
            )
        setup = {
            key: facts[key] for key in ("gpu", "driver", "torch", "cublas", "cusolver", "sm_count")
        }
        setup |= {"library": built.sha256 if built else "", "grid": grid.digest, "lanes": lanes}
        place = options.state or target.with_suffix(".calibration")
        with state.State(place, setup, restart=options.restart) as kept:
            if kept.results:
                print(f"{len(kept.results)} problems are measured already", file=sys.stderr)
            try:
                outcome = session.run(bench, grid, kept, options.budget, started=started)
            except KeyboardInterrupt:
                print(
                    f"interrupted; {len(kept.results)} of {len(grid.tasks)} problems are kept in "
                    f"{place}, and the same command goes on. No table was written.",
                    file=sys.stderr,
                )
                return INTERRUPTED
            results = [kept.results[task] for task in grid.tasks if task in kept.results]
            _write(options, results, facts, lanes, target)
            print(
                f"{outcome.done} of {outcome.total} problems of {facts['gpu']} in {target}, "
                f"{outcome.seconds:.0f} s"
            )
            if outcome.complete:
                kept.remove()
                return 0
            print(f"the budget is over; the same command goes on (results in {place})")
            return 1
    finally:
        _runtime.disable()


def stated_command(arguments: Sequence[str]) -> str:
    """The command as a record states it: files by name, without the folders of the machine."""
    words = [Path(word).name if "/" in word else word for word in arguments]
    return shlex.join(["aten-overrides", *words])


def _headers(options: argparse.Namespace) -> list[Path]:
    """The headers asked for: of the libraries' thresholds, and of our kernels'."""
    given: Path | None = options.emit_cpp
    if given is None:
        return []
    beside = given.with_name("NativeThresholds.h")
    if beside == given:
        raise UserError(f"--emit-cpp {given}: that is the name of the other header; name another")
    return [given, beside]


def _write(
    options: argparse.Namespace, results: list[Any], facts: dict[str, Any], lanes: int, target: Path
) -> None:
    from aten_overrides.calibration import output
    from aten_overrides.tables import native, table, thresholds

    if not any(result.times for result in results):
        raise UserError("nothing was measured, so no table is written")
    command = stated_command(sys.argv[1:])
    data = output.record(results, facts, command=command, lanes=lanes, grid=options.grid)
    if options.record is not None:
        output.write(options.record, record_text(data["meta"], points=data["points"]))
    output.write(target, output.table_text(data, options.record))
    made = table.load(target)
    if options.emit_cpp is not None:
        try:
            header, beside = _headers(options)
            texts = {header: thresholds.generate(made)}
            if any(native.NATIVE in point.ms for point in made.points):
                texts[beside] = native.generate(made, made)
        except (ValueError, KeyError, ZeroDivisionError) as error:
            raise UserError(
                f"the table {target} has too few problems for thresholds ({error}); they need "
                "square ones with and without pivoting and rectangular ones in every dtype: "
                "--grid full with a larger --budget"
            ) from error
        for path, text in texts.items():
            output.write(path, text)


COMMAND = Command("calibrate", "measure every back end on this GPU", add_arguments, run)
