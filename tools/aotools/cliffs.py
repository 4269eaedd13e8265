"""docs/cliffs.md and its pictures, from the record of test/gpu/scan/run.py.

    python -m aotools.cliffs [--check]

`--check` writes nothing and exits with 1 when a file is not what would be written.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotools import readme
from aotools.env import UserError, run_cli, write_file
from aten_overrides.measure import style
from aten_overrides.scan import kernels, picture
from aten_overrides.scan.run import Explained, Scan, from_json
from aten_overrides.scan.verdict import missing

TOPIC = "cliffs"
COMMAND = "python3 test/gpu/scan/run.py"
PICTURES = 2  # of the largest cliffs
NO_RECORD = f"*No record yet: `{COMMAND}` on a machine with a GPU makes it.*"
HEAD = """\
# Cliffs in torch.linalg

Sizes at which an operation becomes slower by a step, as `aten-overrides scan` found them, in stock
torch and with the overrides. A *step* stays, a *drop* comes back by a jump (a stretch of slow
sizes), a *tooth* fades over the next sizes; "up to n" marks steps after which it is faster, so that
the sizes below are the slow ones. The factor is what a call takes more than the trend of the sizes
on the other side. Only what was scanned is listed: a stretch narrower than the distance of the
measured sizes may be missing, and other batches may have other cliffs.

This file is written by `tools/readme` from the record; do not edit it.
"""

# --- the record ---


def scans_of(record: Mapping[str, Any]) -> list[Scan]:
    """The scans of a record, with their levels from its points."""
    levels: dict[str, dict[str, list[Any]]] = {}
    for point in record["points"]:
        row = [point["ms"], *point["spread"], point["repeats"]]
        levels.setdefault(point["job"], {})[str(point["n"])] = row
    return [
        from_json({**data, "levels": levels.get(str(number), {})})
        for number, data in enumerate(record["scans"])
    ]


# --- the document ---


def _problem(scan: Scan) -> str:
    target = scan.target
    rhs = f", {target.nrhs} right-hand sides" if target.nrhs > 1 else ""
    prefer = f', preference "{target.prefer}"' if target.prefer else ""
    return f"`{target.op}` {target.dtype}, batch {target.batch}{rhs}{prefer}"


def _twin(scan: Scan, scans: Sequence[Scan]) -> Scan | None:
    """The same scan with the overrides."""
    for other in scans:
        a, b = scan.target, other.target
        same = (a.op, a.dtype, a.batch, a.nrhs, a.prefer) == (
            b.op,
            b.dtype,
            b.batch,
            b.nrhs,
            b.prefer,
        )
        if same and b.overrides and other.wanted == scan.wanted:
            return other
    return None


def _where(explained: Explained) -> str:
    finding = explained.finding
    if finding.direction == "faster":
        return f"{finding.kind}, up to {finding.below}"
    until = f" to {finding.until}" if finding.until is not None else ""
    period = f", every {finding.period}" if finding.period else ""
    return f"{finding.kind} at {finding.size}{until}{period}"


def _ours(explained: Explained, scan: Scan, twin: Scan | None) -> str:
    """What the overrides do at this place."""
    if twin is None:
        return "not covered"
    finding = explained.finding
    there = [one.finding for one in twin.findings if one.finding.size == finding.size]
    sizes = (finding.below, finding.size)
    times = [twin.levels[size][0] * 1e3 for size in sizes if size in twin.levels]
    shown = " to ".join(readme.milliseconds(ms) for ms in times)
    if there:
        word = "AMBIGUOUS" if there[0].ambiguous else f"{there[0].factor:.2f}x remains"
        return f"{word} ({shown} ms)" if len(times) == 2 else word
    if len(times) == 2:
        return f"none ({shown} ms)"
    near = twin.resolution
    return f"none found (sizes {near} apart)" if twin.complete else "not decided in the time given"


def _best(explained: Explained) -> str:
    """The best back end at the slow side, with the factor of stock's time to it."""
    if not explained.sides:
        return ""
    finding = explained.finding
    side = explained.sides[0 if finding.direction == "faster" else 1]
    name, ms = side.best
    return f"{side.ms / ms:.2f}x, {name}" if side.times else ""


def _row(scan: Scan, explained: Explained, twin: Scan | None) -> tuple[str, ...]:
    finding = explained.finding
    below, at = (readme.milliseconds(t * 1e3) for t in (finding.seconds_below, finding.seconds))
    return (
        _problem(scan),
        _where(explained),
        f"{finding.factor:.2f}x",
        f"{below} to {at}",
        explained.cause or "",
        _best(explained),
        _ours(explained, scan, twin),
    )


def _kept(scan: Scan) -> list[Explained]:
    return [one for one in scan.findings if not one.finding.ambiguous]


def document(path: Path | None, record: Mapping[str, Any] | None, figures: Sequence[Path]) -> str:
    """The whole text of docs/cliffs.md."""
    if record is None or path is None:
        return f"{HEAD}\n{NO_RECORD}\n"
    scans = scans_of(record)
    stock = [scan for scan in scans if not scan.target.overrides]
    head = ["operation", "cliff", "factor", "ms before, after", "cause"]
    head += ["stock over the best there", "with the overrides"]
    rows = [
        (explained.finding.factor, _row(scan, explained, _twin(scan, scans)))
        for scan in stock
        for explained in _kept(scan)
    ]
    parts = [HEAD, readme.caption(path, record["meta"]).replace("](test/", "](../test/")]
    parts += [f"![{name.stem}]({_link(name)})" for name in figures]
    parts.append("## In stock torch")
    if rows:
        ordered = [row for _, row in sorted(rows, key=lambda pair: -pair[0])]
        parts.append(readme.table(head, ordered))
    else:
        parts.append("No cliff was found.")
    parts.append("## With the overrides only")
    parts.append(_own(scans, stock))
    parts.append("## What was scanned")
    parts.append(_scanned(scans))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _own(scans: Sequence[Scan], stock: Sequence[Scan]) -> str:
    """Cliffs that the overrides have where stock torch has none."""
    lines = []
    for scan in scans:
        if not scan.target.overrides:
            continue
        known = {
            one.finding.size
            for other in stock
            if _twin(other, [scan]) is scan
            for one in _kept(other)
        }
        for one in _kept(scan):
            if one.finding.size not in known:
                cause = f"; {one.cause}" if one.cause else ""
                best = f"; {_best(one)}" if _best(one) else ""
                lines.append(
                    f"- {_problem(scan)}: {_where(one)}, {one.finding.factor:.2f}x{cause}{best}"
                )
    return "\n".join(lines) or "None was found."


def _scanned(scans: Sequence[Scan]) -> str:
    rows = []
    for scan in scans:
        first, last, _ = scan.wanted
        left_out = "; ".join(missing(scan, scan.settings.factor))
        rows.append(
            (
                _problem(scan),
                "overrides" if scan.target.overrides else "stock",
                f"{first} to {last}",
                str(len(scan.levels)),
                str(len(_kept(scan))),
                left_out or "all decided",
            )
        )
    head = ("operation", "torch", "n", "sizes measured", "cliffs", "what could not be measured")
    return readme.table(head, rows)


def _link(path: Path) -> str:
    return f"../{path.relative_to(readme.ROOT)}"


# --- pictures ---


def pictures(path: Path, record: Mapping[str, Any]) -> list[tuple[Path, Scan, str]]:
    """The pictures of the largest traced cliffs: file, scan and digest of what it shows."""
    traced = [
        (worst.finding.factor, scan)
        for scan in scans_of(record)
        if not scan.target.overrides and (worst := picture.worst_traced(scan)) is not None
    ]
    made = []
    for _, scan in sorted(traced, key=lambda pair: -pair[0])[:PICTURES]:
        target, machine = scan.target, path.stem.partition("-")[2]
        words = [
            target.op,
            target.dtype,
            f"b{target.batch}",
            *[target.prefer] * bool(target.prefer),
        ]
        name = f"cliffs-{'-'.join(words)}-n{scan.wanted[0]}-{machine}.png"
        digest = hashlib.sha256(json.dumps(scan.json(), sort_keys=True).encode())
        for module in (picture, kernels, style):
            digest.update(Path(str(module.__file__)).read_bytes())
        made.append((path.parent / "figures" / name, scan, digest.hexdigest()))
    return made


def document_path() -> Path:
    """Where the document lies."""
    return readme.ROOT / "docs/cliffs.md"


def sync(*, check: bool) -> list[str]:
    """Writes what differs and names it; with `check` only names it."""
    found = readme.load_record(TOPIC)
    path, record = found if found is not None else (None, None)
    drawn = pictures(path, record) if path is not None and record is not None else []
    wrong = []
    for target, scan, digest in drawn:
        if readme.stated_digest(target) != digest:
            wrong.append(f"{target.name} is not drawn from the record as it is")
            if not check:
                target.parent.mkdir(exist_ok=True)
                picture.draw(scan, target, {"Source": digest})
    text = document(path, record, [target for target, _, _ in drawn])
    place = document_path()
    present = place.read_text(encoding="utf-8") if place.exists() else ""
    if present != text:
        lines = difflib.unified_diff(present.splitlines(), text.splitlines(), lineterm="", n=0)
        wrong.append(f"{place.name} differs from what the record says:\n" + "\n".join(lines))
        if not check:
            place.parent.mkdir(exist_ok=True)
            write_file(place, text)
    return wrong


def main() -> int:
    """Writes or checks docs/cliffs.md; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m aotools.cliffs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 on a difference")
    options = parser.parse_args()
    try:
        wrong = sync(check=options.check)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the record of {TOPIC} is not of the form expected: {error}") from error
    for problem in wrong if options.check else []:
        print(problem)
    if not options.check:
        print(f"{document_path()}: {'written' if wrong else 'was up to date'}")
        return 0
    return 1 if wrong else 0


if __name__ == "__main__":
    run_cli(main)
