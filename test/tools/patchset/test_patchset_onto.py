"""tools/patchset apply --onto: a user's checkout or source tree, and everything it refuses."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import fake_base
import pytest
from fake_base import NEW_HEADER, FakeBase

from aotools.env import ROOT, UserError
from aotools.patchset import apply, git, onto
from aotools.patchset.base import LINALG


def put(fake: FakeBase, target: Path, upto: str | None = None, **options: bool) -> list[str]:
    return onto.apply_onto(fake.load(), fake.source, fake.load().upto(upto), target, **options)


@pytest.fixture
def checkout(fake: FakeBase, tmp_path: Path) -> Path:
    return fake_base.checkout(fake.source, tmp_path / "checkout")


@pytest.fixture
def unpacked(fake: FakeBase, tmp_path: Path) -> Path:
    shutil.copytree(fake.source, tmp_path / "unpacked")
    return tmp_path / "unpacked"


@pytest.fixture(params=["checkout", "unpacked"])
def target(request: pytest.FixtureRequest) -> Path:
    return Path(request.getfixturevalue(request.param))


def state(target: Path) -> dict[str, bytes]:
    return {
        path.relative_to(target).as_posix(): path.read_bytes()
        for path in sorted(target.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(target).parts
    }


def test_the_series_goes_in_once(fake: FakeBase, target: Path, tmp_path: Path) -> None:
    before = state(target)
    told = put(fake, target, dry_run=True)
    assert told == [
        "would apply first-topic.patch: [CUDA] Change the third line",
        "would apply second-topic.patch: Add a header",
    ]
    assert state(target) == before
    assert len(put(fake, target)) == 2
    own, _ = apply.work_tree(fake.load(), fake.source, fake.load().patches(), tmp_path / "own")
    after = state(target)
    assert {name: after[name] for name in state(own)} == state(own)
    for dry_run in (True, False):
        told = put(fake, target, dry_run=dry_run)
        assert told == [
            "nothing to do, as all is in already: first-topic.patch, second-topic.patch"
        ]
    assert state(target) == after


def test_more_of_the_series_than_is_asked_for_is_no_success(fake: FakeBase, target: Path) -> None:
    put(fake, target)
    after = state(target)
    loaded = fake.load()
    with pytest.raises(UserError, match=r"more .* is asked for: second-topic\.patch as well"):
        onto.apply_onto(loaded, fake.source, loaded.upto("first-topic"), target)
    assert state(target) == after


def test_a_checkout_with_all_in_it_may_have_changes_of_the_users(
    fake: FakeBase, checkout: Path
) -> None:
    put(fake, checkout)
    path = checkout / LINALG / "Solver.cpp"
    path.write_text(path.read_text() + "// mine\n")
    assert put(fake, checkout)[0].startswith("nothing to do")
    assert path.read_text().endswith("// mine\n")


def test_the_commits_are_those_of_git_am(fake: FakeBase, checkout: Path, tmp_path: Path) -> None:
    put(fake, checkout)
    own, _ = apply.work_tree(fake.load(), fake.source, fake.load().patches(), tmp_path / "own")
    form = "--format=%an%n%ae%n%ad%n%cn%n%B"
    assert git.text(checkout, "log", "-2", form) == git.text(own, "log", "-2", form)
    assert git.text(checkout, "status", "--porcelain") == ""


def test_a_half_applied_series_is_told_and_continued(fake: FakeBase, target: Path) -> None:
    put(fake, target, "first-topic")
    half = state(target)
    with pytest.raises(
        UserError, match=r"In it: first-topic\.patch\. Missing: second-topic\.patch"
    ):
        put(fake, target)
    assert state(target) == half
    assert put(fake, target, go_on=True) == ["applied second-topic.patch: Add a header"]
    assert (target / LINALG / "New.h").read_text() == NEW_HEADER


def test_another_base_is_refused(fake: FakeBase, target: Path) -> None:
    path = target / LINALG / "Solver.cpp"
    path.write_text(path.read_text().replace("line9 = 9", "line9 = 90"))
    if (target / ".git").exists():
        git.git(target, "commit", "-qam", "later", extra=git.BASE_AUTHOR)
    before = state(target)
    with pytest.raises(UserError, match=r"is not PyTorch v0\.1: 1 of 3 files") as caught:
        put(fake, target)
    assert "Solver.cpp: is " in str(caught.value)
    assert "git checkout v0.1" in str(caught.value)
    assert state(target) == before


def test_what_only_a_later_patch_touches_may_be_a_distributions(
    fake: FakeBase, target: Path
) -> None:
    notes = target / "docs/notes.rst"
    notes.write_text(notes.read_text() + "of the distribution\n")
    if (target / ".git").exists():
        git.git(target, "commit", "-qam", "theirs", extra=git.BASE_AUTHOR)
    before = state(target)
    with pytest.raises(UserError, match=r"docs/notes\.rst: is ") as caught:
        put(fake, target)
    assert f"port --base v0.1 --onto {target} --to patches/NAME" in str(caught.value)
    assert "--upto PATCH" in str(caught.value) and state(target) == before
    told = ["applied first-topic.patch: [CUDA] Change the third line"]
    assert put(fake, target, "first-topic") == told
    assert "line3 = 33" in (target / LINALG / "Solver.cpp").read_text()
    assert notes.read_text().endswith("of the distribution\n")
    assert put(fake, target, "first-topic") == [
        "nothing to do, as all is in already: first-topic.patch"
    ]
    with pytest.raises(UserError, match=r"is not PyTorch v0\.1"):
        put(fake, target)


def test_a_file_as_a_later_patch_leaves_it_is_refused(fake: FakeBase, target: Path) -> None:
    notes = target / "docs/notes.rst"
    notes.write_text(notes.read_text() + "more  \n")
    if (target / ".git").exists():
        git.git(target, "commit", "-qam", "half", extra=git.BASE_AUTHOR)
    before = state(target)
    with pytest.raises(UserError, match=r"is not PyTorch v0\.1: 1 of 3 files"):
        put(fake, target, "first-topic")
    assert state(target) == before


def test_a_dirty_tree_is_refused(fake: FakeBase, checkout: Path) -> None:
    (checkout / "README.md").write_text("edited\n")
    before = state(checkout)
    with pytest.raises(UserError, match=r"not committed: README\.md"):
        put(fake, checkout)
    git.git(checkout, "add", "README.md")
    with pytest.raises(UserError, match=r"not committed: README\.md"):
        put(fake, checkout)
    assert state(checkout) == before


def test_untracked_files_are_not_overwritten(fake: FakeBase, checkout: Path) -> None:
    mine = checkout / LINALG / "New.h"
    mine.write_text("mine\n")
    (checkout / "other.txt").write_text("of no interest\n")
    with pytest.raises(UserError, match=r"untracked files .*New\.h"):
        put(fake, checkout)
    assert mine.read_text() == "mine\n"
    mine.unlink()
    put(fake, checkout)
    assert (checkout / "other.txt").read_text() == "of no interest\n"


def test_a_git_operation_in_progress_is_refused(fake: FakeBase, checkout: Path) -> None:
    (checkout / ".git/rebase-apply").mkdir()
    with pytest.raises(UserError, match=r"in the middle of a git operation \(rebase-apply\)"):
        put(fake, checkout)


def test_a_locked_index_is_told_in_gits_words(fake: FakeBase, checkout: Path) -> None:
    (checkout / ".git/index.lock").touch()
    with pytest.raises(UserError, match=r"git refused in .*index\.lock"):
        put(fake, checkout)
    assert git.text(checkout, "rev-list", "--count", "HEAD") == "1"


def test_only_a_checkouts_top_is_taken(fake: FakeBase, checkout: Path, tmp_path: Path) -> None:
    (checkout / "docs/.git").mkdir()
    with pytest.raises(UserError, match="name the checkout's top folder"):
        put(fake, checkout / "docs")
    with pytest.raises(UserError, match="is not a folder"):
        put(fake, tmp_path / "nowhere")


def test_the_users_git_changes_nothing(
    fake: FakeBase, checkout: Path, tmp_path: Path, hostile_git: Path
) -> None:
    # The repository's own configuration too, which cannot be left out.
    shutil.copy(Path.home() / ".gitconfig", tmp_path / "settings")
    (checkout / ".git/config").open("a").write((tmp_path / "settings").read_text())
    (checkout / ".git/hooks").mkdir(exist_ok=True)
    for hook in (Path.home() / "hooks").iterdir():
        shutil.copy(hook, checkout / ".git/hooks")
    put(fake, checkout)
    own, _ = apply.work_tree(fake.load(), fake.source, fake.load().patches(), tmp_path / "own")
    after = state(checkout)
    assert {name: after[name] for name in state(own)} == state(own)
    assert not hostile_git.exists()
    form = "--format=%an%n%cn%n%B"
    assert git.text(checkout, "log", "-2", form) == git.text(own, "log", "-2", form)


def test_a_detached_head_and_a_branch_move(fake: FakeBase, checkout: Path) -> None:
    git.git(checkout, "checkout", "-q", "-b", "mine")
    put(fake, checkout, "first-topic")
    assert git.text(checkout, "symbolic-ref", "--short", "HEAD") == "mine"
    git.git(checkout, "checkout", "-q", "--detach")
    put(fake, checkout, go_on=True)
    assert git.text(checkout, "rev-list", "--count", "mine") == "2"
    assert git.text(checkout, "rev-list", "--count", "HEAD") == "3"


def test_a_partial_clone_needs_nothing_more_from_its_origin(fake: FakeBase, tmp_path: Path) -> None:
    fake_base.write_files(fake.source, {"large/unwanted.txt": "large\n"})
    origin = fake_base.checkout(fake.source, tmp_path / "origin")
    git.git(origin, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    options = ["--filter=blob:none", "--no-checkout", "--sparse", "-q"]
    git.git(tmp_path, "clone", *options, origin.as_uri(), str(clone))
    git.git(clone, "sparse-checkout", "set", "--no-cone", "/aten/", "/docs/")
    git.git(clone, "checkout", "-q", "HEAD")
    assert not (clone / "large").exists()
    origin.rename(tmp_path / "away")
    put(fake, clone)
    assert (clone / LINALG / "New.h").read_text() == NEW_HEADER
    assert git.text(clone, "status", "--porcelain") == ""
    assert not (clone / "large").exists()


KILL = """
import os, signal, sys
from pathlib import Path
from aotools.patchset import base, git, onto
root, source, target, after = sys.argv[1:]
b = base.load("v0.1", Path(root))
writes = 0
real_git, real_write = git.git, onto._write
def counted(place, content):
    global writes
    real_write(place, content)
    writes += 1
    if writes == int(after):
        os.kill(os.getpid(), signal.SIGKILL)
def stop(where, *arguments, **options):
    if arguments[0] == "merge":  # as if git had been killed after it had written some files
        made = real_git(where, "diff", "--name-only", "HEAD", arguments[-1]).decode().split()
        for name in made[: int(after)]:
            (Path(where) / name).write_bytes(real_git(where, "show", f"{arguments[-1]}:{name}"))
        os.kill(os.getpid(), signal.SIGKILL)
    return real_git(where, *arguments, **options)
git.git, onto._write = stop, counted
onto.apply_onto(b, Path(source), b.patches(), Path(target))
"""


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_run_is_taken_up(fake: FakeBase, target: Path, after: int) -> None:
    before = state(target)
    command = [sys.executable, "-c", KILL, fake.root, fake.source, target, str(after)]
    variables = {"PYTHONPATH": str(ROOT / "tools"), "PATH": os.environ["PATH"]}
    done = subprocess.run([str(part) for part in command], env=variables)
    assert done.returncode == -signal.SIGKILL
    broken = state(target)
    assert sum(broken.get(name) != before.get(name) for name in broken) == after
    if after < 3 or (target / ".git").exists():
        told = put(fake, target)
        assert "taking up an interrupted run" in told[0]
    else:
        assert put(fake, target)[0].startswith("nothing to do")
    assert (target / LINALG / "New.h").read_text() == NEW_HEADER
    assert b"line25 = kNew" in state(target)[f"{LINALG}/Solver.cpp"]
    if (target / ".git").exists():
        assert git.text(target, "status", "--porcelain") == ""
        assert git.text(target, "rev-list", "--count", "HEAD") == "3"


def test_work_of_the_users_is_not_taken_for_an_interrupted_run(
    fake: FakeBase, checkout: Path
) -> None:
    path = checkout / LINALG / "Solver.cpp"
    text = path.read_text()
    path.write_text(text.replace("line3 = 3;", "line3 = 33;").replace("= 25", "= kNew") + "// me\n")
    mine = path.read_text()
    with pytest.raises(UserError, match="changes that are not committed"):
        put(fake, checkout)
    assert path.read_text() == mine


def test_a_full_disk_is_told_and_the_run_can_go_on(
    fake: FakeBase, unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.name.startswith(".Solver"):
            real(self, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, data)

    before = state(unpacked)[f"{LINALG}/Solver.cpp"]
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="No space left on device"):
        put(fake, unpacked)
    assert state(unpacked)[f"{LINALG}/Solver.cpp"] == before
    assert not list(unpacked.rglob("*.patchset"))
    monkeypatch.undo()
    put(fake, unpacked)
    assert b"kNew" in state(unpacked)[f"{LINALG}/Solver.cpp"]


def test_the_mode_of_a_file_stays(fake: FakeBase, unpacked: Path) -> None:
    path = unpacked / LINALG / "Solver.cpp"
    path.chmod(0o640)
    put(fake, unpacked)
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_users_list_of_trusted_checkouts_is_kept(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = checkout.rename(tmp_path / 'a "check", out')
    monkeypatch.setitem(git.IDENTITY, "GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    for home in ("none", "trusting"):
        (tmp_path / home).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    with pytest.raises(git.GitError, match="dubious ownership"):
        git.text(place, "rev-parse", "HEAD")
    monkeypatch.setenv("HOME", str(tmp_path / "trusting"))
    for name, value in (("safe.directory", str(place)), ("user.name", "Not To Be Seen")):
        subprocess.run(["git", "config", "--global", name, value], check=True)
    assert len(git.text(place, "rev-parse", "HEAD")) == 40
    assert "Not To Be Seen" not in git.text(place, "config", "--list")
