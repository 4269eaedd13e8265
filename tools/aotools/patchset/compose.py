"""tools/patchset compose: patches for the text that a checkout has, made of edits."""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aotools import env
from aotools.env import UserError
from aotools.patchset import edits, export, git, places, port_target
from aotools.patchset.base import LINALG, blob_id
from aotools.patchset.edits import EditBase, EditPatch
from aotools.patchset.places import Found
from aotools.patchset.port_target import Target

NAME, TEXT = (
    "compose",
    "Make the patches of a base that holds edits, for the text of your own checkout.",
)
AUTHOR = {
    "GIT_AUTHOR_NAME": "aten-overrides authors",
    "GIT_AUTHOR_EMAIL": "patches@aten-overrides.invalid",
    "GIT_AUTHOR_DATE": "2026-11-30T12:00:00+0000",
}
Verdict = Literal["composed", "already upstream", "does not fit"]
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Result:
    """What became of one patch: its mail and the files after it, or why there is none."""

    patch: EditPatch
    verdict: Verdict
    notes: tuple[str, ...]
    after: Files  # only what it changes
    places: tuple[Found, ...] = ()  # of its edits; none for what is upstream by its mark
    data: bytes = b""


@dataclass(frozen=True)
class Composed:
    """The patches of a base for one tree."""

    base: EditBase
    target: Target
    results: tuple[Result, ...]

    def count(self, verdict: Verdict) -> int:
        """How many patches have this verdict."""
        return sum(result.verdict == verdict for result in self.results)

    def rows(self) -> list[str]:
        """The result as text: a line for each patch, notes below it, a count at the end."""
        rows = []
        for result in self.results:
            rows.append(f"{result.verdict:16}  {result.patch.name}")
            rows += [f"    {note}" for note in result.notes]
        verdicts: tuple[Verdict, ...] = ("composed", "already upstream", "does not fit")
        rows.append(", ".join(f"{self.count(verdict)} {verdict}" for verdict in verdicts))
        return rows


def read(base_: EditBase, ref: str, *, url: str | None = None, progress: bool = False) -> Target:
    """The files of the tree `ref` (port_target.FORMS) that the edits look at."""
    return port_target.read(base_.as_base(), ref, base_.paths, url=url, progress=progress)


def compose(base_: EditBase, target: Target) -> Composed:
    """Makes every patch on `target`, each on the text that those before it left.

    A patch of which one edit has no place, or more than one, is left out whole. The patches that
    are made apply without fuzz and without an offset; that is proved here, by git.
    """
    state = dict(target.contents)
    results = []
    for patch in base_.patches:
        result = _one(patch, state, target.contents)
        results.append(result)
        state |= result.after
    return Composed(base_, target, tuple(_render(target, results)))


def _one(patch: EditPatch, state: Files, tree: Files) -> Result:
    has = [str(edit) for edit in patch.upstream if _path(edit, state) and _found(edit, state)]
    if has:
        return Result(patch, "already upstream", tuple(f"has {one}" for one in has), {})
    after: dict[str, bytes] = {}
    found, problems, notes = [], [], []
    for edit in patch.edits:
        path = _path(edit, state)
        place = places.look(edit, path, {**state, **after}, tree)
        found.append(place)
        if place.verdict == "left out":
            notes.append(f"left out, as {edit.absent}: {edit}")
        elif place.verdict == "already upstream":
            notes.append(f"there already: {edit}")
        elif path is None:
            problems.append(f"{edit.paths[0]} is not in the tree")
        else:
            changed, problem = edits.change(edit, after.get(path, state[path]).decode())
            if problem:
                moved = f"; it is at {place.where}" if place.verdict == "moved" else ""
                problems.append(problem + moved)
            else:
                after[path] = changed.encode()
    for added in patch.added:
        data = added.source.read_bytes()
        if state.get(added.path, data) != data:
            problems.append(f"{added.path} is in the tree already, and is another")
        elif added.path not in state:
            after[added.path] = data
    if problems:
        return Result(patch, "does not fit", tuple(problems), {}, tuple(found))
    verdict: Verdict = "composed" if after else "already upstream"
    return Result(patch, verdict, tuple(notes), after, tuple(found))


def _path(edit: edits.Edit, state: Files) -> str | None:
    return next((path for path in edit.paths if path in state), None)


def _found(edit: edits.Edit, state: Files) -> bool:
    path = _path(edit, state)
    return path is not None and bool(edits.matches(edit, state[path].decode()))


def _render(target: Target, results: list[Result]) -> list[Result]:
    """The results with their mails: a commit each in a scratch repository, proved by applying."""
    touched = {path for result in results for path in result.after}
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        repo = Path(name) / "repo"
        repo.mkdir()
        git.init(repo)
        index = {"GIT_INDEX_FILE": str(repo / ".git/compose-index")}

        def commit(message: str, author: dict[str, str], *parents: str) -> str:
            tree = git.git(repo, "write-tree", extra=index).decode().strip()
            arguments = ["commit-tree", tree, *parents]
            made = git.git(repo, *arguments, stdin=message.encode(), extra=author)
            return made.decode().strip()

        def put(files: Files) -> None:
            for path, data in files.items():
                blob = git.git(repo, "hash-object", "-w", "--stdin", stdin=data).decode().strip()
                entry = f"100644,{blob},{path}"
                git.git(repo, "update-index", "--add", "--cacheinfo", entry, extra=index)

        put({path: data for path, data in target.contents.items() if path in touched})
        first = commit("the tree\n", git.BASE_AUTHOR)
        commits, mails, rendered = [first], [], []
        for result in results:
            if result.verdict == "composed":
                put(result.after)
                commits.append(commit(result.patch.message, AUTHOR, "-p", commits[-1]))
                mails.append(export.render(repo, commits[-1]))
                result = dataclasses.replace(result, data=mails[-1])
            rendered.append(result)
        export.prove(repo, first, commits[1:], mails)
    return rendered


# --- the command ----------------------------------------------------------------------------------


def add(sub: argparse.ArgumentParser) -> None:
    """The command's options."""
    sub.add_argument("--onto", metavar="REF", help=f"the tree: {port_target.FORMS}")
    sub.add_argument("--onto-url", metavar="URL", help="another repository for a tag or branch")
    sub.add_argument("--to", type=Path, metavar="FOLDER", help="where to write the patches")


def run(base_: EditBase, options: argparse.Namespace) -> int:
    """Composes; 1 when a patch does not fit. Without --to nothing is written."""
    if options.onto is None:
        raise UserError(f"compose needs --onto REF: {port_target.FORMS}")
    to = options.to.expanduser().absolute() if options.to else None
    if to is not None and to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise UserError(f"{to} exists already and is left alone; name a new folder with --to")
    if options.dry_run:
        print(f"would compose {len(base_.patches)} patches of {base_.name} on {options.onto}")
        return 0
    made = compose(base_, read(base_, options.onto, url=options.onto_url))
    print(f"{base_.name} on {made.target.name}")
    for row in made.rows():
        print(row)
    if to is not None and made.count("composed"):
        write(made, to)
        print(f"{to}: {made.count('composed')} patches; `git am --keep-non-patch {to}/*.patch`")
    return 1 if made.count("does not fit") else 0


def write(made: Composed, to: Path) -> None:
    """Makes the folder `to`: the patches, numbered in their order, series and base.toml, which
    names the text that they were made on. It appears whole or not at all.
    """
    env.make_folder(to.parent)
    composed = [result for result in made.results if result.verdict == "composed"]
    names = [f"{number:02}-{one.patch.name}" for number, one in enumerate(composed, 1)]
    with tempfile.TemporaryDirectory(prefix=f".tmp-{to.name}-", dir=to.parent) as name:
        fresh = Path(name) / "patches"
        fresh.mkdir()
        for file, result in zip(names, composed, strict=True):
            (fresh / file).write_bytes(result.data)
        (fresh / "series").write_text("".join(f"{file}\n" for file in names), encoding="utf-8")
        (fresh / "base.toml").write_text(base_toml(made), encoding="utf-8")
        if to.exists():
            to.rmdir()  # empty, as was checked
        fresh.rename(to)


def base_toml(made: Composed) -> str:
    """A base.toml for the composed patches: the blob id of each file that they were made on."""
    touched = {path for result in made.results for path in result.after}
    listed = {
        path: blob_id(data)
        for path, data in sorted(made.target.contents.items())
        if path in touched or path.startswith(f"{LINALG}/")
    }
    rows = [
        f"# Made by tools/patchset compose --base {made.base.name} on {made.target.name}.",
        f'version = "{made.target.version or "unknown"}"',
        f'tag = "v{made.target.version or "unknown"}"',
        f'url = "{made.base.url}"',
        "",
        "[blobs]",
        *(f'"{path}" = "{blob}"' for path, blob in listed.items()),
    ]
    return "\n".join(rows) + "\n"
