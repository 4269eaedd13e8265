"""`export` and `refresh`: the same bytes again, and only what changed is written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_base import AUTHOR, FakeBase, checkout, write_files

from aotools.env import UserError
from aotools.patchset import apply, check, cli, export, fetch, git, refresh
from aotools.patchset import base as bases
from aotools.patchset.base import LINALG

BODY = (
    "Description: Changes a number.\nBug: https://example.org/issues/1\nOrigin: other, a test\n"
    "Forwarded: no\nApplied-Upstream: no\nLast-Update: 2026-11-30\nRemoval-plan: Never.\n"
    "Measured: none, a test\n"
)


def commit(tree: Path, message: str, files: dict[str, str]) -> None:
    write_files(tree, files)
    git.git(tree, "add", "--all")
    git.git(tree, "commit", "-q", "-m", message, extra=AUTHOR)


def run(monkeypatch: pytest.MonkeyPatch, fake: FakeBase, *arguments: str | Path) -> int:
    words = ["tools/patchset", str(arguments[0]), "--base", "v0.1", "--patches-root", fake.root]
    monkeypatch.setattr(sys, "argv", [*map(str, words), *map(str, arguments[1:])])
    return cli.main()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def tree(fake: FakeBase, tmp_path: Path) -> Path:
    """The series as `tools/patchset apply` lays it out."""
    base = fake.load()
    made, _ = apply.work_tree(base, fake.source, base.patches(), tmp_path / "src")
    return made


def test_a_round_trip_gives_the_same_bytes(
    fake: FakeBase, tree: Path, hostile_git: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / ".git/config").write_text(
        (tree / ".git/config").read_text() + "[diff]\n\tnoprefix = true\n\tcontext = 9\n"
        "\talgorithm = patience\n\tsuppressBlankEmpty = true\n\tstatGraphWidth = 5\n"
        f"\torderFile = {tree}/.git/order\n\tinterHunkContext = 40\n"
        "[format]\n\tsignature = me\n\tsubjectPrefix = X\n"
    )
    (tree / ".git/order").write_text("docs/*\n")
    # git's own format-patch made the fake's patches; export writes the form that it keeps to.
    run(monkeypatch, fake, "export", "--from", tree)
    once = contents(fake.folder)
    assert run(monkeypatch, fake, "export", "--from", tree, "--check") == 0
    again, _ = apply.work_tree(
        fake.load(), fake.source, fake.load().patches(), tree.with_name("again")
    )
    assert run(monkeypatch, fake, "export", "--from", again, "--check") == 0
    assert contents(fake.folder) == once
    assert b"+++ b/" in once["first-topic.patch"]
    assert once["second-topic.patch"].index(b"a/aten/") < once["second-topic.patch"].index(
        b"a/docs/"
    )
    assert not hostile_git.exists()


def test_an_empty_line_of_context_keeps_its_blank(tree: Path) -> None:
    commit(tree, f"Add a text\n\n{BODY}", {"docs/text.rst": "a\n\nb\n"})
    commit(tree, f"Change it\n\n{BODY}", {"docs/text.rst": "a\n\nc\n"})
    git.git(tree, "config", "diff.suppressBlankEmpty", "true")
    assert b"\n a\n \n-b\n+c\n" in export.render(tree, "HEAD")


@pytest.mark.source
def test_the_real_series_is_exported_and_refreshed_to_its_own_bytes(tmp_path: Path) -> None:
    real = bases.load("v2.6.0")
    source = fetch.source(real, progress=False)
    tree, _ = apply.work_tree(real, source, real.patches(), tmp_path / "src")
    found = export.commits(tree, export.first_commit(tree, real, None))
    assert [export.render(tree, one) for one in found] == [
        patch.path.read_bytes() for patch in real.patches()
    ]
    exported, told = refresh.refreshed(real, source)
    assert {one.verdict for one in exported} == {"unchanged"}
    assert told == []


def test_only_a_changed_commit_is_written(
    fake: FakeBase, tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, fake, "export", "--from", tree)
    before = contents(fake.folder)
    text = (tree / "docs/notes.rst").read_text() + "one more\n"
    commit(tree, f"[CUDA] Say one more thing\n\n{BODY}", {"docs/notes.rst": text})
    capsys.readouterr()
    assert run(monkeypatch, fake, "export", "--from", tree, "--check") == 1
    assert contents(fake.folder) == before
    assert run(monkeypatch, fake, "export", "--from", tree) == 0
    after = contents(fake.folder)
    assert {name for name in after if after[name] != before.get(name)} == {
        "say-one-more-thing.patch",
        "series",
    }
    assert after["series"] == before["series"] + b"say-one-more-thing.patch\n"
    assert fake.load().patches()[-1].problems == ()
    assert "new       say-one-more-thing.patch" in capsys.readouterr().out


def test_a_commit_that_was_renamed_or_taken_out(
    fake: FakeBase, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(fake.folder)
    git.git(tree, "commit", "-q", "--amend", "-m", f"Add one header\n\n{BODY}", extra=AUTHOR)
    with pytest.raises(UserError, match=r"second-topic\.patch: no commit has this subject") as told:
        run(monkeypatch, fake, "export", "--from", tree)
    assert "--name second-topic.patch='NEW SUBJECT'" in str(told.value)
    assert contents(fake.folder) == before
    run(monkeypatch, fake, "export", "--from", tree, "--name", "second-topic.patch=Add one header")
    assert fake.load().patches()[1].subject == "Add one header"
    git.git(tree, "reset", "-q", "--hard", "HEAD~1")
    run(monkeypatch, fake, "export", "--from", tree, "--drop", "second-topic.patch")
    assert fake.load().series() == ["first-topic.patch"]
    assert not (fake.folder / "second-topic.patch").exists()
    assert (fake.folder / "series").read_text().startswith("# the order\n")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda t: write_files(t, {"docs/notes.rst": "x\n"}), "not committed"),
        (lambda t: commit(t, "fixup! Add a header", {"docs/notes.rst": "x\n"}), "autosquash"),
        (
            lambda t: commit(t, f"A\n\ndiff -u a b\n{BODY}", {"docs/n.rst": "x\n"}),
            "end the message",
        ),
        (lambda t: commit(t, "No fields", {"docs/notes.rst": "x\n"}), "no paragraphs"),
        (lambda t: commit(t, f"Bare end\n\n{BODY}", {"docs/notes.rst": "x"}), "end in a newline"),
        (lambda t: git.git(t, "reset", "-q", "--hard", "HEAD~2"), "nothing to export"),
    ],
)
def test_what_cannot_be_exported(
    fake: FakeBase,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], object],
    said: str,
) -> None:
    before = contents(fake.folder)
    spoil(tree)
    with pytest.raises(UserError, match=said):
        run(monkeypatch, fake, "export", "--from", tree)
    assert contents(fake.folder) == before


def test_a_mode_that_the_patch_would_lose_is_noticed(
    fake: FakeBase, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "docs/notes.rst").chmod(0o755)
    commit(tree, f"Make it run\n\n{BODY}", {})
    with pytest.raises(UserError, match="old mode"):
        run(monkeypatch, fake, "export", "--from", tree)


def test_a_users_checkout_needs_a_first_commit(
    fake: FakeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = checkout(fake.source, tmp_path / "pytorch")
    with pytest.raises(UserError, match="--since"):
        run(monkeypatch, fake, "export", "--from", user)
    git.git(user, "tag", "v0.1")
    for patch in fake.load().patches():
        git.git(user, "am", "-q", "--keep-non-patch", str(patch.path))
    run(monkeypatch, fake, "export", "--from", user)
    assert run(monkeypatch, fake, "export", "--from", user, "--since", "HEAD~2", "--check") == 0
    with pytest.raises(UserError, match="no git work tree"):
        run(monkeypatch, fake, "export", "--from", fake.source)


def test_authors_and_dates_of_any_kind(fake: FakeBase, tree: Path, tmp_path: Path) -> None:
    author = {
        "GIT_AUTHOR_NAME": "Zoë Q. Žižek",
        "GIT_AUTHOR_EMAIL": "zoe@example.org",
        "GIT_AUTHOR_DATE": "2026-03-01T23:30:00-0530",
    }
    write_files(tree, {"docs/notes.rst": "new\n"})
    git.git(tree, "commit", "-qam", f"Größe\n\n{BODY}", extra=author)
    file = tmp_path / "one.patch"
    file.write_bytes(export.render(tree, "HEAD"))
    again = tmp_path / "again"
    git.git(tmp_path, "clone", "-q", str(tree), str(again))
    git.git(again, "reset", "-q", "--hard", "HEAD~1")
    git.git(again, "am", "-q", "--keep-non-patch", str(file))
    shown = ["show", "-s", "--format=%an|%ae|%aD|%B|%T"]
    assert git.text(again, *shown) == git.text(tree, *shown)


# --- refresh --------------------------------------------------------------------------------------


def test_refresh_brings_copies_lines_and_ids_up_to_date(
    fake: FakeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "OWN_SOURCES", fake.own)
    exported, _ = refresh.refreshed(fake.load(), fake.source, own=fake.own)
    export.write(fake.load(), exported, say=lambda _: None)
    settled = contents(fake.folder)
    # By hand: a hunk's line numbers off, an abbreviated id; and our header has grown.
    fake.edit("first-topic.patch", "@@ -1,6 +1,6 @@", "@@ -2,6 +2,6 @@")
    text = (fake.folder / "second-topic.patch").read_text()
    found = next(row for row in text.splitlines() if row.startswith("index "))
    fake.edit("second-topic.patch", found[:60], found[:60].replace(found[6:46], found[6:16]))
    (fake.own / "New.h").write_text("#pragma once\nconstexpr int kNew = 2;\n")
    exported, told = refresh.refreshed(fake.load(), fake.source, own=fake.own, today="2027-01-02")
    export.write(fake.load(), exported, say=lambda _: None)
    assert any("first-topic.patch" in row and "offset" in row for row in told)
    after = contents(fake.folder)
    assert after["first-topic.patch"] == settled["first-topic.patch"]
    assert b"+constexpr int kNew = 2;\n" in after["second-topic.patch"]
    assert b"Last-Update: 2027-01-02\n" in after["second-topic.patch"]
    fresh = fake.load()
    assert [patch.problems for patch in fresh.patches()] == [(), ()]
    made, _ = apply.work_tree(fresh, fake.source, fresh.patches(), tmp_path / "t")
    assert (made / LINALG / "New.h").read_bytes() == (fake.own / "New.h").read_bytes()


def test_refresh_writes_nothing_when_it_cannot(
    fake: FakeBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.edit("first-topic.patch", "Origin: other, written for this test\n", "")
    with pytest.raises(UserError, match=r"headers first:\s+first-topic.patch: lacks Origin"):
        refresh.refreshed(fake.load(), fake.source)
    fake.edit("first-topic.patch", "Forwarded: no\n", "Origin: other\nForwarded: no\n")
    fake.edit("first-topic.patch", "-int line3 = 3;", "-int line3 = 4;")
    with pytest.raises(UserError, match=r"first-topic.patch does not apply"):
        refresh.refreshed(fake.load(), fake.source)


def test_refresh_from_the_command_line(
    fake: FakeBase, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "OWN_SOURCES", fake.own)
    arguments = ("refresh", "--source", "dir", fake.source)
    run(monkeypatch, fake, *arguments)
    assert run(monkeypatch, fake, *arguments, "--check") == 0
    (fake.own / "New.h").write_text("#pragma once\n")
    before = contents(fake.folder)
    capsys.readouterr()
    assert run(monkeypatch, fake, *arguments, "--check") == 1
    assert run(monkeypatch, fake, *arguments, "--dry-run") == 0
    assert contents(fake.folder) == before
    assert "changed   second-topic.patch" in capsys.readouterr().out
    assert run(monkeypatch, fake, *arguments) == 0
    assert run(monkeypatch, fake, *arguments, "--check") == 0
