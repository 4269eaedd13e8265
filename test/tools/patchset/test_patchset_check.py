"""tools/patchset check without compiling: each rule, kept and broken."""

from __future__ import annotations

import io
import re
from pathlib import Path

import expecttest
import fake_base
import pytest
from fake_base import NEW_HEADER, FakeBase

from aotools.patchset import check
from aotools.patchset.base import LINALG, blob_id
from aotools.patchset.report import Report


def run(fake: FakeBase, tmp_path: Path) -> tuple[str, int]:
    stream = io.StringIO()
    report = check.run(
        fake.load(),
        fake.source,
        wheel_spec=None,
        fast=True,
        build=tmp_path / "build",
        own=fake.own,
        report=Report(stream=stream),
    )
    return re.sub(r"\b[0-9a-f]{40}\b", "<blob>", stream.getvalue()), report.exit_code


def failures(fake: FakeBase, tmp_path: Path) -> list[str]:
    text, code = run(fake, tmp_path)
    rows = [row for row in text.splitlines() if row.startswith("FAIL") or row.startswith("     ")]
    assert code == (1 if rows else 0)
    return rows


def test_a_series_in_order(fake: FakeBase, tmp_path: Path) -> None:
    text, code = run(fake, tmp_path)
    assert code == 0
    expecttest.assert_expected_inline(
        text,
        """\
PASS series
PASS header of first-topic.patch
PASS header of second-topic.patch
PASS blob chain
PASS base.toml lists the touched files
PASS applies without fuzz: 2 patches, no offsets
PASS copies of our sources
SKIP kernel launches: check_kernel_launches.py is not among the files of the base
PASS Python files
8 passed, 0 failed, 1 skipped
""",
    )


def test_files_that_are_not_listed(fake: FakeBase, tmp_path: Path) -> None:
    (fake.folder / "third.patch").write_text("")
    (fake.folder / "notes.txt").write_text("")
    assert failures(fake, tmp_path) == [
        "FAIL series: third.patch is not listed",
        "     notes.txt is neither a patch nor base.toml nor series",
    ]


def test_a_missing_field_and_a_pending_measurement(fake: FakeBase, tmp_path: Path) -> None:
    fake.edit("first-topic.patch", "Removal-plan: Never.\n", "")
    fake.edit("second-topic.patch", "Measured: none, a test", "Measured: pending")
    assert failures(fake, tmp_path) == [
        "FAIL header of first-topic.patch: lacks Removal-plan",
        "FAIL header of second-topic.patch: Measured is still pending",
    ]


def test_a_broken_chain_of_blobs(fake: FakeBase, tmp_path: Path) -> None:
    text = (fake.folder / "second-topic.patch").read_text()
    before = re.findall(r"^index (\w{40})\.\.", text, re.M)[1]
    fake.edit("second-topic.patch", before, "1" * 40)
    found = failures(fake, tmp_path)
    assert found[0] == (
        f"FAIL blob chain: second-topic.patch: {LINALG}/Solver.cpp starts from <blob>, "
        "but it is <blob> there"
    )


def test_a_patch_that_needs_fuzz(fake: FakeBase, tmp_path: Path) -> None:
    fake.edit("second-topic.patch", " int line24 = 24;", " int line24 = 42;")
    found = failures(fake, tmp_path)
    assert found[0].startswith("FAIL applies without fuzz: second-topic.patch does not apply")


def test_a_hunk_at_another_line(fake: FakeBase, tmp_path: Path) -> None:
    fake.edit("first-topic.patch", "@@ -1,6 +1,6 @@", "@@ -2,6 +2,6 @@")
    assert failures(fake, tmp_path) == [
        f"FAIL applies without fuzz: first-topic.patch: {LINALG}/Solver.cpp: "
        "Hunk #1 succeeded at 1 (offset -1 lines)."
    ]


@pytest.mark.parametrize(
    ("files", "package_only", "problem"),
    [
        ({"New.h": NEW_HEADER + "\n"}, "", "New.h differs from aten_overrides/csrc/linalg/New.h"),
        ({"Other.h": "x\n"}, "", "aten_overrides/csrc/linalg/Other.h is added by no patch (or "),
        ({"later/Kernel.cu": "x\n"}, '"later"', ""),
        ({"README.txt": "no source\n"}, "", ""),
        ({}, '"New.h"', "New.h is added, though package_only says not"),
    ],
)
def test_copies(
    fake: FakeBase, tmp_path: Path, files: dict[str, str], package_only: str, problem: str
) -> None:
    fake_base.write_files(fake.own, files)
    fake.edit("base.toml", "entries", f"package_only = [{package_only}]\nentries")
    found = failures(fake, tmp_path)
    assert bool(found) == bool(problem)
    assert all(row.startswith(f"FAIL copies of our sources: {problem}") for row in found)


def test_a_source_of_a_patch_that_is_not_ours(fake: FakeBase, tmp_path: Path) -> None:
    (fake.own / "New.h").unlink()
    assert failures(fake, tmp_path) == [
        "FAIL copies of our sources: New.h is added, but not in aten_overrides/csrc/linalg"
    ]


def test_the_list_of_files_and_its_update(fake: FakeBase, tmp_path: Path, cache: Path) -> None:
    blob = fake.load().blobs["docs/notes.rst"]
    fake.edit("base.toml", f'"docs/notes.rst" = "{blob}"\n', "")
    with (fake.folder / "base.toml").open("a") as handle:
        handle.write(f'"old.txt" = "{blob_id(b"")}"\n')
    (fake.source / "old.txt").touch()
    expected = ["docs/notes.rst is not in [blobs]", "old.txt is in [blobs], but no patch touches"]
    found = failures(fake, tmp_path)
    assert all(any(text in row for row in found) for text in expected)
    before = (fake.folder / "base.toml").read_text()
    assert check.update_base(fake.load(), fake.source, dry_run=True) == 0
    assert (fake.folder / "base.toml").read_text() == before
    assert check.update_base(fake.load(), fake.source, dry_run=False) == 0
    assert failures(fake, tmp_path) == []


def add_launch_checker(fake: FakeBase) -> None:
    """A stand-in for upstream's checker, as one of the base's files."""
    name = "torch/testing/_internal/check_kernel_launches.py"
    text = (
        "def check_code_for_cuda_kernel_launches(code, filename=None):\n"
        "    return code.count('<<<') - code.count('LAUNCH_CHECK')\n"
    )
    fake_base.write_files(fake.source, {name: text})
    fake.edit("base.toml", "entries", f'extra = ["{name}"]\nentries')
    with (fake.folder / "base.toml").open("a") as handle:
        handle.write(f'"{name}" = "{blob_id(text.encode())}"\n')


def test_a_launch_without_a_check(fake: FakeBase, tmp_path: Path) -> None:
    add_launch_checker(fake)
    text, code = run(fake, tmp_path)
    assert (code, "PASS kernel launches: 2 files, by upstream's checker" in text) == (0, True)
    fake.edit("first-topic.patch", "+int line3 = 33;", "+int line3 = k<<<1, 1>>>(33);")
    fake.edit("second-topic.patch", "int line25 = kNew", "int line25 = kNew")
    # The ids in the patches are no longer right, which is another item.
    found = failures(fake, tmp_path)
    assert f"FAIL kernel launches: {LINALG}/Solver.cpp: 1 launches without" in "\n".join(found)


def test_python_that_does_not_parse(fake: FakeBase, tmp_path: Path) -> None:
    old = (fake.folder / "second-topic.patch").read_text()
    added = "def broken(:\n"
    diff = (
        "diff --git a/torch/new.py b/torch/new.py\nnew file mode 100644\n"
        f"index {'0' * 40}..{blob_id(added.encode())}\n--- /dev/null\n+++ b/torch/new.py\n"
        f"@@ -0,0 +1 @@\n+{added}"
    )
    (fake.folder / "second-topic.patch").write_text(old.rstrip("\n") + "\n" + diff)
    found = failures(fake, tmp_path)
    assert found[0].startswith("FAIL Python files: torch/new.py: invalid syntax")


def test_a_report_that_looked_at_nothing_has_not_passed() -> None:
    report = Report(stream=io.StringIO())
    assert report.exit_code == 1
    report.skip("thing", "no reason to look")
    assert report.exit_code == 1
    report.add("other")
    assert (report.exit_code, report.summary()) == (0, "1 passed, 0 failed, 1 skipped")
    report.add("third", ["one", "two"])
    assert (report.exit_code, str(report.findings[-1])) == (1, "FAIL third: one\n     two")
