"""The compiler runner: what it keeps, when it compiles again, and what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aotools.env import UserError
from aotools.patchset import compile as compiling
from aotools.patchset.compile import Compiler, Result, Unit


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two include folders, the first of which comes before the other."""
    for name, text in {
        "first/value.h": "constexpr int kValue = 1;\n",
        "second/other.h": "constexpr int kOther = 2;\n",
        "first/unit.cpp": (
            "#include <value.h>\n#include <other.h>\nint f() { return kValue + kOther; }\n"
        ),
    }.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def unit(tree: Path, *options: str, syntax_only: bool = False) -> Unit:
    arguments = (
        f"-I{tree}/first",
        f"-isystem{tree}/second",
        f"-ffile-prefix-map={tree}=",
        *options,
    )
    return Unit("unit.cpp", tree / "first/unit.cpp", arguments, syntax_only)


def run(tree: Path, made: Unit, store: Path) -> Result:
    roots = {"first": tree / "first", "tree": tree}
    return Compiler(roots=roots, first=(tree / "first",), store=store).run([made])[0]


def test_a_result_is_used_again(tree: Path, tmp_path: Path) -> None:
    fresh = run(tree, unit(tree), tmp_path / "store")
    again = run(tree, unit(tree), tmp_path / "store")
    assert (fresh.ok, fresh.cached) == (True, False)
    assert (again.ok, again.cached, again.object) == (True, True, fresh.object)


def test_a_tree_elsewhere_has_the_same_results(tree: Path, tmp_path: Path) -> None:
    fresh = run(tree, unit(tree), tmp_path / "store")
    moved = tree.rename(tmp_path / "moved")
    assert run(moved, unit(moved), tmp_path / "store").object == fresh.object


@pytest.mark.parametrize("what", ["source", "header", "option", "hiding header", "later header"])
def test_what_matters_is_noticed(tree: Path, tmp_path: Path, what: str) -> None:
    fresh = run(tree, unit(tree), tmp_path / "store")
    options: tuple[str, ...] = ()
    if what == "source":
        (tree / "first/unit.cpp").write_text("int g() { return 3; }\n")
    elif what == "header":
        (tree / "first/value.h").write_text("constexpr int kValue = 7;\n")
    elif what == "option":
        options = ("-O2",)
    elif what == "hiding header":
        (tree / "first/other.h").write_text("constexpr int kOther = 9;\n")
    else:
        (tree / "second/other.h").write_text("constexpr int kOther = 20;\n")
    again = run(tree, unit(tree, *options), tmp_path / "store")
    assert (again.cached, again.object != fresh.object) == (False, True)


def test_what_does_not_matter_is_not(tree: Path, tmp_path: Path) -> None:
    run(tree, unit(tree), tmp_path / "store")
    (tree / "first/unrelated.h").write_text("#error not included\n")
    os.utime(tree / "first/value.h", (1, 1))
    assert run(tree, unit(tree), tmp_path / "store").cached


def test_going_back_finds_the_earlier_result(tree: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = run(tree, unit(tree), store)
    old = (tree / "first/value.h").read_text()
    (tree / "first/value.h").write_text("constexpr int kValue = 7;\n")
    second = run(tree, unit(tree), store)
    (tree / "first/value.h").write_text(old)
    third = run(tree, unit(tree), store)
    assert (third.cached, third.object) == (True, first.object)
    assert second.object != first.object


def test_a_failure_is_not_kept(tree: Path, tmp_path: Path) -> None:
    (tree / "first/value.h").write_text("#error broken on purpose\n")
    for _ in range(2):
        result = run(tree, unit(tree), tmp_path / "store")
        assert (result.ok, result.cached, result.object) == (False, False, None)
        assert "broken on purpose" in result.messages


def test_a_syntax_check_makes_no_object(tree: Path, tmp_path: Path) -> None:
    made = unit(tree, syntax_only=True)
    assert run(tree, made, tmp_path / "store").object is None
    assert run(tree, made, tmp_path / "store").cached
    assert list((tmp_path / "store").rglob("*.o")) == []
    assert run(tree, unit(tree), tmp_path / "store").object is not None


def test_a_lost_object_and_a_broken_list_are_made_again(tree: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    fresh = run(tree, unit(tree), store)
    assert fresh.object is not None
    fresh.object.unlink()
    again = run(tree, unit(tree), store)
    assert (again.cached, again.object) == (False, fresh.object)
    for path in store.rglob("*.json"):
        path.write_text("{ not json")
    assert run(tree, unit(tree), store).ok


def test_the_store_does_not_grow_without_end(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_CACHE_BYTES", 6000)
    for number in range(12):
        (tree / "first/value.h").write_text(f"constexpr int kValue = {number};\n")
        assert run(tree, unit(tree), tmp_path / "store").ok
    total = sum(path.stat().st_size for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert 0 < total < 12 * 1300


def test_no_compiler_is_told(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++-none")
    compiling.compiler.cache_clear()
    with pytest.raises(UserError, match=r"g\+\+-none was not found.*apt-get install g\+\+"):
        run(tree, unit(tree), tmp_path / "store")
    compiling.compiler.cache_clear()


@pytest.mark.parametrize(
    ("version", "number"), [("g++ (Debian) 10.2.1", "10.2.1"), ("clang version 19", "19.0")]
)
def test_an_unfit_compiler_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, number: str
) -> None:
    script = tmp_path / "cxx"
    script.write_text(
        f'#!/bin/sh\ncase $1 in --version) echo "{version}";; *) echo {number};; esac\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    compiling.compiler.cache_clear()
    with pytest.raises(UserError, match=r"GNU g\+\+ 11 or newer is needed"):
        compiling.compiler()
    compiling.compiler.cache_clear()


def test_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAX_JOBS", raising=False)
    assert 1 <= compiling.job_count() <= len(os.sched_getaffinity(0))
    monkeypatch.setenv("MAX_JOBS", "7")
    assert compiling.job_count() == 7
    monkeypatch.setenv("MAX_JOBS", "0")
    with pytest.raises(UserError, match="MAX_JOBS=0"):
        compiling.job_count()


def test_a_killed_compiler_is_explained() -> None:
    import subprocess

    done = subprocess.CompletedProcess(["g++"], 1, "", "g++: fatal error: Killed signal terminated")
    assert "MAX_JOBS=1" in compiling._reason(done)


@pytest.mark.parametrize("damage", [b"", b"no object"])
def test_a_damaged_object_is_made_again(tree: Path, tmp_path: Path, damage: bytes) -> None:
    fresh = run(tree, unit(tree), tmp_path / "store")
    assert fresh.object is not None
    whole = fresh.object.read_bytes()
    fresh.object.write_bytes(damage)
    again = run(tree, unit(tree), tmp_path / "store")
    assert (again.ok, again.cached, again.object) == (True, False, fresh.object)
    assert fresh.object.read_bytes() == whole


def test_a_store_that_others_own_serves(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tree, unit(tree), tmp_path / "store")

    def forbidden(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "utime", forbidden)
    assert run(tree, unit(tree), tmp_path / "store").cached
