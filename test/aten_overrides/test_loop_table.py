"""The table of the loops: made of records, checked when read, and what is fitted to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aten_overrides._errors import UserError
from aten_overrides._loops import LoopQuestion
from aten_overrides._names import DTYPES
from aten_overrides.tables.loops import fit, gains, generate, patch, predict
from aten_overrides.tables.loops import table as tables
from aten_overrides.tables.loops.table import LoopTable, Point

META = {
    "gpu": "NVIDIA X1",
    "command": "c",
    "commit": "1",
    "date": "2026-11-30",
    "driver": "1",
    "torch": "2.11.0",
    "cuda": "13.0",
    "cublas": "13",
    "cusolver": "12",
}


def row(op: str, batch: int, n: int, backend: str, ms: float, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"op": op, "dtype": "float32", "batch": batch, "m": n, "n": n}
    return found | {"nrhs": 0, "backend": backend, "ms": ms, "spread": [ms, ms]} | more


def write(path: Path, points: list[dict[str, Any]], **meta: str) -> Path:
    path.write_text(json.dumps({"meta": META | meta, "points": points, "checks": []}))
    return path


def test_a_record_becomes_a_table_and_back(tmp_path: Path) -> None:
    first = write(
        tmp_path / "one.json",
        [
            row("geqrf", 4, 64, "looped_cusolver", 4.0),
            row("geqrf", 4, 64, "streamed_cusolver", 2.0, lanes=2),
            row("geqrf", 4, 64, "streamed_cusolver", 1.0, lanes=4),
            row("geqrf", 4, 64, "streamed_cusolver", 1.0, lanes=16),  # not one of WAYS
            row("geqrf", 4, 64, "batched_cublas", 9.0),
            row("geqrf", 4, 64, "stock", 9.5, preference="default"),
            row("potrs", 4, 64, "stock", 2.0, preference="cusolver", nrhs=64),
            row("gesvd", 4, 64, "looped_cusolver", 2.0),
        ],
    )
    second = write(tmp_path / "two.json", [row("geqrf", 4, 64, "looped_cusolver", 3.0)])
    found = tables.from_records([first])
    assert [(p.routine, p.columns) for p in found.points] == [
        ("geqrf", "none"),
        ("potrs", "square"),
    ]
    assert found.points[0].ms == {
        "looped": 4.0, "streamed2": 2.0, "streamed4": 1.0, "batched": 9.0, "stock": 9.5
    }  # fmt: skip
    assert found.points[1].ms == {"stock_cusolver": 2.0}
    path = tmp_path / "table.json"
    path.write_text(tables.render(found))
    again = tables.load(path)
    assert again.points == found.points and again.meta == found.meta
    later = tables.from_records([first, second])
    assert later.points[0].ms == {"looped": 3.0}
    other = write(tmp_path / "three.json", [row("geqrf", 4, 64, "stock", 1.0)], gpu="NVIDIA Y")
    with pytest.raises(UserError, match="a point lacks 'preference'"):
        tables.from_records([other])
    other = write(tmp_path / "four.json", [row("geqrf", 4, 64, "looped_cusolver", 1.0)], gpu="Y")
    with pytest.raises(UserError, match="one machine"):
        tables.from_records([first, other])
    empty = write(tmp_path / "five.json", [row("gesvd", 4, 64, "looped_cusolver", 1.0)])
    with pytest.raises(UserError, match="no times of the loops"):
        tables.from_records([empty])


@pytest.mark.parametrize(
    "change", [{"routine": "getrf"}, {"dtype": "int"}, {"batch": 0}, {"ms": {"x": 1}}, {"ms": None}]
)
def test_a_wrong_table_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    point = {"routine": "geqrf", "dtype": "float32", "batch": 4, "n": 64, "nrhs": 0, "ms": {}}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"format": 1, "gpu": "x", "meta": {}, "points": [point | change]}))
    with pytest.raises(UserError, match="is wrong"):
        tables.load(path)
    assert tables.load(tmp_path / "none.json") == LoopTable(path=tmp_path / "none.json")


def point(batch: int, n: int, **ms: float) -> Point:
    return Point("geqrf", "float32", batch, n, 0, ms)


def test_intervals_follow_the_times() -> None:
    """Ahead at small batches and large n; nothing where torch is, with a row that says so."""
    points = tuple(
        point(
            batch,
            n,
            looped=0.1 * batch,
            streamed2=0.06 * batch,
            streamed4=0.03 * batch,
            batched=n**2 * 1e-4 + 0.01,
        )
        for batch in (4, 16, 64)
        for n in (32, 64, 128)
    )
    loop = fit.intervals_of(points, "loop")
    assert loop == (fit.Interval(2, 32, fit.NEVER_ENDS, "streamed_cusolver"),)
    found = fit.intervals_of(points, "batched_cublas")
    assert fit.choose(found, 4, 32) == "stock"  # 0.112 against 0.12: less than 10 % ahead
    assert fit.choose(found, 4, 64) == "streamed_cusolver"  # 0.42, and the loop takes 0.4
    assert fit.choose(found, 4, 128) == fit.choose(found, 4, 4000) == "looped_cusolver"
    assert fit.choose(found, 16, 64) == "stock" and fit.choose(found, 16, 128) != "stock"
    assert fit.choose(found, 64, 128) == fit.choose(found, 10**6, 128) == "stock"
    assert found[-1].to_n == 0
    assert fit.choose(found, 3, 128) == fit.choose(found, 1, 128) == "stock"
    borders = [i.from_n for i in found if i.batch == 4]
    assert borders == [fit.between(32, 64), fit.between(64, 128)]


def test_a_loop_that_was_not_measured_grows_with_the_batch() -> None:
    points = (
        point(4, 64, looped=1.0, streamed2=0.5, streamed4=0.25, batched=4.0),
        point(64, 64, batched=4.1),
        point(256, 64, batched=4.2),
    )
    found = fit.intervals_of(points, "batched_cublas")
    assert fit.choose(found, 16, 64) == "streamed_cusolver"
    assert fit.choose(found, 64, 64) == "stock"  # 64 * 0.0625 = 4.0: not 10 % ahead
    assert fit.choose(found, 4, 64) == "looped_cusolver"


def test_an_empty_table_leaves_all_to_torch() -> None:
    assert fit.fit(LoopTable()) == {}
    text = generate.header(LoopTable())
    assert "kIntervalCount = 0" in text and "Nothing has been measured" in text


def test_times_between_the_measured_ones() -> None:
    table = LoopTable(points=(point(4, 64, looped=1.0), point(4, 256, looped=4.0)))
    asked = LoopQuestion("geqrf", "float32", 4, 128, 128)
    assert predict.predict(table, asked, "loop", "stock") == pytest.approx(2.0)
    assert predict.predict(table, asked, "loop", "looped_cusolver") == pytest.approx(2.0)
    assert predict.predict(table, asked, "loop", "streamed_cusolver") is None
    larger = LoopQuestion("geqrf", "float32", 8, 128, 128)
    assert predict.predict(table, larger, "loop", "stock") is None


def test_the_readme_states_the_records() -> None:
    folder = tables.FOLDER.parents[2] / "test" / "gpu" / "records"
    records = [folder / name for name in str(tables.load().meta["record"]).split(", ")]
    text = (tables.FOLDER / "README.md").read_text(encoding="utf-8")
    assert "\n".join(gains.rows(records)) in text


def test_the_generator_writes_and_compares(tmp_path: Path) -> None:
    record = write(
        tmp_path / "r.json",
        [
            row("geqrf", 4, 64, "looped_cusolver", 4.0),
            row("geqrf", 4, 64, "streamed_cusolver", 1.0, lanes=4),
        ],
    )
    table, header = tmp_path / "t.json", tmp_path / "h.h"
    given = ["--record", str(record), "--table", str(table), "--output", str(header)]
    assert generate.main([*given, "--check"]) == 2  # nothing there to compare with
    assert generate.main([*given, "--write"]) == 0
    assert generate.main([*given, "--check"]) == 0
    header.write_text("other")
    assert generate.main([*given, "--check"]) == 1


def test_both_headers_are_those_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().out.count("up to date") == 2
    assert generate.PATCH.parent.name == "linalg" and generate.HEADER.parent.name == "select"


def test_a_patch_header_that_differs_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "LoopThresholds.h"
    other.write_text(generate.PATCH.read_text().replace("Geqrf, 64,", "Geqrf, 65,"))
    assert generate.main(["--patch-output", str(other), "--check"]) == 1
    assert "differs from what is generated" in capsys.readouterr().err


def gain(times: float, n: int = 64, batch: int = 4, pair: float | None = 2.0) -> list[patch.Gain]:
    return [patch.Gain(dtype, batch, n, times, pair) for dtype in DTYPES]


def test_the_patches_thresholds() -> None:
    never = patch.NEVER
    assert patch.threshold_of(gain(1.05)) == never
    assert patch.threshold_of(gain(1.2)) == patch.Threshold(64, 2, patch.ANY)
    assert patch.threshold_of(gain(1.2, pair=1.0)) == patch.Threshold(64, 4, patch.ANY)
    assert patch.threshold_of(gain(1.2, pair=None)) == patch.Threshold(64, 2, patch.ANY)
    assert patch.threshold_of(gain(1.0) + gain(2.0, n=128)).least_n == 128
    assert patch.threshold_of(gain(2.0) + gain(1.0, n=128)) == never
    some = [g for g in gain(2.0, n=32) if g.dtype == "float32"]  # not every dtype
    assert patch.threshold_of(some + gain(2.0)).least_n == 64
    behind = gain(2.0) + gain(0.5, batch=64)
    assert patch.threshold_of(behind) == patch.Threshold(64, 2, 4)
    one_bad = [*gain(3.0), patch.Gain("float32", 4, 64, 0.8, 2.0)]
    assert patch.threshold_of(one_bad) == never


def test_a_patch_header_without_a_table_has_no_loop_on() -> None:
    from aten_overrides.tables.eigh.table import load

    text = patch.header("m", LoopTable(), load())
    rows = [line for line in text.splitlines() if line.startswith("    {Loop::")]
    assert len(rows) == len(patch.LOOPS)
    assert all("kNever, kNever, kAny}," in line for line in rows)
    assert "Nothing has been measured yet" in text
