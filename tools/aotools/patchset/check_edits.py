"""tools/patchset check for a base that holds edits: in order, and whole patches where they fit.

They are composed on the pinned source of the base `tried_on`, and what comes out goes through all
that is checked of patches: git applies it, and it compiles. With a checkout of the user's they are
composed on that as well.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from aotools.env import ROOT, UserError
from aotools.patchset import apply, base, check, compose, copies, fetch
from aotools.patchset.base import LINALG, Base, blob_id
from aotools.patchset.compose import Composed
from aotools.patchset.edits import SUFFIX, EditBase, EditPatch
from aotools.patchset.report import Finding, Report


class _Composed(Report):
    """Findings about the composed patches, into the same list, each named as such."""

    def __init__(self, report: Report, label: str) -> None:
        super().__init__(report.stream, report.findings)
        self.label = label

    def _print(self, finding: Finding) -> None:
        item = f"{self.label}, {finding.item}"
        super()._print(dataclasses.replace(finding, item=item))


def planned(base_: EditBase, *, checkout: bool, fast: bool) -> list[str]:
    """The names of the items that `run` looks at, without those of the composed patches."""
    names = ["series", *(f"header of {patch.name}" for patch in base_.patches), "added files"]
    names += [f"fits {base_.tried_on}", f"what comes out on {base_.tried_on}: as for patches"]
    if fast:
        names[-1] += ", not compiled"
    return [*names, "fits the checkout", "applies to the checkout"] if checkout else names


def run(
    base_: EditBase,
    *,
    root: Path | None,
    checkout: str | None,
    url: str | None,
    wheel_spec: str | None,
    fast: bool,
    build: Path,
    source: Path | None = None,
    own: Path = copies.OWN_SOURCES,
) -> Report:
    """Looks at every item, prints one line for each, and returns the findings.

    `checkout` is one of port_target.FORMS; `source` the files of `tried_on`, else they are fetched;
    `own` has the sources that other bases add, too.
    """
    report = Report()
    report.add("series", _series(base_))
    for patch in base_.patches:
        report.add(f"header of {patch.name}", header_problems(patch))
    tried = base.load(base_.tried_on, root)
    report.add("added files", [*_added(base_), *lacking(base_, tried, own)])
    try:
        tree = source or fetch.source(tried, progress=False)
    except UserError as error:
        report.skip(f"fits {tried.name}", str(error))
    else:
        _tried(report, base_, tried, tree, wheel_spec, fast, build)
    if checkout is not None:
        _checkout(report, base_, checkout, url)
        print(report.summary())
    return report


def _series(base_: EditBase) -> list[str]:
    listed = {f"{patch.name.removesuffix('.patch')}{SUFFIX}" for patch in base_.patches}
    there = {path.name for path in base_.folder.iterdir()} - {"base.toml", "series", "added"}
    return [f"{name} is not in the series" for name in sorted(there - listed)]


def header_problems(patch: EditPatch) -> list[str]:
    """What is wrong with the message: subject, fields, width."""
    subject, _, body = patch.message.partition("\n")
    problems = base.parse_fields(body)[1]
    if not subject or not body.startswith("\n"):
        problems.append("its message does not start with a subject and an empty line")
    return problems


def _added(base_: EditBase) -> list[str]:
    used = {added.source.resolve() for patch in base_.patches for added in patch.added}
    problems = []
    for path in sorted((base_.folder / "added").glob("**/*")):
        if path.is_file() and path.resolve() not in used:
            problems.append(f"{path.relative_to(base_.folder)} is added by no patch")
    for path in sorted(used):
        data = path.read_bytes()
        if b"\r" in data or not data.endswith(b"\n"):
            problems.append(f"{path.name} has carriage returns, or no newline at its end")
    return problems


def lacking(base_: EditBase, tried: Base, own: Path = copies.OWN_SOURCES) -> list[str]:
    """Sources of ours that are for ATen and that no patch adds, with the lines that would.

    Not what only patches of `tried` add that base.toml says have no part here. Nothing where the
    patches add no source of `own` at all. A source that is missing would be found by nobody here:
    what comes out is compiled, not linked.
    """
    sources = {added.source.resolve() for patch in base_.patches for added in patch.added}
    added = {path.relative_to(own).as_posix() for path in sources if path.is_relative_to(own)}
    if not added:
        return []
    left = {reason.partition(":")[0] for reason in base_.leaves}
    theirs = {
        change.path.removeprefix(f"{LINALG}/")
        for patch in tried.patches()
        if patch.name in left
        for change in patch.changes
        if change.new is not None
    }
    rows = []
    for name in sorted(copies.for_aten(tried, own) - added - theirs):
        source = (own / name).relative_to(ROOT) if own.is_relative_to(ROOT) else own / name
        rows.append(
            f"{name} is for ATen and no patch adds it: "
            f'[[add]] path = "{LINALG}/{name}" from = "{source}"; or it belongs to a patch of '
            f"{tried.name} that base.toml leaves"
        )
    return rows


def _fits(report: Report, item: str, made: Composed) -> None:
    problems = [
        f"{one.patch.name}: {note}"
        for one in made.results
        if one.verdict == "does not fit"
        for note in one.notes
    ]
    left = [f"{one.patch.name} is there already" for one in made.results if not one.data]
    left += [note for one in made.results if one.verdict == "composed" for note in one.notes]
    report.add(item, problems, note="; ".join([f"{made.count('composed')} patches", *left]))


def _tried(
    report: Report,
    base_: EditBase,
    tried: Base,
    tree: Path,
    wheel_spec: str | None,
    fast: bool,
    build: Path,
) -> None:
    made = compose.compose(base_, compose.read(base_, str(tree)))
    _fits(report, f"fits {tried.name}", made)
    if not made.count("composed"):
        return
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        own = Path(name) / "own"
        composed = as_patches(made, tried, Path(name) / f"{base_.name}-on-{tried.name}", own)
        check.run(
            composed,
            tree,
            wheel_spec=wheel_spec,
            fast=fast,
            build=build,
            own=own,
            report=_Composed(report, f"composed on {tried.name}"),
        )


def as_patches(made: Composed, like: Base, folder: Path, own: Path) -> Base:
    """The composed patches as a base with patches below `folder`, its facts those of `like`, and
    the files that they add below `own`.
    """
    folder.mkdir()
    own.mkdir()
    composed = [one for one in made.results if one.data]
    for one in composed:
        (folder / one.patch.name).write_bytes(one.data)
        for added in one.patch.added:
            if added.path.startswith(f"{LINALG}/"):
                place = own / added.path.removeprefix(f"{LINALG}/")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(added.source.read_bytes())
    series = "".join(f"{one.patch.name}\n" for one in composed)
    (folder / "series").write_text(series, encoding="utf-8")
    changed = {path for one in composed for path in one.after}
    wanted = changed | set(like.extra)
    blobs = {
        path: blob
        for path, blob in like.blobs.items()
        if path in wanted or path.startswith(f"{LINALG}/")
    }
    blobs |= {p: blob_id(d) for p, d in made.target.contents.items() if p in changed}
    return dataclasses.replace(like, folder=folder, blobs=blobs, package_only=())


def _checkout(report: Report, base_: EditBase, ref: str, url: str | None) -> None:
    made = compose.compose(base_, compose.read(base_, ref, url=url))
    for one in made.results:
        print(f"     {one.patch.name}: {one.verdict}")
        for found in one.places:
            print(f"       {found}")
    _fits(report, f"fits {made.target.name}", made)
    blobs = _blobs(made)
    for path, blob in blobs.items():
        print(f"     {path}: blob {blob}")
    if not made.count("composed"):
        return
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        tree, repo = Path(name) / "tree", Path(name) / "repo"
        for path in blobs:
            place = tree / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(made.target.contents[path])
        like = dataclasses.replace(base_.as_base(), blobs=blobs)
        composed = as_patches(made, like, Path(name) / "patches", Path(name) / "own")
        repo.mkdir()
        applied = apply.build_repo(repo, composed, tree, composed.patches())
        moved = [f"{patch}: {row}" for patch, rows in applied.offsets.items() for row in rows]
        report.add("applies to the checkout", moved, note="by git am, no fuzz, no offsets")


def _blobs(made: Composed) -> dict[str, str]:
    """The blob ids of the checkout's files that a patch changes."""
    changed = {path for one in made.results for path in one.after}
    contents = made.target.contents
    return {path: blob_id(contents[path]) for path in sorted(changed) if path in contents}


def checkout_of(options_source: list[str] | None, edit_base: EditBase) -> str | None:
    """The tree that `--source` names: `dir FOLDER`, or `git` for upstream's branch of the name."""
    if options_source is None:
        return None
    kind, *rest = options_source
    if kind == "dir" and len(rest) == 1:
        return str(Path(rest[0]).expanduser().absolute())
    if kind == "git" and len(rest) < 2:
        return rest[0] if rest else edit_base.name
    raise UserError(
        f"{edit_base.name} is checked against a checkout: --source dir FOLDER, or --source git "
        "[BRANCH] for upstream's own"
    )
