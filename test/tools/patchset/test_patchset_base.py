"""base.toml, the series, and what is read out of a patch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest
from fake_base import FIELDS, FakeBase

from aotools.env import ROOT, UserError
from aotools.patchset import base
from aotools.patchset.base import blob_id, parse_fields, read_patch


@hypothesis.settings(max_examples=20)
@hypothesis.given(st.binary(max_size=300))
def test_blob_id_is_gits(data: bytes) -> None:
    said = subprocess.run(
        ["git", "hash-object", "--stdin", "--no-filters"], input=data, capture_output=True
    )
    assert blob_id(data) == said.stdout.decode().strip()


def test_a_patch_is_read(fake: FakeBase) -> None:
    first, second = fake.load().patches()
    assert (first.subject, first.problems) == ("[CUDA] Change the third line", ())
    assert first.fields["Bug"] == "https://example.org/issues/1 https://example.org/issues/2"
    assert first.fields["Description"] == "Changes a number.\nA second paragraph."
    assert [change.path.rpartition("/")[2] for change in second.changes] == [
        "New.h",
        "Solver.cpp",
        "notes.rst",
    ]
    assert [change.old is None for change in second.changes] == [True, False, False]
    assert base.touched([first, second]) == sorted(
        change.path for change in second.changes if change.old
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("Removal-plan: Never.\n", "", "lacks Removal-plan"),
        ("Measured: none, a test", "Measured:", "lacks Measured"),
        ("Origin: other, ", "Origin: somewhere, ", "Origin is not"),
        ("Forwarded: no\n", "Forwarded: maybe\n", "Forwarded is not"),
        ("Applied-Upstream: no\n", "Applied-Upstream: yes\n", "Applied-Upstream is not"),
        ("Last-Update: 2026-11-30", "Last-Update: 30.11.2026", "Last-Update is not"),
        ("Bug: https://example.org/issues/1 ", "Bug: #1 ", "Bug is not"),
        ("Forwarded: no\n", "Forwarded: no\nForwarded: no\n", "has Forwarded twice"),
        ("Forwarded: no\n", "Forwarded: no\nReviewed: yes\n", "no field of this name: 'Reviewed"),
        ("Description: ", "Summary: ", "has no paragraphs that start with 'Description:'"),
        ("Subject: ", "Topic: ", "its mail header lacks Subject:"),
        ("\n---\n", "\n", "no line '---'"),
        ("Change the third line", "Change\r the third line", "carriage returns"),
    ],
)
def test_what_the_format_forbids_is_found(fake: FakeBase, old: str, new: str, problem: str) -> None:
    path = fake.folder / "first-topic.patch"
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode(), 1))
    assert any(problem in found for found in read_patch(path).problems)


def test_what_the_format_forbids_in_a_diff_is_found(fake: FakeBase) -> None:
    path = fake.folder / "first-topic.patch"
    data = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"index (\w{9})\w+\.\.(\w{9})\w+", r"index \1..\2", data))
    assert any("--full-index" in problem for problem in read_patch(path).problems)
    path.write_text(data.replace("@@ -1,", "old mode 100644\nnew mode 100755\n@@ -1,"))
    assert any("new mode" in problem for problem in read_patch(path).problems)
    path.write_text(data.rstrip("\n"))
    assert "does not end in a newline" in read_patch(path).problems
    path.write_text(data.partition("diff --git")[0])
    assert "changes no file" in read_patch(path).problems


@hypothesis.given(st.text())
def test_any_message_is_read_without_an_error(text: str) -> None:
    fields, problems = parse_fields(text)
    assert problems or all(fields.values())


def test_good_fields_have_no_problem() -> None:
    assert parse_fields(f"Words first.\n\n{FIELDS}")[1] == []
    upstream = FIELDS.replace("Upstream: no", "Upstream: 2.14.0, https://example.org/pull/1")
    assert parse_fields(upstream)[1] == []


def test_the_series_is_refused_when_it_is_wrong(fake: FakeBase) -> None:
    with pytest.raises(UserError, match=r"third\.patch, which is not there"):
        fake.edit("series", "second-topic", "third")
        fake.load().patches()
    with pytest.raises(UserError, match=r"lists first-topic\.patch twice"):
        fake.edit("series", "third", "first-topic")
        fake.load().series()
    with pytest.raises(UserError, match=r"not the name of a .patch file"):
        fake.edit("series", "# the order", "../other.patch")
        fake.load().series()
    (fake.folder / "series").unlink()
    with pytest.raises(UserError, match="is missing"):
        fake.load().series()


def test_upto(fake: FakeBase) -> None:
    loaded = fake.load()
    assert [patch.name for patch in loaded.upto("first-topic")] == ["first-topic.patch"]
    assert loaded.upto("none") == []
    assert len(loaded.upto(None)) == 2
    with pytest.raises(UserError, match=r"third is not in .*first-topic\.patch, second-topic"):
        loaded.upto("third")


def test_unknown_and_malformed_bases_are_refused(fake: FakeBase) -> None:
    with pytest.raises(UserError, match=r"no base 'v9\.9' .*There are: v0\.1"):
        base.load("v9.9", fake.root)
    with pytest.raises(UserError, match=r"no base '../v0.1'"):
        base.load("../v0.1", fake.root)
    fake.edit("base.toml", 'tag = "v0.1"', "")
    with pytest.raises(UserError, match="incomplete or malformed: 'tag'"):
        fake.load()
    fake.edit("base.toml", 'version = "0.1"', "version = 0.1.2")
    with pytest.raises(UserError, match="not valid TOML"):
        fake.load()


def test_update_blobs_keeps_the_rest_of_the_file(fake: FakeBase) -> None:
    loaded = fake.load()
    text = base.update_blobs(loaded, {"b": "2" * 40, "a": "1" * 40})
    assert text.startswith((fake.folder / "base.toml").read_text().partition("[blobs]")[0])
    assert text.endswith(f'[blobs]\n"a" = "{"1" * 40}"\n"b" = "{"2" * 40}"\n')
    assert base.update_blobs(loaded, loaded.blobs) == (fake.folder / "base.toml").read_text()


def test_the_real_base_is_sound() -> None:
    real = base.load("v2.6.0")
    assert real.version == "2.6.0"
    assert set(real.wheels) >= {"2.6.0", "2.11.0"}
    assert all(re.fullmatch("[0-9a-f]{40}", blob) for blob in real.blobs.values())
    names = [patch.name for patch in real.patches()]
    assert names == [Path(name).name for name in names]
    assert all(not patch.problems for patch in real.patches())


def test_a_users_python_needs_no_toml_reader() -> None:
    code = (
        "import sys; sys.modules.update(tomllib=None, tomli=None)\n"
        "import aotools.gputest.cli, aotools.patchset.loader, aotools.patchset.preference\n"
        "aotools.gputest.cli.parser()"
    )
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    subprocess.run([sys.executable, "-c", code], check=True, env=variables)
