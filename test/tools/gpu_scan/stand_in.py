"""A stand-in for the GPU and for time: calls take what they cost, and no one waits."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from aten_overrides.scan import run as scanning
from aten_overrides.scan import sides
from aten_overrides.scan.backends import Alternative
from aten_overrides.scan.kernels import Bar, Trace
from aten_overrides.scan.target import Measured, Target

OVERHEAD = 2e-4  # seconds of a call outside of what the clock sees
PROFILE = 0.4  # seconds of a trace, and as much again for ten thousand kernels


class Time:
    """Seconds since the test began; ``time``'s clocks read it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        for name in ("monotonic", "perf_counter", "time"):
            monkeypatch.setattr(time, name, lambda: self.now)


class Clock:
    """Takes what a call returns for its seconds, with noise, and lets so much time pass."""

    name = "cuda"

    def __init__(self, passing: Time) -> None:
        self._time = passing
        self._random = random.Random(7)

    def warm(self, call: Callable[[], Any]) -> float:
        self._time.now += call() + OVERHEAD
        return self.seconds(call, 0.0) + OVERHEAD

    def seconds(self, call: Callable[[], Any], estimate: float) -> float:
        taken = float(call()) * self._random.lognormvariate(0, 0.01)
        self._time.now += taken + OVERHEAD
        return taken


class Gpu:
    """Scans measure ``cost(target, n)`` seconds; ``way`` is the other back end that is entered."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, cost: Callable[[Target, int], float]
    ) -> None:
        self.time = Time(monkeypatch)
        self.factor = 1.0
        self._cost = cost
        self.torch = SimpleNamespace(
            cuda=SimpleNamespace(has_magma=True, is_initialized=lambda: False)
        )
        for module in (scanning, sides):
            monkeypatch.setattr(module, "measured", self.measured)
            monkeypatch.setattr(module, "surroundings", lambda target: contextlib.nullcontext())
        monkeypatch.setattr(sides, "alternatives", self.alternatives)
        monkeypatch.setattr(sides, "profile_call", self.profile_call)
        monkeypatch.setattr(sides, "chosen_backend", lambda *arguments: "a back end")

    def measured(self, target: Target, torch: Any, clock: str = "auto") -> Measured:
        def prepare(n: int) -> Callable[[], float]:
            return lambda: self.factor * self._cost(target, n)

        return Measured(self.torch, prepare, Clock(self.time), lambda n: float(n) ** 3)

    def alternatives(self, target: Target, torch: Any) -> tuple[list[Alternative], str]:
        ways = {"overrides": 0.1, "stock, cusolver": 1.0, "stock, magma": 5.0, "overrides, a": 0.3}
        made = [Alternative(name, partial(self._enter, value)) for name, value in ways.items()]
        return made, ""

    @contextlib.contextmanager
    def _enter(self, factor: float) -> Iterator[None]:
        self.factor = factor
        try:
            yield
        finally:
            self.factor = 1.0

    def profile_call(self, torch: Any, call: Callable[[], Any], cuda: bool) -> Trace:
        taken = float(call())
        kernels = max(1, int(taken * 1e6 / 5))
        self.time.now += taken + PROFILE * (1 + kernels / 10_000)
        bars = (Bar(0.0, taken * 1e6, "getf2", 0),)
        return Trace("kernels", kernels, taken * 1e6, (("getf2", kernels, taken * 1e6),), bars)
