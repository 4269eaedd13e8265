"""The batched solve's kernels, run on the simulated device: their logic without a GPU."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable
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
MANY = [SolvePlan(False), SolvePlan(False, width=16), SolvePlan(False, together=2)]


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
        (333, 1, SolvePlan()),  # several rounds of reads a phase
        (333, 2, SolvePlan(warps=17)),
        (140, 70, SolvePlan(False)),
        (140, 70, SolvePlan(False, together=2)),
        (257, 33, SolvePlan(False)),  # beyond a tile
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


def launches(solver: SolveLibrary, call: Callable[[], None]) -> int:
    """How many kernels the call starts."""
    unused, many = ctypes.CFUNCTYPE(None)(lambda: None), 10**6
    solver._library.simulated_interrupt(unused, many)
    call()
    left = int(solver._library.simulated_interrupt_left())
    solver._library.simulated_interrupt(ctypes.CFUNCTYPE(None)(), 0)
    return many - left


@pytest.mark.parametrize("operation", OPERATIONS)
def test_few_factors_for_many_items(solver: SolveLibrary, operation: str) -> None:
    """Of a blocked solve the launches grow with the factors or with the items of each, whichever
    are fewer.
    """
    plan = SolvePlan(False, width=16)

    def count(factors: int, batch: int) -> int:
        a = random((factors, 40, 40), torch.complex64, "cpu")

        def solve() -> None:
            assert_solves(solver, a, 2, operation, plan, batch=batch, lda=43)

        return launches(solver, solve)

    one = count(1, 1) - 1  # without that of the row orders
    assert one > 1
    for factors, batch in ((1, 9), (2, 12), (3, 21), (3, 9), (5, 10), (6, 6)):
        assert count(factors, batch) == 1 + one * min(factors, batch // factors), (factors, batch)


@pytest.mark.parametrize("n", [20, 70])
@pytest.mark.parametrize("plan", [SolvePlan(), SolvePlan(False), SolvePlan(False, width=8)])
def test_exchanges_of_every_kind(solver: SolveLibrary, plan: SolvePlan, n: int) -> None:
    """With the identity as factor only the rows move: as one exchange after the other moves them,
    also for pivots that no factorisation gives; those outside the matrix move nothing.
    """
    steps = torch.arange(n)
    generator = torch.Generator().manual_seed(3)
    rows = [
        steps,
        torch.full((n,), n - 1),  # all from one row
        (steps + 1).clamp(max=n - 1),  # one long chain
        torch.where(steps % 2 == 0, (steps + 1).clamp(max=n - 1), steps),
        steps + (torch.rand(n, generator=generator) * (n - steps)).long(),
        torch.randint(0, n, (n,), generator=generator),  # above their steps
        torch.randint(-n, 2 * n, (n,), generator=generator),  # and outside
    ]
    pivots = torch.stack(rows).int() + 1
    lu = column_major(torch.eye(n).expand(len(rows), n, n))
    b = random((len(rows), n, 3), torch.float32, "cpu")
    expected = b.clone()
    for item, row in enumerate(rows):
        for i, other in enumerate(row.tolist()):
            if 0 <= other < n:
                expected[item, [i, other]] = expected[item, [other, i]]
    x = column_major(b)
    solver.solve(lu, pivots, x, "N", plan)
    assert torch.equal(x, expected)
    solver.solve(lu, pivots, x, "T", plan)
    assert torch.equal(x, b)
    solver.exchange(pivots, x, "N")
    assert torch.equal(x, expected)
    solver.exchange(pivots, x, "T")
    assert torch.equal(x, b)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("n", [1, 5, 33, 50])
def test_infinite_right_hand_sides(solver: SolveLibrary, operation: str, n: int) -> None:
    """An inf in one row spreads as substitution spreads it and becomes NaN nowhere: the rows that
    pad a block have no part in it.
    """
    for dtype in (torch.float32, torch.float64):
        # Ones on the diagonal, all else negative: every term of an inf has its sign.
        a = torch.eye(n, dtype=dtype) - (1 - torch.eye(n, dtype=dtype)) / (2 * n)
        lu = column_major(a.unsqueeze(0))
        pivots = torch.arange(1, n + 1, dtype=torch.int32).unsqueeze(0)
        for row in sorted({0, n // 2, n - 1}):
            b = torch.ones((1, n, 3), dtype=dtype)
            b[0, row, 0] = math.inf
            b[0, row, 2] = -math.inf
            for plan in (*PASSES, *MANY):
                x = column_major(b)
                solver.solve(lu, pivots, x, operation, plan)
                where = (dtype, row, plan)
                assert bool((x[0, :, 0] == math.inf).all()), where
                assert bool(torch.isfinite(x[0, :, 1]).all()), where
                assert bool((x[0, :, 2] == -math.inf).all()), where


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_quotients(solver: SolveLibrary, dtype: torch.dtype, operation: str) -> None:
    """Of the last unknown: as IEEE has them, above all 0 / 0; complex ones are not finite."""
    nan, inf = math.nan, math.inf
    cases = [(2, inf, inf), (0, 1, inf), (0, -1, -inf), (0, 0, nan), (inf, 1, 0), (inf, inf, nan)]
    for n in (1, 5, 40):
        for divisor, value, quotient in cases:
            lu = column_major(torch.eye(n, dtype=dtype).unsqueeze(0))
            lu[0, n - 1, n - 1] = divisor
            pivots = torch.arange(1, n + 1, dtype=torch.int32).unsqueeze(0)
            for plan in (*PASSES, *MANY):
                b = torch.zeros((1, n, 1), dtype=dtype)
                b[0, n - 1, 0] = value
                x = column_major(b)
                solver.solve(lu, pivots, x, operation, plan)
                found, where = x[0, n - 1, 0], (n, divisor, value, plan)
                if not dtype.is_complex:
                    expected = torch.tensor(quotient, dtype=dtype)
                    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0)), where
                elif divisor == 0 or value == inf:
                    assert not bool(torch.isfinite(found)), where


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


def test_refuses_overlapping_right_hand_sides(solver: SolveLibrary) -> None:
    """Items that share elements, unless there is one item only."""
    lu = column_major(random((2, 5, 5), torch.float32, "cpu"))
    pivots = torch.arange(1, 6, dtype=torch.int32).repeat(2, 1)
    whole = torch.ones(100)
    x = whole.as_strided((2, 5, 3), (18, 1, 7))  # 7 * 2 + 5 = 19
    message = "right-hand sides overlap: .* 18 elements and take 19"
    with pytest.raises(RuntimeError, match=message):
        solver.solve(lu, pivots, x, "N")
    with pytest.raises(RuntimeError, match=message):
        solver.exchange(pivots, x)
    assert bool((whole == 1).all())
    solver.exchange(pivots, whole.as_strided((2, 5, 3), (19, 1, 7)))
    solver.exchange(pivots[:1], x[:1])


def test_refuses_to_exchange_too_many_rows(solver: SolveLibrary) -> None:
    """More than the shared memory of a block holds the order of."""
    n = 20000
    pivots = torch.arange(1, n + 1, dtype=torch.int32).unsqueeze(0)
    x = column_major(torch.ones((1, n, 1)))
    with pytest.raises(RuntimeError, match="n = 20000 is too large"):
        solver.exchange(pivots, x)
