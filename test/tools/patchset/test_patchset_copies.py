"""Which of our files are for ATen, and how `refresh` brings them into the patches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_base import AUTHOR, FIELDS, FakeBase, write_files

from aotools.patchset import apply, check, copies, export, git, refresh
from aotools.patchset.base import LINALG

INCLUDE = "#include <ATen/native/cuda/linalg/{}>\n"
OWN = {
    "Top.h": "",
    "native/Lu.cpp": INCLUDE.format("native/Lu.h") + INCLUDE.format("native/Parts.cuh"),
    "native/Lu.h": "",
    "native/Parts.cuh": INCLUDE.format("native/Deep.cuh"),
    "native/Deep.cuh": "",
    "native/Solve.cpp": INCLUDE.format("native/Solve.h") + INCLUDE.format("native/Lu.h"),
    "native/Solve.h": "",
    "native/SolveKernel.cu": INCLUDE.format("native/Through.cuh"),
    "native/Through.cuh": INCLUDE.format("native/Solve.h") + INCLUDE.format("native/Only.cuh"),
    "native/Only.cuh": INCLUDE.format("native/Deep.cuh"),
    "native/Unused.cuh": "",
    "native/NOTES.md": "",
}


def test_what_is_compiled_with_a_file_of_the_package_goes_with_it(
    fake: FakeBase, tmp_path: Path
) -> None:
    own = write_files(tmp_path / "own", OWN)
    base = fake.load()
    everything = {name for name in OWN if not name.endswith((".md", "Unused.cuh"))}
    assert copies.for_aten(base, own) == everything
    packaged = replace(base, package_only=("native/Solve.h",))
    lu = {"Top.h", "native/Lu.cpp", "native/Lu.h", "native/Parts.cuh", "native/Deep.cuh"}
    assert copies.for_aten(packaged, own) == lu
    assert copies.for_aten(replace(base, package_only=("native", "T*.h")), own) == set()


@pytest.fixture
def third(fake: FakeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBase:
    """The fake with a third patch: a folder of its own, and a change to what the second adds."""
    monkeypatch.setattr(check, "OWN_SOURCES", fake.own)
    base = fake.load()
    tree, _ = apply.work_tree(base, fake.source, base.patches(), tmp_path / "tree")
    files = {name: text for name, text in OWN.items() if name.startswith("native/Lu.")}
    own = {**files, "New.h": "#pragma once\nconstexpr int kNew = 3;\n"}
    write_files(tree / LINALG, own)
    git.git(tree, "add", "--all")
    git.git(tree, "commit", "-q", "-m", f"Add a folder\n\n{FIELDS}", extra=AUTHOR)
    data = export.render(tree, git.text(tree, "rev-parse", "HEAD"))
    (fake.folder / "third-topic.patch").write_bytes(data)
    series = fake.folder / "series"
    series.write_text(series.read_text() + "third-topic.patch\n")
    write_files(fake.own, own)
    return fake


def refreshed(fake: FakeBase) -> tuple[dict[str, str], list[str]]:
    exported, told = refresh.refreshed(fake.load(), fake.source, own=fake.own)
    export.write(fake.load(), exported, say=lambda _: None)
    verdicts = {one.name: one.verdict for one in exported}
    return verdicts, told


def files_of(fake: FakeBase, to: Path, count: int) -> dict[str, str]:
    """The linalg folder after so many patches."""
    base = fake.load()
    tree, _ = apply.work_tree(base, fake.source, base.patches()[:count], to)
    folder = tree / LINALG
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_of_a_folder_come_and_go(third: FakeBase, tmp_path: Path) -> None:
    refreshed(third)  # diffs as git of this machine writes them
    assert refreshed(third) == (
        dict.fromkeys(
            ("first-topic.patch", "second-topic.patch", "third-topic.patch"), "unchanged"
        ),
        [],
    )
    write_files(third.own, {name: text for name, text in OWN.items() if name.startswith("native")})
    (third.own / "native/Lu.cpp").write_text(INCLUDE.format("native/Parts.cuh"))
    third.edit("base.toml", "\n[blobs]", '\npackage_only = ["native/Solve.h"]\n\n[blobs]')
    verdicts, told = refreshed(third)
    assert verdicts == {
        "first-topic.patch": "unchanged",
        "second-topic.patch": "unchanged",
        "third-topic.patch": "changed",
    }
    found = files_of(third, tmp_path / "after", 3)
    assert {name for name in found if name.startswith("native/")} == {
        "native/Lu.cpp",
        "native/Parts.cuh",
        "native/Deep.cuh",
    }
    assert any("Deep.cuh is new: put into third-topic.patch" in row for row in told)
    assert any("Lu.h is not for ATen any more: taken out of third" in row for row in told)


def test_a_file_that_two_patches_touch_is_ours_from_the_last_on(
    third: FakeBase, tmp_path: Path
) -> None:
    refreshed(third)
    before = files_of(third, tmp_path / "before", 2)["New.h"]
    (third.own / "New.h").write_text("#pragma once\nconstexpr int kNew = 44;\n")
    verdicts, told = refreshed(third)
    assert (verdicts["second-topic.patch"], verdicts["third-topic.patch"], told) == (
        "unchanged",
        "changed",
        [],
    )
    assert files_of(third, tmp_path / "two", 2)["New.h"] == before
    assert "kNew = 44" in files_of(third, tmp_path / "three", 3)["New.h"]
