"""tools/readme: writes the generated parts of README.md from patches, records and upstream.toml.

A part stands between `<!-- generated: NAME -->` and `<!-- end -->`; everything else is left alone.
`--check` writes nothing and exits with 1 when a part or a picture is not what would be written.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotools import env, plot
from aotools.compat import record as compat_record
from aotools.compat import table as compat_table
from aotools.env import UserError, run_cli, write_file
from aotools.patchset import base, edits

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = env.ROOT
RECORDS = ROOT / "test/gpu/records"
COMPAT = compat_record.PATH
UPSTREAM = Path(__file__).with_name("upstream.toml")
ISSUES = "https://github.com/pytorch/pytorch/issues"
PULLS = "https://github.com/pytorch/pytorch/pull"
NO_RECORD = "*No record yet: `tools/gpu-test patchset` on a machine with a GPU makes it.*"
_PART = re.compile(
    r"(?P<open><!-- generated: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<close><!-- end -->)", re.S
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A Markdown table; the last `numbers` columns are right-aligned."""
    words = len(head) - numbers
    lines = [list(head), ["---"] * words + ["---:"] * numbers, *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def milliseconds(value: float) -> str:
    """Three digits: 0.123, 1.23, 12.3, 123."""
    for limit, digits in ((1, 3), (10, 2), (100, 1)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:.0f}"


def load_record(topic: str, folder: Path | None = None) -> tuple[Path, dict[str, Any]] | None:
    """The newest record of a topic with its path; None when there is none."""
    path = plot.newest_record(folder or RECORDS, topic)
    return None if path is None else (path, json.loads(path.read_text(encoding="utf-8")))


def caption(path: Path, meta: Mapping[str, Any]) -> str:
    """On what, when and by which command a record was made, with a link to it."""
    command = meta["command"].partition(" --")[0]  # its options are in the record
    return (
        f"{meta['gpu']}, driver {meta['driver']}, torch {meta['torch']}, {meta['date']}; "
        f"[record]({path.relative_to(ROOT)}), made by `{command}`."
    )


# --- the parts ---


def patches(name: str = "v2.6.0") -> str:
    """The series of a base: patch, what it does, when upstream makes it unnecessary."""
    rows = []
    for patch in base.load(name).patches():
        release, _, address = patch.fields["Applied-Upstream"].partition(", ")
        upstream = f"[{release}]({address})" if address else release
        subject = patch.subject.removeprefix("[CUDA] ")
        link = f"[{patch.name.removesuffix('.patch')}](patches/{name}/{patch.name})"
        rows.append((link, subject, upstream))
    return table(("patch", "what it does", "in upstream since"), rows)


def upstream_data() -> dict[str, Any]:
    """upstream.toml as it is."""
    return tomllib.loads(UPSTREAM.read_text(encoding="utf-8"))


def upstream() -> str:
    """The state of each piece in upstream's releases."""
    data = upstream_data()
    rows = []
    for piece in data["piece"]:
        where = [f"issue [{piece['issue']}]({ISSUES}/{piece['issue']})"] if "issue" in piece else []
        where.append(f"PR [{piece['pull']}]({PULLS}/{piece['pull']}) {piece['pull_state']}")
        here = piece.get("patch", "").removesuffix(".patch")
        rows.append((piece["what"], ", ".join(where), *piece["states"], here))
    head = ("piece", "upstream", *data["releases"], "patch here")
    return table(head, rows) + f"\n\nChecked {data['checked']}."


def _base_with_edits(one: edits.EditBase) -> tuple[str, ...]:
    """The row of a base whose patches `tools/patchset compose` makes."""
    return (
        f"[{one.name}](patches/{one.name})",
        "upstream's main",
        "your checkout, by `tools/patchset compose`",
        f"{len(one.patches)}, as edits",
        f"composed and compiled on {one.tried_on}",
    )


def bases() -> str:
    """The bases that there are, with their source and the wheels they are relinked onto."""
    rows = []
    for path in sorted((ROOT / "patches").glob("*/base.toml")):
        if edits.holds_edits(path.parent.name):
            rows.append(_base_with_edits(edits.load(path.parent.name)))
            continue
        one = base.load(path.parent.name)
        wheels = ", ".join(f"{version} (CUDA {fact.cuda})" for version, fact in one.wheels.items())
        source = f"Debian {one.apt.suite}, " if one.apt else ""
        rows.append(
            (
                f"[{one.name}](patches/{one.name})",
                f"PyTorch {one.version}",
                f"{source}git tag {one.tag}, tarball or folder",
                str(len(one.series())),
                wheels,
            )
        )
    return table(("base", "of", "source", "patches", "checked against the wheels"), rows)


def cliff_table() -> str:
    """solve_ex at 511 and 512, stock and patched, by batch."""
    found = load_record("patchset")
    if found is None:
        return NO_RECORD
    path, record = found
    cliff = plot.read_cliff(record["meta"], record["points"])
    rows = []
    for preference, curves in cliff.panels.items():
        times = {(curve.library, curve.n): dict(curve.points) for curve in curves}
        for batch in sorted({batch for curve in curves for batch, _ in curve.points}):
            cells = []
            for library in plot.COLOURS:
                below = times.get((library, plot.BELOW), {}).get(batch)
                at = times.get((library, plot.AT), {}).get(batch)
                cells += [milliseconds(below) if below else "", milliseconds(at) if at else ""]
                cells.append(f"{at / below:.2f}" if at and below else "")
            rows.append((plot.TITLES[preference], str(batch), *cells))
    head = ["", "batch"]
    for library in plot.COLOURS:
        head += [f"{plot.NAMES[library]}: n = {plot.BELOW}", f"n = {plot.AT}", "ratio"]
    text = table(head, rows, numbers=7)
    return f"{text}\n\n`{plot.OP}`, {plot.DTYPE}, milliseconds. {caption(path, record['meta'])}"


def lanes_table() -> str:
    """A looped LU on one stream and on several, from the record's points."""
    for topic in ("patchset", "patchset-lanes"):  # the suite's, or that of this part alone
        found = load_record(topic)
        points = (
            [row for row in found[1]["points"] if row.get("job") == "lanes/speed"] if found else []
        )
        if found and points:
            break
    else:
        return NO_RECORD
    path, record = found
    times: dict[tuple[str, int, int], dict[int, float]] = {}
    for row in points:
        problem = (row["dtype"], row["batch"], row["n"])
        times.setdefault(problem, {})[row.get("lanes", 1)] = row["ms"]
    counts = sorted({lanes for by_lanes in times.values() for lanes in by_lanes})
    rows = []
    for (dtype, batch, n), by_lanes in times.items():
        cells = [milliseconds(by_lanes[lanes]) if lanes in by_lanes else "" for lanes in counts]
        rows.append((f"{batch} matrices of n = {n}, {dtype}", *cells))
    head = ("`lu_factor_ex`, milliseconds", "one stream", *(f"{n} streams" for n in counts[1:]))
    return f"{table(head, rows, numbers=len(counts))}\n\n{caption(path, record['meta'])}"


def allocations_table() -> str:
    """Allocator calls of one call by batch, without and with the series."""
    found = load_record("patchset")
    if found is None:
        return NO_RECORD
    path, record = found
    counted: dict[tuple[str, int], dict[str, int]] = {}
    for row in record["points"]:
        if "allocations" in row and row["backend"] == "choice":
            by_library = counted.setdefault((row["op"], row["batch"]), {})
            by_library[row["library"]] = row["allocations"]
    libraries = {"unpatched-nomagma": "without the patches", "patched-nomagma": "with the patches"}
    rows = []
    for op in dict.fromkeys(op for op, _ in counted):
        batches = sorted(batch for name, batch in counted if name == op)
        cells = [
            ", ".join(str(counted[op, batch].get(library, "?")) for batch in batches)
            for library in libraries
        ]
        rows.append((f"`{op}`", ", ".join(map(str, batches)), *cells))
    head = ("allocator calls of one call", "at batch", *libraries.values())
    return f"{table(head, rows, numbers=3)}\n\n{caption(path, record['meta'])}"


MOST_FAILURES = 4  # of one check; the others are counted


def failed(folder: Path | None = None) -> str:
    """What the records' checks found wrong, by name; the reasons in short, whole in the record."""
    lines = []
    for path in sorted((folder or RECORDS).glob("*.json")):
        checks = json.loads(path.read_text(encoding="utf-8")).get("checks", [])
        vendor: dict[str, int] = {}
        failures: dict[str, list[str]] = {}
        for row in checks:
            if row["result"] == "fail":
                what = " ".join(str(value) for value in row["params"].values())
                said = shorten(row["reason"] or str(row["value"]), 110)
                failures.setdefault(row["name"], []).append(f"  - {what}: {said}")
            elif row["result"] == "vendor":
                vendor[row["name"]] = vendor.get(row["name"], 0) + 1
        for name, details in failures.items():
            more = len(details) - MOST_FAILURES
            beyond = [f"  - and {more} more, in the record"] if more > 0 else []
            lines += [f"- failed in {path.stem}: {name}", *details[:MOST_FAILURES], *beyond]
        lines += [
            f"- a vendor's fault in {path.stem}: {name}, {count} times"
            for name, count in vendor.items()
        ]
    return "\n".join(lines) or "No check failed."


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, cut between words and marked as cut."""
    return textwrap.shorten(text, limit, placeholder=" ...")


def records(folder: Path | None = None) -> str:
    """Every record: on what, when, and what its checks came to."""
    rows = []
    for path in sorted((folder or RECORDS).glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        meta = data["meta"]
        results = [row["result"] for row in data.get("checks", [])]
        counts = [f"{results.count(word)} {word}" for word in ("pass", "fail", "vendor", "skip")]
        checks = ", ".join(text for text in counts if text[0] != "0")
        rows.append(
            (
                f"[{meta['topic']}]({path.relative_to(ROOT)})",
                str(meta["gpu"]),
                str(meta["torch"]),
                str(meta["date"]),
                str(len(data["points"])),
                checks or "none",
            )
        )
    return table(("record", "GPU", "torch", "date", "timed points", "checks"), rows)


def compatibility(folder: Path | None = None) -> str:
    """Which features of the package work with which release of torch, and why not."""
    if not COMPAT.is_file():
        return compat_table.NO_RECORD
    record = compat_record.load(COMPAT)
    metas = [
        json.loads(path.read_text(encoding="utf-8"))["meta"]
        for path in (folder or RECORDS).glob("overrides-*.json")
    ]
    rows, notes = compat_table.rows_and_notes(record, [str(meta["torch"]) for meta in metas])
    foot = compat_table.foot(record, notes, str(COMPAT.relative_to(ROOT)))
    return f"{table(compat_table.head(record), rows)}\n\n{foot}"


def figure_path(record: Path) -> Path:
    """Where the cliff's picture of a record lies."""
    return record.parent / "figures" / f"cliff-{record.stem.partition('-')[2]}.png"


def picture() -> str:
    """The cliff's picture with its words; the file itself is `sync_picture`'s."""
    found = load_record("patchset")
    if found is None:
        return NO_RECORD
    path, record = found
    words = plot.summary(plot.read_cliff(record["meta"], record["points"]))
    image = f"![The step from n = 511 to 512]({figure_path(path).relative_to(ROOT)})"
    lines = "\n".join(f"- {line}" for line in words.splitlines())
    return f"{image}\n\n{lines}\n\n{caption(path, record['meta'])}"


PARTS: dict[str, Callable[[], str]] = {
    "allocations-table": allocations_table,
    "bases": bases,
    "cliff-picture": picture,
    "cliff-table": cliff_table,
    "compatibility": compatibility,
    "failed-checks": failed,
    "lanes-table": lanes_table,
    "patches": patches,
    "records": records,
    "upstream": upstream,
}


# --- the file ---


def render(text: str, parts: Mapping[str, Callable[[], str]] = PARTS) -> str:
    """`text` with every generated part made anew; UserError for a marker that is not right."""
    opened = re.findall(r"<!-- generated: ", text)
    closed = re.findall(r"<!-- end -->", text)
    names = [match["name"] for match in _PART.finditer(text)]
    if not len(opened) == len(closed) == len(names):
        raise UserError(
            f"README.md: {len(opened)} markers open a generated part, {len(closed)} close one and "
            f"{len(names)} fit together; each needs <!-- generated: NAME --> and <!-- end -->"
        )
    unknown = sorted(set(names) - parts.keys())
    if unknown:
        raise UserError(
            f"README.md asks for generated parts that there are not: {', '.join(unknown)}. "
            f"There are: {', '.join(sorted(parts))}"
        )
    return _PART.sub(
        lambda match: f"{match['open']}{parts[match['name']]()}\n{match['close']}", text
    )


def picture_digest(cliff: plot.Cliff) -> str:
    """Identifies what a picture shows: its data and the code that draws it."""
    code = Path(plot.__file__).read_bytes()
    return hashlib.sha256(repr(cliff).encode() + code).hexdigest()


def stated_digest(png: Path) -> str:
    """The digest that a picture carries as its PNG text "Source"; "" when there is none."""
    from PIL import Image

    if not png.is_file():
        return ""
    with Image.open(png) as image:
        return str(image.info.get("Source", ""))


def sync_picture(*, check: bool) -> list[str]:
    """Draws the newest record's picture if it is not there; with `check` only says so."""
    found = load_record("patchset")
    if found is None:
        return []
    path, record = found
    target = figure_path(path)
    cliff = plot.read_cliff(record["meta"], record["points"])
    digest = picture_digest(cliff)
    if stated_digest(target) == digest:
        return []
    if not check:
        target.parent.mkdir(exist_ok=True)
        plot.draw(cliff, target, metadata={"Source": digest})
    return [f"{target.relative_to(ROOT)} is not drawn from {path.name} as it is"]


def main() -> int:
    """Writes or checks README.md; returns the exit code."""
    parser = argparse.ArgumentParser(prog="tools/readme", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 on a difference")
    options = parser.parse_args()
    # They build on this module.
    from aotools import cliffs, eigh_figures, figures, package_tables, rectangular_figures

    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    others = {**eigh_figures.PARTS, **figures.PARTS, **package_tables.PARTS}
    others |= rectangular_figures.PARTS
    fresh = render(text, {**PARTS, **others})
    problems = sync_picture(check=options.check)
    problems += figures.sync(check=options.check) + cliffs.sync(check=options.check)
    if not options.check:
        if fresh != text:
            write_file(path, fresh)
        print(f"{path}: {'written' if fresh != text or problems else 'was up to date'}")
        return 0
    if fresh != text:
        diff = difflib.unified_diff(
            text.splitlines(), fresh.splitlines(), "README.md", "generated", lineterm="", n=1
        )
        problems.append("README.md differs from what its sources say:\n" + "\n".join(diff))
    for problem in problems:
        print(problem)
    if problems:
        print("`tools/readme` writes it anew.")
    return 1 if problems else 0


if __name__ == "__main__":
    run_cli(main)
