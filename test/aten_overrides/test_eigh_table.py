"""From a record to the table, the fit and the header of eigh."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from aten_overrides._errors import UserError
from aten_overrides._select import Basis
from aten_overrides.tables.eigh import fit, generate, table
from aten_overrides.tables.eigh.predict import predict
from aten_overrides.tables.eigh.table import EighTable, Point

META = {
    "gpu": "NVIDIA Test 1",
    "command": "c",
    "commit": "0",
    "date": "2026-01-01",
    "driver": "1",
    "torch": "2.11.0",
    "cuda": "13.0",
    "cusolver": "12.0.4",
}
ROOT = Path(__file__).resolve().parents[2]
B, J, L, S = fit.RANKED


def row(backend: str, ms: float, batch: int = 2, n: int = 4, **more: Any) -> dict[str, Any]:
    base = {"op": "eigh", "dtype": "float32", "m": n, "n": n, "batch": batch, "nrhs": 0}
    return {**base, "backend": backend, "ms": ms, "spread": [ms, ms], **more}


def record(path: Path, points: list[dict[str, Any]], **meta: Any) -> Path:
    path.write_text(json.dumps({"meta": META | meta, "points": points, "checks": []}))
    return path


def test_a_record_becomes_table_and_header(tmp_path: Path, capsys: Any) -> None:
    points = [row(B, 1.0), row(L, 2.0), row("cupy", 0.5), row(B, 9.0, clock="host")]
    points.append({"op": "lu_factor", "backend": "stock", "ms": 1.0})
    source = record(tmp_path / "eigh.json", points)
    files = ["--table", str(tmp_path / "t.json"), "--output", str(tmp_path / "h.h")]
    assert generate.main(["--record", str(source), *files, "--write"]) == 0
    made = table.load(tmp_path / "t.json")
    assert [dict(p.ms) for p in made.points] == [{B: 1.0, L: 2.0}]
    assert made.meta["record"] == "eigh.json" and made.gpu == "NVIDIA Test 1"
    assert generate.main(["--record", str(source), *files, "--check"]) == 0
    assert generate.main([*files, "--check"]) == 0
    text = (tmp_path / "h.h").read_text()
    told = text.replace("\n//", "")
    assert "1 eigh float32" in told and "NVIDIA Test 1" in told
    assert all(len(line) <= 100 for line in text.splitlines())
    (tmp_path / "h.h").write_text(text + "\n")
    assert generate.main([*files, "--check"]) == 1
    assert "--write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("points", "meta", "words"),
    [
        ([row("cupy", 1.0)], {}, "no times of eigh"),
        ([row(B, math.inf)], {}, "takes inf ms"),
        ([row(B, -1.0)], {}, "takes -1.0 ms"),
        ([row(B, 1.0, batch=0)], {}, "batch 0"),
        ([row(B, 1.0) | {"dtype": "int8"}], {}, "int8"),
        ([{"op": "eigh", "backend": B, "ms": 1.0}], {}, "lacks 'dtype'"),
    ],
)
def test_a_wrong_record_is_refused(
    tmp_path: Path, capsys: Any, points: list[dict[str, Any]], meta: dict[str, Any], words: str
) -> None:
    source = record(tmp_path / "eigh.json", points, **meta)
    output = tmp_path / "h.h"
    arguments = ["--record", str(source), "--table", str(tmp_path / "t.json")]
    assert generate.main([*arguments, "--output", str(output), "--write"]) == 2
    assert words in capsys.readouterr().err
    assert not output.exists() and not (tmp_path / "t.json").exists()


def test_a_wrong_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for text, words in (
        ("{", "cannot be read"),
        ('{"format": 9}', "format 9"),
        ("[]", "found list"),
        ('{"format": 1}', "no table"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=words):
            table.load(path)


def test_without_points_everything_is_stock() -> None:
    for rows in fit.fit(EighTable()).values():
        assert fit.choose(rows, 100, 33, fit.RANKED) == "stock"


def points_of(times: dict[tuple[int, int], dict[str, float]]) -> tuple[Point, ...]:
    return tuple(Point("eigh", "float32", b, n, ms) for (b, n), ms in times.items())


def test_the_crossing_lies_where_interpolated_times_meet() -> None:
    times = {
        (1, 10): {B: 1.0, J: 0.5, L: 9.0, S: 9.0},
        (1, 40): {B: 1.0, J: 2.0, L: 9.0, S: 9.0},
    }
    rows = fit.rows_of(points_of(times))
    assert [(s.from_n, s.ranking[0]) for s in rows.rows[0].segments] == [(1, J), (20, B)]


def test_stock_has_to_be_ahead_by_five_percent() -> None:
    for stock, chosen in ((0.97, B), (0.90, S)):
        rows = fit.rows_of(points_of({(1, 8): {B: 1.0, L: 3.0, S: stock}}))
        assert fit.choose(rows, 1, 8, fit.RANKED) == chosen


def test_streams_are_used_from_where_they_gain() -> None:
    times = {
        (8, n): {L: 1.0, "streamed_cusolver": 1.2 if n < 100 else 0.5, S: 3.0}
        for n in (16, 64, 128, 512)
    }
    rows = fit.rows_of(points_of(times))
    assert rows.lanes_from == 128
    assert fit.choose(rows, 8, 127, fit.RANKED) == L
    assert fit.choose(rows, 8, 128, fit.RANKED) == "streamed_cusolver"
    assert fit.choose(rows, 8, 128, fit.RANKED, lanes=1) == L
    slower = {key: ms | {"streamed_cusolver": 2.0} for key, ms in times.items()}
    assert fit.rows_of(points_of(slower)).lanes_from == fit.NEVER


def test_a_batch_like_the_one_before_has_no_row() -> None:
    alike = {(b, 8): {B: 1.0 * b, J: 2.0 * b, L: 9.0 * b, S: 9.0 * b} for b in (1, 4, 16)}
    assert len(fit.rows_of(points_of(alike)).rows) == 1
    changed = alike | {(16, 8): {B: 2.0, J: 1.0, L: 9.0, S: 9.0}}
    rows = fit.rows_of(points_of(changed)).rows
    assert [r.batch for r in rows] == [1, 8]  # the geometric mean of 4 and 16


def test_jacobi_is_passed_over_beyond_its_rows() -> None:
    times = {(2, n): {B: 2.0, J: 1.0, L: 9.0, S: 9.0} for n in (32, 64, 65, 128)}
    rows = fit.rows_of(points_of(times))
    assert [fit.choose(rows, 2, n, fit.RANKED) for n in (32, 64, 65, 128)] == [J, J, B, B]
    assert fit.choose(rows, 2, 128, fit.SETS[1]) in ("streamed_cusolver", L)


def test_a_row_begins_where_the_times_meet() -> None:
    """A loop's time grows with the batch where it was left out of the larger one."""
    times = {
        (8, 192): {B: 16.0, L: 8.0, S: 99.0},
        (128, 192): {B: 16.0, S: 999.0},
    }
    rows = fit.rows_of(points_of(times))
    assert [r.batch for r in rows.rows] == [1, 16]
    assert fit.choose(rows, 15, 192, fit.RANKED) == L
    assert fit.choose(rows, 16, 192, fit.RANKED) == B


def test_values_borrow_beyond_the_largest_n_of_a_batch() -> None:
    vectors = points_of({(9, n): {B: 1.0, L: 9.0, S: 9.0} for n in (8, 64, 512)})
    values = tuple(Point("eigvalsh", "float32", 9, n, {B: 2.0, L: 1.0, S: 9.0}) for n in (8, 64))
    rows = fit.fit(EighTable("g", {}, vectors + values))["eigvalsh", "float32"]
    assert [fit.choose(rows, 9, n, fit.RANKED) for n in (8, 64, 512)] == [L, L, B]


def test_a_later_record_replaces_times(tmp_path: Path) -> None:
    first = record(tmp_path / "a.json", [row(B, 1.0), row(B, 2.0, n=8)])
    second = record(tmp_path / "b.json", [row(J, 3.0, n=8)], date="2026-02-02")
    made = table.from_records([first, second])
    assert [dict(p.ms) for p in made.points] == [{B: 1.0}, {J: 3.0}]
    assert made.meta["record"] == "a.json, b.json" and made.meta["date"] == "2026-02-02"
    other = record(tmp_path / "c.json", [row(B, 1.0)], driver="2")
    with pytest.raises(UserError, match="driver 2, the one before of 1"):
        table.from_records([first, other])


def test_a_batch_borrows_the_batched_routines_order_up_to_jacobis_rows() -> None:
    small = {(8, n): {B: 3.0, J: 1.0 if n < 48 else 6.0, L: 0.5, S: 9.0} for n in (8, 32, 48, 64)}
    large = {(512, n): {B: 3.0, J: 1.0, S: 9.0} for n in (8, 32)}
    rows = fit.rows_of(points_of(small | large))
    assert len(rows.rows) == 2
    assert [fit.choose(rows, 512, n, fit.RANKED) for n in (8, 32, 48, 64, 128)] == [J, J, B, B, B]


def test_what_was_not_measured_ranks_last_and_is_still_there() -> None:
    ranking = fit.ranking_of([{J: 1.0, S: 2.0}])
    assert ranking[:2] == (J, S) and set(ranking) == set(fit.RANKED)


def test_complex_and_values_borrow_where_they_have_no_points() -> None:
    made = EighTable("g", {}, points_of({(1, 8): {B: 1.0, S: 9.0}}))
    fitted = fit.fit(made)
    for key in (("eigvalsh", "float32"), ("eigh", "complex64"), ("eigvalsh", "complex64")):
        assert fit.choose(fitted[key], 1, 8, fit.RANKED) == B
    assert fit.choose(fitted["eigh", "float64"], 1, 8, fit.RANKED) == S


def test_times_between_measured_ones() -> None:
    times = {(b, n): {B: float(b * n)} for b in (1, 16) for n in (4, 64)}
    made = EighTable("g", {}, points_of(times))
    for batch, n, basis in ((16, 64, Basis.MEASURED), (4, 16, Basis.INTERPOLATED)):
        ms, how = predict(made, "eigh", "float32", batch, n, B)
        assert ms == pytest.approx(batch * n) and how is basis
    for batch, n in ((0, 4), (32, 4), (1, 65), (1, 3)):
        assert predict(made, "eigh", "float32", batch, n, B) == (None, Basis.NONE)
    assert predict(made, "eigh", "float32", 1, 4, J) == (None, Basis.NONE)


def test_stock_is_not_interpolated_across_its_step() -> None:
    times = {(1, n): {B: 1.0, S: 0.3 if n <= 32 else 60.0} for n in (16, 32, 192, 256)}
    made = EighTable("g", {}, points_of(times))
    for n, expected in ((24, 0.3), (32, 0.3), (33, None), (191, None), (200, 60.0)):
        ms, _ = predict(made, "eigh", "float32", 1, n, S)
        assert ms == (None if expected is None else pytest.approx(expected)), n
    assert predict(made, "eigh", "float32", 1, 33, B)[0] == pytest.approx(1.0)


def test_the_table_is_that_of_its_records() -> None:
    made = table.load()
    records = sorted((ROOT / "test/gpu/records").glob("eigh*-nvidia-h200-*.json"))
    assert bool(made.points) <= bool(records)
    if records:
        named = [path for path in records if path.name in made.meta["record"].split(", ")]
        named.sort(key=lambda path: made.meta["record"].index(path.name))
        assert table.render(table.from_records(named)) == table.DEFAULT.read_text(encoding="utf-8")
        # Newer ones with times by the device's clock would have to be in it.
        for path in set(records) - set(named):
            data = json.loads(path.read_text())
            clocks = {point.get("clock") for point in data["points"]}
            assert clocks == {"host"} or data["meta"]["date"] < made.meta["date"], path.name
