"""tools/patchset refresh: writes the series anew as it applies, after an edit by hand.

Hunks that moved get their line numbers, blob ids and diffstat are made again, and files that the
series adds are brought to the state of aten_overrides/csrc/linalg. In a folder of their own, which
one patch adds, files come and go with that state too.
"""

from __future__ import annotations

import argparse
import datetime
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotools.env import UserError
from aotools.patchset import apply, check, copies, export, git
from aotools.patchset.base import LINALG, NULL_BLOB, Base, Patch

NAME, TEXT = (
    "refresh",
    "Write the patches anew as they apply, with the current copies of our files.",
)


def refreshed(
    base: Base, source: Path, *, own: Path | None = None, today: str | None = None
) -> tuple[list[export.Exported], list[str]]:
    """The patches as they should be, and what is to be told of them.

    `own` stands for aten_overrides/csrc/linalg, `today` (YYYY-MM-DD) for Last-Update of a patch
    whose lines changed. UserError when the series does not apply: `port` merges.
    """
    own = own or check.OWN_SOURCES
    patches = base.patches()
    wrong = [f"{patch.name}: {problem}" for patch in patches for problem in patch.problems]
    # Abbreviated ids are among what this command is for.
    if wrong := [row for row in wrong if "abbreviated" not in row]:
        raise UserError("correct the patches' headers first:\n  " + "\n  ".join(wrong))
    told: list[str] = []
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        repo = Path(name)
        applied = apply.build_repo(repo, base, source, patches)
        for named, moved in applied.offsets.items():
            told += [f"{named}: {row}" for row in moved]
        contents, more = _copies(base, patches, own)
        told += more
        commits = _with_copies(repo, applied.commits, contents)
        result = []
        for patch, before, commit in zip(patches, commits[:-1], commits[1:], strict=True):
            old = patch.path.read_bytes()
            data = export.render(repo, commit, parent=before)
            if _lines(data) != _lines(old):
                message = _dated(repo, commit, today or datetime.date.today().isoformat())
                data = export.render(repo, commit, parent=before, message=message)
            result.append(export.Exported(patch.name, data, old))
        export.prove(repo, commits[0], commits[1:], [one.data for one in result])
    return result, told


@dataclass(frozen=True)
class Copy:
    """The content of a file of ours from a patch on, by its number from 1; None: taken out."""

    since: int
    content: bytes | None


def _copies(base: Base, patches: Sequence[Patch], own: Path) -> tuple[dict[str, Copy], list[str]]:
    """What the files that the series adds to the linalg folder should be, by path.

    From the last patch that touches it on, a file is as in `own`. In a folder of its own below
    linalg that one patch alone adds files to, that patch gets the files that are new in `own`, and
    loses those that are gone there or are the package's.
    """
    last: dict[str, int] = {}
    folders: dict[str, set[int]] = {}
    for number, patch in enumerate(patches, 1):
        for change in patch.changes:
            path = change.path
            if path.startswith(f"{LINALG}/") and (change.old is None or path in last):
                last[path] = number
                if change.old is None:
                    folders.setdefault(path.rpartition("/")[0], set()).add(number)
    owned = {
        folder: min(numbers)
        for folder, numbers in folders.items()
        if len(numbers) == 1 and folder != LINALG
    }
    contents, told, wanted = {}, [], copies.for_aten(base, own)
    for path, number in last.items():
        file = own / path.removeprefix(f"{LINALG}/")
        in_folder = path.rpartition("/")[0] in owned
        packaged = in_folder and path.removeprefix(f"{LINALG}/") not in wanted
        if file.is_file() and not packaged:
            contents[path] = Copy(number, file.read_bytes())
        elif in_folder:
            contents[path] = Copy(number, None)
            told.append(f"{path} is not for ATen any more: taken out of {patches[number - 1].name}")
        else:
            told.append(f"{path} is added by the series, but is not in {own}")
    for folder, number in owned.items():
        below = folder.removeprefix(f"{LINALG}/")
        for file in sorted((own / below).glob("*")):
            path, name = f"{folder}/{file.name}", f"{below}/{file.name}"
            if path not in last and name in wanted:
                contents[path] = Copy(number, file.read_bytes())
                told.append(f"{path} is new: put into {patches[number - 1].name}")
    return contents, told


def _with_copies(repo: Path, commits: Sequence[str], contents: Mapping[str, Copy]) -> list[str]:
    """The commits again, each with our files as they should be there."""
    blobs = {
        path: git.git(repo, "hash-object", "-w", "--stdin", stdin=copy.content).decode().strip()
        for path, copy in contents.items()
        if copy.content is not None
    }
    index = {"GIT_INDEX_FILE": str(repo / ".git/refresh-index")}
    made: list[str] = []
    for number, commit in enumerate(commits):
        git.git(repo, "read-tree", commit, extra=index)
        rows = [
            f"100644 {blobs[path]}\t{path}" if path in blobs else f"0 {NULL_BLOB}\t{path}"
            for path, copy in contents.items()
            if copy.since <= number
        ]
        git.git(
            repo,
            "update-index",
            "--index-info",
            stdin="".join(f"{r}\n" for r in rows).encode(),
            extra=index,
        )
        tree = git.git(repo, "write-tree", extra=index).decode().strip()
        author = git.text(repo, "show", "-s", "--format=%an%x00%ae%x00%aD", commit).split("\0")
        names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE")
        message = git.git(repo, "show", "-s", "--format=%B", commit)
        parents = ["-p", made[-1]] if made else []
        new = git.git(
            repo,
            "commit-tree",
            tree,
            *parents,
            stdin=message.rstrip() + b"\n",
            extra=dict(zip(names, author, strict=True)),
        )
        made.append(new.decode().strip())
    return made


def _lines(data: bytes) -> list[bytes]:
    """What a patch adds and takes out, without line numbers and ids."""
    _, _, diff = data.partition(b"\ndiff --git ")
    return [row for row in diff.splitlines() if row[:1] in (b"+", b"-", b"d")]


def _dated(repo: Path, commit: str, today: str) -> str:
    message = git.text(repo, "show", "-s", "--format=%B", commit)
    return re.sub(r"^Last-Update: .*$", f"Last-Update: {today}", message, count=1, flags=re.M)


# --- the command ----------------------------------------------------------------------------------


def add(sub: argparse.ArgumentParser) -> None:
    """The command's options."""
    sub.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 when something would be"
    )


def run(base: Base, options: argparse.Namespace, source: Callable[[], Path]) -> int:
    """Refreshes the series; 1 with --check when a file would change."""
    exported, told = refreshed(base, source())
    for line in told:
        print(line)
    quiet = options.dry_run or options.check
    changed = export.write(base, exported, dry_run=quiet)
    return 1 if options.check and changed else 0
