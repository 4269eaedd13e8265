"""A clock for tests: a call returns how long it takes, and nothing waits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


class FakeClock:
    """Takes what a call returns for its seconds, with noise."""

    name = "wall"

    def __init__(self, noise: float = 0.01, seed: int = 3) -> None:
        self._random = random.Random(seed)
        self._noise = noise

    def warm(self, call: Call) -> float:
        return float(call())

    def seconds(self, call: Call, estimate: float) -> float:
        return float(call()) * self._random.lognormvariate(0, self._noise)
