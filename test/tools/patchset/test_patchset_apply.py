"""tools/patchset apply: the work tree, its reproducibility, and what it refuses to replace."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fake_base import NEW_HEADER, FakeBase

from aotools.env import ROOT, UserError
from aotools.patchset import apply, git
from aotools.patchset.base import LINALG


def make(fake: FakeBase, to: Path, upto: str | None = None) -> tuple[Path, bool]:
    return apply.work_tree(fake.load(), fake.source, fake.load().upto(upto), to)


def test_the_series_is_applied(fake: FakeBase, tmp_path: Path) -> None:
    tree, made = make(fake, tmp_path / "tree")
    assert made
    subjects = git.text(tree, "log", "--format=%s|%an|%ad|%cn", "--date=iso-strict").splitlines()
    assert subjects == [
        "Add a header|A Tester|2026-11-30T12:00:00+00:00|aten-overrides",
        "[CUDA] Change the third line|A Tester|2026-11-30T12:00:00+00:00|aten-overrides",
        "PyTorch v0.1: the files that the series touches or a check reads|aten-overrides|"
        "2025-01-29T00:00:00+00:00|aten-overrides",
    ]
    assert (tree / LINALG / "New.h").read_text() == NEW_HEADER
    assert "line3 = 33;" in (tree / LINALG / "Solver.cpp").read_text()
    assert git.text(tree, "status", "--porcelain") == ""


def test_nothing_of_the_users_git_changes_the_result(
    fake: FakeBase, tmp_path: Path, hostile_git: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile, _ = make(fake, tmp_path / "hostile")
    monkeypatch.undo()
    plain, _ = make(fake, tmp_path / "plain")
    assert git.text(hostile, "rev-parse", "HEAD") == git.text(plain, "rev-parse", "HEAD")
    for name in ("docs/notes.rst", f"{LINALG}/Solver.cpp", f"{LINALG}/New.h"):
        assert (hostile / name).read_bytes() == (plain / name).read_bytes()
    assert not hostile_git.exists()
    assert not (hostile / ".git/hooks").exists()


def test_upto_and_the_bare_base(fake: FakeBase, tmp_path: Path) -> None:
    one, _ = make(fake, tmp_path / "one", "first-topic")
    assert not (one / LINALG / "New.h").exists()
    none, _ = make(fake, tmp_path / "none", "none")
    assert git.text(none, "rev-list", "--count", "HEAD") == "1"


def test_a_tree_that_is_as_wanted_is_kept_and_another_replaced(
    fake: FakeBase, tmp_path: Path
) -> None:
    tree, _ = make(fake, tmp_path / "tree", "first-topic")
    stamp = (tree / ".git/aten-overrides.json").stat().st_mtime_ns
    assert make(fake, tree, "first-topic") == (tree, False)
    assert (tree / ".git/aten-overrides.json").stat().st_mtime_ns == stamp
    assert make(fake, tree) == (tree, True)
    assert (tree / LINALG / "New.h").exists()
    assert [path.name for path in tmp_path.glob(".tmp-*")] == []


@pytest.mark.parametrize("kind", ["change", "new file", "commit"])
def test_the_users_work_is_never_replaced(fake: FakeBase, tmp_path: Path, kind: str) -> None:
    tree, _ = make(fake, tmp_path / "tree", "first-topic")
    mine = tree / ("mine.txt" if kind == "new file" else f"{LINALG}/Solver.cpp")
    mine.write_text("my work\n")
    if kind == "commit":
        git.git(tree, "commit", "-qam", "mine", extra=git.BASE_AUTHOR)
    with pytest.raises(UserError, match=r"changes that are not committed|commits of your own"):
        make(fake, tree)
    assert mine.read_text() == "my work\n"


def test_a_folder_of_others_is_left_alone(fake: FakeBase, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    make(fake, other, "first-topic")  # empty: that may be filled
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("x")
    with pytest.raises(UserError, match="was not made by `patchset apply`"):
        make(fake, tmp_path / "full")
    assert (tmp_path / "full/file").read_text() == "x"


def test_a_patch_that_does_not_apply_is_named(fake: FakeBase, tmp_path: Path) -> None:
    tree, _ = make(fake, tmp_path / "tree", "first-topic")
    fake.edit("second-topic.patch", " int line24 = 24;", " int line24 = 42;")
    with pytest.raises(
        UserError, match=r"second-topic\.patch does not apply to v0\.1 after 1 of 2"
    ):
        make(fake, tree)
    assert git.text(tree, "rev-list", "--count", "HEAD") == "2"  # as it was
    assert [path.name for path in tmp_path.glob(".tmp-*")] == []


def test_offsets_are_told(fake: FakeBase, tmp_path: Path) -> None:
    fake.edit("first-topic.patch", "@@ -1,6 +1,6 @@", "@@ -2,6 +2,6 @@")
    repo = tmp_path / "repo"
    repo.mkdir()
    applied = apply.build_repo(repo, fake.load(), fake.source, fake.load().patches())
    assert list(applied.offsets) == ["first-topic.patch"]
    assert "offset -1 lines" in applied.offsets["first-topic.patch"][0]


def test_an_interrupted_run_leaves_the_old_tree(fake: FakeBase, tmp_path: Path) -> None:
    tree, _ = make(fake, tmp_path / "tree", "first-topic")
    head = git.text(tree, "rev-parse", "HEAD")
    # Killed while the second patch is being applied: no clean-up of any kind runs.
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from aotools.patchset import apply, base, git\n"
        "real = git.git\n"
        "def stop(where, *arguments, **options):\n"
        "    if arguments[0] == 'am' and 'second' in arguments[-1]:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(where, *arguments, **options)\n"
        "git.git = stop\n"
        "b = base.load('v0.1', Path(sys.argv[1]))\n"
        "apply.work_tree(b, Path(sys.argv[2]), b.patches(), Path(sys.argv[3]))\n"
    )
    command = [sys.executable, "-c", code, str(fake.root), str(fake.source), str(tree)]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT / "tools"), "PATH": "/usr/bin:/bin"})
    assert done.returncode == -signal.SIGKILL
    assert git.text(tree, "rev-parse", "HEAD") == head
    assert len(list(tmp_path.glob(".tmp-tree-*"))) == 1
    assert make(fake, tree) == (tree, True)
    assert list(tmp_path.glob(".tmp-tree-*")) == []


def test_plain_trees_are_named_after_their_content(fake: FakeBase, tmp_path: Path) -> None:
    base = fake.load()
    full = apply.plain_tree(base, fake.source, base.patches(), tmp_path)
    assert apply.plain_tree(base, fake.source, base.patches(), tmp_path) == full
    bare = apply.plain_tree(base, fake.source, [], tmp_path)
    assert (full / LINALG / "New.h").read_text() == NEW_HEADER
    assert not (full / ".git").exists()
    assert {path.name for path in bare.rglob("*.cpp")} == {"Solver.cpp"}


@pytest.mark.parametrize("edit", ["changed", "added", "removed"])
def test_an_edited_plain_tree_is_not_taken_for_the_series(
    fake: FakeBase, tmp_path: Path, edit: str
) -> None:
    base = fake.load()
    made = apply.plain_tree(base, fake.source, base.patches(), tmp_path / "trees")
    path = made / LINALG / ("Mine.h" if edit == "added" else "New.h")
    if edit == "removed":
        path.unlink()
    else:
        path.write_text("#pragma once\n")
    with pytest.raises(UserError, match=rf"was edited since .*{path.name}\. .*--tree FOLDER"):
        apply.plain_tree(base, fake.source, base.patches(), tmp_path / "trees")


def test_what_a_killed_run_left_beside_the_plain_trees_is_removed(
    fake: FakeBase, tmp_path: Path
) -> None:
    (tmp_path / "trees/.tmp-left/repo").mkdir(parents=True)
    made = apply.plain_tree(fake.load(), fake.source, [], tmp_path / "trees")
    names = {path.name for path in (tmp_path / "trees").iterdir()}
    assert names == {".lock", made.name, f"{made.name}.sha256"}
