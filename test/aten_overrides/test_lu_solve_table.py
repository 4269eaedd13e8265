"""From a record to the table, fit and header of lu_solve; the library's choice is theirs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aten_overrides import _compile, _select
from aten_overrides._errors import UserError
from aten_overrides._names import DTYPES, LU_SOLVE_BACKENDS, PREFERENCES
from aten_overrides._select import Facts, Native
from aten_overrides.tables.lu_solve import fit, generate, table
from aten_overrides.tables.lu_solve.table import Point, SolveTable

META = {
    "gpu": "NVIDIA Test 1",
    "command": "c",
    "commit": "0",
    "date": "2026-01-01",
    "driver": "1",
    "torch": "2.11.0",
    "cuda": "13.0",
    "cublas": "13.1.0",
    "cusolver": "12.0.4",
}
N, B, C, T, L, S = fit.RANKED
NATIVES = (N, B)


def row(backend: str, ms: float, operation: str = "T", nrhs: int = 1, **more: Any) -> Any:
    base = {"op": "lu_solve", "dtype": "float32", "m": 8, "n": 8, "batch": 2, "nrhs": nrhs}
    return {**base, "operation": operation, "backend": backend, "ms": ms, **more}


def record(path: Path, points: list[Any], **meta: Any) -> Path:
    path.write_text(json.dumps({"meta": META | meta, "points": points, "checks": []}))
    return path


def invented() -> SolveTable:
    """Times in which every back end is ahead somewhere, streams included."""
    points = []
    for dtype in DTYPES:
        for transposed in (False, True):
            for batch in (1, 2, 8, 1024):
                for n in (16, 64, 128, 512, 2048):
                    for nrhs in sorted({1, 3, 64, n}):
                        one = 0.005 + n * n * nrhs * 1e-9
                        ms = {
                            N: 0.01 + n * nrhs * 1e-4,
                            B: 0.03 + one * batch * 2,
                            C: 0.02 + one * batch * (1 if n < 100 else 5),
                            T: 0.04 + one * batch * (1.5 if transposed else 0.5),
                            S: 0.02 + one * batch * (0.5 if nrhs == 3 and n == 128 else 9),
                        }
                        if batch > 1:
                            ms["streamed_cusolver"] = (0.001 if n > 500 else 1.0) * batch
                        points.append(Point(dtype, transposed, batch, n, nrhs, ms))
    return SolveTable("NVIDIA Test 1", {**META, "record": "r.json"}, tuple(points))


def test_a_record_becomes_table_and_header(tmp_path: Path, capsys: Any) -> None:
    points = [row(N, 1.0), row(C, 2.0), row(B, 0.5, nrhs=8), row(N, 3.0, "C", dtype="complex64")]
    points += [row("choice", 0.1), {"op": "solve_ex", "backend": S, "ms": 1.0}]
    source = record(tmp_path / "a.json", points)
    files = ["--table", str(tmp_path / "t.json"), "--output", str(tmp_path / "h.h")]
    assert generate.main(["--record", str(source), *files, "--write"]) == 0
    made = table.load(tmp_path / "t.json")
    assert {(p.dtype, p.transposed, p.nrhs): dict(p.ms) for p in made.points} == {
        ("float32", True, 1): {N: 1.0, C: 2.0},
        ("float32", True, 8): {B: 0.5},
        ("complex64", True, 1): {N: 3.0},
    }
    assert made.meta["record"] == "a.json" and made.gpu == "NVIDIA Test 1"
    assert generate.main(["--record", str(source), *files, "--check"]) == 0
    assert generate.main([*files, "--check"]) == 0
    text = (tmp_path / "h.h").read_text()
    assert "3 problems" in text.replace("\n// ", " ") and "kAsManyAsRows" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    (tmp_path / "h.h").write_text(text + "\n")
    assert generate.main([*files, "--check"]) == 1
    assert "--write" in capsys.readouterr().err


def test_later_records_replace_and_are_of_one_machine(tmp_path: Path) -> None:
    first = record(tmp_path / "a.json", [row(N, 1.0), row(C, 2.0), row(N, 5.0, nrhs=3)])
    second = record(tmp_path / "b.json", [row(N, 4.0)])
    both = table.from_records([first, second])
    assert [dict(p.ms) for p in both.points] == [{N: 4.0}, {N: 5.0}]
    with pytest.raises(UserError, match="of driver 2, the one before of 1"):
        table.from_records([first, record(tmp_path / "c.json", [row(N, 1.0)], driver="2")])


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (row(N, -1.0), "takes -1.0 ms"),
        (row(N, 1.0, batch=0), "batch 0"),
        (row(N, 1.0, dtype="int8"), "no dtype"),
        (row(N, 1.0, operation="X"), "lacks"),
    ],
)
def test_wrong_points_are_named(tmp_path: Path, point: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        table.from_records([record(tmp_path / "a.json", [point])])
    with pytest.raises(UserError, match="no times of lu_solve"):
        table.from_records([record(tmp_path / "b.json", [])])


def test_the_header_in_the_source_is_that_of_the_table() -> None:
    assert generate.header(table.load()) == generate.HEADER.read_text()


def test_no_choice_of_the_table_is_far_from_the_best() -> None:
    """At what was measured; a ranking may cover several n when that costs little."""
    made = table.load()
    for key, rows in fit.fit(made).items():
        for point in made.of(*key):
            times = fit.ranked_times(point)
            name = fit.choose(rows, point.batch, point.n, point.nrhs)
            assert name and times[name] <= 1.35 * min(times.values()) + 0.003, point


def library_of(made: SolveTable, folder: Path) -> _select.Library:
    """The library with this table's header."""
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("needs a C++ compiler")
    shutil.copytree(_compile.CSRC, folder / "csrc")
    (folder / "csrc/package/select/LuSolveThresholds.h").write_text(generate.header(made))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_compile, "CSRC", folder / "csrc")
        return _select.Library(_compile.build("lu_solve_fitted", _select.ALL_UNITS))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The library with the invented table's header, and the rows."""
    made = invented()
    return library_of(made, tmp_path_factory.mktemp("csrc")), fit.fit(made), made


def test_library_and_fit_agree(fitted: Any) -> None:
    library, rows, made = fitted
    assert library.lu_solve_backend_names() == LU_SOLVE_BACKENDS
    facts = Facts(lanes=4, stock=True, native=Native.USABLE)
    first = {fit.choose(rows[p.dtype, p.transposed], p.batch, p.n, p.nrhs) for p in made.points}
    assert first == {N, B, C, T, L, S}
    for dtype in DTYPES:
        lanes = fit.lanes_from([*made.of(dtype, False), *made.of(dtype, True)])
        for transposed in (False, True):
            for batch in (1, 2, 3, 5, 90, 91, 5000):
                for n in (1, 16, 32, 33, 100, 128, 129, 700, 3000):
                    for nrhs in (1, 2, 4, 10, 15, 16, 40, n, 10000):
                        want = fit.choose(rows[dtype, transposed], batch, n, nrhs)
                        if want == L and n >= lanes and batch >= 2:
                            want = "streamed_cusolver"
                        found = library.lu_solve(
                            dtype, (batch, n, nrhs), "default", facts, transposed=transposed
                        )
                        assert found == want, (dtype, transposed, batch, n, nrhs)


def test_a_direction_without_measurements_takes_the_other_s_rows() -> None:
    """Row by row: with one right-hand side both were measured, with as many as rows only one."""
    times = [{N: 1.0, B: 2.0}, {N: 2.0, B: 1.0}]
    points = [
        Point("float32", True, 4, 100, 1, times[0]),
        Point("float32", False, 4, 100, 1, times[1]),
        Point("float32", True, 4, 100, 100, times[1]),
    ]
    rows = fit.fit(SolveTable(points=tuple(points)))
    assert [fit.choose(rows["float32", how], 4, 100, 1) for how in (True, False)] == [N, B]
    assert [fit.choose(rows["float32", how], 4, 100, 100) for how in (True, False)] == [B, B]
    assert [row.nrhs for row in rows["float32", False].rows] == [1, fit.AS_MANY_AS_ROWS]
    assert rows["float64", True].rows == ()


def test_regret_at_the_points_is_small(fitted: Any) -> None:
    _, rows, made = fitted
    for point in made.points:
        times = fit.ranked_times(point)
        name = fit.choose(rows[point.dtype, point.transposed], point.batch, point.n, point.nrhs)
        assert name and times[name] <= 1.06 * min(times.values()), point


sizes = st.one_of(
    st.integers(0, 3000),
    st.sampled_from([0, 1, 2, 64, 65, 524280, 524281, 2**31 - 1, 2**63 - 1]),
    st.integers(0, 2**63 - 1),
)


@given(
    sizes=st.tuples(sizes, sizes, sizes),
    dtype=st.sampled_from(DTYPES),
    preference=st.sampled_from(PREFERENCES),
    native=st.sampled_from(list(Native)),
    lanes=st.integers(-1, 9),
    flags=st.tuples(*[st.booleans()] * 4),
)
def test_the_choice_is_total_and_possible(
    fitted: Any,
    sizes: Any,
    dtype: str,
    preference: str,
    native: Native,
    lanes: int,
    flags: tuple[bool, bool, bool, bool],
) -> None:
    stock, capturing, transposed, regular = flags
    facts = Facts(lanes, stock, capturing, native)
    for library in (fitted[0], _select.load()):
        name = library.lu_solve(
            dtype, sizes, preference, facts, transposed=transposed, regular=regular, most_rows=4000
        )
        batch, n, nrhs = sizes
        if preference in ("magma", "cublas"):
            assert name == (S if preference == "magma" else C)
            continue
        if name in NATIVES:
            assert native is Native.USABLE and regular and max(batch, nrhs) < 2**31 - 1
            assert n <= 4000 and preference != "cusolver"
        if name == S:
            assert stock and nrhs < 524281 and preference != "cusolver"
            assert not (capturing and n > 512 and batch > 8)
        if not regular:
            assert name in (C, S)
        if name == "streamed_cusolver":
            assert lanes >= 2 and batch >= 2
        if preference == "native" and native is Native.USABLE and regular and n <= 4000:
            assert name in NATIVES or max(batch, nrhs) >= 2**31 - 1


def test_the_rule_without_measurements(tmp_path: Path) -> None:
    """Few right-hand sides in one pass, many by blocks; without our kernels, torch's function."""
    facts = Facts(native=Native.USABLE)
    bare = Facts()
    library = library_of(SolveTable(), tmp_path)
    for nrhs, name in ((1, N), (8, N), (9, B), (512, B)):
        assert library.lu_solve("float32", (64, 512, nrhs), "default", facts) == name
    assert library.lu_solve("float32", (64, 512, 1), "default", bare) == S
    assert library.lu_solve("float32", (1024, 512, 1), "default", bare) == C
    assert library.lu_solve("float32", (64, 512, 512), "cusolver", facts) == T
    assert library.lu_solve("float32", (2, 100, 1), "cusolver", facts) == L
    assert library.lu_solve("float32", (64, 600, 1), "default", Facts(capturing=True)) == C
