"""The table's file: made from the record, and checked when read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aten_overrides._errors import UserError
from aten_overrides.tables import build
from aten_overrides.tables.table import FOLDER, find, load

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "test/gpu/records/library-grid-nvidia-h200-torch2.11.0.json"


def valid() -> dict[str, Any]:
    """A small valid table."""
    return {
        "format": 1,
        "gpu": {"name": "Fake GPU", "compute_capability": "9.0", "sm_count": 3},
        "meta": {"record": "fake.json", "date": "2001-02-03", "torch": "9.9"},
        "lanes": 4,
        "axes": {"lu_factor": {"batch": [1, 2], "n": [8], "rectangular": [[4, 2]]}},
        "points": [
            {"op": "lu_factor", "dtype": "float32", "batch": 1, "m": 8, "n": 8, "pivot": True,
             "ms": {"batched_cublas": 1.0, "looped_cusolver": 2}},
            {"op": "lu_factor", "dtype": "float32", "batch": 2, "m": 4, "n": 2, "pivot": True,
             "ms": {"stock": 0.5}},
        ],
    }  # fmt: skip


def written(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "fake-gpu.json"
    path.write_text(json.dumps(data))
    return path


def test_a_valid_table(tmp_path: Path) -> None:
    table = load(written(tmp_path, valid()))
    assert (table.gpu.name, table.gpu.sm_count, table.lanes) == ("Fake GPU", 3, 4)
    assert table.ops() == ("lu_factor",)
    assert [point.problem.batch for point in table.of("lu_factor", "float32")] == [1, 2]
    assert table.of("lu_factor", "float64") == ()


def change(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """A change of one entry; the path's parts are keys or indices, value ... removes the entry."""

    def apply(data: Any) -> None:
        *parents, last = (int(part) if part.isdigit() else part for part in path.split("/"))
        for parent in parents:
            data = data[parent]
        if value is ...:
            del data[last]
        else:
            data[last] = value

    return apply


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", 2, "'format': must be 1, found 2"),
        ("format", ..., "'format': must be 1, found None"),
        ("gpu", ..., "'gpu' must be of type dict, found missing"),
        ("gpu/sm_count", "3", "'sm_count' must be of type int, found '3'"),
        ("meta/date", ..., "'date' must be of type str"),
        ("lanes", 1, "'lanes': must be between 2 and 1024, found 1"),
        ("lanes", True, "'lanes' must be of type int, found True"),
        ("points", [], "'points': there is none"),
        ("points", {}, "'points' must be of type list"),
        ("points/1", 7, "point 1: must be an object, found 7"),
        ("points/0/op", "qr", "point 0: unknown op 'qr', known: lu_factor"),
        ("points/1/dtype", "float16", "point 1: unknown dtype 'float16'"),
        ("points/0/batch", 0, "point 0: 'batch' must be at least 1, found 0"),
        ("points/0/n", 8.0, "'n' must be of type int, found 8.0"),
        ("points/0/pivot", 1, "'pivot' must be of type bool, found 1"),
        ("points/0/ms", {}, "point 0: 'ms' has no back end"),
        ("points/0/ms/fastest", 1.0, "point 0: unknown back end 'fastest'"),
        ("points/0/ms/stock", "1", "stock: a time must be a number, found '1'"),
        ("points/0/ms/stock", True, "stock: a time must be a number, found True"),
        ("points/0/ms/stock", -1, "stock: a time must be positive, found -1"),
        ("points/0/ms/stock", float("nan"), "stock: a time must be positive, found nan"),
        ("points/0/m", 9, "'axes': does not fit the points of lu_factor"),
        ("axes/lu_factor/n", [8, 9], "'axes': does not fit the points of lu_factor"),
        ("axes/gels", {}, "'axes': does not fit the points of gels"),
    ],
)
def test_a_broken_table_says_where(tmp_path: Path, path: str, value: object, message: str) -> None:
    data = valid()
    change(path, value)(data)
    with pytest.raises(UserError) as caught:
        load(written(tmp_path, data))
    assert message in str(caught.value)
    assert "fake-gpu.json is not valid" in str(caught.value)
    assert "tables/README.md" in str(caught.value)


def test_a_repeated_problem_is_named(tmp_path: Path) -> None:
    data = valid()
    data["points"].append(data["points"][0])
    with pytest.raises(UserError, match="point 2: the same problem as point 0"):
        load(written(tmp_path, data))


@pytest.mark.parametrize("text", ["", "{", "[1]", "\udcff"])
def test_what_is_no_table_at_all(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"bad\.json"):
        load(path)


def test_find_a_table_by_name() -> None:
    expected = FOLDER / "nvidia-h200.json"
    for name in ("h200", "H200", "nvidia-h200", "NVIDIA H200"):
        assert find(name) == expected
    assert find("elsewhere/own.json") == Path("elsewhere/own.json")
    with pytest.raises(UserError, match=r"'voodoo2'; there are tables for nvidia-h200"):
        find("voodoo2")


@pytest.mark.parametrize(
    ("record", "table"),
    [
        (RECORD, FOLDER / "libraries/nvidia-h200.json"),
        (RECORD.with_name("calibrate-nvidia-h200-torch2.11.0.json"), FOLDER / "nvidia-h200.json"),
    ],
)
def test_the_table_is_what_the_record_gives(
    record: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(["--record", str(record), "--output", str(table), "--check"]) == 0
    assert "up to date" in capsys.readouterr().out


def test_the_record_keeps_what_the_table_leaves_out() -> None:
    record = build.read_record(RECORD)
    table = load(FOLDER / "libraries/nvidia-h200.json")
    assert len(table.points) == record["meta"]["problems"]
    in_table = sum(len(point.ms) for point in table.points)
    left_out = [point for point in record["points"] if not build.belongs(point)]
    assert in_table + len(left_out) == len(record["points"])
    assert {(p["backend"], p.get("lanes"), p.get("route")) for p in left_out} == {
        ("streamed_cusolver", 8, None),
        ("stock", None, "cusolver"),
    }


def test_the_record_routes_stock_as_torch_does() -> None:
    """MAGMA unless square and a single matrix, or small, or middling in a small batch."""
    for point in build.read_record(RECORD)["points"]:
        if point["backend"] == "stock":
            m, n, batch = point["m"], point["n"], point["batch"]
            small = m == n and (batch == 1 or m <= 16 or (m <= 128 and batch <= 16))
            assert point["route"] == ("cusolver" if small else "magma")


@pytest.mark.parametrize(
    ("change_of", "message"),
    [
        (("points/0/backend", ...), "point 0 lacks the key 'backend'"),
        (("meta/driver", ...), "'meta' lacks the key 'driver'"),
        (("points", 3), "is not a timing record"),
    ],
)
def test_a_broken_record(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change_of: tuple[str, object],
    message: str,
) -> None:
    record = build.read_record(RECORD)
    record["points"] = record["points"][:3]
    change(*change_of)(record)
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    output = tmp_path / "table.json"
    assert build.main(["--record", str(path), "--output", str(output), "--write"]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_a_repeated_time_in_a_record(tmp_path: Path) -> None:
    record = build.read_record(RECORD)
    record["points"] = [record["points"][0]] * 2
    with pytest.raises(UserError, match="point 1 repeats"):
        build.render(record, tmp_path / "record.json")
