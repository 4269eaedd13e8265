"""Times of single calls on the GPU at hand, net of the host's: what the benches have in common."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aten_overrides import _gpu
from aten_overrides._errors import UserError
from aten_overrides._names import OPS
from aten_overrides.calibration.measuring import Unusable

SHORT_MS = 0.1  # below, several copies are worked on within a sample
COPIES = 4
SMALL = 64 << 20  # bytes of all copies together
RELOADED_MS = 20.0  # a first call below is repeated: most of it may have been loading
QUEUED_MS = 3.0  # below, a sample waits on the GPU until the host has queued it
WAIT_CYCLES = 500_000  # about 0.3 ms, twice that where a call is many launches
NO_MEMORY = "the GPU has too little free memory"


class TimedBench(abc.ABC):
    """Implements ``once`` of ``measuring.Bench``. The overrides must be enabled, strictly: a call
    that could not take its route is refused.
    """

    def __init__(self, torch: Any, library: _gpu.Library, limit: int, device: str) -> None:
        self._torch = torch
        self._library = library
        self._numbers = library.routes()
        self._limit, self._device = limit, device
        self._sources: dict[str, Any] = {}
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._last: dict[str, float] = {}
        self._op = ""
        self._copies = 1

    @abc.abstractmethod
    def _restore(self) -> None:
        """Make the input what it was."""

    @abc.abstractmethod
    def _run(self, copy: int) -> None:
        """Call the operation on a copy of the input. UserError or RuntimeError if it fails."""

    @abc.abstractmethod
    def _wrong(self) -> str:
        """What is wrong with the result of the last call, empty if nothing is."""

    def _source(self, dtype: str) -> Any:
        """Random numbers enough for the largest input, one buffer for a real type and its complex
        one.
        """
        torch = self._torch
        real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
        if real not in self._sources:
            kind = getattr(torch, real)
            count = self._limit // (4 if real == "float32" else 8)
            generator = torch.Generator(device=self._device).manual_seed(1)
            self._sources[real] = torch.randn(
                count, dtype=kind, device=self._device, generator=generator
            )
        return self._sources[real].view(getattr(torch, dtype))

    @contextmanager
    def _input(self, op: str, bytes_: int) -> Iterator[None]:
        """What an input is made in. Sets how many copies there are."""
        self._op, self._last = op, {}
        self._copies = COPIES if COPIES * bytes_ <= min(SMALL, self._limit) else 1
        try:
            yield
        except self._torch.cuda.OutOfMemoryError as error:
            self._sources.clear()
            raise Unusable(f"{NO_MEMORY} for the input") from error

    def once(self, backend: str) -> float:
        """Milliseconds of one call on a fresh input; a back end's first one is checked too."""
        first = backend not in self._last
        ms = self._call(backend)
        wrong = self._wrong() if first else ""
        if wrong:
            raise Unusable(wrong)
        if first and ms < RELOADED_MS:
            ms = self._call(backend)  # how the next is timed depends on it
        return ms

    def _call(self, backend: str) -> float:
        torch, library = self._torch, self._library
        last = self._last.get(backend)
        copies = self._copies if last is not None and last < SHORT_MS else 1
        op, number = OPS.index(self._op), self._numbers[backend]
        before = library.call("count", op, number)
        library.force_route(self._op, backend)
        try:
            self._restore()
            if last is None or last < QUEUED_MS:
                many = last is not None and last >= SHORT_MS
                torch.cuda._sleep(2 * WAIT_CYCLES if many else WAIT_CYCLES)
            self._start.record()
            for copy in range(copies):
                self._run(copy)
            self._end.record()
            self._end.synchronize()
        except (UserError, RuntimeError) as error:  # torch's out of memory is a RuntimeError
            if "out of memory" not in str(error):
                raise Unusable((str(error).splitlines() or ["it failed"])[0][:300]) from error
            torch.cuda.empty_cache()
            raise Unusable(NO_MEMORY) from error
        finally:
            library.force_route(self._op, None)
        if library.call("count", op, number) != before + copies:
            raise Unusable("the call took another route")
        ms = float(self._start.elapsed_time(self._end)) / copies
        self._last[backend] = ms
        return ms
