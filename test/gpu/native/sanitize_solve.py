"""Solves for compute-sanitizer: every kernel once in each direction, and residuals.

Example: BATCHED_LU_LIBRARY=... PYTHONPATH=. compute-sanitizer --tool racecheck \\
    python sanitize_solve.py [float32 ...]

Factors are LAPACK's, from the host, so that no kernels but ours, cuBLAS's and copies are watched.
memcheck and initcheck want PYTORCH_NO_CUDA_MEMORY_CACHING=1.
"""

from __future__ import annotations

import sys
import time

import torch
from checks import solve_residual
from solve_checks import LIMIT, column_major, operated, random
from solve_library import OPERATIONS, SolveLibrary, SolvePlan

# n, batch, right-hand sides, plan: the small kernel; passes with tiles one and two phases ahead,
# one warp, several rounds of reads, several columns; a tile, two side by side, and blocked ones.
CASES: list[tuple[int, int, int, SolvePlan]] = [
    (9, 5, 2, SolvePlan()),
    (32, 3, 1, SolvePlan()),
    (70, 2, 1, SolvePlan()),
    (70, 2, 1, SolvePlan(warps=3)),
    (45, 2, 1, SolvePlan(warps=1)),
    (300, 1, 1, SolvePlan(warps=17)),
    (300, 1, 3, SolvePlan(warps=6)),
    (70, 2, 40, SolvePlan(False)),
    (70, 1, 70, SolvePlan(False, together=2)),
    (50, 2, 33, SolvePlan(False, width=16)),
]


def main(arguments: list[str]) -> int:
    """Solve every case in the types named (default: all); 1 if an answer is wrong."""
    names = arguments or ["float32", "float64", "complex64", "complex128"]
    library = SolveLibrary()
    began = time.monotonic()
    wrong = 0
    for name in names:
        dtype = getattr(torch, name)
        for n, batch, nrhs, plan in CASES:
            a = random((batch, n, n), dtype, "cpu")
            b = random((batch, n, nrhs), dtype, "cpu", seed=7)
            lu, pivots, _ = torch.linalg.lu_factor_ex(a)
            factors = column_major(lu).mT.contiguous().cuda().mT
            for operation in OPERATIONS:
                x = column_major(b).mT.contiguous().cuda().mT
                library.solve(factors, pivots.cuda(), x, operation, plan)
                worst = float(solve_residual(operated(a, operation), x.cpu(), b).max())
                if not worst <= LIMIT:
                    wrong += 1
                    print(f"wrong: {name} {n} {batch} {nrhs} {operation} {plan}: {worst}")
        print(f"{name}: {len(CASES)} cases, {time.monotonic() - began:.0f} s so far", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
