"""Building and loading the select library: once, whole or not at all, with clear refusals."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aten_overrides import _compile, _select
from aten_overrides._errors import UserError
from aten_overrides._names import BACKENDS
from aten_overrides._select import Facts, Problem, calls

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", str(folder))
    return folder


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def counting(tmp_path: Path) -> str:
    """A compiler that writes a line to `calls` whenever it compiles."""
    real = " ".join(_compile.find_compiler())
    log = tmp_path / "calls"
    log.touch()
    return script(
        tmp_path / "counting-c++",
        f'case "$*" in *--version*) ;; *) echo call >> "{log}" ;; esac\nexec {real} "$@"',
    )


def build_table_part() -> Path:
    return _compile.build("part", _select.TABLE_UNITS)


def test_built_once_and_again_when_the_compiler_changes(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", counting(tmp_path))
    first = build_table_part()
    assert first == build_table_part()
    assert (tmp_path / "calls").read_text().count("call") == 1
    assert cache in first.parents
    assert [path.name for path in first.parent.iterdir()] == ["libpart.so"]
    monkeypatch.setenv("CXX", f"{tmp_path / 'counting-c++'} -DANOTHER")
    assert build_table_part() != first
    assert (tmp_path / "calls").read_text().count("call") == 2


def test_other_thresholds_make_another_library(cache: Path, tmp_path: Path) -> None:
    own = tmp_path / "linalg"
    own.mkdir()
    for name in _compile.HEADERS:
        text = (_compile.CSRC / "linalg" / name).read_text()
        # All pivoted float32 batches leave cuBLAS at once.
        text = text.replace("kPivotedFloat[] = {\n", "kPivotedFloat[] = {\n    {1, {0}, {0}},\n};\n"
                            "constexpr SquareRow kUnused[] = {\n")  # fmt: skip
        (own / name).write_text(text)
    changed, present = _select.load(own), _select.load()
    problem, facts = Problem(64, 16, 16), Facts(lanes=0, stock=False)
    assert present.by_thresholds("float32", problem, "default", facts) == "batched_cublas"
    assert changed.by_thresholds("float32", problem, "default", facts) == "looped_cusolver"


def test_no_compiler(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"C\+\+17 compiler is needed.*install one.*or set CXX"):
        build_table_part()


def test_cxx_names_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(UserError, match="CXX names 'no-such-compiler', which is not on the path"):
        build_table_part()


def test_a_failing_compiler_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'case "$*" in *--version*) ;; *) echo "no room left" >&2; exit 4 ;; esac'
    monkeypatch.setenv("CXX", script(tmp_path / "failing", text))
    with pytest.raises(UserError, match=r"exit status 4\)(.|\n)*no room left"):
        build_table_part()
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_an_interrupted_compilation_leaves_no_library(cache: Path, tmp_path: Path) -> None:
    """The compiler writes half a file and is killed with its caller; the next run starts afresh."""
    text = (
        'case "$*" in *--version*) exit 0 ;; esac\n'
        'for last; do :; done\necho half > "$last"\nkill -9 $PPID'
    )
    environment = {**os.environ, "CXX": script(tmp_path / "killing", text), "PYTHONPATH": str(ROOT)}
    code = "from aten_overrides import _select; _select.load_table_part()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode != 0
    assert list(cache.glob("select/*/lib*.so")) == []
    assert build_table_part().is_file()


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", str(occupied))
    with pytest.raises(UserError, match="set ATEN_OVERRIDES_CACHE to a folder"):
        build_table_part()
    assert occupied.read_text() == "not a folder"


def test_a_damaged_library_is_named(tmp_path: Path) -> None:
    damaged = tmp_path / "libdamaged.so"
    damaged.write_bytes(b"\x7fELF and then nothing")
    with pytest.raises(UserError, match=r"libdamaged\.so cannot be loaded.*remove the file"):
        _select.Library(damaged)


def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    path = _compile.build(_select.LIBRARY, _select.ALL_UNITS)
    _select.Library(path)
    monkeypatch.setattr(calls, "BACKENDS", (*BACKENDS, "batched_future"))
    with pytest.raises(UserError, match=r"is of another version: .*remove the file"):
        _select.Library(path)


def test_a_missing_source_is_named(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"LinalgChoice\.h of the select library is missing"):
        _compile.build("part", _select.TABLE_UNITS, linalg=tmp_path)


def test_only_our_names_are_exported() -> None:
    path = _compile.build(_select.LIBRARY, _select.ALL_UNITS)
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    strong = {line.split()[2] for line in listed if line.split()[1] in "TDBR"}
    assert strong == {f"{_select.LIBRARY}_{name}" for name in calls._SIGNATURES}


def test_tables_are_freed_and_kept_apart() -> None:
    library = _select.load_table_part()
    kept = library.table(4)
    for _ in range(100):
        library.table(4).add("lu_factor", "float32", "stock", Problem(1, 2, 2), 1.0)
    kept.add("lu_factor", "float32", "stock", Problem(1, 2, 2), 3.0)
    kept.finish()
    told, _ = kept.predict("lu_factor", "float32", "stock", Problem(1, 2, 2))
    assert told == pytest.approx(3.0)
