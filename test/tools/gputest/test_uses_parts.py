"""part_uses and part_reports run to their end on the stand-in, and tell wrong results."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fake_overrides  # noqa: E402
from test_overrides_parts import Fixture, failures, names, parts  # noqa: E402, F401

pytestmark = pytest.mark.wheel


@pytest.fixture
def ready(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    """The stand-in with eigh, and processes that succeed."""
    for name in ("eigh", "eigvalsh"):
        monkeypatch.setitem(fake_overrides.COUNTED, name, (name,))
    uses, reports = parts.part("part_uses"), parts.part("part_reports")
    monkeypatch.setattr(uses, "FAKE_SHAPES", ((3, 3), (4, 0, 0)))
    monkeypatch.setattr(uses, "N", 8)
    monkeypatch.setattr(uses, "COMPILED", ())
    monkeypatch.setattr(reports, "EDGES", (9, 10))
    common = parts.part("common")
    monkeypatch.setattr(common, "script", lambda *_, **__: ("", "captured " * 3))
    return parts


def test_uses_pass(ready: Fixture) -> None:
    rows = ready.run("part_uses")
    assert failures(rows) == []
    assert names(rows) == {
        "both derivatives",
        "vmap of each",
        "capture of lu_solve",
        "capture of eigvalsh",
        "as promised",
        "lu_solve of a view",
        "eigh of a view",
        "out= of each",
        "out= is the right-hand side",
        "zero sizes of each",
    }
    assert sum(row["name"] == "both derivatives" for row in rows) == 16


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("lu_solve", {"vmap of each", "lu_solve of a view", "capture of lu_solve"}),
        ("solve", {"both derivatives", "out= is the right-hand side"}),
        ("inv", {"vmap of each", "both derivatives"}),
        ("eigvalsh", {"vmap of each", "both derivatives", "eigh of a view"}),
    ],
)
def test_wrong_results_are_seen(
    ready: Fixture, monkeypatch: pytest.MonkeyPatch, name: str, seen: set[str]
) -> None:
    linalg = ready.session.torch.linalg
    right = getattr(linalg, name)

    def wrong(*given: Any, out: Any = None, **more: Any) -> Any:
        found = right(*given, **more)
        # Wrong by a little, by another amount at another input, and without a derivative.
        found = found + 1e-3 * found.detach() * (1 + given[-1].detach().real.abs().sum() % 1)
        return found if out is None else out.copy_(found)

    monkeypatch.setattr(linalg, name, wrong, raising=False)
    rows = ready.run("part_uses")
    assert seen <= {str(row["name"]) for row in rows if row.get("result") == "fail"}


def test_an_input_that_is_written_is_seen(ready: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    linalg = ready.session.torch.linalg
    right = linalg.lu_solve

    def writes(lu: Any, pivots: Any, b: Any, **more: Any) -> Any:
        found = right(lu, pivots, b, **more)
        if not b.is_conj() and not torch._C._functorch.is_batchedtensor(b) and b.numel():
            b.flatten()[:1].mul_(2) if b.is_contiguous() else b[..., -1, -1].mul_(2)
        return found

    monkeypatch.setattr(linalg, "lu_solve", writes, raising=False)
    rows = ready.run("part_uses")
    assert "lu_solve of a view" in {row["name"] for row in rows if row.get("result") == "fail"}


def test_a_capture_that_fails_is_seen(ready: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    common = ready.part("common")
    monkeypatch.setattr(common, "script", lambda *_, **__: ("exit code 1", "captured: no"))
    rows = ready.run("part_uses")
    assert [row["name"] for row in rows if row["result"] == "fail"] == ["capture of eigvalsh"]


def test_reports_pass_and_see_faults(ready: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ready.run("part_reports")
    assert failures(rows) == []
    assert names(rows) == {
        "info is as U is",
        "tensorinv of an almost singular matrix",
        "solve raises alike",
        "pivot=False with growth",
        "structured and graded",
        "inverse in a loss",
        "derivative of lstsq",
    }
    linalg = ready.session.torch.linalg
    right = linalg.lu_factor_ex

    def wrong(*given: Any, **more: Any) -> Any:
        lu, pivots, info = right(*given, **more)
        return lu * 1.01, pivots, info + 1

    monkeypatch.setattr(linalg, "lu_factor_ex", wrong, raising=False)
    monkeypatch.setattr(linalg, "solve", lambda a, b: b, raising=False)  # raises nowhere
    monkeypatch.setattr(ready.part("common"), "used", lambda *_: {"batched_native"})
    rows = ready.run("part_reports")
    bad = {row["name"] for row in rows if row["result"] in ("fail", "vendor")}
    assert bad == {
        "info is as U is",
        "solve raises alike",
        "pivot=False with growth",
        "structured and graded",
    }


def test_capture_scripts_are_python(parts: Fixture) -> None:  # noqa: F811
    compile(parts.part("part_uses").CAPTURE, "part_uses.CAPTURE", "exec")
