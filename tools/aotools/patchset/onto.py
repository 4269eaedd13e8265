"""Applies the series onto a user's own PyTorch checkout (git) or unpacked source tree.

Everything is computed elsewhere first. A checkout then moves by one fast-forward, an unpacked tree
by one rename per file, so an interruption leaves nothing but files that are either as before or as
wanted, and the next run goes on.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotools.env import UserError
from aotools.patchset import apply, git
from aotools.patchset.base import Base, Patch, blob_id

State = Mapping[str, str | None]  # path -> blob id, None: not there
_IN_PROGRESS = ("rebase-apply", "rebase-merge", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")


@dataclass(frozen=True)
class Plan:
    """The states of the files that the series touches: [0] in the base, [k] after k patches."""

    patches: Sequence[Patch]
    states: Sequence[State]
    contents: Mapping[str, bytes]  # by blob id, for the states after a patch
    goal: int  # after how many patches to stop

    def position(self, state: State) -> int | None:
        """After how many patches the files are as in `state`; None: never."""
        for index in range(len(self.states) - 1, -1, -1):
            if dict(self.states[index]) == dict(state):
                return index
        return None

    def narrowed(self) -> Plan:
        """The same without the patches after the goal, and the files that only those touch."""
        patches = self.patches[: self.goal]
        paths = {change.path for patch in patches for change in patch.changes}
        states = [
            {path: blob for path, blob in state.items() if path in paths}
            for state in self.states[: self.goal + 1]
        ]
        return Plan(patches, states, self.contents, self.goal)


def _suited(plan: Plan, state: State) -> tuple[Plan, State]:
    """The plan for a tree in `state`, and the state of the files that count for it.

    A file that only later patches touch may differ from the base, as in a distribution's source; it
    may not be as one of them leaves it.
    """
    if plan.goal == len(plan.patches) or plan.position(state) is not None:
        return plan, state
    narrow = plan.narrowed()
    for path in state.keys() - narrow.states[0].keys():
        later = {after[path] for after in plan.states[plan.goal + 1 :]} - {plan.states[0][path]}
        if state[path] in later:
            return plan, state
    return narrow, {path: state[path] for path in narrow.states[0]}


def apply_onto(
    base: Base,
    source: Path,
    patches: Sequence[Patch],
    target: Path,
    *,
    go_on: bool = False,
    dry_run: bool = False,
) -> list[str]:
    """Applies `patches` to the tree at `target`; returns what to tell the user.

    A tree that has them all already is left alone. UserError, with the tree as it was: not the
    base, changes that are not committed, only some of the patches in (then `go_on` applies the
    rest) or more than these, or a git operation in progress.
    """
    if not target.is_dir():
        raise UserError(f"{target} is not a folder")
    plan = make_plan(base, source, base.patches(), len(patches))
    if (target / ".git").exists():
        return _onto_git(base, plan, target, go_on, dry_run)
    return _onto_files(base, plan, target, go_on, dry_run)


def make_plan(base: Base, source: Path, patches: Sequence[Patch], goal: int) -> Plan:
    """Applies the series in a scratch repository and notes every state on the way."""
    paths = sorted({change.path for patch in patches for change in patch.changes})
    states: list[State] = []
    contents: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        repo = Path(name)
        for commit in apply.build_repo(repo, base, source, patches).commits:
            listed = git.text(repo, "ls-tree", "-r", "-z", commit, "--", *paths) if paths else ""
            found = {row.partition("\t")[2]: row.split()[2] for row in listed.split("\0") if row}
            states.append({path: found.get(path) for path in paths})
            for blob in found.values():
                if blob not in contents:
                    contents[blob] = git.git(repo, "cat-file", "blob", blob)
    return Plan(patches, states, contents, goal)


def _start(base: Base, plan: Plan, state: State, target: Path, go_on: bool) -> int:
    """From which patch on to apply; UserError when the tree is not one to start from."""
    at = plan.position(state)
    names = [patch.name for patch in plan.patches]
    if at is None:
        wrong = [path for path, blob in plan.states[0].items() if state[path] != blob]
        first = wrong[0]
        raise UserError(
            f"{target} is not PyTorch {base.tag}: {len(wrong)} of {len(plan.states[0])} files that "
            "the series touches "
            f"differ, the first is\n  {first}: is {state[first] or 'missing'}, expected "
            f"{plan.states[0][first]}\n"
            f"Check out the release (git checkout {base.tag}), or look for a series for your "
            "version below patches/. For a tree that is nearly the release, as a distribution's, "
            f"make one: tools/patchset port --base {base.name} --onto {target} --to "
            "patches/NAME; or stop before the patch that touches the file: --upto PATCH"
        )
    if at > plan.goal:
        more = ", ".join(names[plan.goal : at])
        raise UserError(
            f"{target} has more of the series than is asked for: {more} as well. Take out what is "
            f"too much ({_back(target)})"
        )
    if at == plan.goal:
        return at
    if at and not go_on:
        raise UserError(
            f"{target} has the series half applied. In it: {', '.join(names[:at])}. Missing: "
            f"{', '.join(names[at : plan.goal])}. Apply the rest with --continue, or take out what "
            f"is in ({_back(target)}) and start again"
        )
    return at


def _back(target: Path) -> str:
    return "git reset" if (target / ".git").exists() else "patch -R"


def _told(plan: Plan, start: int, dry_run: bool) -> list[str]:
    if start == plan.goal:
        names = ", ".join(patch.name for patch in plan.patches[:start])
        return [f"nothing to do, as all is in already: {names or 'no patch was asked for'}"]
    done = "would apply" if dry_run else "applied"
    return [f"{done} {patch.name}: {patch.subject}" for patch in plan.patches[start : plan.goal]]


# --- an unpacked tree
# ------------------------------------------------------------------------------------------


def _file_state(target: Path, paths: Sequence[str]) -> dict[str, str | None]:
    state: dict[str, str | None] = {}
    for path in paths:
        try:
            state[path] = blob_id((target / path).read_bytes())
        except FileNotFoundError:
            state[path] = None
        except OSError as error:
            raise UserError(f"{target / path} cannot be read: {error.strerror}") from None
    return state


def _onto_files(base: Base, plan: Plan, target: Path, go_on: bool, dry_run: bool) -> list[str]:
    plan, state = _suited(plan, _file_state(target, list(plan.states[0])))
    goal = plan.states[plan.goal]
    notes = []
    if plan.position(state) is None:
        for start, before in enumerate(plan.states[: plan.goal]):
            if all(state[path] in (before[path], goal[path]) for path in goal):
                notes = [
                    f"taking up an interrupted run: {target} is between patch {start} and the end"
                ]
                break
        else:
            _start(base, plan, state, target, go_on)
    else:
        start = _start(base, plan, state, target, go_on)
    if not dry_run:
        for path, blob in goal.items():
            if state[path] != blob:
                _write(target / path, None if blob is None else plan.contents[blob])
    return [*notes, *_told(plan, start, dry_run)]


def _write(place: Path, content: bytes | None) -> None:
    temporary = place.with_name(f".{place.name}.patchset")
    try:
        if content is None:
            place.unlink(missing_ok=True)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        if place.exists():
            temporary.chmod(place.stat().st_mode & 0o7777)
        temporary.replace(place)
    except OSError as error:
        raise UserError(
            f"{place} cannot be written: {error.strerror}. Files before it in the list are "
            "patched, none is half "
            "written; run the same command again to go on"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


# --- a checkout
# ------------------------------------------------------------------------------------------------


def _onto_git(base: Base, plan: Plan, target: Path, go_on: bool, dry_run: bool) -> list[str]:
    try:
        return _onto_checkout(base, plan, target, go_on, dry_run)
    except git.GitError as error:
        raise UserError(f"git refused in {target}: {error}") from None


def _onto_checkout(base: Base, plan: Plan, target: Path, go_on: bool, dry_run: bool) -> list[str]:
    if git.text(target, "rev-parse", "--show-prefix"):
        raise UserError(f"{target} lies inside a git checkout; name the checkout's top folder")
    folder = Path(git.text(target, "rev-parse", "--absolute-git-dir"))
    busy = [name for name in _IN_PROGRESS if (folder / name).exists()]
    if busy:
        raise UserError(
            f"{target} is in the middle of a git operation ({busy[0]}); finish or abort it first"
        )
    plan, head = _suited(plan, _head_state(target, list(plan.states[0])))
    paths = list(plan.states[0])
    notes = _take_up(plan, target, head, dry_run)
    if not notes and plan.position(head) == plan.goal:
        return _told(plan, plan.goal, dry_run)  # whatever else the user has changed there
    dirty = _changed(target)
    if dirty and not (notes and dry_run):
        raise UserError(
            f"{target} has changes that are not committed: {', '.join(dirty[:5])}"
            f"{' and more' if len(dirty) > 5 else ''}. Commit or stash them first"
        )
    start = _start(base, plan, head, target, go_on)
    in_the_way = [
        path
        for path in paths
        if head[path] is None
        and plan.states[plan.goal][path] is not None
        and os.path.lexists(target / path)
    ]
    if in_the_way and not (notes and dry_run):
        raise UserError(
            f"{target}: untracked files are where the series adds its own: {', '.join(in_the_way)}"
        )
    if not dry_run:
        commit = git.text(target, "rev-parse", "HEAD")
        for patch in plan.patches[start : plan.goal]:
            commit = _commit(target, patch, commit)
        git.git(target, "merge", "--quiet", "--ff-only", "--no-verify-signatures", commit)
    return [*notes, *_told(plan, start, dry_run)]


def _head_state(target: Path, paths: Sequence[str]) -> dict[str, str | None]:
    listed = git.text(target, "ls-tree", "-r", "-z", "HEAD", "--", *paths) if paths else ""
    found = {row.partition("\t")[2]: row.split()[2] for row in listed.split("\0") if row}
    return {path: found.get(path) for path in paths}


def _changed(target: Path) -> list[str]:
    rows = git.text(
        target,
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=no",
        "--ignore-submodules=dirty",
    )
    return [row[3:] for row in rows.split("\0") if row]


def _take_up(plan: Plan, target: Path, head: State, dry_run: bool) -> list[str]:
    """Puts back files that an interrupted fast-forward of ours had already written; [] when there
    are none.
    """
    goal = plan.states[plan.goal]
    work = _file_state(target, list(goal))
    written = [path for path in goal if work[path] != head[path]]
    if (
        not written
        or any(work[path] != goal[path] for path in written)
        or plan.position(head) is None
    ):
        return []
    if set(_changed(target)) - set(written):
        return []
    if not dry_run:
        for path in written:  # exactly the series' own content: nothing of the user's is in them
            if head[path] is None:
                (target / path).unlink()
        git.git(target, "read-tree", "--reset", "HEAD")
        kept = [path for path in written if head[path] is not None]
        if kept:
            git.git(target, "checkout-index", "--force", "--", *kept)
        git.git(target, "update-index", "-q", "--refresh", "--ignore-submodules")
    return [f"taking up an interrupted run: {len(written)} files had been written"]


def _commit(target: Path, patch: Patch, parent: str) -> str:
    """The commit that `git am` would make of the patch on `parent`, without touching the work tree
    or the index.
    """
    with tempfile.TemporaryDirectory(prefix="patchset-") as name:
        message, diff = Path(name) / "message", Path(name) / "diff"
        mail = git.git(
            target,
            "mailinfo",
            "-b",
            "--encoding=UTF-8",
            str(message),
            str(diff),
            stdin=patch.path.read_bytes(),
        ).decode()
        about = dict(re.findall(r"^(Author|Email|Subject|Date): (.*)$", mail, re.M))
        index = {"GIT_INDEX_FILE": str(Path(name) / "index")}
        git.git(target, "read-tree", parent, extra=index)
        git.git(target, "apply", "--cached", str(diff), extra=index)
        tree = git.git(target, "write-tree", "--missing-ok", extra=index).decode().strip()
        author = {
            "GIT_AUTHOR_NAME": about["Author"],
            "GIT_AUTHOR_EMAIL": about["Email"],
            "GIT_AUTHOR_DATE": about["Date"],
        }
        text = f"{about['Subject']}\n\n{message.read_text(encoding='utf-8')}"
        made = git.git(
            target,
            "commit-tree",
            tree,
            "-p",
            parent,
            stdin=text.rstrip().encode() + b"\n",
            extra=author,
        )
        return made.decode().strip()
