"""The batched LU against SciPy's getrf, item by item, on random shapes, batches and matrices.

Run by hand on a machine with a GPU: BATCHED_LU_LIBRARY=... python -m pytest test/gpu/native
"""

from __future__ import annotations

import math

import pytest
import torch
from checks import assert_factored, solve_residual
from families import FAMILIES, random
from hypothesis import given, settings
from hypothesis import strategies as st
from library import Library

lapack = pytest.importorskip("scipy.linalg.lapack")

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
PREFIX = {torch.float64: "d", torch.complex128: "z"}
SIZES = st.one_of(st.integers(1, 70), st.sampled_from([96, 127, 128, 129, 193, 257, 300]))


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    dtype=st.sampled_from([torch.float64, torch.complex128]),
    m=SIZES,
    n=SIZES,
    batch=st.integers(1, 5),
    zero_column=st.integers(0, 90),
    seed=st.integers(0, 2**31 - 1),
)
def test_pivots_info_and_factors_are_scipys(
    library: Library, dtype: torch.dtype, m: int, n: int, batch: int, zero_column: int, seed: int
) -> None:
    """Random matrices, so that rounding decides no pivot; most with a column of zeros."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn((batch, m, n), dtype=dtype, generator=generator)
    a[0, :, zero_column % n] = 0
    lu, pivots, info = (x.cpu() for x in library.lu(a.cuda()))
    getrf = getattr(lapack, PREFIX[dtype] + "getrf")
    for item in range(batch):
        expected, order, code = getrf(a[item].numpy())
        assert pivots[item].tolist() == [int(x) + 1 for x in order]
        assert int(info[item]) == code
        assert torch.allclose(lu[item], torch.from_numpy(expected), rtol=1e-6, atol=1e-8)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    dtype=st.sampled_from(DTYPES),
    name=st.sampled_from([name for name in FAMILIES if name != "Wilkinson growth"]),
    n=SIZES,
    batch=st.integers(1, 6),
    seed=st.integers(0, 2**31 - 1),
)
def test_families_at_any_size(
    library: Library, dtype: torch.dtype, name: str, n: int, batch: int, seed: int
) -> None:
    a = FAMILIES[name](batch, n, dtype, torch.Generator(device="cuda").manual_seed(seed))
    assert_factored(a, *library.lu(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5, 32, 33, 64, 96, 129, 257, 513])
def test_solutions(library: Library, dtype: torch.dtype, n: int) -> None:
    """A X = B with our factors and torch's lu_solve: norm(A X - B) <= 30 n eps norm(A) norm(X)."""
    for name in ("random", "condition 1e2", "graded rows", "permutation"):
        generator = torch.Generator(device="cuda").manual_seed(n)
        a = FAMILIES[name](3, n, dtype, generator)
        b = random(3, n, dtype, generator)[:, :, : min(n, 7)].contiguous()
        lu, pivots, _ = library.lu(a)
        x = torch.linalg.lu_solve(lu, pivots, b)
        worst = float(solve_residual(a, x, b).max())
        assert worst <= 30, f"{name}, n = {n}: {worst:.3g} times n eps norm(A) norm(X)"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("n", [3, 8, 17, 33, 50])
def test_a_bad_element_at_every_position(
    library: Library, dtype: torch.dtype, bad: float, n: int
) -> None:
    """One item for each place of a NaN or inf, between clean items that must not change."""
    clean = random(1, n, dtype, torch.Generator(device="cuda").manual_seed(n))
    a = clean.repeat(2 * n * n, 1, 1)
    places = torch.arange(n * n, device="cuda")
    a[2 * places, places // n, places % n] = bad
    lu, _, info = library.lu(a)
    alone, _, _ = library.lu(clean)
    assert torch.equal(lu[1::2], alone.expand(n * n, n, n))
    assert bool((info[1::2] == 0).all())
    assert not bool(torch.isfinite(lu[::2]).all(dim=2).all(dim=1).any()), "a bad element vanished"
