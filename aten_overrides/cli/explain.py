"""``aten-overrides explain``: the back end of a problem, and why."""

from __future__ import annotations

import argparse
import dataclasses
import json

from aten_overrides._errors import UserError
from aten_overrides._explain import Decision, Explanation, GridCell, explain, grid
from aten_overrides._names import PREFERENCES
from aten_overrides._select import Basis, Candidate, Native
from aten_overrides._stock_rule import RULE
from aten_overrides.cli import Command

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SIZES = (16, 32, 64, 128, 192, 256, 384, 511, 512, 513, 768, 1024, 2048)
SHORT = {
    "batched_cublas": "cublas",
    "looped_cusolver": "looped",
    "streamed_cusolver": "streamed",
    "stock": "MAGMA",
    "batched_native": "native",
}


def integers(text: str) -> tuple[int, ...]:
    """``64,512,512`` -> (64, 512, 512)."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected integers separated by commas, as in 64,512,512; found {text!r}"
        ) from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "op",
        help="operation: lu_factor, lu_solve, solve, inv, eigh, eigvalsh, geqrf, orgqr, ormqr, "
        "cholesky, cholesky_solve, cholesky_inverse or ldl_factor",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--shape", type=integers, help="shape of the input: batch,m,n")
    what.add_argument(
        "--grid", action="store_true", help="the choice before and after over batches and sizes"
    )
    parser.add_argument("--dtype", default="float32", help="default: %(default)s")
    parser.add_argument(
        "--prefer",
        choices=PREFERENCES,
        default="default",
        metavar="LIBRARY",
        help=f"preferred library: {', '.join(PREFERENCES)}",
    )
    parser.add_argument("--gpu", help="GPU of the table, as h200, or a table's .json file")
    parser.add_argument("--lanes", type=int, default=4, help="streams, 0 for none; default: 4")
    parser.add_argument(
        "--no-stock", action="store_true", help="a build without MAGMA, or its use ruled out"
    )
    parser.add_argument("--no-native", action="store_true", help="a build without our own kernels")
    parser.add_argument("--capturing", action="store_true", help="the call is captured in a graph")
    parser.add_argument("--no-pivot", action="store_true", help="without row exchanges")
    parser.add_argument(
        "--nrhs", type=int, metavar="N", help="of lu_solve and solve: right-hand sides; default: 1"
    )
    parser.add_argument(
        "--adjoint", action="store_true", help="of lu_solve: with the (conjugate) transpose"
    )
    parser.add_argument("--batches", type=integers, help="with --grid: batches to show")
    parser.add_argument("--sizes", type=integers, help="with --grid: n to show")
    parser.add_argument("--json", action="store_true", help="print JSON")


def milliseconds(ms: float) -> str:
    """A time with three significant digits."""
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def _times(ms: float | None, regret: float | None) -> str:
    if ms is None:
        return "time unknown"
    return milliseconds(ms) + ("" if regret is None else f" ({regret:.2f}x the best)")


def _candidate(candidate: Candidate, best: float | None) -> str:
    if candidate.ms is None:
        return candidate.reason
    ratio = candidate.ms / best if best else None
    told = f"{_times(candidate.ms, ratio)}, {candidate.basis.name.lower()}"
    return f"{told}; {candidate.reason}" if candidate.reason else told


def _decision(decision: Decision) -> str:
    told = f"{decision.backend}, {_times(decision.ms, decision.regret)}"
    return f"{told}; cannot run here: {decision.reason}" if decision.reason else told


def report(found: Explanation) -> str:
    """The explanation as text; of solve and inv both halves."""
    if found.then is None:
        return _half(found)
    whole = "time unknown" if found.whole_ms is None else milliseconds(found.whole_ms)
    lines = [f"{found.asked}: {found.op} and {found.then.op}, {whole} in all", ""]
    lines += [_half(found), "", _half(found.then)]
    return "\n".join(lines)


def _what(found: Explanation) -> str:
    problem = found.problem
    matrices = "matrix" if problem.batch == 1 else "matrices"
    told = f"{found.op}, {found.dtype}: {problem.batch} {matrices} of {problem.m} x {problem.n}"
    if found.nrhs:
        told += f", {found.nrhs} right-hand side{'' if found.nrhs == 1 else 's'}"
        told += " (adjoint)" if found.transposed else ""
    return told + ("" if problem.pivot else ", without pivoting")


def _best(found: Explanation) -> float | None:
    """The least time among the back ends that are taken into account."""
    return min((c.ms for c in found.candidates if c.allowed and c.ms), default=found.ms)


def _half(found: Explanation) -> str:
    facts, source = found.facts, found.source
    usable = [
        f"{facts.lanes} streams" if facts.lanes >= 2 else "one stream",
        "MAGMA usable" if facts.stock else "no MAGMA",
        "our kernels built" if facts.native == Native.USABLE else "without our kernels",
    ]
    if facts.capturing:
        usable.append("captured into a CUDA graph")
    lines = [
        _what(found),
        f"preference {found.preference}; {', '.join(usable)}",
        f"times: {source.gpu}, measured {source.date} with torch {source.torch} ({source.path})",
        *([f"  {source.note}"] if source.note else []),
        "",
        f"chosen: {found.chosen}" + ("" if found.ms is None else f", {milliseconds(found.ms)}"),
    ]
    if not found.measured:
        lines.append(f"  the table has no time for such a problem: as {found.by}")
    lines += [
        f"  {candidate.backend:<18} {_candidate(candidate, _best(found))}"
        for candidate in sorted(found.candidates, key=_by_time)
    ]
    lines += [
        "",
        f"{found.by}: {_decision(found.thresholds)}",
        f"{found.rule}: {_decision(found.stock_rule)}",
    ]
    return "\n".join(lines)


def _by_time(candidate: Candidate) -> tuple[bool, float]:
    return not candidate.allowed, candidate.ms if candidate.ms is not None else float("inf")


def table_of(cells: tuple[GridCell, ...]) -> str:
    """The grid as text: ``before > after``, or one name where they are the same."""
    sizes = list(dict.fromkeys(cell.n for cell in cells))
    texts = {
        (cell.batch, cell.n): SHORT[cell.after]
        if cell.before == cell.after
        else f"{SHORT[cell.before]}>{SHORT[cell.after]}"
        for cell in cells
    }
    width = max(len(text) for text in texts.values()) + 2
    rows = [f"{'batch':>7}" + "".join(f"{f'n={n}':>{width}}" for n in sizes)]
    for batch in dict.fromkeys(cell.batch for cell in cells):
        rows.append(f"{batch:>7}" + "".join(f"{texts[batch, n]:>{width}}" for n in sizes))
    return "\n".join(rows)


def run(options: argparse.Namespace) -> int:
    """Print the explanation or the grid."""
    if not options.grid and (options.batches or options.sizes):
        raise UserError("--batches and --sizes go with --grid; with --shape leave them out")
    settings = {
        "prefer": options.prefer,
        "lanes": options.lanes,
        "stock": not options.no_stock,
        "native": not options.no_native,
        "capturing": options.capturing,
        "pivot": not options.no_pivot,
    }
    if options.grid and (options.nrhs is not None or options.adjoint):
        raise UserError("--nrhs and --adjoint go with --shape; with --grid leave them out")
    if options.grid:
        cells = grid(
            options.op,
            options.dtype,
            options.batches or BATCHES,
            options.sizes or SIZES,
            options.gpu,
            **settings,
        )
        if options.json:
            print(json.dumps([dataclasses.asdict(cell) for cell in cells]))
        else:
            print(f"{options.op}, {options.dtype}, square; {RULE} > ATen's thresholds")
            print(table_of(cells))
        return 0
    found = explain(
        options.op,
        options.shape,
        options.dtype,
        options.gpu,
        nrhs=options.nrhs,
        adjoint=options.adjoint,
        **settings,
    )
    print(json.dumps(as_json(found), indent=1) if options.json else report(found))
    return 0


def as_json(found: Explanation) -> dict[str, object]:
    """The explanation as JSON values; the basis of a time by name."""
    data = dataclasses.asdict(found)
    for candidate in data["candidates"]:
        candidate["basis"] = Basis(candidate["basis"]).name.lower()
    then = None if found.then is None else as_json(found.then)
    return {**data, "then": then, "ms": found.ms, "whole_ms": found.whole_ms}


COMMAND = Command("explain", "show which back end a problem takes, and why", add_arguments, run)
