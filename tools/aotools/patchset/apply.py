"""Applies the series: into a fresh work tree of its own, by `git am`."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset import git
from aotools.patchset.base import Base, Patch

_STAMP = "aten-overrides.json"


@dataclass(frozen=True)
class Applied:
    """A repository with the base as its first commit and one commit for each patch."""

    repo: Path
    commits: tuple[str, ...]  # [0] is the base
    offsets: dict[str, list[str]]  # patch name -> git's words about hunks that moved


def build_repo(repo: Path, base: Base, source: Path, patches: Sequence[Patch]) -> Applied:
    """Makes `repo`, an empty folder, the base with `patches` applied; the commit ids depend on
    nothing else.

    UserError names the patch that does not apply and git's reason; git never applies with fuzz.
    """
    git.init(repo)
    for path in base.blobs:
        place = repo / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, place)
        place.chmod(0o644)
    git.git(repo, "add", "--all", "--force")
    message = f"PyTorch {base.tag}: the files that the series touches or a check reads"
    git.git(
        repo, "commit", "-q", "--allow-empty", "--no-verify", "-m", message, extra=git.BASE_AUTHOR
    )
    commits = [git.text(repo, "rev-parse", "HEAD")]
    offsets: dict[str, list[str]] = {}
    for patch in patches:
        moved = hunk_offsets(repo, patch)
        if moved:
            offsets[patch.name] = moved
        try:
            git.git(repo, "am", "-q", "--keep-non-patch", "--no-gpg-sign", str(patch.path))
        except git.GitError as error:
            raise UserError(
                f"{patch.name} does not apply to {base.name} after {len(commits) - 1} of "
                f"{len(patches)} patches: {error}"
            ) from None
        commits.append(git.text(repo, "rev-parse", "HEAD"))
    return Applied(repo, tuple(commits), offsets)


def hunk_offsets(repo: Path, patch: Patch) -> list[str]:
    """What git says of hunks that apply, but at other lines than they state."""
    try:
        said = git.git_messages(repo, "apply", "--check", "--verbose", str(patch.path))
    except git.GitError:
        return []  # the application itself tells why
    moved = []
    path = ""
    for line in said.splitlines():
        if match := re.match(r"Checking patch (.+)\.\.\.$", line):
            path = match[1]
        elif re.match(r"Hunk #\d+ succeeded at \d+ \(offset ", line):
            moved.append(f"{path}: {line}")
    return moved


def key(base: Base, patches: Sequence[Patch]) -> str:
    """A name for the result of applying `patches`."""
    parts = [f"{path} {blob}" for path, blob in sorted(base.blobs.items())]
    parts += [f"{patch.name} {patch.sha256}" for patch in patches]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def work_tree(base: Base, source: Path, patches: Sequence[Patch], to: Path) -> tuple[Path, bool]:
    """A work tree at `to` with one commit for each patch; False when it was there already, as it
    should be.

    A tree that this function made is replaced if it holds nothing else. UserError when it holds
    changes or commits of the user's, or was not made here.
    """
    env.make_folder(to.parent)
    wanted = key(base, patches)
    with env.lock(to.parent / f".{to.name}.lock", f"applying the series into {to}"):
        stamp = _check_replaceable(to)
        if stamp.get("key") == wanted:
            return to, False
        for left in to.parent.glob(f".tmp-{to.name}-*"):  # of a run that was killed
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(prefix=f".tmp-{to.name}-", dir=to.parent) as name:
            fresh = Path(name) / "tree"
            fresh.mkdir()
            applied = build_repo(fresh, base, source, patches)
            record = {"key": wanted, "head": applied.commits[-1], "base": base.name}
            env.write_file(fresh / ".git" / _STAMP, json.dumps(record, indent=1) + "\n")
            if to.exists():
                to.rename(Path(name) / "old")
            fresh.rename(to)
    return to, True


def _check_replaceable(to: Path) -> dict[str, str]:
    """The stamp of the tree at `to`, {} when nothing is there; UserError when replacing it would
    lose something.
    """
    if not to.exists() or (to.is_dir() and not any(to.iterdir())):
        return {}
    try:
        stamp = json.loads((to / ".git" / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(
            f"{to} exists and was not made by `patchset apply`, so it is left alone. Name another "
            "folder with --to, or "
            "apply to a PyTorch checkout with --onto"
        ) from None
    try:
        changed = git.text(to, "status", "--porcelain", "--untracked-files=all")
        head = git.text(to, "rev-parse", "HEAD")
    except git.GitError as error:
        raise UserError(f"{to} is no usable git work tree any more: {error}") from None
    if changed or head != stamp.get("head"):
        what = "changes that are not committed" if changed else "commits of your own"
        rows = "\n  ".join(changed.splitlines()[:5])
        raise UserError(
            f"{to} holds {what}, which applying the series anew would lose{':' if rows else '.'}\n "
            f" {rows}\n"
            "Keep them (git format-patch, git stash) or name another folder with --to"
        )
    return {str(name): str(value) for name, value in stamp.items()}


def export(repo: Path, commit: str, to: Path) -> Path:
    """Writes the files of a commit to `to`, which must not exist."""
    archive = git.git(repo, "archive", "--format=tar", commit)
    to.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                place = to / member.name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.read())
    return to


def plain_tree(base: Base, source: Path, patches: Sequence[Patch], trees: Path) -> Path:
    """The patched files without a repository, in a folder below `trees` that is named after what is
    in it.

    UserError when that folder was edited since: what is built from it would not be the series.
    """
    to = trees / key(base, patches)
    if not to.is_dir():
        env.make_folder(trees)
        with env.lock(trees / ".lock", f"applying the series into {trees}"):
            if not to.is_dir():
                _make_plain_tree(base, source, patches, to)
    try:
        listed = _sums(to).read_text(encoding="utf-8")
    except FileNotFoundError:  # made before there were such lists
        return to
    if changed := sorted(set(listed.splitlines()) ^ set(_listing(to).splitlines())):
        raise UserError(
            f"{to} was edited since the series was applied there: {changed[0].partition('  ')[2]}. "
            "To build an edited tree, copy it elsewhere and name the copy: relink --tree FOLDER; "
            f"to drop the changes, remove it: rm -r {shlex.quote(str(to))}"
        )
    return to


def _make_plain_tree(base: Base, source: Path, patches: Sequence[Patch], to: Path) -> None:
    for left in to.parent.glob(".tmp-*"):  # of a run that was killed: the lock is ours
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=to.parent) as name:
        repo = Path(name) / "repo"
        repo.mkdir()
        applied = build_repo(repo, base, source, patches)
        fresh = export(repo, applied.commits[-1], Path(name) / "tree")
        env.write_file(_sums(to), _listing(fresh))
        fresh.rename(to)


def _sums(tree: Path) -> Path:
    """Where the checksums of a plain tree's files are kept."""
    return tree.with_name(f"{tree.name}.sha256")


def _listing(tree: Path) -> str:
    """A line for each file, as sha256sum writes it."""
    rows = []
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        rows.append(f"{digest}  {path.relative_to(tree).as_posix()}\n")
    return "".join(rows)
