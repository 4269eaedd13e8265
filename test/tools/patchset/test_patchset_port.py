"""`port`: what becomes of each patch on other trees, small ones and PyTorch's own."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from fake_base import BASE_FILES, FakeBase, checkout, write_files

from aotools import env
from aotools.env import UserError
from aotools.patchset import apply, check, cli, fetch, git, port, port_cli, port_target
from aotools.patchset import base as bases
from aotools.patchset.base import LINALG, Base
from aotools.patchset.port import Ported

SOLVER = f"{LINALG}/Solver.cpp"
TEXT = BASE_FILES[SOLVER]
FIRST, SECOND = "first-topic.patch", "second-topic.patch"


def ported(fake: FakeBase, tree: Path) -> Ported:
    base = fake.load()
    paths = {change.path for patch in base.patches() for change in patch.changes}
    return port.port(base, fake.source, port_target.read(base, str(tree), paths))


def verdicts(result: Ported) -> dict[str, str]:
    return {one.patch.name: one.verdict for one in result.results}


def file_of(result: Ported, patch: str, path: str = SOLVER) -> port.FileResult:
    files = next(one.files for one in result.results if one.patch.name == patch)
    return next(one for one in files if one.path == path)


@pytest.fixture
def tree(fake: FakeBase, tmp_path: Path) -> Path:
    """A copy of the base to change."""
    return Path(shutil.copytree(fake.source, tmp_path / "tree"))


def test_many_new_files_of_a_folder_take_one_line() -> None:
    def files(*names: str, verdict: port.Verdict = "clean") -> list[port.FileResult]:
        return [port.FileResult(name, verdict, "") for name in names]

    many = files("top.h", *(f"a/b/{n}.cu" for n in range(4)), "a/one.h")
    assert port._in_short(many) == ["top.h: clean", "a/b/: clean, all files", "a/one.h: clean"]
    mixed = [*many, *files("a/b/x.cu", verdict="conflict")]
    assert port._in_short(mixed) == [str(one) for one in mixed]
    few = files("a/b/0.cu", "a/b/1.cu", "a/b/2.cu")
    assert port._in_short(few) == [str(one) for one in few]


def rewritten(old: str, new: str, above: int = 0) -> str:
    """Solver.cpp with one text replaced and some lines above all others."""
    assert old in TEXT
    return "//\n" * above + TEXT.replace(old, new)


@pytest.mark.parametrize(
    ("patch", "text", "verdict", "note"),
    [
        (FIRST, TEXT, "clean", ""),
        (SECOND, "//\n" * 7 + TEXT, "clean", "1 hunk at other lines"),
        # A hunk at a file's top is not looked for elsewhere.
        (FIRST, "//\n" * 7 + TEXT, "merged", ""),
        (FIRST, rewritten("line1 = 1;", "line1 = 0;"), "merged", ""),  # a line of its context
        (FIRST, rewritten("line3 = 3;", "line3 = 33;"), "already upstream", ""),
        (FIRST, rewritten("= 3;", "= 33;", 2), "already upstream", "beside other changes"),
        (FIRST, rewritten(" = 3;", " = 5;"), "conflict", "1 place, the tree's line 3"),
        (FIRST, rewritten(" = 3;", " = 5;", 4), "conflict", "1 place, the tree's line 7"),
        (FIRST, rewritten("int line3 = 3;\n", ""), "conflict", "1 place, the tree's line 3"),
        (SECOND, rewritten("line25 = 25", "v = 7"), "conflict", "1 place, the tree's line 25"),
    ],
)
def test_one_file(
    fake: FakeBase, tree: Path, patch: str, text: str, verdict: str, note: str
) -> None:
    write_files(tree, {SOLVER: text})
    result = ported(fake, tree)
    found = file_of(result, patch)
    assert (found.verdict, found.note) == (verdict, note)
    if patch == FIRST:  # the other one has more files
        assert verdicts(result)[FIRST] == verdict
    assert (found.marked is not None) == (verdict == "conflict") == bool(found.lines)
    assert all(note.endswith(f" line {line}") for line in found.lines)


def test_what_lies_elsewhere_or_is_in_the_way(fake: FakeBase, tree: Path) -> None:
    (tree / "aten/src/ATen/cuda").mkdir(parents=True)
    (tree / SOLVER).rename(tree / "aten/src/ATen/cuda/Solver.cpp")
    write_files(tree, {f"{LINALG}/New.h": "another\n"})
    (tree / "docs/notes.rst").unlink()
    result = ported(fake, tree)
    assert verdicts(result) == {FIRST: "conflict", SECOND: "conflict"}
    moved = file_of(result, FIRST).note
    assert moved == "the tree has no such file; of that name there is aten/src/ATen/cuda/Solver.cpp"
    assert (
        file_of(result, SECOND, f"{LINALG}/New.h").note == "the tree has another file of this name"
    )
    assert file_of(result, SECOND, "docs/notes.rst").note == "the tree has no such file"


def test_code_that_moved_far_is_merged_with_a_warning(fake: FakeBase, tree: Path) -> None:
    lines = TEXT.splitlines(True)
    write_files(tree, {SOLVER: "".join([*lines[20:], *lines[:20]])})
    found = file_of(ported(fake, tree), SECOND)
    assert found.verdict == "merged"
    assert "by `git apply` alone, 1 hunk at other lines: see" in found.note


def test_a_conflict_leaves_its_patch_out_and_the_others_in(fake: FakeBase, tree: Path) -> None:
    write_files(tree, {SOLVER: TEXT.replace("line3 = 3;", "line3 = 5;")})
    result = ported(fake, tree)
    assert verdicts(result) == {FIRST: "conflict", SECOND: "clean"}
    first, second = result.results
    assert first.after == {}
    assert second.notes == (f"tried without {FIRST}, which it may need",)
    content = second.after[SOLVER]
    assert content is not None
    assert b"line3 = 5;" in content and b"line25 = kNew;" in content
    assert result.report().endswith("1 clean, 0 merged, 1 conflict, 0 already upstream")


def test_the_header_may_say_that_upstream_has_it(fake: FakeBase, tree: Path) -> None:
    fake.edit(FIRST, "Applied-Upstream: no", "Applied-Upstream: 0.10.0, https://example.org/p/1")
    for version, known in (("0.9.0a0\n", False), ("0.10.0a0+git12\n", True), ("0.11\n", True)):
        write_files(tree, {"version.txt": version})
        notes = ported(fake, tree).results[0].notes
        assert (notes == ("its header says that upstream has it since 0.10.0",)) == known


def test_the_forms_of_a_target(
    fake: FakeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = checkout(fake.source, tmp_path / "pytorch")
    git.git(user, "tag", "v0.2")
    write_files(user, {SOLVER: "int work = 1;\n"})  # not committed
    base, wanted = fake.load(), {SOLVER, "gone.txt"}
    assert port_target.read(base, str(user), wanted).contents[SOLVER] == b"int work = 1;\n"
    old = port_target.read(base, f"{user}@v0.2", wanted)
    cloned = port_target.read(base, "v0.2", wanted, url=f"file://{user}")
    for target in (old, cloned):
        assert target.contents[SOLVER] == TEXT.encode()
        assert f"{LINALG}/Solver.h" in target.contents
        assert "README.md" in target.listing and "README.md" not in target.contents
        assert "v0.2" in target.name
    for ref, said in (
        (f"{user}@v9", "has no commit 'v9'"),
        (str(tmp_path / "nowhere"), "no such folder"),
        ("debian:sid", "no pinned checksum"),
        ("v0.3", "git cannot get a tag or branch of this name"),
        ("--upload-pack=x", "it takes FOLDER"),
        (str(fake.root), "no aten/src/ATen"),
    ):
        with pytest.raises(UserError, match=said):
            port_target.read(base, ref, wanted, url=f"file://{user}")


def test_the_command_writes_a_base_of_its_own(
    fake: FakeBase,
    tree: Path,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_files(tree, {SOLVER: rewritten(" = 3;", " = 5;"), "version.txt": "0.2.0a0\n"})
    to = tmp_path / "patches" / "v0.2"
    words = ["port", "--base", "v0.1", "--patches-root", fake.root, "--source", "dir", fake.source]
    words += ["--onto", tree]

    def run(*more: str | Path) -> int:
        monkeypatch.setattr(sys, "argv", ["patchset", *map(str, [*words, *more])])
        return cli.main()

    assert run("--to", to, "--dry-run") == 0
    assert not to.exists()
    assert run("--to", to) == 1  # a conflict
    assert "first-topic.patch   conflict" in capsys.readouterr().out
    new = bases.load("v0.2", to.parent)
    assert (new.version, new.tag, new.series()) == ("0.2.0", "v0.2.0", [SECOND])
    assert f"# conflict: {FIRST}" in (to / "series").read_text()
    assert new.patches()[0].problems == ()
    made, _ = apply.work_tree(new, tree, new.patches(), tmp_path / "made")
    assert "line25 = kNew" in (made / SOLVER).read_text()
    report = check.run(new, tree, wheel_spec=None, fast=True, build=tmp_path / "b", own=fake.own)
    assert [one.item for one in report.findings if one.verdict == "FAIL"] == ["series"]
    marked = (to / "conflicts" / FIRST / SOLVER).read_text()
    assert "<<<<<<< the tree\nint line3 = 5;\n||||||| before the patch\nint line3 = 3;\n" in marked
    before = sorted(to.rglob("*"))
    with pytest.raises(UserError, match="exists already"):
        run("--to", to)
    assert sorted(to.rglob("*")) == before
    capsys.readouterr()
    run("--to", fake.root / "v0.3")  # where apply finds it
    said = capsys.readouterr().out
    assert f"next: tools/patchset apply --base v0.3 --source dir {tree} --onto {tree}" in said
    assert run("--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["verdict"] for one in found["patches"]] == ["conflict", "clean"]
    write_files(tree, {SOLVER: TEXT})
    assert run() == 0


# --- PyTorch itself -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Base:
    return bases.load("v2.6.0")


@pytest.fixture(scope="module")
def source(real: Base) -> Path:
    return fetch.source(real, progress=False)


def real_port(real: Base, source: Path, onto: str) -> Ported:
    paths = {change.path for patch in real.patches() for change in patch.changes}
    return port.port(real, source, port_target.read(real, onto, paths | set(real.blobs)))


@pytest.mark.source
def test_its_own_base_takes_every_patch_as_it_is(real: Base, source: Path, tmp_path: Path) -> None:
    result = real_port(real, source, str(source))
    assert set(verdicts(result).values()) == {"clean"}
    assert all(not one.note for result in result.results for one in result.files)
    port_cli.write(result, tmp_path / "v2.6.0")
    for patch in real.patches():
        assert (tmp_path / "v2.6.0" / patch.name).read_bytes() == patch.path.read_bytes()


@pytest.mark.source
def test_a_tree_that_has_the_series_needs_none_of_it(
    real: Base, source: Path, tmp_path: Path
) -> None:
    tree = apply.plain_tree(real, source, real.patches(), tmp_path / "trees")
    assert set(verdicts(real_port(real, source, str(tree))).values()) == {"already upstream"}


def rewrite(path: Path, old: str, new: str) -> None:
    """Replaces a text that must be there, its first occurrence."""
    text = path.read_text(encoding="utf-8")
    assert old in text, old
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.source
def test_a_newer_pytorch(real: Base, source: Path, tmp_path: Path) -> None:
    """2.6.0 with one patch merged, moved lines, a changed neighbour and one rewritten line."""
    first = real.patches()[:1]
    tree = Path(
        shutil.copytree(
            apply.plain_tree(real, source, first, tmp_path / "trees"), tmp_path / "newer"
        )
    )
    linalg = tree / LINALG
    blas = linalg / "BatchLinearAlgebraLibBlas.cpp"
    patch = next(one for one in real.patches() if one.name == "batched-cublas-limits.patch")
    hunk = patch.path.read_text(encoding="utf-8").partition("\n@@ ")[2].partition("\n")[2]
    neighbour = hunk.splitlines()[0][1:]  # the first line of context
    rewrite(blas, f"{neighbour}\n", f"{neighbour} // as in a later release\n")
    rewrite(tree / "test/test_linalg.py", "import torch\n", "import torch\n\n# a later release\n")
    rewrite(tree / "torch/csrc/Module.cpp", '"Magma"', '"MAGMA"')
    write_files(tree, {"version.txt": "2.14.1a0\n"})
    result = real_port(real, source, str(tree))
    found = verdicts(result)
    assert found["shared-getrf-workspace.patch"] == "already upstream"
    assert result.results[0].notes == ("its header says that upstream has it since 2.14.1",)
    assert found["batched-cublas-limits.patch"] == "merged"
    assert found["batch-aware-lu-selection.patch"] == "clean"
    assert found["auxiliary-streams.patch"] == "clean"
    assert found["tests.patch"] in ("clean", "merged")
    last = "preferred-linalg-library-cublas.patch"
    assert found[last] == "conflict"
    assert file_of(result, last, "torch/csrc/Module.cpp").lines
    to = tmp_path / "v2.14.1"
    port_cli.write(result, to)
    new = bases.load("v2.14.1", tmp_path)
    assert new.series() == [name for name in real.series() if found[name] in ("clean", "merged")]
    made, _ = apply.work_tree(new, tree, new.patches(), tmp_path / "made")
    text = (made / LINALG / blas.name).read_text(encoding="utf-8")
    assert "as in a later release" in text and "65535" in text
    own = tmp_path / "own"
    added = [change for patch in new.patches() for change in patch.changes if change.old is None]
    for one in added:
        write_files(own, {Path(one.path).name: (made / one.path).read_text(encoding="utf-8")})
    report = check.run(new, tree, wheel_spec=None, fast=True, build=tmp_path / "b", own=own)
    assert [one.item for one in report.findings if one.verdict == "FAIL"] == ["series"]


@pytest.mark.source
def test_debian_bookworms_pytorch(real: Base, source: Path, tmp_path: Path) -> None:
    """1.13.1, two years older: 18 MB by apt on the first run."""
    try:
        result = real_port(real, source, "debian:bookworm")
    except UserError as error:
        if "source" in os.environ.get("AOTOOLS_REQUIRE", "").split(","):
            raise
        pytest.skip(f"Debian bookworm's PyTorch cannot be had: {error}")
    assert result.target.version == "1.13.1"
    assert len(result.target.listing) > 9000
    assert verdicts(result)["shared-getrf-workspace.patch"] == "merged"
    assert result.count("conflict") == 9
    missing = {
        one.path
        for result in result.results
        for one in result.files
        if one.note.startswith("the tree has no such file")
    }
    assert missing == {
        f"{LINALG}/BatchLinearAlgebraLibBlas.cpp",
        f"{LINALG}/LinalgChoice.h",  # of an earlier patch that did not go in
        "docs/source/cuda_environment_variables.rst",
    }
    for one in (file for result in result.results for file in result.files):
        assert (one.marked is not None) == bool(one.lines), one
        if one.marked is not None:
            rows = result.target.contents[one.path].splitlines()
            assert all(0 < line <= len(rows) + 1 for line in one.lines)
            assert one.marked.count(b"<<<<<<< the tree") >= len(one.lines)
    stated = (env.ROOT / "docs/porting.md").read_text(encoding="utf-8")
    block = stated.partition("<!-- port: debian:bookworm -->\n```\n")[2].partition("\n```\n")[0]
    assert block == result.report()  # `tools/patchset port --onto debian:bookworm` prints it
    port_cli.write(result, tmp_path / "v1.13.1")
    new = bases.load("v1.13.1", tmp_path)
    tree = tmp_path / "tree"
    for path, data in result.target.contents.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(data)
    made, _ = apply.work_tree(new, tree, new.patches(), tmp_path / "made")
    text = (made / LINALG / "CUDASolver.cpp").read_text(encoding="utf-8")
    assert "<<<<<<<" not in text
    assert text.count("cusolverDnSgetrf_bufferSize") == 1
