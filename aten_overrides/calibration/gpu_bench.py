"""The back ends of lu_factor on the GPU at hand, in place and net of the host's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aten_overrides import _gpu, _runtime, _stock_rule
from aten_overrides._names import BACKENDS
from aten_overrides._select import Facts, Native
from aten_overrides.calibration.tasks import Task
from aten_overrides.calibration.timed_bench import COPIES as COPIES
from aten_overrides.calibration.timed_bench import TimedBench
from aten_overrides.tables import regret


class GpuBench(TimedBench):
    """Implements ``measuring.Bench``; see TimedBench. ``lanes``: streams of streamed_cusolver."""

    def __init__(
        self, torch: Any, library: _gpu.Library, lanes: int, limit: int, device: str = "cuda"
    ) -> None:
        super().__init__(torch, library, limit, device)
        self._stock = _runtime.stock_kind(torch)
        self._facts = Facts(lanes, stock=True, native=Native(library.native()))
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

    def prepare(self, task: Task) -> None:
        """Make the input."""
        torch, p = self._torch, task.problem
        self._task = task
        self._work = None
        with self._input("lu_factor", task.bytes):
            rows = self._copies * p.batch
            self._given = self._source(task.dtype)[: rows * p.m * p.n]
            self._work = torch.empty_like(self._given)
            self._pivots = torch.empty(rows * min(p.m, p.n), dtype=torch.int32, device=self._device)
            self._infos = torch.empty(rows, dtype=torch.int32, device=self._device)

    def _restore(self) -> None:
        self._work.copy_(self._given)

    def _run(self, copy: int) -> None:
        assert self._task is not None
        p = self._task.problem
        self._library.lu_factor(
            self._task.dtype,
            (p.batch, p.m, p.n),
            p.pivot,
            self._work.data_ptr() + copy * self._task.bytes,
            self._pivots.data_ptr() + copy * p.batch * min(p.m, p.n) * 4,
            self._infos.data_ptr() + copy * p.batch * 4,
        )

    def _wrong(self) -> str:
        assert self._task is not None
        zero = bool(self._infos[: self._task.problem.batch].any())
        return "it reported a zero pivot in a random matrix" if zero else ""
