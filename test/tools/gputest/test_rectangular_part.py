"""part_rectangular runs to its end on the stand-in, and tells wrong factors and slow choices."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from test_overrides_parts import Fixture, failures, parts, points  # noqa: E402, F401

pytestmark = pytest.mark.wheel


@pytest.fixture
def ready(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    """The part with small shapes."""
    part = parts.part("part_rectangular")
    monkeypatch.setattr(part, "RECTANGULAR", ((6, 3), (3, 6)))
    monkeypatch.setattr(part, "SQUARE", (5,))
    monkeypatch.setattr(part, "BATCHES", (4, 1, 20))
    monkeypatch.setattr(part.problems, "__defaults__", ((4, 1, 20),))
    monkeypatch.setattr(part, "JITTER_MS", 1e9)  # the stand-in's times mean nothing
    monkeypatch.setattr(part, "over", lambda times, of: [2.0 for _ in times])
    return parts


def grid(ready: Fixture, dtype: str = "complex64", seconds: float = 60) -> list[dict[str, Any]]:
    return ready.run("part_rectangular", grids=[{"dtype": dtype, "seconds": seconds}])


def test_every_way_of_every_point_is_timed_and_checked(ready: Fixture) -> None:
    rows = grid(ready)
    assert not failures(rows)
    found = points(rows)
    ways = {(p["library"], p["backend"], p["preference"]) for p in found}
    assert ways == {
        ("overrides", "choice", "default"),
        ("overrides", "choice", "cusolver"),
        ("stock", "stock", "default"),
        ("stock", "stock", "cusolver"),
        ("overrides", "streamed_cusolver", "default"),
        ("overrides", "looped_cusolver", "default"),
        ("overrides", "batched_cublas", "default"),
    }
    assert {(p["batch"], p["m"], p["n"], p["pivot"]) for p in found} == {
        (batch, m, n, m != n) for batch in (4, 1, 20) for m, n in ((6, 3), (3, 6), (5, 5))
    }
    assert {p["m"] for p in found if p["backend"] == "batched_cublas"} == {5}
    assert 1 not in {p["batch"] for p in found if p["backend"] == "streamed_cusolver"}
    values = {row["name"]: row["value"] for row in rows if "result" in row}
    assert values["residual, pivots, info"]["points"] == 9
    assert not ready.library.ours and ready.session.torch.preferred == "default"


def test_a_grid_without_time_has_measured_nothing_and_fails(ready: Fixture) -> None:
    rows = grid(ready, seconds=0)
    assert len(failures(rows)) == 3 and not points(rows)


@pytest.mark.parametrize("kind", ["factors", "pivots", "info", "raises"])
def test_wrong_results_are_seen(ready: Fixture, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    right = ready.session.torch.linalg.lu_factor_ex

    def wrong(a: Any, **given: Any) -> Any:
        if kind == "raises" and ready.library.ours:
            raise RuntimeError("no such shape")
        lu, pivots, info = right(a, **given)
        if kind == "factors":
            lu[..., -1, -1] += 1
        elif kind == "pivots":
            pivots = torch.zeros_like(pivots)
        else:
            info = info + 1
        return lu, pivots, info

    monkeypatch.setattr(ready.session.torch.linalg, "lu_factor_ex", wrong, raising=False)
    rows = grid(ready, "float64")
    assert "residual, pivots, info" in {row["name"] for row in rows if row.get("result") == "fail"}


def test_the_summary_counts_slow_choices_and_names_the_best(parts: Fixture) -> None:  # noqa: F811
    part = parts.part("part_rectangular")
    found = part.Found()
    for batch, choice, native in ((4, 1.0, 1.0), (16, 1.3, 1.0), (64, 0.0103, 0.0090)):
        found.times[part.Problem("float32", 6, 3, batch, True)] = {
            "choice": choice,
            "batched_native": native,
            "stock": 4.0,
            "looped_cusolver": 2.0,
            "choice, cusolver": 0.5,
        }
    part.summary(parts.session, found, "float32", 7)
    rows = parts.run("part_rectangular", grids=[])
    first, second, third = rows
    assert first["result"] == "fail" and first["reason"].startswith("worst 1.30 at (16, 6, 3)")
    assert first["value"]["over 1.10 of the best"] == ["1.30 (16, 6, 3) batched_native"]
    assert first["value"]["points"] == 3 and first["value"]["least"] == round(4 / 1.3, 3)
    expected = (2 / 1.0 * 2 / 1.3 * 2 / 0.0103) ** (1 / 3)
    assert first["value"]["over the best rival"] == pytest.approx(expected, rel=1e-3)
    assert first["value"]["over stock, cusolver"] is None
    assert second["result"] == "fail" and second["value"]["points"] == 0  # nothing measured
    assert third["result"] == "pass"


def test_a_loop_foreseen_to_be_slow_is_left_out(ready: Fixture) -> None:
    part = ready.part("part_rectangular")
    library = ready.part("common").enable()
    found = part.Found()
    found.each["looped_cusolver", 6, 3, True] = 1e6
    part.point(ready.session, library, found, part.Problem("float32", 6, 3, 4, True))
    assert found.left_out == 1
    ways = {p["backend"] for p in points(ready.run("part_rectangular", grids=[]))}
    assert "looped_cusolver" not in ways and "streamed_cusolver" in ways


def test_all_points_fit_the_byte_cap_and_the_jobs_the_time(parts: Fixture) -> None:  # noqa: F811
    part = parts.part("part_rectangular")
    run = parts.part("run_rectangular")
    for dtype in parts.part("common").DTYPES:
        asked = list(part.problems(dtype))
        assert len(asked) == len(set(asked)) > 80
        assert {(p.m > p.n) - (p.m < p.n) for p in asked if p.pivot} == {1, -1}
        assert all(p.m == p.n for p in asked if not p.pivot)
    jobs = run.jobs(1.0)
    assert sum(job.seconds for job in jobs) <= 80
    assert sum(each["seconds"] for job in jobs for each in job.options["grids"]) <= 70
