"""The process that loads the library: timing with a stand-in for torch and a GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from aotools import plot, quickstart_child


class Library:
    """A loaded library that knows whose functions torch would call."""

    def __init__(self) -> None:
        self.owner = "patched"

    def restore(self) -> None:
        self.owner = "stock"

    def install(self) -> None:
        self.owner = "patched"


class Gpu:
    """A clock that `solve_ex` advances: the loop from n = 512 on, with the stock library alone."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.now = 0.0
        self.preference = 0
        self.preferences: list[int] = []

    def solve_ex(self, a: tuple[int, int, int], b: tuple[int, int, int]) -> None:
        batch, n, _ = a
        assert b == (batch, n, 1)
        looped = self.library.owner == "stock" and self.preference == 1 and n >= 512
        self.now += batch * (2.0 if looped else 0.5)

    def prefer(self, value: int) -> None:
        self.preference = value
        self.preferences.append(value)

    def torch(self) -> Any:
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = gpu.now

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, end: Event) -> float:
                return end.at - self.at

        return SimpleNamespace(
            __version__="2.11.0+cu130",
            randn=lambda *shape, device: shape,
            linalg=SimpleNamespace(solve_ex=self.solve_ex),
            cuda=SimpleNamespace(Event=Event, get_device_name=lambda: "Some GPU"),
            _C=SimpleNamespace(_LinalgBackend=int, _set_linalg_preferred_backend=self.prefer),
        )


def test_measures_both_libraries_at_each_point(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    gpu = Gpu(library)
    torch = gpu.torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    meta, points = quickstart_child._measure(torch, library)  # type: ignore[arg-type]
    assert (meta["gpu"], meta["torch"]) == ("Some GPU", "2.11.0+cu130")
    cliff = plot.read_cliff(meta, points)
    assert plot.steps(cliff.panels["cusolver"], "stock") == dict.fromkeys((1, 4, 16, 64, 256), 4.0)
    assert plot.steps(cliff.panels["cusolver"], "patched") == dict.fromkeys((1, 4, 16, 64, 256), 1)
    assert plot.steps(cliff.panels["default"], "stock") == dict.fromkeys((1, 4, 16, 64, 256), 1)
    # Everything is left as it was found.
    assert library.owner == "patched"
    assert gpu.preferences == [1, 0, 0]
