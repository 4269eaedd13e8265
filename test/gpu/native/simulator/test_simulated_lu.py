"""The batched LU's kernels, run on the simulated device: their logic without a GPU.

Run by hand or on a machine without a GPU: python -m pytest test/gpu/native/simulator
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from checks import assert_factored, assert_pivots_valid  # noqa: E402
from library import Library, Plan  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [
    (1, 1), (3, 3), (8, 8), (9, 9), (16, 12), (17, 31), (32, 32), (33, 33), (1, 40), (40, 1),
    (48, 48), (64, 64), (65, 65), (70, 20), (20, 70), (96, 96), (130, 130), (150, 90), (90, 150),
    (270, 40),
]  # fmt: skip
PLANS = [Plan("blocked", 8, 32), Plan("blocked", 16, 64), Plan("blocked", 32, 32, 3), Plan("block")]


def random(batch: int, m: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn((batch, m, n), dtype=dtype, generator=torch.Generator().manual_seed(m + n))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pivot", [True, False])
def test_shapes(library: Library, dtype: torch.dtype, pivot: bool) -> None:
    for m, n in SHAPES:
        a = random(3, m, n, dtype)
        if not pivot:
            a.diagonal(dim1=-2, dim2=-1).add_(2 * max(m, n))
        assert_factored(a, *library.lu(a, pivot), pivot=pivot)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_plans(library: Library, dtype: torch.dtype, plan: Plan) -> None:
    for m, n in [(40, 40), (77, 77), (100, 50), (50, 100)]:
        for batch in (2, 300 if m == 40 and plan.leaf == 16 else 1):
            a = random(batch, m, n, dtype)
            assert_factored(a, *library.lu(a, plan=plan))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [300, 450, 700, 900, 1100, 1537, 2100, 4200])
def test_tall_panels(library: Library, dtype: torch.dtype, rows: int) -> None:
    a = random(1, rows, 20, dtype)
    assert_factored(a, *library.lu(a, plan=Plan("blocked", 8, 16)))


@pytest.fixture
def small_device(library: Library) -> Iterator[None]:
    """One multiprocessor: three panels are more than the device has room for at once."""
    library._library.simulated_set_multiprocessors(1)
    yield
    library._library.simulated_set_multiprocessors(132)


CLUSTERS = [
    (400, 20), (520, 40), (800, 40), (1025, 40), (1280, 24), (1536, 17), (1537, 33), (2048, 9),
    (2060, 24), (4096, 8),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "n"), CLUSTERS)
def test_clusters(library: Library, dtype: torch.dtype, rows: int, n: int) -> None:
    """Tall panels that several blocks share; the last slice has few rows, or none."""
    for pivot in (True, False):
        a = random(1, rows, n, dtype)
        if not pivot:
            a.diagonal(dim1=-2, dim2=-1).add_(2 * rows)
        assert_factored(a, *library.lu(a, pivot, Plan("blocked", 16, 32)), pivot=pivot)


@pytest.mark.parametrize("dtype", DTYPES)
def test_clusters_meet_zeros_and_ties(library: Library, dtype: torch.dtype) -> None:
    """Pivots as LAPACK's with ties between slices; the first zero pivot in the second panel."""
    # Four columns: exact so far; later ties depend on rounding.
    signs = torch.randint(0, 2, (2, 1030, 4), generator=torch.Generator().manual_seed(3))
    a = (2 * signs - 1).to(dtype)
    _, expected, _ = torch.linalg.lu_factor_ex(a)
    assert torch.equal(library.lu(a, plan=Plan("blocked", 16, 16))[1], expected)
    zero = random(1, 1030, 40, dtype)
    zero[:, :, 20] = 0
    lu, pivots, info = library.lu(zero, plan=Plan("blocked", 16, 32))
    assert info.tolist() == [21]
    assert_factored(zero, lu, pivots, info)


@pytest.mark.usefixtures("small_device")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1100, 1536, 1537])
def test_tall_panels_of_one_block(library: Library, dtype: torch.dtype, rows: int) -> None:
    a = random(1, rows, 20, dtype)
    assert_factored(a, *library.lu(a, plan=Plan("blocked", 8, 16)))


@pytest.mark.usefixtures("small_device")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pivot", [True, False])
def test_shapes_for_many_panels(library: Library, dtype: torch.dtype, pivot: bool) -> None:
    for m, n in [
        (40, 40),
        (64, 33),
        (90, 90),
        (128, 70),
        (180, 24),
        (250, 30),
        (380, 20),
        (510, 9),
    ]:
        a = random(3, m, n, dtype)
        if not pivot:
            a.diagonal(dim1=-2, dim2=-1).add_(2 * max(m, n))
        assert_factored(a, *library.lu(a, pivot), pivot=pivot)
        assert_factored(a, *library.lu(a, pivot, Plan("blocked", 16, 32)), pivot=pivot)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_at_the_edges_of_shapes(library: Library, dtype: torch.dtype) -> None:
    """The last row that a shape holds and the first that it does not; strips cut by rows."""
    for rows in (63, 64, 65, 95, 96, 97, 128, 129, 192, 193, 256, 257):
        for n in (5, 8, 17):
            a = random(1, rows, n, dtype)
            assert_factored(a, *library.lu(a, plan=Plan("blocked", 32, 32)))
    for m, n in ((33, 40), (37, 64), (41, 90), (61, 64)):
        a = random(2, m, n, dtype)
        assert_factored(a, *library.lu(a, plan=Plan("block")))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_over_several_leaders(library: Library, dtype: torch.dtype) -> None:
    """Equal magnitudes in rows of different lanes and leaders: the first row is LAPACK's choice."""
    for rows in (70, 200):
        signs = torch.randint(0, 2, (2, rows, 12), generator=torch.Generator().manual_seed(rows))
        a = (2 * signs - 1).to(dtype)
        _, expected, _ = torch.linalg.lu_factor_ex(a)
        assert torch.equal(library.lu(a, plan=Plan("blocked", 16, 16))[1], expected)


def test_levels_from_tall_panels_to_short_ones(library: Library) -> None:
    """The second block's panels could be narrower than the first's: levels are counted once."""
    a = random(1, 4160, 200, torch.complex128)
    assert_factored(a, *library.lu(a, plan=Plan("blocked", 64, 128)))


@pytest.mark.parametrize("n", [127, 129, 143, 161, 193, 209, 225, 257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_remainders(library: Library, dtype: torch.dtype, n: int) -> None:
    """Outer blocks and panels that take a remainder, with columns left over beside them."""
    for plan in (Plan("blocked", 16, 64), Plan("blocked", 8, 32), Plan("blocked", 32, 64)):
        for m, columns in ((n, n), (n + 7, n), (n, n + 40)):
            a = random(1, m, columns, dtype)
            assert_factored(a, *library.lu(a, plan=plan))


@pytest.mark.parametrize("dtype", DTYPES)
def test_pivots_are_lapacks(library: Library, dtype: torch.dtype) -> None:
    for n in (8, 20, 32, 48, 80):
        whole = torch.randint(-2, 3, (4, n, n), generator=torch.Generator().manual_seed(n))
        ones = torch.ones((1, n, n), dtype=dtype)
        a = torch.cat([torch.triu(whole).to(dtype), ones])
        _, expected, _ = torch.linalg.lu_factor_ex(a)
        assert torch.equal(library.lu(a)[1], expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [5, 32, 48, 100])
def test_zero_pivots_and_bad_items(library: Library, dtype: torch.dtype, n: int) -> None:
    a = random(n, n, n, dtype).triu()
    a.diagonal(dim1=-2, dim2=-1).add_(8)
    items = torch.arange(n)
    a[items, items, items] = 0
    for pivot in (True, False):
        lu, _, info = library.lu(a, pivot)
        assert torch.equal(info, items.int() + 1)
        assert torch.equal(lu, a)
    clean = random(4, n, n, dtype)
    poisoned = clean.clone()
    poisoned[1, n - 1, 0] = math.nan
    poisoned[2, n // 2, n // 3] = math.inf
    expected, found = library.lu(clean), library.lu(poisoned)
    for want, got in zip(expected, found, strict=True):
        assert torch.equal(want[[0, 3]], got[[0, 3]])
    assert not bool(torch.isfinite(found[0][[1, 2]]).all(dim=2).all(dim=1).any())
    assert_pivots_valid(found[1], n)
