"""tools/patchset refresh: writes the series anew as it applies, after an edit by hand.

Hunks that moved get their line numbers, blob ids and diffstat are made again, and files that the
series adds are brought to the state of aten_overrides/csrc/linalg.
"""

from __future__ import annotations

import argparse
import datetime
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aotools.env import UserError
from aotools.patchset import apply, check, export, git
from aotools.patchset.base import LINALG, Base, Patch

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
        copies, more = _copies(patches, own)
        told += more
        commits = _with_copies(repo, applied.commits, copies)
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


def _copies(patches: Sequence[Patch], own: Path) -> tuple[dict[str, bytes], list[str]]:
    """The files of ours that exactly one patch adds and none changes: path to content."""
    touched: dict[str, list[str]] = {}
    for patch in patches:
        for change in patch.changes:
            if change.path.startswith(f"{LINALG}/") and (
                change.old is None or change.path in touched
            ):
                touched.setdefault(change.path, []).append(patch.name)
    contents, told = {}, []
    for path, names in touched.items():
        file = own / path.removeprefix(f"{LINALG}/")
        if not file.is_file():
            told.append(f"{path} is added by {names[0]}, but is not in {own}")
        elif len(names) > 1:
            told.append(f"{path} is changed by {' and '.join(names)}: left as the patches have it")
        else:
            contents[path] = file.read_bytes()
    return contents, told


def _with_copies(repo: Path, commits: Sequence[str], copies: Mapping[str, bytes]) -> list[str]:
    """The commits again, each with our files wherever it has a file of that path."""
    blobs = {}
    for path, data in copies.items():
        blobs[path] = git.git(repo, "hash-object", "-w", "--stdin", stdin=data).decode().strip()
    index = {"GIT_INDEX_FILE": str(repo / ".git/refresh-index")}
    made: list[str] = []
    for commit in commits:
        git.git(repo, "read-tree", commit, extra=index)
        there = set(git.text(repo, "ls-tree", "-r", "--name-only", commit).splitlines())
        rows = [f"100644 {blob}\t{path}" for path, blob in blobs.items() if path in there]
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
