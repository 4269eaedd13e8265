"""The batched solve on a GPU: residuals, shared factors, pivots, bad items, bits and graphs.

Run by hand on a machine with a GPU: BATCHED_LU_LIBRARY=... python -m pytest test/gpu/native
"""

from __future__ import annotations

import math

import pytest
import torch
from solve_checks import assert_solves, column_major, random
from solve_library import OPERATIONS, SolveLibrary, SolvePlan

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
FEW, MANY = SolvePlan(), SolvePlan(False)
# Few warps and the most; one and two tiles of 32 columns a block; narrow and wide tiles.
FEWS = [SolvePlan(warps=warps) for warps in (2, 5, 9, 17)]
MANYS = [SolvePlan(False, together=together) for together in (1, 2)]
WIDTHS = [SolvePlan(False, together=together, width=256) for together in (1, 2)]


@pytest.fixture(scope="session")
def solver() -> SolveLibrary:
    return SolveLibrary()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_small_size(solver: SolveLibrary, dtype: torch.dtype, operation: str) -> None:
    for n in range(1, 132, 3):
        a = random((4, n, n), dtype, "cuda")
        for nrhs in (1, 2, 3, 9):
            assert_solves(solver, a, nrhs, operation, FEW)
        assert_solves(solver, a, 33, operation, MANY)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_large_sizes(solver: SolveLibrary, dtype: torch.dtype, operation: str) -> None:
    for n in (255, 256, 511, 513, 1000, 2049):
        a = random((2, n, n), dtype, "cuda")
        for nrhs in (1, 4):
            assert_solves(solver, a, nrhs, operation, FEW)
        assert_solves(solver, a, 150, operation, MANY)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_plan(solver: SolveLibrary, dtype: torch.dtype, operation: str) -> None:
    """One matrix, where the reads of the factor are the longest, and more than run at once."""
    for batch, n in ((1, 512), (1, 1000), (1, 129), (300, 160), (300, 64)):
        a = random((batch, n, n), dtype, "cuda")
        for plan in FEWS:
            for nrhs in (1, 3):
                assert_solves(solver, a, nrhs, operation, plan)
        for plan in (*MANYS, *(WIDTHS if n > 256 and dtype != torch.complex128 else [])):
            for nrhs in (31, 65, 130):
                assert_solves(solver, a, nrhs, operation, plan)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_many_matrices(solver: SolveLibrary, dtype: torch.dtype, operation: str) -> None:
    for batch, n in ((70000, 8), (1500, 65), (600, 130)):
        a = random((batch, n, n), dtype, "cuda")
        assert_solves(solver, a, 1, operation, FEW)
        assert_solves(solver, a, n, operation, MANY)
    assert_solves(solver, a[:200], 130, operation, MANY, batch=600)
    assert_solves(solver, a[:1], 3, operation, FEW, batch=600)


@pytest.mark.parametrize("plan", [FEW, MANY, SolvePlan(False, width=16)])
def test_long_chains_of_exchanges(solver: SolveLibrary, plan: SolvePlan) -> None:
    n = 1500
    steps = torch.arange(n, device="cuda")
    rows = [(steps + 1).clamp(max=n - 1), torch.full_like(steps, n - 1), n - 1 - steps]
    pivots = torch.stack(rows).int() + 1
    lu = column_major(torch.eye(n, device="cuda").expand(3, n, n))
    b = random((3, n, 2), torch.float32, "cuda")
    expected = b.cpu()
    for item, row in enumerate(rows):
        order = list(range(n))
        for i, other in enumerate(row.tolist()):
            order[i], order[other] = order[other], order[i]
        expected[item] = expected[item, order]
    x = column_major(b)
    solver.solve(lu, pivots, x, "N", plan)
    assert torch.equal(x.cpu(), expected)
    solver.solve(lu, pivots, x, "T", plan)
    assert torch.equal(x, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("plan", [FEW, MANY, FEWS[-1], *MANYS])
def test_bad_items_bits_and_graphs(
    solver: SolveLibrary, dtype: torch.dtype, plan: SolvePlan
) -> None:
    n, nrhs = 200, 3 if plan.pass_over else 140
    a = random((6, n, n), dtype, "cuda")
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    lu = column_major(lu)
    b = random((6, n, nrhs), dtype, "cuda")
    clean = column_major(b)
    solver.solve(lu, pivots, clean, "T", plan)
    for _ in range(30):
        again = column_major(b)
        solver.solve(lu, pivots, again, "T", plan)
        assert torch.equal(again, clean)
    lu[2, 90, 90] = 0
    lu[4, 90, 90] = math.nan
    found = column_major(b)
    solver.solve(lu, pivots, found, "T", plan)
    kept = [0, 1, 3, 5]
    assert torch.equal(found[kept], clean[kept])
    assert not bool(torch.isfinite(found[[2, 4]]).all(dim=2).all(dim=1).any())
