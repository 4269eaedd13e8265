"""Other ways to run a call: stock's preferences, the overrides' routes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aten_overrides._errors import UserError
from aten_overrides.scan import backends
from aten_overrides.scan.backends import Alternative, Side, alternatives, compare
from aten_overrides.scan.search import Skipped
from aten_overrides.scan.target import Target

TORCH = SimpleNamespace(cuda=SimpleNamespace(has_magma=True))


def test_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "routes_of", lambda entry: ["batched_cublas", "looped_cusolver"])
    ways, reason = alternatives(Target(op="solve_ex"), TORCH)
    assert reason == ""
    assert [(way.name, way.entry, way.route) for way in ways] == [
        ("overrides", "", ""),
        ("stock, cusolver", "", ""),  # the default is what is scanned
        ("stock, magma", "", ""),
        ("overrides, lu_factor: batched_cublas", "lu_factor", "batched_cublas"),
        ("overrides, lu_factor: looped_cusolver", "lu_factor", "looped_cusolver"),
        ("overrides, lu_solve: batched_cublas", "lu_solve", "batched_cublas"),
        ("overrides, lu_solve: looped_cusolver", "lu_solve", "looped_cusolver"),
    ]
    ways, _ = alternatives(Target(op="slogdet"), TORCH)
    assert ways[-1].name == "overrides, looped_cusolver"  # one choice, so it is not named
    ways, reason = alternatives(Target(op="svdvals"), TORCH)
    assert len(ways) == 2 and reason == ""
    ways, _ = alternatives(Target(op="svdvals", prefer="cusolver"), TORCH)
    assert [way.name for way in ways] == ["stock, default", "stock, magma"]
    ways, _ = alternatives(Target(op="eigvalsh"), TORCH)
    assert ways[-1].entry == "eigvalsh"  # which has its own choice at eigh's entry
    ways, _ = alternatives(Target(op="solve_ex", overrides=True), TORCH)
    assert [way.name for way in ways][:2] == ["overrides", "stock, default"]
    assert alternatives(Target(path="a:b"), TORCH)[1] == "no other back end is known of a callable"
    assert alternatives(Target(op="qr", device="cpu"), TORCH)[0] == []

    def refused(entry: str) -> list[str]:
        raise UserError("there is no gpu library")

    monkeypatch.setattr(backends, "routes_of", refused)
    ways, reason = alternatives(Target(op="solve_ex"), TORCH)
    assert len(ways) == 2 and reason == "there is no gpu library"


class FakeCurve:
    """Takes the time of the way that is entered."""

    def __init__(self) -> None:
        self.now = 0.0
        self.samples: list[float] = []

    def first(self, size: int) -> float:
        if self.now < 0:
            raise Skipped("out of memory")
        return self.now

    def sample(self, size: int) -> float:
        self.samples.append(self.now)
        return self.now

    def call(self, size: int) -> Any:
        return lambda: None


def way(curve: FakeCurve, name: str, seconds: float, route: str = "") -> Alternative:
    @contextlib.contextmanager
    def enter() -> Iterator[None]:
        curve.now = seconds
        yield

    return Alternative(name, enter, "lu_factor" if route else "", route)


def test_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "routes_taken", lambda call: {"lu_factor": "batched_cublas"})
    curve = FakeCurve()
    ways = [
        way(curve, "a", 0.002),
        way(curve, "slow", 0.2),
        way(curve, "big", -1),
        way(curve, "forced", 0.001, "batched_cublas"),
        way(curve, "refused", 0.0001, "streamed_cusolver"),  # another route ran
    ]
    times, missing = compare(curve, ways, 5, lambda: 1.0)  # type: ignore[arg-type]
    assert times == pytest.approx({"a": 2.0, "slow": 200.0, "forced": 1.0})
    assert missing == "big: out of memory"
    assert curve.samples.count(0.2) == 0 and curve.samples.count(0.002) == 5
    times, _ = compare(curve, ways[1:2], 5, lambda: 0.5)  # type: ignore[arg-type]
    assert times == {"slow": 200.0} and curve.samples.count(0.2) == 0  # five would not fit
    times, missing = compare(curve, ways[:1], 5, lambda: 0.0)  # type: ignore[arg-type]
    assert times == {} and missing == "a: no time left"


def test_what_another_way_does_ends_no_scan() -> None:
    curve = FakeCurve()

    def broken() -> contextlib.AbstractContextManager[None]:
        raise RuntimeError("CUDA error:\n out of memory")

    ways = [Alternative("broken", broken), way(curve, "a", 0.002)]
    times, missing = compare(curve, ways, 5, lambda: 1.0)  # type: ignore[arg-type]
    assert times == {"a": 2.0} and missing == "broken: RuntimeError: CUDA error: out of memory"


def test_the_best_includes_what_was_scanned() -> None:
    assert Side(5, "", 2.0, {"a": 3.0}).best == ("as scanned", 2.0)
    side = Side(5, "MAGMA", 2.0, {"a": 1.0})
    assert side.json()["factor_to_best"] == 2.0 and side.json()["best"] == "a"
