"""A stand-in for torch with a GPU, on the CPU: enough for the parts' scripts to run to their end.

Times are the host's, streams do nothing, a graph replays the LU calls that were made
while capturing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)

    return call


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self, *_: object) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        return None

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3


class Stream:
    def wait_stream(self, _: object) -> None:
        return None

    def synchronize(self) -> None:
        return None


class Linalg:
    """torch.linalg, which notes some calls while a graph captures."""

    capturing: Graph | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.linalg, name)

    def lu_factor_ex(self, a: Any, **kwargs: Any) -> Any:
        return self._noted(torch.linalg.lu_factor_ex, a, **kwargs)

    def lu_solve(self, *args: Any, **kwargs: Any) -> Any:
        return self._noted(torch.linalg.lu_solve, *args, **kwargs)

    def _noted(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        if Linalg.capturing is not None:
            Linalg.capturing.calls.append((lambda: function(*args, **kwargs), out))
        return out


class Graph:
    def __init__(self) -> None:
        self.calls: list[tuple[Callable[[], Any], Any]] = []

    def capture_begin(self, **_: object) -> None:
        Linalg.capturing = self

    def capture_end(self) -> None:
        Linalg.capturing = None

    def replay(self) -> None:
        for call, out in self.calls:
            again = call()
            pairs = (
                [(out, again)] if isinstance(out, torch.Tensor) else zip(out, again, strict=True)
            )
            for old, new in pairs:
                old.copy_(new)


class Cuda:
    def __init__(self) -> None:
        self.allocated = 0
        self.Event = Event
        self.Stream = Stream
        self.CUDAGraph = Graph

    @contextlib.contextmanager
    def stream(self, _: object) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def graph(self, graph: Graph, **_: object) -> Iterator[None]:
        graph.capture_begin()
        yield
        graph.capture_end()

    def synchronize(self) -> None:
        return None

    def current_stream(self) -> Stream:
        return Stream()

    def current_device(self) -> int:
        return 0

    def mem_get_info(self) -> tuple[int, int]:
        return 100 << 30, 140 << 30

    def memory_reserved(self) -> int:
        return 0

    def memory_allocated(self) -> int:
        return 0

    def memory_stats(self, _: int) -> dict[str, int]:
        self.allocated += 4
        return {"allocation.all.allocated": self.allocated}


class Torch:
    """torch with tensors asked for on "cuda" made on the CPU."""

    def __init__(self) -> None:
        self.linalg = Linalg()
        self.cuda = Cuda()
        preference = [0]
        self._C = SimpleNamespace(
            _LinalgBackend=int,
            _set_linalg_preferred_backend=lambda value: preference.__setitem__(0, value),
            _get_linalg_preferred_backend=lambda: preference[0],
        )

    def Generator(self, _: str) -> Any:
        return torch.Generator("cpu")

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch, name)
        return (
            _on_cpu(found)
            if name in ("randn", "eye", "zeros", "empty", "full", "tensor", "arange")
            else found
        )


class Patched:
    """A library with routes whose every route is the CPU's LU; lanes are counted as the real ones
    are.
    """

    has_routes = True

    def __init__(self, entries: list[str], names: list[str]) -> None:
        self.lanes, self.memory_mib, self.made = 4, 512, 0
        self.ours = True
        self.always = False
        self.selected: list[str] = []
        self.loaded = SimpleNamespace(
            facts={"entries": entries},
            select=self.selected.extend,
            restore=lambda: setattr(self, "ours", False),
            entries=lambda: [self._entry(name, entries) for name in names],
        )

    def _entry(self, name: str, entries: list[str]) -> Any:
        owner = "ours" if self.ours and name in entries else "wheel"
        return SimpleNamespace(name=name, chosen=owner, owner=owner)

    def route(self, name: str, lanes: int = 0) -> None:
        if name == "streamed_cusolver":
            self._use(lanes)

    @contextlib.contextmanager
    def forced(self, name: str, lanes: int = 0) -> Iterator[None]:
        self.route(name, lanes)
        yield

    @contextlib.contextmanager
    def solve_forced(self, name: str, lanes: int = 0) -> Iterator[None]:
        yield

    def _use(self, lanes: int) -> None:
        self.made = max(self.made, min(lanes - 1, self.memory_mib // 100))

    def limits(self, lanes: int, memory_mib: int) -> int:
        if lanes < 0 or memory_mib < 0:
            return -1
        self.lanes, self.memory_mib = lanes, memory_mib
        return 0

    def loops_always(self, always: bool) -> None:
        self.always = always

    def loop_on(self, loop: int, n: int, batch: int) -> bool:
        return loop == 6  # syevd

    def created(self, device: int = 0) -> int:
        return self.made

    def release(self) -> None:
        self.made = 0
