"""ctypes access to the batched LU kernels for the GPU tests and the benchmark.

Set BATCHED_LU_LIBRARY to the shared library built from aten_overrides/csrc/linalg/native and
lu_entry.cpp; NOTES.md beside the kernels has the commands.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

import torch

SCALARS = {torch.float32: 0, torch.float64: 1, torch.complex64: 2, torch.complex128: 3}
ROUTES = {"none": 0, "warp": 1, "block": 2, "blocked": 3}


@dataclass(frozen=True)
class Plan:
    """Overrides of the library's own plan; None and 0 keep its choice."""

    route: str | None = None
    leaf: int = 0
    outer: int = 0
    resident: int = 0

    def arguments(self) -> tuple[int, int, int, int]:
        """The four integers that the C entry points take."""
        route = -1 if self.route is None else ROUTES[self.route]
        return (route, self.leaf, self.outer, self.resident)


def column_major(
    batch: int, m: int, n: int, dtype: torch.dtype, device: str = "cuda"
) -> torch.Tensor:
    """An uninitialised (batch, m, n) tensor whose matrices are column-major."""
    return torch.empty((batch, n, m), dtype=dtype, device=device).mT


class Library:
    """The loaded library. Every call goes to torch's current stream and cuBLAS handle.

    device "cpu" is for the library built for the simulated device.
    """

    def __init__(self, path: str | None = None, device: str = "cuda") -> None:
        self.device = device
        if device == "cuda":
            torch.cuda.init()
        self._library = ctypes.CDLL(path or os.environ["BATCHED_LU_LIBRARY"])
        int64, size = ctypes.c_int64, ctypes.c_size_t
        shape: list[type] = [ctypes.c_int, int64, int64, int64, ctypes.c_int]
        plan: list[type] = [ctypes.c_int] * 4
        pointer = ctypes.c_void_p
        self._library.lu_message.restype = ctypes.c_char_p
        self._library.lu_route.argtypes = shape
        self._library.lu_workspace_bytes.argtypes = shape + plan
        self._library.lu_workspace_bytes.restype = size
        self._library.lu_run.argtypes = [
            *shape, *plan, pointer, int64, int64, pointer, int64, pointer, pointer, size, pointer,
            pointer,
        ]  # fmt: skip

    def route(self, a: torch.Tensor, pivot: bool = True) -> str:
        """Name of the route that the library's own plan takes for `a` (batch, m, n)."""
        code = self._library.lu_route(SCALARS[a.dtype], *a.shape, int(pivot))
        return next(name for name, value in ROUTES.items() if value == code)

    def workspace_bytes(self, a: torch.Tensor, pivot: bool = True, plan: Plan | None = None) -> int:
        """Bytes of workspace that the library wants for `a`."""
        arguments = (plan or Plan()).arguments()
        shape = (SCALARS[a.dtype], *a.shape, int(pivot))
        return int(self._library.lu_workspace_bytes(*shape, *arguments))

    def workspace(
        self, a: torch.Tensor, pivot: bool = True, plan: Plan | None = None
    ) -> torch.Tensor:
        """A workspace of that size."""
        size = self.workspace_bytes(a, pivot, plan)
        return torch.empty(size, dtype=torch.uint8, device=self.device)

    def factor(
        self,
        a: torch.Tensor,
        pivots: torch.Tensor,
        info: torch.Tensor,
        pivot: bool = True,
        plan: Plan | None = None,
        workspace: torch.Tensor | None = None,
    ) -> None:
        """Factor the column-major (batch, m, n) tensor `a` in place.

        pivots: (batch, min(m, n)) int32, info: (batch,) int32, both written. Raises RuntimeError
        with the library's message when it refuses.
        """
        batch, m, n = a.shape
        if workspace is None:
            workspace = self.workspace(a, pivot, plan)
        status = self._library.lu_run(
            SCALARS[a.dtype],
            batch,
            m,
            n,
            int(pivot),
            *(plan or Plan()).arguments(),
            a.data_ptr(),
            max(a.stride(2), m, 1),
            a.stride(0),
            pivots.data_ptr(),
            pivots.stride(0),
            info.data_ptr(),
            workspace.data_ptr(),
            workspace.numel(),
            torch.cuda.current_blas_handle() if self.device == "cuda" else None,
            torch.cuda.current_stream().cuda_stream if self.device == "cuda" else None,
        )
        if status != 0:
            raise RuntimeError(self._library.lu_message().decode())

    def lu(
        self, source: torch.Tensor, pivot: bool = True, plan: Plan | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """LU, pivots and info of a copy of `source` (batch, m, n); outputs start poisoned."""
        batch, m, n = source.shape
        a = column_major(batch, m, n, source.dtype, self.device)
        a.copy_(source)
        steps = min(m, n)
        pivots = torch.full((batch, steps), -7, dtype=torch.int32, device=self.device)
        info = torch.full((batch,), -7, dtype=torch.int32, device=self.device)
        self.factor(a, pivots, info, pivot, plan)
        return a, pivots, info
