"""part_lu_solve runs to its end on the stand-in, and tells wrong answers and other routes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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


def test_goals(ready: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each of what is asked; the rows fail where the times ask for it."""
    part = ready.part("part_lu_solve_goals")
    monkeypatch.setattr(part, "SHAPES", {"float32": ((16, 64), (16, 65)), "float64": ((2, 8),)})
    monkeypatch.setattr(part, "STEPS", {"rows": (((16, 64), (16, 65)), ((1, 1), (2, 2)))})
    monkeypatch.setattr(part, "TRAPS", ((2, 8),))
    times: Iterator[float] = itertools.repeat(1.0)

    def brief(session: Any, call: Any, best: float | None) -> list[float]:
        call()
        return [next(times)]

    monkeypatch.setattr(part, "brief", brief)

    def run() -> tuple[list[Any], set[tuple[str, str]]]:
        rows = ready.run("part_lu_solve_goals", "goals")
        failed = [row for row in rows if row.get("result") == "fail"]
        return rows, {(row["name"], row["params"].get("what", "")) for row in failed}

    rows, failed = run()
    assert {p["op"] for p in points(rows)} == {"lu_factor_ex", "solve_ex", "inv_ex"}
    whats = [row["params"]["what"] for row in rows if row.get("name") == "goal"]
    assert len(whats) == 3 * 3 + 2
    steps = [row["params"] for row in rows if row.get("name") == "step"]
    assert {row["kind"] for row in steps} == {"rows", "right-hand sides"} and len(steps) == 4
    # Not three times as fast as stock, if all takes as long.
    assert failed == {("goal", "solve_ex, mean over stock"), ("goal", "inv_ex, mean over stock")}
    times = iter(1.7**i for i in range(10**6))
    failed = run()[1]
    assert {name for name, _ in failed} == {"goal", "step", "cusolver, many right-hand sides"}
    assert ("goal", "solve_ex beside LU") in failed and ("goal", "inv_ex beside LU") in failed
