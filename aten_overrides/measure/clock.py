"""Clocks: one call, timed by CUDA events behind a flushed L2 cache, or by the host's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

Call = Callable[[], Any]
SHORTEST = 5e-4  # seconds; shorter calls are repeated within a sample of the host's clock
MOST_REPEATS = 1000
TIMINGS = 3  # of the host's clock in a sample
L2_TIMES = 2  # the flushed buffer in sizes of the L2 cache
L2_UNKNOWN = 128 << 20  # bytes, where torch does not tell the size of the cache


class Clock(Protocol):
    """Times calls; ``name`` says how."""

    name: str

    def warm(self, call: Call) -> float:
        """Run twice and return the seconds of the second run, everything included."""

    def seconds(self, call: Call, estimate: float) -> float:
        """Seconds of one call; ``estimate``: about what it takes."""


class WallClock:
    """The host's clock. A call shorter than half a millisecond is repeated; a sample is the least
    of three such timings, which leaves out most of what other processes take.
    """

    name = "wall"

    def warm(self, call: Call) -> float:
        """Run twice and return the seconds of the second run."""
        call()
        return max(self._timed(call, 1), 1e-9)

    def seconds(self, call: Call, estimate: float) -> float:
        """Seconds of one call."""
        repeats = max(1, min(MOST_REPEATS, round(SHORTEST / max(estimate, 1e-9))))
        least = min(self._timed(call, repeats) for _ in range(TIMINGS))
        return max(least / repeats, 1e-9)

    @staticmethod
    def _timed(call: Call, repeats: int) -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            call()
        return time.perf_counter() - started


class CudaClock:
    """Events on the current stream. The L2 cache is flushed before each call by writing a buffer
    that is allocated once, so that no measured call meets an allocation of ours.
    """

    name = "cuda"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        device = torch.cuda.current_device()
        size = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
        size = L2_TIMES * size if size else L2_UNKNOWN
        self._buffer = torch.empty(size, dtype=torch.int8, device="cuda")
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)

    def warm(self, call: Call) -> float:
        """Run twice and return the seconds of the second run, the flush included."""
        call()
        self._torch.cuda.synchronize()
        started = time.perf_counter()
        self.seconds(call, 0.0)
        return max(time.perf_counter() - started, 1e-9)

    def seconds(self, call: Call, estimate: float) -> float:
        """Seconds of one call on the current stream, its launches included."""
        self._buffer.zero_()
        self._start.record()
        kept = call()
        self._end.record()
        self._end.synchronize()
        del kept
        return max(float(self._start.elapsed_time(self._end)) * 1e-3, 1e-9)


def clock_for(torch: Any | None, cuda: bool) -> Clock:
    """The clock of a device; ``torch`` may be None without a GPU."""
    return CudaClock(torch) if cuda and torch is not None else WallClock()
