"""tools/patchset pr: the text of a pull request for one patch, as upstream's reviewers ask for it.

Words come from the patch's header and pr.toml, figures from the records only.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotools import env
from aotools.env import UserError
from aotools.patchset import base as bases
from aotools.patchset import (
    check_edits,
    compose,
    fetch,
    port_target,
    pr_composed,
    pr_loops,
    pr_severity,
    pr_views,
)
from aotools.patchset.base import Base, Patch
from aotools.patchset.edits import EditBase

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME, TEXT = (
    "pr",
    "Print the text of a pull request for one patch: title, change, benchmark, tests.",
)
ABOUT = Path(__file__).with_name("pr.toml")
RECORDS = env.ROOT / "test/gpu/records"
VIEWS = {**pr_views.VIEWS, **pr_severity.VIEWS, **pr_loops.VIEWS, **pr_composed.VIEWS}
_PLACES = ("rocm", "magma", "windows", "cuda")
_PLACE_NAMES = {"rocm": "ROCm", "magma": "MAGMA", "windows": "Windows", "cuda": "CUDA"}


def about(name: str, path: Path = ABOUT, *, base: str = "") -> dict[str, Any]:
    """What pr.toml says of a patch, over what it says of all; UserError for an unknown view.

    What it says of the patch in the base `base` comes before what holds for all bases.
    """
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    key = name.removesuffix(".patch")
    own = data.get("patch", {}).get(key, {}) | data.get("base", {}).get(base, {}).get(key, {})
    unknown = [view for view in own.get("views", ()) if view not in VIEWS]
    if unknown:
        raise UserError(
            f"{path}: {name} asks for the view {unknown[0]}; there are {', '.join(VIEWS)}"
        )
    return {**data.get("all", {}), **own, "known": bool(own)}


def title(patch: Patch, facts: Mapping[str, Any]) -> str:
    """In upstream's style: "[linalg] Share one cuSOLVER workspace"."""
    plain = re.sub(r"^(\[[^\]]*\] ?)+", "", patch.subject)
    return f"[{facts.get('tag', 'linalg')}] {plain}"


def issues(patch: Patch, word: str = "Fixes") -> str:
    """The issue lines: `word` only for what upstream has not closed already."""
    closes = patch.fields.get("Applied-Upstream", "no") == "no"
    rows = []
    for address in patch.fields.get("Bug", "").split():
        number = re.fullmatch(r"https://github.com/pytorch/pytorch/issues/(\d+)", address)
        rows.append(f"{word if closes else 'Related to'} {f'#{number[1]}' if number else address}")
    release, _, pull = patch.fields.get("Applied-Upstream", "no").partition(", ")
    if not closes:
        rows.append(f"Upstream has a change for this since {release}: {pull or 'see there'}")
    return "\n".join(rows)


def changed_lines(patch: Patch) -> list[tuple[str, int, int]]:
    """(path, lines added, lines removed) for each file of the patch."""
    text = patch.path.read_text(encoding="utf-8")
    rows = []
    for part in text.split("\ndiff --git ")[1:]:
        body = part.partition("\n@@ ")[2].splitlines()[1:]
        path = re.match(r"a/.+ b/(.+)", part.splitlines()[0])
        added = sum(line.startswith("+") for line in body)
        removed = sum(line.startswith("-") for line in body)
        rows.append((path[1] if path else "?", added, removed))
    return rows


def tests(patch: Patch, series: Sequence[Patch], facts: Mapping[str, Any]) -> list[str]:
    """The tests that are this patch's: those it adds, else those of the series that pr.toml names.

    UserError for a name that no patch of the series adds.
    """
    added = {one.name: _added_tests(one) for one in series}
    own = added.get(patch.name) or _added_tests(patch)
    everywhere = {name for names in added.values() for name in names} | set(own)
    wanted = list(facts.get("tests", ()))
    if missing := [name for name in wanted if name not in everywhere]:
        raise UserError(f"{ABOUT}: no patch of the series adds the test {missing[0]}")
    return own + [name for name in wanted if name not in own]


def _added_tests(patch: Patch) -> list[str]:
    return re.findall(r"^\+ +def (test_\w+)", patch.path.read_text(encoding="utf-8"), re.M)


def measured_with(patch: Patch, folder: Path, topics: Sequence[str] = pr_views.LANES_TOPICS) -> str:
    """Whether the records' library was built from this very patch."""
    rows = []
    for record in (one for topic in topics for one in pr_views.records(folder, topic)):
        built = record["meta"].get("built", {})
        ids = {
            (one["sha256"], one.get("code_sha256"))
            for library in built.values()
            for one in library.get("patches", ())
            if one["name"] == patch.name
        }
        meta = record["meta"]
        where = f"{record['file']} (commit {str(meta.get('commit'))[:12]}, `{meta['command']}`)"
        if not ids:
            rows.append(f"- {where}: the measured libraries did not hold this patch.")
        elif {file for file, _ in ids} == {patch.sha256}:
            rows.append(f"- {where}: measured with this very file.")
        elif {code for _, code in ids} == {patch.code_sha256}:
            rows.append(f"- {where}: measured with this code; the description was edited since.")
        else:
            rows.append(
                f"- {where}: measured with another version of this patch; measure again before "
                "sending."
            )
    return "\n".join(rows) or "- nothing: there is no record."


def heading(view: str) -> str:
    """The title of a view's table."""
    if view.endswith(("severity", "severity on main")):
        return "Severity of wrong choices"
    if view.startswith("composed "):
        return f"On a GPU: {view.removeprefix('composed ')}"
    return {"routes": "Correctness of each route"}.get(view, view[:1].upper() + view[1:])


def text(
    base: Base,
    patch: Patch,
    series: Sequence[Patch],
    folder: Path = RECORDS,
    *,
    composed: tuple[str, str] | None = None,
) -> str:
    """The whole text, Markdown: first line the title.

    `composed` is for a patch made of edits: its base's name, and the tree that it was made on.
    """
    facts = about(patch.name, base=composed[0] if composed else "")
    views = {view: VIEWS[view](folder) for view in facts.get("views", ())}
    files = [f"- `{path}` (+{added} -{gone})" for path, added, gone in changed_lines(patch)]
    description = patch.fields.get("Description", "").replace("\n", "\n\n")
    parts = [
        f"# {title(patch, facts)}",
        f"## Issue\n\n{issues(patch, facts.get('issue', 'Fixes'))}",
        "## Change\n\n" + "\n\n".join([description, "\n".join(files)]),
    ]
    if facts.get("points"):
        parts.append("## For review\n\n" + "\n".join(f"- {row}" for row in facts["points"]))
    tables = [f"### {heading(view)}\n\n{shown}" for view, shown in views.items()]
    if tables and composed:
        tables.insert(0, f"Measured: {patch.fields.get('Measured', '')}")
    if not tables:
        tables = [f"No table for this patch. Its header says: {patch.fields.get('Measured', '')}"]
    parts.append("## Benchmark and checks\n\n" + "\n\n".join(tables))
    topics = (pr_composed.TOPIC,) if composed else pr_views.LANES_TOPICS
    parts.append(f"## Measured on\n\n{measured_with(patch, folder, topics)}")
    names = tests(patch, series, facts)
    parts.append(
        "## Tests\n\n"
        + ("\n".join(f"- `test/test_linalg.py -k {name}`" for name in names) or "None of its own.")
    )
    places = [f"- {_PLACE_NAMES[key]}: {facts[key]}" for key in _PLACES if facts.get(key)]
    parts.append("## Builds\n\n" + "\n".join(places))
    last = patch.fields.get("Last-Update", "unknown")
    made = f"Made on {base.tag}."
    if composed:
        made = (
            f"Composed on {composed[1]}. On another text: `tools/patchset compose --base "
            f"{composed[0]} --onto CHECKOUT --to FOLDER`."
        )
    parts.append(f"{made} Last change of the patch: {last}.")
    return "\n\n".join(parts) + "\n"


# --- the command ----------------------------------------------------------------------------------


def add(sub: argparse.ArgumentParser) -> None:
    """The command's options."""
    sub.add_argument("patch", metavar="PATCH", help="a patch of the series, with or without .patch")
    sub.add_argument(
        "--onto",
        metavar="REF",
        help=f"for a base that holds edits: make the patch on this tree: {port_target.FORMS} "
        "(default: the pinned release that they are tried on)",
    )
    sub.add_argument("--out", type=Path, help="write it to this new file instead")
    sub.add_argument("--records", type=Path, default=RECORDS, help=argparse.SUPPRESS)


def run(base: Base, options: argparse.Namespace, source: Callable[[], Path]) -> int:
    """Prints or writes the text."""
    if options.onto:
        raise UserError(
            f"--onto is for a base that holds edits; patches/{base.name} holds patches, "
            "which are as they are"
        )
    series = base.patches()
    return _show(options, base, _one(base, options.patch), series)


def run_edits(base_: EditBase, options: argparse.Namespace) -> int:
    """The same for a base that holds edits: the patch is composed first."""
    if options.source is not None:
        raise UserError(f"name the tree to make the patch on with --onto: {port_target.FORMS}")
    tried = bases.load(base_.tried_on, options.patches_root)
    wanted = f"{options.patch.removesuffix('.patch')}.patch"
    names = [patch.name for patch in base_.patches]
    if wanted not in names:
        raise UserError(f"{wanted} is not in patches/{base_.name}. It has: {', '.join(names)}")
    ref = options.onto or str(fetch.source(tried, progress=sys.stdout.isatty()))
    made = compose.compose(base_, compose.read(base_, ref, url=options.url))
    on = made.target.name if options.onto else f"the text of {tried.name}"
    result = next(one for one in made.results if one.patch.name == wanted)
    if result.verdict != "composed":
        rows = "".join(f"\n  {note}" for note in result.notes)
        raise UserError(f"{wanted} on {on}: {result.verdict}{rows}")
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        folder = Path(name) / f"{base_.name}-on-{tried.name}"
        base = check_edits.as_patches(made, tried, folder, Path(name) / "own")
        return _show(options, base, _one(base, wanted), base.patches(), (base_.name, on))


def _one(base: Base, name: str) -> Patch:
    if name == "none":
        raise UserError("name a patch of the series")
    return base.upto(name)[-1]


def _show(
    options: argparse.Namespace,
    base: Base,
    patch: Patch,
    series: Sequence[Patch],
    composed: tuple[str, str] | None = None,
) -> int:
    if not about(patch.name, base=composed[0] if composed else "")["known"]:
        print(
            f"{ABOUT.name} says nothing of {patch.name}: no tables, only general words on builds",
            file=sys.stderr,
        )
    made = text(base, patch, series, options.records, composed=composed)
    if options.out is None:
        print(made, end="")
        return 0
    if options.out.exists():
        raise UserError(f"{options.out} exists already and is left alone")
    if not options.dry_run:
        env.write_file(options.out.absolute(), made)
    print(f"{options.out}: {'would be ' if options.dry_run else ''}written")
    return 0
