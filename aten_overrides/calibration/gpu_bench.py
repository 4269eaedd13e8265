"""The back ends of lu_factor on the GPU at hand, in place and net of the host's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aten_overrides import _gpu, _runtime, _stock_rule
from aten_overrides._errors import UserError
from aten_overrides._names import BACKENDS
from aten_overrides._select import Facts, Native
from aten_overrides.calibration.grids import OP, Task
from aten_overrides.calibration.measuring import Unusable
from aten_overrides.tables import regret

SHORT_MS = 0.1  # below, several copies are factored within a sample
COPIES = 4
SMALL = 64 << 20  # bytes of all copies together
RELOADED_MS = 20.0  # a first call below is repeated: most of it may have been loading
QUEUED_MS = 3.0  # below, a sample waits on the GPU until the host has queued it
WAIT_CYCLES = 500_000  # about 0.3 ms, twice that where a call is many launches


class GpuBench:
    """Implements ``measuring.Bench``. The overrides must be enabled, strictly: a call that could
    not take its route is refused. ``lanes``: streams of streamed_cusolver.
    """

    def __init__(
        self, torch: Any, library: _gpu.Library, lanes: int, limit: int, device: str = "cuda"
    ) -> None:
        self._torch = torch
        self._library = library
        self._numbers = library.routes()
        self._stock = _runtime.stock_kind(torch)
        self._facts = Facts(lanes, stock=True, native=Native(library.native()))
        self._limit, self._device = limit, device
        self._sources: dict[str, Any] = {}
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._last: dict[str, float] = {}
        self._task: Task | None = None
        self._work: Any = None

    def backends(self, task: Task) -> Mapping[str, str]:
        """Every back end: empty if it can take the task, else why not."""
        can = regret.feasible(task.problem, self._facts)
        told = {name: "" if name in can else "not feasible" for name in BACKENDS}
        if self._facts.native != Native.USABLE:
            told["batched_native"] = self._facts.native.name.lower().replace("_", " ")
        if self._stock != _gpu.STOCK_MAGMA:
            told["stock"] = "torch's own function is not MAGMA's"
        elif _stock_rule.lu_factor(task.problem, "default", self._facts) != "stock":
            told["stock"] = "torch sends this to cuSOLVER or cuBLAS itself"
        return told

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

    def prepare(self, task: Task) -> None:
        """Make the input."""
        torch, p = self._torch, task.problem
        self._task, self._last = task, {}
        elements = p.batch * p.m * p.n
        self._copies = COPIES if COPIES * task.bytes <= min(SMALL, self._limit) else 1
        self._work = None
        try:
            self._input = self._source(task.dtype)[: self._copies * elements]
            self._work = torch.empty_like(self._input)
            rows = self._copies * p.batch
            self._pivots = torch.empty(rows * min(p.m, p.n), dtype=torch.int32, device=self._device)
            self._infos = torch.empty(rows, dtype=torch.int32, device=self._device)
        except torch.cuda.OutOfMemoryError as error:
            self._sources.clear()
            raise Unusable("the GPU has too little free memory for the input") from error

    def _addresses(self, copy: int) -> tuple[int, int, int]:
        assert self._task is not None
        p = self._task.problem
        matrices = self._work.data_ptr() + copy * self._task.bytes
        pivots = self._pivots.data_ptr() + copy * p.batch * min(p.m, p.n) * 4
        return matrices, pivots, self._infos.data_ptr() + copy * p.batch * 4

    def once(self, backend: str) -> float:
        """Milliseconds of one call on a fresh input; a back end's first one is checked too."""
        first = backend not in self._last
        ms = self._call(backend)
        if first and bool(self._infos[: self._batch()].any()):
            raise Unusable("it reported a zero pivot in a random matrix")
        if first and ms < RELOADED_MS:
            ms = self._call(backend)  # how the next is timed depends on it
        return ms

    def _batch(self) -> int:
        assert self._task is not None
        return self._task.problem.batch

    def _call(self, backend: str) -> float:
        assert self._task is not None
        torch, library = self._torch, self._library
        p, last = self._task.problem, self._last.get(backend)
        copies = self._copies if last is not None and last < SHORT_MS else 1
        number = self._numbers[backend]
        before = library.call("count", 0, number)
        library.force_route(OP, backend)
        try:
            self._work.copy_(self._input)
            if last is None or last < QUEUED_MS:
                many = last is not None and last >= SHORT_MS
                torch.cuda._sleep(2 * WAIT_CYCLES if many else WAIT_CYCLES)
            self._start.record()
            for copy in range(copies):
                library.lu_factor(
                    self._task.dtype, (p.batch, p.m, p.n), p.pivot, *self._addresses(copy)
                )
            self._end.record()
            self._end.synchronize()
        except UserError as error:
            if "out of memory" not in str(error):
                raise Unusable(str(error).splitlines()[0][:300]) from error
            torch.cuda.empty_cache()
            raise Unusable("the GPU has too little free memory") from error
        finally:
            library.force_route(OP, None)
        if library.call("count", 0, number) != before + copies:
            raise Unusable("the call took another route")
        ms = float(self._start.elapsed_time(self._end)) / copies
        self._last[backend] = ms
        return ms
