"""part_magma runs to its end on the stand-in, and tells wrong factors and a missing route."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from test_overrides_parts import Fixture, failures, names, parts, points  # noqa: E402, F401

pytestmark = pytest.mark.wheel


@pytest.fixture
def ready(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    """The part with small shapes, on a library that takes stock's route."""
    part = parts.part("part_magma")
    monkeypatch.setattr(part, "SHAPES", ((5, 6, 6), (5, 7, 4)))
    monkeypatch.setattr(part, "TIMED", ((4, 6, 6),))
    monkeypatch.setattr(part, "MOST", 1e9)
    tables: list[object] = []
    monkeypatch.setattr(parts.library, "call", lambda name, *given: tables.append(given))
    parts.library.choice = "stock"
    parts.session.torch.cuda.has_magma = True
    text = "error 0.01\nsaid linalg.lu_factor: MAGMA's factors may be wrong\n"
    monkeypatch.setattr(parts.part("common"), "script", lambda *_, **__: ("", text))
    return parts


def test_all_checks_pass(ready: Fixture) -> None:
    rows = ready.run("part_magma")
    assert not failures(rows)
    assert names(rows) == {
        "MAGMA: zero pivot",
        "MAGMA: sync debug mode",
        "MAGMA: no memory for the copy",
    }
    rows = ready.run("part_magma", "costs")
    assert not failures(rows) and names(rows) == {"MAGMA: cost of the copy"}
    assert {p["backend"] for p in points(rows)} == {"stock", "choice"}
    assert ready.library.forced["lu_factor"] is None


def test_wrong_factors_a_changed_neighbour_and_another_route_are_seen(
    ready: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ready.session.torch.linalg.lu_factor_ex
    bad = {"MAGMA: zero pivot"}

    def seen() -> set[str]:
        rows = ready.run("part_magma")
        return {str(row["name"]) for row in rows if row.get("result") == "fail"}

    def nan(a: Any) -> Any:  # as MAGMA does
        lu, pivots, info = right(a)
        lu[info > 0] = float("nan")
        return lu, pivots, info

    monkeypatch.setattr(ready.session.torch.linalg, "lu_factor_ex", nan, raising=False)
    assert seen() == bad
    calls = [0]

    def neighbour(a: Any) -> Any:
        calls[0] += 1
        lu, pivots, info = right(a)
        lu[0] *= 1 + 1e-6 * (calls[0] % 3)
        return lu, pivots, info

    monkeypatch.setattr(ready.session.torch.linalg, "lu_factor_ex", neighbour, raising=False)
    assert seen() >= bad
    monkeypatch.delattr(ready.session.torch.linalg, "lu_factor_ex")
    ready.library.choice = "looped_cusolver"
    assert seen() == bad


def test_without_magma_it_is_skipped(ready: Fixture) -> None:
    ready.session.torch.cuda.has_magma = False
    for function in ("run", "costs"):
        rows = ready.run("part_magma", function)
        assert [row["result"] for row in rows] == ["skip"]


def test_no_memory_needs_the_warning(ready: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    common = ready.part("common")
    monkeypatch.setattr(common, "script", lambda *_, **__: ("", "error 0.01\nsaid nothing\n"))
    rows = ready.run("part_magma")
    assert len(failures(rows)) == 1 and "no memory" in failures(rows)[0]
