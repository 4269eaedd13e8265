"""A look at sizes side by side, on stand-ins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from aten_overrides.scan import sides
from aten_overrides.scan.backends import Alternative
from aten_overrides.scan.kernels import Bar, Trace
from aten_overrides.scan.sides import look
from aten_overrides.scan.target import Measured, Target

TARGET = Target(op="eigh", batch=64)


class Clock:
    name = "cuda"

    def warm(self, call: Callable[[], Any]) -> float:
        return float(call())

    def seconds(self, call: Callable[[], Any], estimate: float) -> float:
        return float(call())


def curve(target: Target = TARGET) -> Measured:
    """A call takes one second per matrix and thousandth of its size."""
    return Measured(
        SimpleNamespace(),
        lambda n: lambda: target.batch * (1 if n > 32 else 0.1) * 1e-3,
        Clock(),
        None,
    )


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of the calls that were traced; a kernel a millisecond."""
    calls: list[float] = []

    def profile_call(torch: Any, call: Callable[[], Any], cuda: bool) -> Trace:
        calls.append(call())
        count = max(1, round(calls[-1] * 1e3))
        bars = (Bar(0.0, calls[-1] * 1e6, "syevd", 0),)
        return Trace("kernels", count, 1.0, (("syevd", count, 1.0),), bars)

    monkeypatch.setattr(sides, "profile_call", profile_call)
    monkeypatch.setattr(sides, "measured", lambda target, torch, clock: curve(target))
    ways = [Alternative("stock, cusolver", contextlib.nullcontext)]
    monkeypatch.setattr(sides, "alternatives", lambda target, torch: (ways, ""))
    return calls


def test_both_sides(traced: list[float]) -> None:
    found = look(curve(), TARGET, {32: 0.0064, 33: 0.064}, lambda: 1.0)
    assert [one.side.chosen for one in found] == ["cuSOLVER or cuBLAS, once per matrix"] * 2
    assert [one.side.times for one in found] == [
        pytest.approx({"stock, cusolver": 6.4}),
        pytest.approx({"stock, cusolver": 64.0}),
    ]
    assert traced == pytest.approx([0.0064, 0.064, 0.0032, 0.0064, 0.032, 0.064])


def test_what_is_not_traced_is_said(traced: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    (long,) = look(curve(), TARGET, {33: 0.7}, lambda: 1.0)
    assert long.trace is None and long.side.reason == "not traced: a call takes 0.7 s"
    (late,) = look(curve(), TARGET, {33: 0.064}, lambda: 0.0)
    assert "not traced: no time left" in late.side.reason and late.side.times == {}

    def broken(*arguments: object) -> Trace:
        raise RuntimeError("CUPTI is in use")

    monkeypatch.setattr(sides, "profile_call", broken)
    (failed,) = look(curve(), TARGET, {33: 0.064}, lambda: 1.0)
    assert failed.trace is None and "RuntimeError: CUPTI is in use" in failed.side.reason
    assert failed.side.times == pytest.approx({"stock, cusolver": 64.0})
    bare = Measured(None, lambda n: lambda: 1.0, Clock(), None)
    assert "torch is not in use" in look(bare, TARGET, {33: 1.0}, lambda: 1.0)[0].side.reason
