"""The back ends of lu_solve and of eigh on the GPU at hand, net of the host's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aten_overrides import _gpu
from aten_overrides._names import EIGH_BACKENDS, LU_SOLVE_BACKENDS
from aten_overrides._select import Native
from aten_overrides.calibration.measuring import OURS
from aten_overrides.calibration.tasks import EighTask, SolveTask
from aten_overrides.calibration.timed_bench import TimedBench

NOT_SEVERAL = "one matrix cannot be dealt out to several streams"


def _ours(library: _gpu.Library) -> str:
    """Why our kernels cannot run, empty if they can."""
    native = Native(library.native())
    return "" if native == Native.USABLE else native.name.lower().replace("_", " ")


class SolveBench(TimedBench):
    """Implements ``measuring.Bench`` for lu_solve as torch has it, its copy of the right-hand sides
    included; see TimedBench.
    """

    def __init__(self, torch: Any, library: _gpu.Library, limit: int, device: str = "cuda") -> None:
        super().__init__(torch, library, limit, device)
        self._without_ours = _ours(library)
        self._transposed = False

    def backends(self, task: SolveTask) -> Mapping[str, str]:
        """Every back end: empty if it can take the task, else why not."""
        told = dict.fromkeys(LU_SOLVE_BACKENDS, "")
        told |= dict.fromkeys(OURS, self._without_ours)
        if task.batch < 2:
            told["streamed_cusolver"] = NOT_SEVERAL
        else:
            told["looped_cusolver"] = "loops over several matrices run on streams"
        return told

    def prepare(self, task: SolveTask) -> None:
        """Make well-conditioned factors with row exchanges, and right-hand sides."""
        torch = self._torch
        with self._input("lu_solve", task.bytes):
            self._copies = 1  # the result is new with each call
            matrices = task.batch * task.n * task.n
            source = self._source(task.dtype)
            factors = source[:matrices].view(task.batch, task.n, task.n) / (4 * task.n)
            factors.diagonal(dim1=-2, dim2=-1).fill_(1)
            self._lu = factors.mT  # column-major, as lu_factor leaves it
            first = torch.arange(task.n, device=self._device)
            last = first + torch.randint(0, task.n, (task.batch, task.n), device=self._device)
            self._pivots = last.clamp_(max=task.n - 1).to(torch.int32) + 1
            columns = source[: task.batch * task.n * task.nrhs]
            self._columns = columns.view(task.batch, task.nrhs, task.n).mT
            self._transposed = task.transposed
            self._result = None

    def _restore(self) -> None:
        self._result = None  # its memory is the next one's

    def _run(self, copy: int) -> None:
        self._result = self._torch.linalg.lu_solve(
            self._lu, self._pivots, self._columns, adjoint=self._transposed
        )

    def _wrong(self) -> str:
        assert self._result is not None
        finite = bool(self._torch.isfinite(self._result).all())
        return "" if finite else "a well-conditioned system has no finite solution"


class EighBench(TimedBench):
    """Implements ``measuring.Bench`` for eigh and eigvalsh, in place; see TimedBench."""

    def __init__(self, torch: Any, library: _gpu.Library, limit: int, device: str = "cuda") -> None:
        super().__init__(torch, library, limit, device)
        self._without_ours = _ours(library)
        self._task: EighTask | None = None
        self._work: Any = None

    def backends(self, task: EighTask) -> Mapping[str, str]:
        """Every back end: empty if it can take the task, else why not."""
        told = dict.fromkeys(EIGH_BACKENDS, "")
        told |= {name: self._without_ours for name in OURS if name in told}
        told |= dict.fromkeys(told.keys() - self._numbers, "this gpu library has no such route")
        if task.batch < 2:
            told["streamed_cusolver"] = NOT_SEVERAL
        return told

    def prepare(self, task: EighTask) -> None:
        """Make the input, of which one triangle is read."""
        torch = self._torch
        self._task = task
        self._work = None
        real = {"complex64": "float32", "complex128": "float64"}.get(task.dtype, task.dtype)
        with self._input(task.op, task.bytes):
            rows = self._copies * task.batch
            self._given = self._source(task.dtype)[: rows * task.n * task.n]
            self._work = torch.empty_like(self._given)
            kind = getattr(torch, real)
            self._values = torch.empty(rows, task.n, dtype=kind, device=self._device)
            self._infos = torch.empty(rows, dtype=torch.int32, device=self._device)

    def _restore(self) -> None:
        self._work.copy_(self._given)

    def _run(self, copy: int) -> None:
        task = self._task
        assert task is not None
        self._library.eigh(
            task.dtype,
            (task.batch, task.n),
            self._work.data_ptr() + copy * task.bytes,
            self._values[copy * task.batch :].data_ptr(),
            self._infos.data_ptr() + copy * task.batch * 4,
            vectors=task.op == "eigh",
        )

    def _wrong(self) -> str:
        assert self._task is not None
        some = slice(0, self._task.batch)
        if bool(self._infos[some].any()):
            return "it reported that a random matrix did not converge"
        values = self._values[some]
        finite = bool(self._torch.isfinite(values).all())
        ascending = bool((values[:, 1:] >= values[:, :-1]).all())
        return "" if finite and ascending else "the eigenvalues are not finite and ascending"
