"""tools/patchset port: what becomes of each patch of a series on another PyTorch tree.

Each file of a patch is merged by three ways: as the patch found it, as it left it, as the tree has
it. A patch with a conflict changes nothing; those after it are tried without it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from aotools.env import UserError
from aotools.patchset import apply, git
from aotools.patchset.base import Base, Patch
from aotools.patchset.port_target import Target

Verdict = Literal["clean", "merged", "conflict", "already upstream"]
Content = bytes | None  # None: there is no such file
ORDER: tuple[Verdict, ...] = ("clean", "merged", "conflict", "already upstream")


@dataclass(frozen=True)
class FileResult:
    """One file of a patch: what came of it, and why or where."""

    path: str
    verdict: Verdict
    note: str = ""
    lines: tuple[int, ...] = ()  # of the tree's file, where a conflict is
    marked: bytes | None = None  # the file with conflict markers

    def __str__(self) -> str:
        text = f"{self.path}: {self.verdict}"
        return f"{text}, {self.note}" if self.note else text


@dataclass(frozen=True)
class Commit:
    """What a patch's mail says of its commit; `author` is git's environment for it."""

    message: str
    author: Mapping[str, str]


@dataclass(frozen=True)
class PatchResult:
    """A patch: the worst of its files, and their states after it ({} unless it went in)."""

    patch: Patch
    files: tuple[FileResult, ...]
    notes: tuple[str, ...]
    commit: Commit
    after: Mapping[str, Content] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """ "clean": as `git apply` takes it, at other lines maybe; "merged": only by three ways."""
        found = {one.verdict for one in self.files}
        worst: tuple[Verdict, ...] = ("conflict", "merged", "clean")
        return next((verdict for verdict in worst if verdict in found), "already upstream")


@dataclass(frozen=True)
class Ported:
    """A series on another tree."""

    base: Base
    target: Target
    results: tuple[PatchResult, ...]

    def count(self, verdict: Verdict) -> int:
        """How many patches have this verdict."""
        return sum(result.verdict == verdict for result in self.results)

    def names(self, *verdicts: Verdict) -> list[str]:
        """The patches that have one of these verdicts, in the series' order."""
        return [one.patch.name for one in self.results if one.verdict in verdicts]

    def report(self) -> str:
        """The result as text: a line for each patch, its files below it, a count at the end."""
        names = max((len(result.patch.name) for result in self.results), default=0)
        rows = [f"{self.base.name} ({len(self.results)} patches) onto {self.target.name}", ""]
        for result in self.results:
            rows.append(f"{result.patch.name:{names}}  {result.verdict}")
            rows += [f"    {one}" for one in _in_short(result.files)]
            rows += [f"    note: {note}" for note in result.notes]
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in ORDER)
        return "\n".join([*rows, "", counts])

    def as_json(self) -> dict[str, object]:
        """The result for programs."""
        return {
            "base": self.base.name,
            "onto": self.target.name,
            "version": self.target.version,
            "patches": [
                {
                    "name": result.patch.name,
                    "verdict": result.verdict,
                    "notes": list(result.notes),
                    "files": [
                        {
                            "path": one.path,
                            "verdict": one.verdict,
                            "note": one.note,
                            "lines": list(one.lines),
                        }
                        for one in result.files
                    ],
                }
                for result in self.results
            ],
        }


_MANY = 4  # files of a folder that take one line together


def _in_short(files: Sequence[FileResult]) -> list[str]:
    """A line for each file; one for all of a folder's when they are many and go in unchanged."""
    folders: dict[str, list[FileResult]] = {}
    for one in files:
        folders.setdefault(one.path.rpartition("/")[0], []).append(one)
    whole = {
        folder
        for folder, ones in folders.items()
        if len(ones) >= _MANY and all(str(one) == f"{one.path}: clean" for one in ones)
    }
    rows = []
    for one in files:
        folder = one.path.rpartition("/")[0]
        rows.append(f"{folder}/: clean, all files" if folder in whole else str(one))
    return list(dict.fromkeys(rows))


def history(
    base: Base, source: Path, patches: Sequence[Patch]
) -> tuple[list[dict[str, Content]], list[Commit]]:
    """The touched files in the base and after each patch, and the patches' commits."""
    states: list[dict[str, Content]] = []
    commits = []
    paths = sorted({change.path for patch in patches for change in patch.changes})
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        repo = Path(name)
        for commit in apply.build_repo(repo, base, source, patches).commits:
            listed = git.text(repo, "ls-tree", "-r", "--name-only", commit, "--", *paths)
            there = set(listed.splitlines()) if paths else set()
            state: dict[str, Content] = dict.fromkeys(paths)
            for path in there & set(paths):
                state[path] = git.git(repo, "cat-file", "blob", f"{commit}:{path}")
            states.append(state)
            said = git.text(repo, "show", "-s", "--format=%an%x00%ae%x00%aD%x00%B", commit)
            *author, message = said.split("\0", 3)
            names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE")
            commits.append(Commit(message, dict(zip(names, author, strict=True))))
    return states, commits[1:]


def port(base: Base, source: Path, target: Target) -> Ported:
    """Tries each patch of the base on `target`; changes nothing anywhere."""
    patches = base.patches()
    states, commits = history(base, source, patches)
    now: dict[str, Content] = {path: target.contents.get(path) for path in states[0]}
    without: dict[str, list[str]] = {}  # path -> patches that did not go in and would change it
    results = []
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        for number, patch in enumerate(patches):
            before, after = states[number], states[number + 1]
            files, fresh = [], {}
            for path in (change.path for change in patch.changes):
                one, content = merge_file(
                    path, before[path], now[path], after[path], patch, target, Path(name)
                )
                if one.verdict != "already upstream":
                    # Where a later patch changes the same lines, merging may put them in again.
                    later = [state[path] for state in states[number + 2 :]]
                    if _superseded(before[path], now[path], later, Path(name)):
                        note = "as later patches of the series change it"
                        one, content = FileResult(path, "already upstream", note), now[path]
                files.append(one)
                fresh[path] = content
            lacking = {name for one in files for name in without.get(one.path, ())}
            notes = _notes(patch, files, target, [p.name for p in patches if p.name in lacking])
            result = PatchResult(patch, tuple(files), notes, commits[number], fresh)
            if result.verdict == "conflict":
                for path in fresh:
                    without.setdefault(path, []).append(patch.name)
                result = PatchResult(patch, tuple(files), notes, commits[number])
            else:
                now |= fresh
            results.append(result)
    return Ported(base, target, tuple(results))


def _notes(
    patch: Patch, files: Sequence[FileResult], target: Target, lacking: Sequence[str]
) -> tuple[str, ...]:
    notes = []
    release = patch.fields.get("Applied-Upstream", "no").partition(",")[0]
    if release != "no" and target.version and _number(target.version) >= _number(release):
        notes.append(f"its header says that upstream has it since {release}")
    if lacking:
        notes.append(f"tried without {', '.join(lacking)}, which it may need")
    verdicts = {one.verdict for one in files}
    if "already upstream" in verdicts and len(verdicts) > 1:
        notes.append("a part of it is in already")
    return tuple(notes)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def merge_file(
    path: str,
    base: Content,
    ours: Content,
    theirs: Content,
    patch: Patch,
    target: Target,
    scratch: Path,
) -> tuple[FileResult, Content]:
    """One file by three ways: `base` to `theirs` is the patch's change, `ours` the tree's state."""
    if ours == theirs:
        return FileResult(path, "already upstream"), ours
    if ours == base:
        return FileResult(path, "clean"), theirs
    if ours is None:
        moved = target.elsewhere(path)
        note = "the tree has no such file"
        if moved:
            note += f"; of that name there is {', '.join(moved[:3])}"
        return FileResult(path, "conflict", note), None
    if base is None:
        return FileResult(path, "conflict", "the tree has another file of this name"), None
    if theirs is None:
        return FileResult(path, "conflict", "the patch removes it, the tree changed it"), None
    merged, conflicts = _three_ways(base, ours, theirs, scratch)
    at, applied = _as_git_applies(path, ours, patch, scratch)
    if not conflicts:
        if merged == ours:
            return FileResult(path, "already upstream", "beside other changes"), ours
        if applied == merged:
            return FileResult(path, "clean", at), merged
        return FileResult(path, "merged"), merged
    if applied is not None:
        note = f"by `git apply` alone, {at}: see that it is the right place"
        return FileResult(path, "merged", note), applied
    marked, _ = _three_ways(base, ours, theirs, scratch, "--diff3")
    lines = conflict_lines(merged, ours)
    count = f"{conflicts} place{'s' if conflicts > 1 else ''}"
    note = f"{count}, the tree's line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
    return FileResult(path, "conflict", note, tuple(lines), marked), None


def _superseded(base: Content, ours: Content, later: Sequence[Content], scratch: Path) -> bool:
    """Whether the tree has the patch's change together with what later patches make of it."""
    if ours is None or base is None:
        return ours is not None and ours in later
    return any(
        state is not None and _three_ways(base, ours, state, scratch) == (ours, 0)
        for state in later
    )


_LABELS = ("the tree", "before the patch", "the patch")


def _three_ways(
    base: bytes, ours: bytes, theirs: bytes, scratch: Path, *options: str
) -> tuple[bytes, int]:
    """The merged file and the number of conflicts in it."""
    for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
        (scratch / name).write_bytes(data)
    labels = [part for label in _LABELS for part in ("-L", label)]
    try:
        git.git(scratch, "merge-file", "-q", *options, *labels, "ours", "base", "theirs")
    except git.GitError as error:
        if str(error):  # for conflicts it fails without a word
            raise UserError(f"git cannot merge this file: {error}") from None
    merged = (scratch / "ours").read_bytes()
    return merged, merged.splitlines().count(b"<<<<<<< the tree")


def conflict_lines(merged: bytes, ours: bytes) -> list[int]:
    """Where in `ours` the conflicts of `merged` lie: the first line of each, 1-based."""
    rows, lines, at = ours.splitlines(), [], 0
    segment: list[bytes] | None = None
    kept: list[bytes] = []
    for row in merged.splitlines():
        if row == b"<<<<<<< the tree":
            at = _after(rows, kept, at)
            segment = []
        elif row == b"=======" and segment is not None:
            found = _find(rows, segment, at) if segment else at
            lines.append(found + 1)
            at, segment, kept = found + len(segment), None, []
        elif row == b">>>>>>> the patch":
            kept = []
        elif segment is not None:
            segment.append(row)
        else:
            kept.append(row)
    return lines


def _find(rows: Sequence[bytes], wanted: Sequence[bytes], start: int) -> int:
    for index in range(start, len(rows) - len(wanted) + 1):
        if rows[index : index + len(wanted)] == list(wanted):
            return index
    return start


def _after(rows: Sequence[bytes], kept: Sequence[bytes], start: int) -> int:
    """The index in `rows` behind the last of the merged lines before a conflict."""
    tail = list(kept[-3:])  # enough to be sure of the place
    return _find(rows, tail, start) + len(tail) if tail else start


def _as_git_applies(
    path: str, ours: bytes, patch: Patch, scratch: Path
) -> tuple[str, bytes | None]:
    """What `git apply` makes of the file: its words about moved hunks, and the result or None."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        place = Path(name) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(ours)
        try:
            said = git.git_messages(
                Path(name), "apply", "--verbose", f"--include={path}", str(patch.path)
            )
        except git.GitError:
            return "", None
        moved = sum("(offset " in row for row in said.splitlines())
        return (
            f"{moved} hunk{'s' if moved > 1 else ''} at other lines" if moved else "",
            place.read_bytes(),
        )
