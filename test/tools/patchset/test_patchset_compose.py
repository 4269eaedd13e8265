"""`compose` and `check` for a base that holds edits, on small trees and on PyTorch's own."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_base import BASE_FILES, FIELDS, FakeBase, checkout, write_files

from aotools import env
from aotools.env import ROOT, UserError
from aotools.patchset import base as bases
from aotools.patchset import (
    check_edits,
    cli,
    compose,
    copies,
    edits,
    fetch,
    git,
    overlay,
    places,
    relink,
    wheel,
)
from aotools.patchset.base import LINALG, blob_id
from aotools.patchset.compile import Unit
from aotools.patchset.compose import Composed

SOLVER, ADDED = f"{LINALG}/Solver.cpp", f"{LINALG}/Added.h"
TEXT = BASE_FILES[SOLVER]
BODY = """\
void solve(int a,
           int b) {
  first();
#if A
  second(a);
#endif
}

void other() {
  second(a);
}
"""
FIRST = f'''
message = """
[CUDA] Count from nought

{FIELDS}"""

[[upstream]]
path = "{SOLVER}"
at = '^int line0 '

[[edit]]
path = ["{LINALG}/Moved.cpp", "{SOLVER}"]
at = '^int line1 = 1;$'
place = "before"
lines = \'\'\'
int line0 = 0;
\'\'\'

[[edit]]
path = "{SOLVER}"
at = '^int line30 = (\\d+);$'
into = 'int line30 = -\\1;'

[[edit]]
path = "{SOLVER}"
at = '^int gone;$'
place = "after"
lines = "int more;\\n"
absent = "newer trees have none"
'''
SECOND = f'''
message = """
Add a header

{FIELDS}"""
upstream = []

[[add]]
path = "{ADDED}"
from = "added/Added.h"

[[edit]]
path = "{LINALG}/Solver.h"
at = '^int solver'
place = "after"
lines = "int added();\\n"
'''
HEADER = "#pragma once\nconstexpr int kAdded = 1;\n"
NAMES = ["first.patch", "second.patch"]


@pytest.fixture
def root(fake: FakeBase) -> Path:
    """The folder of bases, with one of edits, "main", beside the fake v0.1."""
    files = {
        "base.toml": 'kind = "edits"\nurl = "https://example.org/none.git"\ntried_on = "v0.1"\n',
        "series": "# the order\nfirst.patch\nsecond.patch\n",
        "first.edits.toml": FIRST,
        "second.edits.toml": SECOND,
        "added/Added.h": HEADER,
    }
    write_files(fake.root / "main", files)
    return Path(fake.root)


@pytest.fixture
def tree(fake: FakeBase, tmp_path: Path) -> Path:
    """A copy of the fake release to change."""
    shutil.copytree(fake.source, tmp_path / "tree")
    return tmp_path / "tree"


def composed(root: Path, tree: Path) -> Composed:
    loaded = edits.load("main", root)
    return compose.compose(loaded, compose.read(loaded, str(tree)))


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def run(monkeypatch: pytest.MonkeyPatch, root: Path, *arguments: str) -> int:
    command = ["patchset", *arguments, "--base", "main", "--patches-root", str(root)]
    monkeypatch.setattr(sys, "argv", command)
    return cli.main()


# --- composing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("above", [0, 7])
def test_git_am_takes_what_is_composed(root: Path, tree: Path, tmp_path: Path, above: int) -> None:
    (tree / SOLVER).write_text("//\n" * above + TEXT, encoding="utf-8")
    made = composed(root, tree)
    assert [one.verdict for one in made.results] == ["composed", "composed"]
    compose.write(made, tmp_path / "out")
    user = checkout(tree, tmp_path / "user")
    mails = sorted(str(path) for path in (tmp_path / "out").glob("*.patch"))
    assert [Path(mail).name for mail in mails] == ["01-first.patch", "02-second.patch"]
    said = git.git(user, "am", "--keep-non-patch", *mails).decode()
    assert "Applying: [CUDA] Count from nought" in said
    wanted = TEXT.replace("int line1 ", "int line0 = 0;\nint line1 ").replace("= 30", "= -30")
    assert (user / SOLVER).read_text(encoding="utf-8") == "//\n" * above + wanted
    assert (user / ADDED).read_text(encoding="utf-8") == HEADER


def test_composed_patches_are_as_the_rules_for_patches_want_them(
    root: Path, tree: Path, tmp_path: Path
) -> None:
    compose.write(composed(root, tree), tmp_path / "bases/out")
    made = bases.load("out", tmp_path / "bases")
    assert [patch.problems for patch in made.patches()] == [(), ()]
    assert [patch.subject for patch in made.patches()] == [
        "[CUDA] Count from nought",
        "Add a header",
    ]
    assert made.blobs[SOLVER] == blob_id(TEXT.encode())
    change = made.patches()[0].changes[0]
    assert (change.path, change.old) == (SOLVER, blob_id(TEXT.encode()))


def test_the_same_tree_gives_the_same_bytes(root: Path, tree: Path) -> None:
    one, two = (composed(root, tree) for _ in range(2))
    assert [r.data for r in one.results] == [r.data for r in two.results]


def test_a_place_that_may_be_missing_is_told(root: Path, tree: Path) -> None:
    assert "newer trees have none" in composed(root, tree).results[0].notes[0]
    replace(tree / SOLVER, "int line5 = 5;\n", "int line5 = 5;\nint gone;\n")
    result = composed(root, tree).results[0]
    assert (result.notes, b"+int more;" in result.data) == ((), True)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("int line1 = 1;", "int line1 = 2;", "no line matches"),
        ("int line2 = 2;", "int line1 = 1;", "2 lines match (1, 2)"),
    ],
)
def test_a_patch_without_its_one_place_is_left_out_whole(
    root: Path, tree: Path, old: str, new: str, problem: str
) -> None:
    replace(tree / SOLVER, old, new)
    made = composed(root, tree)
    assert [one.verdict for one in made.results] == ["does not fit", "composed"]
    assert problem in made.results[0].notes[0]
    assert made.results[0].data == b""
    assert SOLVER.encode() not in made.results[1].data


def test_a_missing_file_and_another_one_of_the_same_name_do_not_fit(root: Path, tree: Path) -> None:
    (tree / LINALG / "Solver.h").unlink()
    write_files(tree, {ADDED: "// upstream's own\n"})
    second = composed(root, tree).results[1]
    assert second.verdict == "does not fit"
    assert second.notes == (
        f"{LINALG}/Solver.h is not in the tree",
        f"{ADDED} is in the tree already, and is another",
    )


def test_what_upstream_has_is_left_out(root: Path, tree: Path) -> None:
    replace(tree / SOLVER, "int line1 = 1;", "int line0 = 0;\nint line1 = 1;")
    made = composed(root, tree)
    assert [one.verdict for one in made.results] == ["already upstream", "composed"]
    assert made.rows()[-1] == "1 composed, 1 already upstream, 0 does not fit"


def test_the_first_path_that_is_there_is_taken(root: Path, tree: Path) -> None:
    (tree / LINALG / "Moved.cpp").write_text("int line1 = 1;\n", encoding="utf-8")
    after = composed(root, tree).results[0].after
    assert after[f"{LINALG}/Moved.cpp"] == b"int line0 = 0;\nint line1 = 1;\n"


@pytest.mark.parametrize(
    ("within", "numbers"),
    [(None, [4, 9]), ("^void solve", [4]), ("^void other", [9]), ("^void none", [])],
)
def test_looks_in_one_function(within: str | None, numbers: list[int]) -> None:
    table = {"path": SOLVER, "at": r"^  second\(", "place": "after", "lines": "  third();\n"}
    edit = edits._edit(table | ({"within": within} if within else {}))
    assert edits.matches(edit, BODY) == numbers


def test_every_line_is_changed_where_that_is_asked_for() -> None:
    table = {"path": SOLVER, "at": "second", "into": "third", "all": True}
    assert edits.change(edits._edit(table), BODY) == (BODY.replace("second", "third"), "")


# --- what has become of each place ----------------------------------------------------------------


def look(text: str, files: dict[str, str] | None = None, **more: Any) -> places.Found:
    table = {"path": SOLVER, "within": "^void solve", "at": r"^  second\(", "place": "after"}
    edit = edits._edit({**table, "lines": "  third();\n", **more})
    tree = {path: data.encode() for path, data in {SOLVER: text, **(files or {})}.items()}
    return places.look(edit, SOLVER, tree, tree)


def test_the_place_of_an_edit_is_told_with_its_line() -> None:
    assert (look(BODY).verdict, look(BODY).where) == ("clean", f"{SOLVER}:5")
    twice = BODY.replace("  first();\n", "  second(b);\n")
    assert (look(twice).verdict, look(twice).where) == ("ambiguous", f"{SOLVER}:3, 5")
    assert look(twice, all=True).verdict == "clean"


def test_a_place_that_moved_is_looked_for() -> None:
    renamed = BODY.replace("void solve(", "void solve_all(")
    assert look(renamed).verdict == "clean"  # the pattern has no end
    assert look(BODY.replace("void solve(", "void factor(")).where == f"{SOLVER}:5, 10"
    found = look("", {f"{LINALG}/Split.cpp": BODY})
    assert (found.verdict, found.where) == ("moved", f"{LINALG}/Split.cpp:5")
    assert (look("").verdict, look("").where) == ("missing", "")
    assert look("", absent="newer trees have none").verdict == "left out"


@pytest.mark.parametrize(
    ("place", "near"),
    [("after", "  second(a);\n  third();\n"), ("before", "  third();\n  second(a);\n")],
)
def test_what_stands_there_already_is_not_put_in_again(place: str, near: str) -> None:
    text = BODY.replace("  second(a);\n", near, 1)
    assert look(text, place=place).verdict == "already upstream"
    table = {"path": SOLVER, "at": r"^  second\(", "place": place, "lines": "  third();\n"}
    changed, problem = edits.change(edits._edit(table | {"all": True}), text)
    assert (changed.count("third"), problem) == (2, "")  # the other place gets its line


def test_a_patch_of_which_everything_is_there_is_already_upstream(root: Path, tree: Path) -> None:
    made = composed(root, tree)
    write_files(
        tree, {path: data.decode() for one in made.results for path, data in one.after.items()}
    )
    replace(root / "main/first.edits.toml", "at = '^int line0 '", "at = '^int never '")
    replace(root / "main/first.edits.toml", "at = '^int line30 = (\\d+);$'", "at = '^int (gone);$'")
    replace(
        root / "main/first.edits.toml", "into = 'int line30 = -\\1;'", "into = '-'\nabsent = 'none'"
    )
    again = composed(root, tree)
    assert again.results[0].verdict == "already upstream"
    assert again.results[0].places[0].verdict == "already upstream"


def test_check_of_a_checkout_tells_every_place(
    root: Path, fake: FakeBase, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / SOLVER).write_text("//\n" * 7 + TEXT, encoding="utf-8")
    replace(tree / SOLVER, "int line30 = 30;", "int last = 30;")
    report_of(root, fake, tree)
    rows = capsys.readouterr().out.splitlines()
    assert f"       clean             {SOLVER}:8: '^int line1 = 1;$'" in rows
    assert f"       missing           {SOLVER}: '^int line30 = (\\d+);$'" in rows
    assert f"       left out          {SOLVER}: '^int gone;$'" in rows


# --- malformed bases ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('place = "before"', 'place = "above"', "before or after"),
        ('place = "before"', 'where = "before"', "an edit has no where"),
        ("at = '^int line1 = 1;$'", "at = '('", "missing )"),
        ("[[upstream]]", "[[others]]", "'upstream'"),
        ("message", "mail", "'message'"),
    ],
)
def test_a_malformed_edit_is_refused(root: Path, old: str, new: str, problem: str) -> None:
    replace(root / "main/first.edits.toml", old, new)
    with pytest.raises(UserError) as error:
        edits.load("main", root)
    assert problem in str(error.value)
    assert "first.edits.toml" in str(error.value)


@pytest.mark.parametrize("name", ["added/None.h", "../README.md"])
def test_an_added_file_has_to_be_there(root: Path, name: str) -> None:
    replace(root / "main/second.edits.toml", "added/Added.h", name)
    with pytest.raises(UserError, match=f"no file {name}"):
        edits.load("main", root)


def test_tools_for_patches_refuse_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="holds edits"):
        bases.load("main", root)
    with pytest.raises(UserError, match="holds edits"):
        run(monkeypatch, root, "apply")
    command = ["patchset", "compose", "--base", "v0.1", "--patches-root", str(root)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(UserError, match="patches, not edits"):
        cli.main()


# --- the commands ---------------------------------------------------------------------------------


def test_compose_writes_a_folder_and_never_into_one(
    root: Path,
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ("compose", "--onto", str(tree), "--to", str(tmp_path / "out"))
    assert run(monkeypatch, root, *arguments, "--dry-run") == 0
    assert not (tmp_path / "out").exists()
    assert run(monkeypatch, root, *arguments) == 0
    assert "2 composed, 0 already upstream, 0 does not fit" in capsys.readouterr().out
    assert (tmp_path / "out/series").read_text() == "01-first.patch\n02-second.patch\n"
    with pytest.raises(UserError, match="exists already"):
        run(monkeypatch, root, *arguments)
    replace(tree / SOLVER, "int line1 = 1;", "")
    assert run(monkeypatch, root, "compose", "--onto", str(tree)) == 1
    with pytest.raises(UserError, match="needs --onto"):
        run(monkeypatch, root, "compose")


def report_of(root: Path, fake: FakeBase, checkout: Path | None = None) -> dict[str, str]:
    report = check_edits.run(
        edits.load("main", root),
        root=root,
        checkout=str(checkout) if checkout else None,
        url=None,
        wheel_spec=None,
        fast=True,
        build=root.parent / "build",
        source=fake.source,
    )
    return {one.item: f"{one.verdict} {one.reason}" for one in report.findings}


def test_check_passes_on_the_base_it_is_tried_on(root: Path, fake: FakeBase) -> None:
    found = report_of(root, fake)
    assert {name for name, said in found.items() if said.startswith("FAIL")} == set()
    assert found["fits v0.1"].startswith("PASS 2 patches")
    assert found["composed on v0.1, applies without fuzz"] == "PASS 2 patches, no offsets"
    assert found["composed on v0.1, copies of our sources"] == "PASS "


def test_check_composes_on_a_checkout(
    root: Path, fake: FakeBase, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / SOLVER).write_text("//\n" * 7 + TEXT, encoding="utf-8")
    found = report_of(root, fake, tree)
    assert found[f"fits {tree}"].startswith("PASS 2 patches")
    assert found["applies to the checkout"].startswith("PASS")
    blob = blob_id(("//\n" * 7 + TEXT).encode())
    assert f"{SOLVER}: blob {blob}" in capsys.readouterr().out
    replace(tree / SOLVER, "int line1 = 1;", "")
    found = report_of(root, fake, tree)
    assert found[f"fits {tree}"].startswith("FAIL first.patch: ")
    assert found["applies to the checkout"].startswith("PASS")  # the one that is left


def test_check_finds_what_is_out_of_order(root: Path, fake: FakeBase) -> None:
    write_files(root / "main", {"stray.edits.toml": "", "added/Unused.h": "int a;"})
    replace(root / "main/first.edits.toml", "Forwarded: no\n", "")
    replace(root / "main/added/Added.h", "= 1;\n", "= 1;")
    found = report_of(root, fake)
    assert found["series"] == "FAIL stray.edits.toml is not in the series"
    assert "lacks Forwarded" in found["header of first.patch"]
    assert "added/Unused.h is added by no patch" in found["added files"]
    assert "Added.h has carriage returns, or no newline at its end" in found["added files"]


def test_a_source_of_ours_that_no_patch_adds_is_named(tmp_path: Path) -> None:
    # As when a kernel is split off: whatever compiles without it, nothing would link.
    own = tmp_path / "linalg"
    shutil.copytree(ROOT / "aten_overrides/csrc/linalg", own)
    real, tried = edits.load("main"), bases.load("v2.6.0")
    moved = [
        dataclasses.replace(
            patch,
            added=tuple(
                dataclasses.replace(one, source=own / one.source.relative_to(copies.OWN_SOURCES))
                if one.source.is_relative_to(copies.OWN_SOURCES)
                else one
                for one in patch.added
            ),
        )
        for patch in real.patches
    ]
    copied = dataclasses.replace(real, patches=tuple(moved))
    assert check_edits.lacking(copied, tried, own) == []
    write_files(own, {"native/SplitOff.cu": "#include <ATen/native/cuda/linalg/native/Off.cuh>\n"})
    write_files(own, {"native/Off.cuh": "#pragma once\n", "native/Unused.cuh": "#pragma once\n"})
    rows = check_edits.lacking(copied, tried, own)
    assert [row.partition(" ")[0] for row in rows] == ["native/Off.cuh", "native/SplitOff.cu"]
    assert f'[[add]] path = "{LINALG}/native/SplitOff.cu" from = ' in rows[1]
    # the same of a source that is taken out of the edits
    last = copied.patches[-1]
    fewer = tuple(one for one in last.added if not one.path.endswith("/WarpLU.cu"))
    short = dataclasses.replace(
        copied, patches=(*copied.patches[:-1], dataclasses.replace(last, added=fewer))
    )
    assert any(
        row.startswith("native/WarpLU.cu is for ATen")
        for row in check_edits.lacking(short, tried, own)
    )


def test_the_real_edits_add_every_source_of_ours_that_is_for_aten() -> None:
    assert check_edits.lacking(edits.load("main"), bases.load("v2.6.0")) == []


@pytest.mark.parametrize(
    ("given", "ref"),
    [(None, None), (["git"], "main"), (["git", "release/2.15"], "release/2.15")],
)
def test_source_names_the_checkout(root: Path, given: list[str] | None, ref: str | None) -> None:
    assert check_edits.checkout_of(given, edits.load("main", root)) == ref
    with pytest.raises(UserError, match="--source dir FOLDER"):
        check_edits.checkout_of(["apt"], edits.load("main", root))


def test_check_from_the_command_line(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, root, "check", "--fast", "--dry-run", "--source", "git") == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "series"
    assert rows[-1] == "applies to the checkout"


PLACE = {"path": SOLVER, "source": "a wheel", "commit": "", "date": "2026-01-02", "how": "read"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"commit": "abc"}, "commit = 'abc'"),
        ({"date": "today"}, "date = 'today'"),
        ({"how": "guessed"}, "how = 'guessed'"),
        ({"how": "matched"}, "sha256 = ''"),
    ],
)
def test_a_place_says_where_and_when_it_was_looked_up(
    root: Path, change: dict[str, str], problem: str
) -> None:
    rows = [f'{key} = "{value}"' for key, value in (PLACE | change).items()]
    with (root / "main/base.toml").open("a") as handle:
        handle.write("\n".join(["[[place]]", *rows, "edits = 1\n"]))
    if not problem:
        assert edits.load("main", root).places[0].date == "2026-01-02"
        return
    with pytest.raises(UserError) as error:
        edits.load("main", root)
    assert problem in str(error.value) and "base.toml" in str(error.value)


# --- the real edits -------------------------------------------------------------------------------


def test_the_real_edits_have_headers_and_an_order() -> None:
    real = edits.load("main")
    problems = [p for patch in real.patches for p in check_edits.header_problems(patch)]
    assert problems == []
    assert real.patches[0].name == "preferred-linalg-library-cublas.patch"
    copies = [a.source for patch in real.patches for a in patch.added if "Lanes" in a.path]
    assert {path.parent for path in copies} == {ROOT / "aten_overrides/csrc/linalg"}


def test_every_place_of_the_real_edits_was_looked_up_in_a_text_of_upstreams() -> None:
    real = edits.load("main")
    every = [edit for patch in real.patches for edit in patch.edits]
    ours = [line for edit in every for line in edit.lines.splitlines()]
    wanted: dict[str, int] = {}
    for edit in every:  # not: lines that a patch before it puts in
        if not any(edit.at.search(line) for line in ours):
            wanted[edit.paths[0]] = wanted.get(edit.paths[0], 0) + 1
    found = {
        path: max((p.edits for p in real.places if p.path == path), default=0) for path in wanted
    }
    assert found == wanted
    assert {place.path for place in real.places} == set(wanted)


def test_the_real_edits_are_as_wide_as_upstreams_linters_allow() -> None:
    formatted = (
        "aten/src/ATen/Context.h",
        "aten/src/ATen/LinalgBackend.h",
        "torch/csrc/Module.cpp",
    )
    for patch in edits.load("main").patches:
        for edit in patch.edits:
            most = 80 if edit.paths[0] in formatted else 120
            if edit.paths[0].endswith((".md", "CMakeLists.txt", "BatchLinearAlgebra.cpp")):
                continue  # not formatted there
            assert [line for line in edit.lines.splitlines() if len(line) > most] == []


@pytest.mark.parametrize(
    "line", ["  run_multistream(n);", "  auto s = c10::cuda::getStreamFromPool();"]
)
def test_streams_of_upstreams_own_are_seen(line: str) -> None:
    # Pull request 187333 calls a helper outside the function from it.
    for patch in edits.load("main").patches:
        if not patch.name.startswith("auxiliary-streams"):
            continue
        mark = patch.upstream[0]
        names = ("lu_factor_looped_cusolver", "geqrf_cusolver", "cholesky_helper_cusolver")
        text = "".join(f"void {name}(int n) {{\n  // a loop\n  call(n);\n}}\n" for name in names)
        assert edits.matches(mark, text) == []
        assert len(edits.matches(mark, text.replace("  call(n);", line))) == 1


@pytest.mark.source
def test_the_real_base_is_in_order(tmp_path: Path) -> None:
    real = edits.load("main")
    source = fetch.source(bases.load(real.tried_on), progress=False)
    report = check_edits.run(
        real,
        root=None,
        checkout=str(source),
        url=None,
        wheel_spec=None,
        fast=True,
        build=tmp_path,
        source=source,
    )
    assert [str(one) for one in report.findings if one.verdict != "PASS"] == []


@pytest.mark.source
def test_the_real_edits_fit_the_pinned_release() -> None:
    real = edits.load("main")
    source = fetch.source(bases.load(real.tried_on), progress=False)
    made = compose.compose(real, compose.read(real, str(source)))
    assert [one.verdict for one in made.results] == ["composed"] * len(real.patches)
    text = made.results[0].after["aten/src/ATen/LinalgBackend.h"].decode()
    assert "{ Default, Cusolver, Magma, Cublas };" in text
    path = f"{LINALG}/BatchLinearAlgebraLib.cpp"
    lib = [one.after[path] for one in made.results if path in one.after][-1].decode()
    assert lib.count("_streamed_cusolver(") == 5


@pytest.mark.wheel
def test_the_real_edits_of_headers_and_python_fit_a_newer_wheel() -> None:
    torch = env.wheel_tree("2.11.0", download=False) / "torch"
    texts = {
        "aten/src/ATen/LinalgBackend.h": torch / "include/ATen/LinalgBackend.h",
        "aten/src/ATen/Context.h": torch / "include/ATen/Context.h",
        "torch/backends/cuda/__init__.py": torch / "backends/cuda/__init__.py",
    }
    counts = dict.fromkeys(texts, 0)
    for edit in edits.load("main").patches[0].edits:
        for path in set(edit.paths) & set(texts):
            text = texts[path].read_text(encoding="utf-8")
            changed, problem = edits.change(edit, text)
            assert problem == ""
            counts[path] += changed != text
    assert counts == {path: 3 if path.endswith("Context.h") else 2 for path in texts}


@pytest.mark.source
@pytest.mark.wheel
@pytest.mark.parametrize("version", ["2.6.0", "2.11.0"])
def test_what_the_real_edits_call_and_add_compiles(version: str, tmp_path: Path) -> None:
    real, tried = edits.load("main"), bases.load("v2.6.0")
    source = fetch.source(tried, progress=False)
    made = compose.compose(real, compose.read(real, str(source)))
    tree = tmp_path / "tree"
    shutil.copytree(source, tree)
    for result in made.results:
        write_files(tree, {path: data.decode() for path, data in result.after.items()})
    composed = check_edits.as_patches(made, tried, tmp_path / "patches", tmp_path / "own")
    stock = wheel.inspect(env.wheel_tree(version, download=False))
    on = overlay.build(tmp_path / "on", tree, composed, composed.patches(), stock, magma=False)
    flags = relink.flags(stock, on.folder, magma=False)
    ours = ("StreamedLU.cpp", "StreamedQR.cpp", "StreamedCholesky.cpp", "LoopLanes.cpp")
    names = (*ours, "BatchLinearAlgebraLib.cpp")
    units = [
        Unit(source.name, source, flags, syntax_only=True)
        for source in on.sources()
        if source.name in names
    ]
    assert len(units) == len(names)
    for one in relink.make_compiler(stock, on.folder).run(units):
        assert one.ok, one.messages
