"""ctypes access to the batched solve for the GPU tests: the same shared library as library.py's."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

import torch
from library import SCALARS

OPERATIONS = ("N", "T", "C")


@dataclass(frozen=True)
class SolvePlan:
    """Overrides of the library's own plan; 0 keeps its choice. pass_over: few right-hand sides."""

    pass_over: bool = True
    together: int = 0
    warps: int = 0
    width: int = 0


class SolveLibrary:
    """The loaded library. Every call goes to torch's current stream and cuBLAS handle.

    device "cpu" is for the library built for the simulated device.
    """

    def __init__(self, path: str | None = None, device: str = "cuda") -> None:
        self.device = device
        if device == "cuda":
            torch.cuda.init()
        self._library = ctypes.CDLL(path or os.environ["BATCHED_LU_LIBRARY"])
        int64, size, pointer, number = (
            ctypes.c_int64,
            ctypes.c_size_t,
            ctypes.c_void_p,
            ctypes.c_int,
        )
        self._library.solve_message.restype = ctypes.c_char_p
        self._library.solve_workspace_bytes.argtypes = [number, *[int64] * 4, number]
        self._library.solve_workspace_bytes.restype = size
        self._library.solve_run.argtypes = [
            number, *[int64] * 4, *[number] * 5, pointer, int64, int64, pointer, int64, pointer,
            int64, int64, pointer, size, pointer, pointer,
        ]  # fmt: skip
        self._library.exchange_run.argtypes = [
            number, *[int64] * 4, number, pointer, int64, pointer, int64, int64, pointer, size,
            pointer,
        ]  # fmt: skip

    def solve(
        self,
        lu: torch.Tensor,
        pivots: torch.Tensor,
        b: torch.Tensor,
        operation: str = "N",
        plan: SolvePlan | None = None,
    ) -> None:
        """Solve in place of the column-major (batch, n, nrhs) tensor `b`.

        lu: column-major (factors, n, n), pivots: (factors, n) int32; factor i % factors serves
        item i. Raises RuntimeError with the library's message when it refuses.
        """
        plan = plan or SolvePlan()
        batch, n, nrhs = b.shape
        shape = (SCALARS[b.dtype], batch, n, nrhs, lu.shape[0])
        needed = self._library.solve_workspace_bytes(*shape, int(plan.pass_over))
        workspace = torch.empty(needed, dtype=torch.uint8, device=self.device)
        on_gpu = self.device == "cuda"
        status = self._library.solve_run(
            *shape,
            OPERATIONS.index(operation),
            int(plan.pass_over),
            plan.together,
            plan.warps,
            plan.width,
            lu.data_ptr(),
            max(lu.stride(2), n, 1),
            lu.stride(0),
            pivots.data_ptr(),
            pivots.stride(0),
            b.data_ptr(),
            max(b.stride(2), n, 1),
            b.stride(0),
            workspace.data_ptr(),
            workspace.numel(),
            torch.cuda.current_blas_handle() if on_gpu else None,
            torch.cuda.current_stream().cuda_stream if on_gpu else None,
        )
        if status != 0:
            raise RuntimeError(self._library.solve_message().decode())

    def exchange(self, pivots: torch.Tensor, b: torch.Tensor, operation: str = "N") -> None:
        """Exchange the rows of the column-major (batch, n, nrhs) tensor `b`, in place, as a solve
        does before its triangles ("N") or after them.

        pivots: (factors, n) int32. Raises RuntimeError with the library's message when it refuses.
        """
        batch, n, nrhs = b.shape
        factors = pivots.shape[0]
        workspace = torch.empty(4 * factors * n, dtype=torch.uint8, device=self.device)
        on_gpu = self.device == "cuda"
        status = self._library.exchange_run(
            SCALARS[b.dtype],
            batch,
            n,
            nrhs,
            factors,
            OPERATIONS.index(operation),
            pivots.data_ptr(),
            pivots.stride(0),
            b.data_ptr(),
            max(b.stride(2), n, 1),
            b.stride(0),
            workspace.data_ptr(),
            workspace.numel(),
            torch.cuda.current_stream().cuda_stream if on_gpu else None,
        )
        if status != 0:
            raise RuntimeError(self._library.solve_message().decode())
