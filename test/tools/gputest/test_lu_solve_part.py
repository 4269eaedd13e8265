"""part_lu_solve runs to its end on the stand-in, and tells wrong answers and other routes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fake_overrides  # noqa: E402
from test_overrides_parts import Fixture, failures, names, parts, points  # noqa: E402, F401

from aten_overrides._names import LU_SOLVE_BACKENDS  # noqa: E402

pytestmark = pytest.mark.wheel


@pytest.fixture
def ready(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    """The stand-in with all routes of lu_solve."""
    monkeypatch.setattr(fake_overrides, "ROUTES", LU_SOLVE_BACKENDS)
    cuda = parts.session.torch.cuda
    for name in ("reset_peak_memory_stats", "memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(cuda, name, lambda *_: 0, raising=False)
    return parts


def test_checks_pass_and_see_faults(ready: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    part = ready.part("part_lu_solve")
    monkeypatch.setattr(part, "SHAPES", ((1, 1, 1), (3, 5, 2), (2, 9, 9)))
    monkeypatch.setattr(part, "COLUMNS", 300)
    for dtype in ("float32", "complex64"):
        rows = ready.run("part_lu_solve", "correct", dtypes=[dtype])
        assert not failures(rows)
        assert {"routes", "shared factors", "capture, bits, bad items"} <= names(rows)
    assert {row["params"]["route"] for row in rows if row["name"] == "routes"} == set(part.ROUTES)

    wrong = part.solve
    monkeypatch.setattr(part, "solve", lambda *given: wrong(*given) * 1.01)
    assert len(failures(ready.run("part_lu_solve", "correct", dtypes=["complex64"]))) >= 10
    monkeypatch.setattr(part, "solve", wrong)
    monkeypatch.setattr(ready.library, "note", lambda name: None)
    rows = ready.run("part_lu_solve", "correct", dtypes=["complex64"])
    assert {row["name"] for row in rows if row["result"] == "fail"} == {"routes"}


def test_grid_and_goals_write_points(ready: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    part = ready.part("part_lu_solve")
    monkeypatch.setattr(part, "BATCHES", (1, 8))
    grids = [
        {"dtype": "float32", "operations": ["T", "N"], "columns": [1, 0], "seconds": 60},
        {"dtype": "complex64", "operations": ["C"], "columns": [3], "seconds": 0},
    ]
    rows = ready.run("part_lu_solve", "grid", grids=[{**grid, "sizes": [4, 64]} for grid in grids])
    found = points(rows)
    assert {(p["batch"], p["n"], p["nrhs"], p["operation"]) for p in found} == {
        (b, n, k, how) for b in (1, 8) for n in (4, 64) for k in (1, n) for how in "TN"
    }
    assert {p["backend"] for p in found} == set(part.ROUTES)
    assert [row["value"]["problems"] for row in rows if row.get("name") == "grid"] == [8, 0]

    monkeypatch.setattr(part, "GOALS", {"float64": ((2, 8),)})
    rows = ready.run("part_lu_solve", "goals")
    assert {p["op"] for p in points(rows)} == {"lu_factor_ex", "solve_ex", "inv_ex"}
    assert [row["name"] for row in rows if "result" in row] == ["goal"]
