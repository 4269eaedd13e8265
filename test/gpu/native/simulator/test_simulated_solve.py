"""The batched solve's kernels, run on the simulated device: their logic without a GPU."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from library import Library  # noqa: E402
from solve_checks import assert_solves, column_major, random  # noqa: E402
from solve_library import OPERATIONS, SolveLibrary, SolvePlan  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
PASSES = [SolvePlan(), SolvePlan(together=1, warps=1), SolvePlan(warps=3)]
MANY = [SolvePlan(False), SolvePlan(False, width=16)]


@pytest.fixture(scope="session")
def solver(library: Library) -> SolveLibrary:
    """The same library as that of the factorisation."""
    path = os.environ.get("SIMULATED_LU_LIBRARY") or library._library._name
    return SolveLibrary(path, "cpu")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_sizes(solver: SolveLibrary, dtype: torch.dtype, operation: str) -> None:
    for n in (1, 2, 8, 31, 32, 33, 65, 97):
        a = random((2, n, n), dtype, "cpu")
        for nrhs in (1, 2, 5):
            for plan in (*PASSES, *MANY):
                assert_solves(solver, a, nrhs, operation, plan)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_larger(solver: SolveLibrary, dtype: torch.dtype, operation: str) -> None:
    """More blocks than warps, several tiles of columns, products of products."""
    for n, nrhs, plan in (
        (200, 1, SolvePlan(warps=3)),
        (130, 6, SolvePlan()),
        (140, 70, SolvePlan(False)),
        (100, 130, SolvePlan(False, width=24)),
    ):
        a = random((1, n, n), dtype, "cpu")
        assert_solves(solver, a, nrhs, operation, plan)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_leading_dimension(solver: SolveLibrary, operation: str) -> None:
    a = random((2, 45, 45), torch.complex64, "cpu")
    for plan in (SolvePlan(), SolvePlan(False), SolvePlan(False, width=16)):
        assert_solves(solver, a, 6, operation, plan, lda=50)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_one_factor_for_many(solver: SolveLibrary, operation: str) -> None:
    """Factor i % factors serves item i, also where one serves all."""
    for factors in (1, 3):
        a = random((factors, 40, 40), torch.float64, "cpu")
        for plan in (SolvePlan(), SolvePlan(False), SolvePlan(False, width=16)):
            assert_solves(solver, a, 3, operation, plan, batch=6)


@pytest.mark.parametrize("plan", [SolvePlan(), SolvePlan(False), SolvePlan(False, width=8)])
def test_exchanges_of_every_kind(solver: SolveLibrary, plan: SolvePlan) -> None:
    """With the identity as factor only the rows move: as one exchange after the other moves them,
    also for pivots that no factorisation gives.
    """
    n = 70
    steps = torch.arange(n)
    generator = torch.Generator().manual_seed(3)
    rows = [
        steps,
        torch.full((n,), n - 1),  # all from one row
        (steps + 1).clamp(max=n - 1),  # one long chain
        torch.where(steps % 2 == 0, (steps + 1).clamp(max=n - 1), steps),
        steps + (torch.rand(n, generator=generator) * (n - steps)).long(),
        torch.randint(0, n, (n,), generator=generator),  # above their steps
    ]
    pivots = torch.stack(rows).int() + 1
    lu = column_major(torch.eye(n).expand(len(rows), n, n))
    b = random((len(rows), n, 3), torch.float32, "cpu")
    expected = b.clone()
    for item, row in enumerate(rows):
        for i, other in enumerate(row.tolist()):
            expected[item, [i, other]] = expected[item, [other, i]]
    x = column_major(b)
    solver.solve(lu, pivots, x, "N", plan)
    assert torch.equal(x, expected)
    solver.solve(lu, pivots, x, "T", plan)
    assert torch.equal(x, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("plan", [SolvePlan(), SolvePlan(False), SolvePlan(False, width=16)])
def test_bad_items(
    solver: SolveLibrary, dtype: torch.dtype, operation: str, plan: SolvePlan
) -> None:
    """A zero or NaN on U's diagonal reaches its own item and no other."""
    n = 50
    a = random((4, n, n), dtype, "cpu")
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    lu = column_major(lu)
    b = random((4, n, 2), dtype, "cpu")
    clean = column_major(b)
    solver.solve(lu, pivots, clean, operation, plan)
    lu[1, 20, 20] = 0
    lu[2, 20, 20] = math.nan
    found = column_major(b)
    solver.solve(lu, pivots, found, operation, plan)
    assert torch.equal(found[[0, 3]], clean[[0, 3]])
    assert not bool(torch.isfinite(found[1]).all())
    assert bool(torch.isnan(torch.view_as_real(found[2]) if a.is_complex() else found[2]).any())
    again = column_major(b)
    solver.solve(lu, pivots, again, operation, plan)
    assert torch.equal(again[[0, 3]], found[[0, 3]])


def test_tiny_and_huge_diagonals(solver: SolveLibrary) -> None:
    """Division neither overflows nor loses digits where the quotient is a normal number."""
    n = 40
    for scale in (1e-42, 1e-38, 1e37):
        a = (torch.eye(n) * scale).expand(1, n, n)
        pivots = torch.arange(1, n + 1, dtype=torch.int32).unsqueeze(0)
        b = torch.full((1, n, 1), scale)
        for plan in (SolvePlan(), SolvePlan(False), SolvePlan(False, width=16)):
            x = column_major(b)
            solver.solve(column_major(a), pivots, x, "T", plan)
            assert torch.allclose(x, torch.ones_like(x), rtol=1e-6), (scale, plan)


def test_refusals(solver: SolveLibrary) -> None:
    """Factors that cannot serve the batch in turn."""
    lu = column_major(random((2, 5, 5), torch.float32, "cpu"))
    pivots = torch.arange(1, 6, dtype=torch.int32).repeat(2, 1)
    x = column_major(random((3, 5, 1), torch.float32, "cpu"))
    with pytest.raises(RuntimeError, match="2 factors cannot serve 3 items"):
        solver.solve(lu, pivots, x, "N")
