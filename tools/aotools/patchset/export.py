"""tools/patchset export: writes the commits of a work tree back as the patches of a base.

A patch's bytes depend on its commit alone: zeroed commit id, full blob ids, pinned diff settings,
no signature of git's, so that exporting what was just applied changes nothing.
"""

from __future__ import annotations

import argparse
import difflib
import email.utils
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset import git
from aotools.patchset.base import Base, Patch, read_patch

NAME, TEXT = "export", "Write the commits of a patched work tree back as the patches of the base."
# diff-tree heeds only a few of a repository's own settings; these are they, and what is by default
# another in some version of git.
_DIFF = [
    *("-c", "diff.suppressBlankEmpty=false", "diff-tree", "-r"),
    *("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-relative", "--text"),
    *("--diff-algorithm=myers", "--indent-heuristic", "--ignore-submodules=none"),
]
_PATCH = [
    *("--unified=3", "--inter-hunk-context=0", "--full-index"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
]
_STAT_WIDTH = 100
# What `git am` would take for the end of the message.
_BREAKS = re.compile(r"^(---(?: .*)?|diff -.*|Index: .*)$", re.M)


@dataclass(frozen=True)
class Exported:
    """One patch file as it should be; `old` is what is there now."""

    name: str
    data: bytes
    old: bytes | None

    @property
    def verdict(self) -> str:
        """ "unchanged", "new" or "changed"."""
        if self.old == self.data:
            return "unchanged"
        return "new" if self.old is None else "changed"


def render(
    repo: Path, commit: str, *, parent: str | None = None, message: str | None = None
) -> bytes:
    """The patch file of a commit, or of another message for it.

    UserError for a message that `git am` would cut short or that holds no text.
    """
    author, address, date, text = git.text(
        repo, "show", "-s", "--format=%an%x00%ae%x00%at %ad%x00%B", "--date=format:%z", commit
    ).split("\0", 3)
    subject, _, body = (text if message is None else message).partition("\n")
    where = f"commit {commit[:12]} ({subject})"
    if not subject.strip():
        raise UserError(f"{where} has no message; patches/README.md says what it should hold")
    if match := _BREAKS.search(body):
        raise UserError(
            f"{where}: `git am` would end the message at the line {match[0]!r}; indent it"
        )
    seconds, zone = date.split()
    diff = git.git(repo, *_DIFF, *_PATCH, parent or f"{commit}~1", commit)
    stat = git.git(repo, *_DIFF, f"--stat={_STAT_WIDTH}", parent or f"{commit}~1", commit).decode()
    # A mail header quotes a name with such characters in it.
    name = f'"{author}"' if re.search(r"[()<>@,:;.\[\]]", author) else author
    lines = [
        f"From {'0' * 40} Mon Sep 17 00:00:00 2001",
        f"From: {name} <{address}>",
        f"Date: {_mail_date(int(seconds), zone)}",
        f"Subject: [PATCH] {subject}",
        "",
        body.strip("\n"),
        "---",
        stat,
        "",
    ]
    return "\n".join(lines).encode() + diff


def _mail_date(seconds: int, zone: str) -> str:
    """As mails have it: "Mon, 30 Nov 2026 12:00:00 +0000"."""
    offset = (1 if zone[0] == "+" else -1) * (int(zone[1:3]) * 3600 + int(zone[3:5]) * 60)
    plain = email.utils.formatdate(seconds + offset)
    return plain.rpartition(" ")[0] + f" {zone}"


def slug(subject: str) -> str:
    """A file name for a subject: "[CUDA] Share one workspace" gives "share-one-workspace.patch"."""
    words = re.sub(r"\[[^\]]*\]", " ", subject).lower()
    kept = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    if len(kept) > 48:
        kept = kept[:49].rpartition("-")[0] or kept[:48]
    return f"{kept or 'patch'}.patch"


def first_commit(tree: Path, base: Base, since: str | None) -> str:
    """The commit that the patches start from; UserError when nothing says which it is."""
    if not (tree / ".git").exists():
        raise UserError(
            f"{tree} is no git work tree: `tools/patchset apply` makes one, --from names one"
        )
    for wanted in [since] if since else ["aten-overrides.json", base.tag]:
        if wanted == "aten-overrides.json":  # made by `tools/patchset apply`: its first commit
            if (tree / ".git" / wanted).is_file():
                return git.text(tree, "rev-list", "--max-parents=0", "HEAD").splitlines()[-1]
            continue
        try:
            return git.text(tree, "rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}")
        except git.GitError:
            if since:
                raise UserError(f"{tree} has no commit {since!r}") from None
    raise UserError(
        f"{tree} was not made by `tools/patchset apply` and has no tag {base.tag}: name the commit "
        "that the patches start from with --since"
    )


def commits(tree: Path, first: str) -> list[str]:
    """The commits after `first`, oldest first; UserError when they cannot be exported."""
    dirty = git.text(tree, "status", "--porcelain", "--untracked-files=no")
    if dirty:
        raise UserError(
            f"{tree} has changes that are not committed:\n  "
            + "\n  ".join(dirty.splitlines()[:5])
            + "\nPut them into a patch's commit: git commit -a --fixup COMMIT, then "
            "git rebase --interactive --autosquash"
        )
    try:
        git.git(tree, "merge-base", "--is-ancestor", first, "HEAD")
    except git.GitError:
        raise UserError(f"{tree}: HEAD does not descend from {first[:12]}") from None
    rows = git.text(tree, "log", "--reverse", "--format=%H %p", f"{first}..HEAD").splitlines()
    for row in rows:
        commit, *parents = row.split()
        subject = git.text(tree, "show", "-s", "--format=%s", commit)
        if len(parents) != 1:
            raise UserError(f"{tree}: {commit[:12]} is a merge; a series is a line of commits")
        if re.match(r"(fixup|squash|amend)! ", subject):
            raise UserError(
                f"{tree}: {subject!r} still waits for `git rebase --interactive --autosquash`"
            )
    return [row.split()[0] for row in rows]


def named(patches: Sequence[Patch], subjects: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """A file name for each commit: the patch with the same subject, `names`, or one made of the
    subject.

    `names` maps a subject to a file name, for a commit whose subject was changed.
    """
    by_subject = {patch.subject: patch.name for patch in patches} | dict(names)
    result = [by_subject.get(" ".join(subject.split()), slug(subject)) for subject in subjects]
    for name in result:
        if result.count(name) > 1:
            raise UserError(f"two commits would be written as {name}; change one of the subjects")
    return result


def prove(repo: Path, first: str, tree_of: Sequence[str], rendered: Sequence[bytes]) -> None:
    """UserError unless applying the rendered patches in order gives each commit's tree again."""
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        index = {"GIT_INDEX_FILE": str(Path(name) / "index")}
        git.git(repo, "read-tree", first, extra=index)
        for number, (commit, data) in enumerate(zip(tree_of, rendered, strict=True)):
            file = Path(name) / f"{number}.patch"
            file.write_bytes(data)
            git.git(repo, "apply", "--cached", str(file), extra=index)
            made = git.git(repo, "write-tree", "--missing-ok", extra=index).decode().strip()
            wanted = git.text(repo, "rev-parse", f"{commit}^{{tree}}")
            if made != wanted:
                raise UserError(
                    f"the patch of {commit[:12]} does not carry all that the commit changes "
                    "(a mode, a symbolic link or a submodule?); nothing was written"
                )


def write(
    base: Base,
    exported: Sequence[Exported],
    drop: Sequence[str] = (),
    *,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> bool:
    """Brings the base's folder to `exported`, each file by a rename; returns whether anything
    changed.

    UserError, before anything is written, for a patch that patches/README.md forbids, for one that
    has no commit any more and is not in `drop`, and for a file that is not in the series.
    """
    names = [one.name for one in exported]
    before = base.series()
    gone = [name for name in before if name not in names]
    if unknown := [name for name in drop if name not in gone]:
        raise UserError(f"--drop {unknown[0]}: it is not in the series, or still has a commit")
    if lost := [name for name in gone if name not in drop]:
        raise UserError(
            f"{', '.join(lost)}: no commit has this subject any more. If it was renamed, --name "
            f"{lost[0]}='NEW SUBJECT' keeps its file; if it was taken out, --drop {lost[0]}"
        )
    strangers = [one.name for one in exported if one.name not in before and one.old is not None]
    if strangers:
        raise UserError(
            f"{base.folder / strangers[0]} is there, but not in the series: it would be lost"
        )
    _refuse_malformed(exported)
    changed = names != before or any(one.verdict != "unchanged" for one in exported)
    for one in exported:
        say(f"{one.verdict:9} {one.name}{_size(one)}")
        if one.verdict != "unchanged" and not dry_run:
            env.write_file(base.folder / one.name, one.data.decode())
    if names != before:
        say(f"{'reordered' if sorted(names) == sorted(before) else 'changed  '} series")
        if not dry_run:
            env.write_file(base.folder / "series", _series(base, names))
    for name in gone:
        say(f"dropped   {name}")
        if not dry_run:
            (base.folder / name).unlink()
    return changed


def _refuse_malformed(exported: Sequence[Exported]) -> None:
    problems = []
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        for one in exported:
            file = Path(name) / one.name
            file.write_bytes(one.data)
            problems += [f"{one.name}: {problem}" for problem in read_patch(file).problems]
    if problems:
        raise UserError(
            "nothing was written; patches/README.md does not allow this:\n  "
            + "\n  ".join(problems)
        )


def _size(one: Exported) -> str:
    if one.old is None or one.verdict == "unchanged":
        return ""
    old, new = (data.decode(errors="replace").splitlines() for data in (one.old, one.data))
    signs = [line[:1] for line in difflib.unified_diff(old, new, n=0, lineterm="")][2:]
    return f": {signs.count('+')} lines in, {signs.count('-')} out"


def _series(base: Base, names: Sequence[str]) -> str:
    """The series with another order; the comment at its top stays."""
    lines = (base.folder / "series").read_text(encoding="utf-8").splitlines()
    head = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            break
        head.append(line)
    return "\n".join([*head, *names]) + "\n"


# --- the command ----------------------------------------------------------------------------------


def add(sub: argparse.ArgumentParser) -> None:
    """The command's options."""
    sub.add_argument(
        "--from",
        dest="tree",
        type=Path,
        help="the work tree with one commit a patch (default: build/<base>/src)",
    )
    sub.add_argument("--since", metavar="COMMIT", help="the commit that the patches start from")
    sub.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="FILE=SUBJECT",
        help="the file for a commit whose subject is new",
    )
    sub.add_argument(
        "--drop", action="append", default=[], metavar="FILE", help="a patch that was taken out"
    )
    sub.add_argument(
        "--check", action="store_true", help="write nothing; exit code 1 when something would be"
    )


def names_given(given: Sequence[str]) -> dict[str, str]:
    """What --name says, as subject to file name."""
    result = {}
    for text in given:
        file, equals, subject = text.partition("=")
        if not equals or "/" in file or not file.endswith(".patch") or not subject.strip():
            raise UserError(f"--name {text}: write FILE.patch='SUBJECT OF THE COMMIT'")
        result[" ".join(subject.split())] = file
    return result


def run(base: Base, options: argparse.Namespace, source: Callable[[], Path]) -> int:
    """Exports the work tree; 1 with --check when a file would change."""
    tree = (options.tree or env.ROOT / "build" / base.name / "src").expanduser().absolute()
    first = first_commit(tree, base, options.since)
    found = commits(tree, first)
    if not found:
        raise UserError(f"{tree} has no commit after {first[:12]}: there is nothing to export")
    subjects = [git.text(tree, "show", "-s", "--format=%s", commit) for commit in found]
    names = named(base.patches(), subjects, names_given(options.name))
    rendered = [render(tree, commit) for commit in found]
    prove(tree, first, found, rendered)
    exported = []
    for name, data in zip(names, rendered, strict=True):
        path = base.folder / name
        exported.append(Exported(name, data, path.read_bytes() if path.is_file() else None))
    changed = write(base, exported, options.drop, dry_run=options.dry_run or options.check)
    if changed and not (options.dry_run or options.check):
        print("`tools/patchset check` proves the result (with --update-base after new files)")
    return 1 if options.check and changed else 0
