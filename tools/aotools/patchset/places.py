"""Where the places of edits are in one tree, and what has become of those that are not there.

`check --base main --source ...` prints a line for each edit, so that after a change of upstream's
the user sees which edit to look at, and where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from aotools.patchset import edits
from aotools.patchset.edits import Edit

Verdict = Literal["clean", "moved", "missing", "ambiguous", "left out", "already upstream"]
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Found:
    """What was found of one edit's place."""

    edit: Edit
    verdict: Verdict
    where: str  # "PATH:LINE", with further lines after a comma; "" for nowhere

    def __str__(self) -> str:
        where = self.where or self.edit.paths[0]
        return f"{self.verdict:16}  {where}: {self.edit.described}"


def look(edit: Edit, path: str | None, files: Files, tree: Files) -> Found:
    """Looks for the place of `edit` in `files[path]`, then, for a report, elsewhere.

    `files` is what the edits before it left of `tree`; lines are told as `tree` has them.

    clean: there as it is described, once (or as often as it likes, for an edit of each such line);
    already upstream: there, with what the edit would put in beside it; ambiguous: more than once;
    moved: its line is in another function of the file, or its function in another file; left out:
    nowhere, which the edit allows; missing: nowhere. `path` None: the tree has none of its files.
    """
    if path is not None:
        text = files[path].decode()
        numbers = edits.matches(edit, text)
        own = edits.matches(edit, tree[path].decode()) if path in tree else []
        where = _where(path, own if len(own) == len(numbers) else numbers)
        if numbers and all(edits.has_lines(edit, text, number) for number in numbers):
            return Found(edit, "already upstream", where)
        if len(numbers) == 1 or (numbers and edit.every):
            return Found(edit, "clean", where)
        if numbers:
            return Found(edit, "ambiguous", where)
    if edit.absent:
        return Found(edit, "left out", "")
    where = _elsewhere(edit, path, files)
    return Found(edit, "moved" if where else "missing", where)


def _elsewhere(edit: Edit, path: str | None, files: Files) -> str:
    for other in sorted(files):
        if other != path and (
            numbers := edits.matches(edit, files[other].decode(errors="replace"))
        ):
            return _where(other, numbers)
    if path is None or edit.within is None:
        return ""
    lines = files[path].decode().splitlines()
    numbers = [number for number, line in enumerate(lines) if edit.at.search(line)]
    return _where(path, numbers) if numbers else ""


def _where(path: str, numbers: list[int]) -> str:
    return f"{path}:{', '.join(str(number + 1) for number in numbers[:5])}"
