"""A reduced set of problems for compute-sanitizer: every kernel and route once, nothing checked.

Example: BATCHED_LU_LIBRARY=... PYTHONPATH=. compute-sanitizer --tool racecheck python sanitize.py

Inputs are made on the host so that no kernels but ours and cuBLAS's are watched. memcheck and
initcheck want PYTORCH_NO_CUDA_MEMORY_CACHING=1, so that every tensor is an allocation of its own.
"""

from __future__ import annotations

import sys
import time

import torch
from library import Library, Plan, column_major

# m, n, batch, plan: the warp kernels; one block with one leader and several; panels, exchange with
# solve and the final pass with a remainder; a panel too tall for shared memory; a large batch.
CASES: list[tuple[int, int, int, Plan | None]] = [
    (7, 5, 3, None),
    (20, 17, 3, None),
    (32, 32, 2, None),
    (50, 40, 2, Plan("block")),
    (34, 34, 270, Plan("block")),
    (100, 36, 1, Plan("block")),
    (70, 70, 2, Plan("blocked", 16, 32)),
    (40, 90, 1, Plan("blocked", 16, 32, 3)),
    (300, 24, 1, Plan("blocked", 16, 16)),
    (600, 18, 1, Plan("blocked", 16, 16)),
    (1100, 10, 1, Plan("blocked", 8, 8)),
    (4200, 3, 1, Plan("blocked", 2, 2)),
    (70, 1100, 64, Plan("blocked", 64, 128)),  # exchange and solve apart
]


def main(arguments: list[str]) -> int:
    """Factor every case in the types named (default: all) with and without pivoting."""
    names = arguments or ["float32", "float64", "complex64", "complex128"]
    library = Library()
    generator = torch.Generator().manual_seed(1)
    began = time.monotonic()
    for name in names:
        dtype = getattr(torch, name)
        for m, n, batch, plan in CASES:
            source = torch.randn((batch, m, n), dtype=dtype, generator=generator)
            a = column_major(batch, m, n, dtype)
            a.mT.copy_(source.mT.contiguous())
            pivots = torch.empty((batch, min(m, n)), dtype=torch.int32, device="cuda")
            info = torch.empty((batch,), dtype=torch.int32, device="cuda")
            for pivot in (True, False):
                library.factor(a, pivots, info, pivot, plan)
        torch.cuda.synchronize()
        print(f"{name}: {len(CASES)} cases, {time.monotonic() - began:.0f} s so far", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
