"""The README's tables on the package, from made-up records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotools import package_tables, readme

META = {
    "gpu": "Fake GPU",
    "driver": "1",
    "torch": "2.11.0",
    "date": "2026-01-02",
    "command": "tools/x --options",
}


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "test/gpu/records"
    folder.mkdir(parents=True)
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "RECORDS", folder)
    return folder


def write(folder: Path, topic: str, points: list[dict[str, object]]) -> None:
    data = {"meta": META | {"topic": topic}, "points": points, "checks": []}
    (folder / f"{topic}-fake.json").write_text(json.dumps(data))


def solve(library: str, ms: float, **more: object) -> dict[str, object]:
    point = {"op": "solve_ex", "dtype": "float32", "n": 512, "batch": 64, "preference": "default"}
    return point | {"library": library, "ms": ms} | more


def lu(backend: str, ms: float, **more: object) -> dict[str, object]:
    point = {"op": "lu_factor", "dtype": "float32", "m": 64, "n": 64, "batch": 4, "pivot": True}
    return point | {"backend": backend, "ms": ms} | more


def test_solve_table(records: Path) -> None:
    assert package_tables.solve_table() == readme.NO_RECORD
    others = [solve("stock", 99.0, preference="cusolver"), solve("stock", 98.0, n=511)]
    alone = [solve("stock", 3.0, batch=16)]
    write(records, "overrides", [solve("stock", 8.0), solve("overrides", 2.0), *others, *alone])
    text = package_tables.solve_table()
    assert "| float32 | 64 | 8.00 | 2.00 | 4.0x |" in text
    assert "99" not in text and "| 16 |" not in text
    assert "made by `tools/x`" in text


def test_native_table(records: Path) -> None:
    assert package_tables.native_table() == readme.NO_RECORD
    write(
        records,
        "calibrate",
        [
            *(lu("batched_native", 0.5), lu("batched_cublas", 1.0), lu("stock", 3.0)),
            *(lu("batched_native", 0.5, n=16, m=16), lu("batched_cublas", 4.0, n=16, m=16)),
            *(lu("batched_native", 1.0, n=8, m=8), lu("batched_cublas", 0.1, n=8, m=8)),
            lu("batched_native", 1.0, batch=64),
            *(lu("batched_native", 9.0, pivot=False), lu("batched_cublas", 1.0, pivot=False)),
        ],
    )
    text = package_tables.native_table()
    assert "| 64 |  | 0.500 (2.0x) |  |" in text
    # n = 8 is no part of the mean, problems without a rival and without pivoting neither.
    assert "float32 4.00x over 2 problems (least 2.00x)" in text


def test_lu_solve_table(records: Path) -> None:
    assert package_tables.lu_solve_table() == readme.NO_RECORD
    at: dict[str, object] = {"dtype": "float32", "n": 64, "batch": 4}
    whole = [
        at | {"op": "lu_factor_ex", "backend": "choice", "nrhs": 0, "ms": 0.5},
        at | {"op": "solve_ex", "backend": "choice", "nrhs": 1, "ms": 1.0},
        at | {"op": "solve_ex", "backend": "choice", "nrhs": 3, "ms": 77.0},
        at | {"op": "solve_ex", "backend": "stock", "nrhs": 1, "ms": 4.0},
        at | {"op": "inv_ex", "backend": "choice", "nrhs": 64, "ms": 2.0},
        at | {"op": "inv_ex", "backend": "stock", "nrhs": 64, "ms": 3.0},
    ]
    without_stock = [row | {"n": 128} for row in whole if row["backend"] == "choice"]
    write(records, "lu-solve", [*whole, *without_stock, *(row | {"n": 65} for row in whole)])
    text = package_tables.lu_solve_table()
    assert "| 64 | 4 | 0.500 | 1.00 (4.0x) | 2.00 (1.5x) |" in text
    assert "77" not in text and "128" not in text and "65" not in text
