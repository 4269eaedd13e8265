"""LAPACK's contract of the batched LU kernels, checked on a GPU.

Run by hand on a machine with a GPU: BATCHED_LU_LIBRARY=... python -m pytest test/gpu/native
"""

from __future__ import annotations

import math

import pytest
import torch
from checks import assert_factored, assert_info_agrees, assert_pivots_valid, residual
from families import FAMILIES, random, rectangular
from library import Library, Plan

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
LARGE = [160, 192, 200, 229, 255, 256, 257, 384, 511, 512, 513, 616, 768, 1000, 1023, 1024, 1025]
HUGE = [1280, 1536, 1537, 2047, 2048, 2049]


@pytest.fixture(scope="session")
def library() -> Library:
    return Library()


def generator(seed: int) -> torch.Generator:
    return torch.Generator(device="cuda").manual_seed(seed)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_small_size(library: Library, dtype: torch.dtype) -> None:
    for n in range(1, 130):
        a = random(5, n, dtype, generator(n))
        assert_factored(a, *library.lu(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LARGE)
def test_large_sizes(library: Library, dtype: torch.dtype, n: int) -> None:
    a = random(3, n, dtype, generator(n))
    assert_factored(a, *library.lu(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", HUGE)
def test_huge_sizes(library: Library, dtype: torch.dtype, n: int) -> None:
    a = random(2, n, dtype, generator(n))
    assert_factored(a, *library.lu(a))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "n"), [(600, 257), (260, 300), (140, 513), (100, 1000)])
@pytest.mark.parametrize("pivot", [True, False])
def test_many_large(library: Library, dtype: torch.dtype, batch: int, n: int, pivot: bool) -> None:
    """Enough matrices that wide blocks are exchanged and solved by kernels of their own."""
    a = random(batch, n, dtype, generator(n))
    if not pivot:
        a.diagonal(dim1=-2, dim2=-1).add_(2 * n)
    assert_factored(a, *library.lu(a, pivot), pivot=pivot)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 16, 17, 67])
def test_tall_panels_of_few_and_many_matrices(
    library: Library, dtype: torch.dtype, batch: int
) -> None:
    """Up to 16 matrices on 132 multiprocessors have panels that several blocks share."""
    for m, n in [(513, 70), (769, 40), (1025, 100), (1280, 64), (1536, 90), (1537, 33), (2049, 70)]:
        for pivot in (True, False):
            a = rectangular(batch, m, n, dtype, generator(m))
            if not pivot:
                a.diagonal(dim1=-2, dim2=-1).add_(4 * math.sqrt(m + n) + m)
            assert_factored(a, *library.lu(a, pivot), pivot=pivot)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tall_panels_repeat_bit_for_bit_on_streams(library: Library, dtype: torch.dtype) -> None:
    """Several panels of clusters at a time, with different content, and again."""
    a = random(12, 1100, dtype, generator(1))
    expected = library.lu(a)
    for _ in range(10):
        assert all(torch.equal(x, y) for x, y in zip(expected, library.lu(a), strict=True))


RECTANGLES = [
    (1, 7), (7, 1), (3, 40), (40, 3), (33, 32), (32, 33), (5, 300), (300, 5), (100, 129),
    (129, 100), (257, 64), (64, 257), (64, 1000), (1000, 64), (513, 200), (200, 513), (700, 300),
    (300, 700), (1025, 33), (2100, 40), (4000, 50), (1500, 700), (9000, 20), (20, 9000),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pivot", [True, False])
def test_rectangular(library: Library, dtype: torch.dtype, pivot: bool) -> None:
    for m, n in RECTANGLES:
        a = rectangular(3, m, n, dtype, generator(m + n))
        if not pivot:
            a.diagonal(dim1=-2, dim2=-1).add_(4 * math.sqrt(m + n) + max(m, n))
        assert_factored(a, *library.lu(a, pivot), pivot=pivot)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_pivoting(library: Library, dtype: torch.dtype) -> None:
    for n in [1, 2, 8, 17, 32, 33, 64, 100, 129, 256, 300, 513, 1025]:
        a = random(3, n, dtype, generator(n))
        a.diagonal(dim1=-2, dim2=-1).add_(2 * n)
        assert_factored(a, *library.lu(a, False), pivot=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_families(library: Library, dtype: torch.dtype, name: str) -> None:
    for n in [3, 8, 20, 32, 50, 130, 300]:
        a = FAMILIES[name](4, n, dtype, generator(n))
        lu, pivots, info = library.lu(a)
        if name == "Wilkinson growth":
            # U's last column doubles at each row: judge the error against the growth.
            if n > 60:
                continue  # 2^(n-1) leaves the range of float32; in complex numbers as NaN
            growth = max(1.0, float(lu.abs().max()))
            assert float(residual(a, lu, pivots).max()) <= 30 * growth
            assert_pivots_valid(pivots, n)
            assert_info_agrees(lu, info)
            continue
        assert_factored(a, lu, pivots, info)


@pytest.mark.parametrize("leaf", [8, 16, 32, 64])
@pytest.mark.parametrize("outer", [32, 64, 128, 256])
@pytest.mark.parametrize("resident", [1, 3])
def test_every_blocking(library: Library, leaf: int, outer: int, resident: int) -> None:
    for dtype in DTYPES:
        for n, batch in [(40, 3), (129, 3), (333, 3), (333, 70)]:
            a = random(batch, n, dtype, generator(n))
            plan = Plan("blocked", min(leaf, outer), outer, resident)
            assert_factored(a, *library.lu(a, plan=plan))


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_block_for_the_whole_matrix(library: Library, dtype: torch.dtype) -> None:
    largest = {4: 194, 8: 129, 16: 97}[dtype.itemsize]  # what a block has shared memory for
    for n in range(33, largest, 5):
        a = random(3, n, dtype, generator(n))
        assert_factored(a, *library.lu(a, plan=Plan("block")))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_take_the_first_row(library: Library, dtype: torch.dtype) -> None:
    for n in [8, 20, 32, 50, 130, 300]:
        _, pivots, _ = library.lu(torch.ones((2, n, n), dtype=dtype, device="cuda"))
        first = torch.arange(1, n + 1, device="cuda", dtype=torch.int32)
        assert torch.equal(pivots, first.expand(2, n))


@pytest.mark.parametrize("dtype", DTYPES)
def test_first_zero_pivot_at_every_position(library: Library, dtype: torch.dtype) -> None:
    for n in [5, 32, 48, 150]:
        a = random(n, n, dtype, generator(n)).triu()
        a.diagonal(dim1=-2, dim2=-1).add_(4)
        items = torch.arange(n)
        a[items, items, items] = 0
        for pivot in (True, False):
            lu, _, info = library.lu(a, pivot)
            wanted = torch.arange(1, n + 1, device="cuda", dtype=torch.int32)
            assert torch.equal(info, wanted)
            assert torch.equal(lu, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("n", [3, 16, 32, 40, 130, 300])
def test_bad_items_show_and_leave_neighbours_alone(
    library: Library, dtype: torch.dtype, bad: float, n: int
) -> None:
    clean = random(9, n, dtype, generator(n))
    places = [(0, 0), (n - 1, 0), (0, n - 1), (n - 1, n - 1), (n // 2, n // 3), (n // 3, n // 2)]
    poisoned = clean.clone()
    for item, (i, j) in enumerate(places):
        poisoned[item + 1, i, j] = bad
    expected = library.lu(clean)
    found = library.lu(poisoned)
    touched = torch.zeros(9, dtype=torch.bool, device="cuda")
    touched[1 : 1 + len(places)] = True
    for want, got in zip(expected, found, strict=True):
        assert torch.equal(want[~touched], got[~touched])
    assert not bool(torch.isfinite(found[0][touched]).all(dim=2).all(dim=1).any())
    assert_pivots_valid(found[1], n)


@pytest.mark.parametrize("n", [3, 32, 100, 300, 1537])
def test_all_nan_ends(library: Library, n: int) -> None:
    lu, pivots, info = library.lu(torch.full((2, n, n), math.nan, device="cuda"))
    assert bool(lu.isnan().all())
    assert_pivots_valid(pivots, n)
    assert bool((info == 0).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_repeats_bit_for_bit_and_alone(library: Library, dtype: torch.dtype) -> None:
    for n in [7, 32, 65, 200, 300, 513]:
        a = random(6, n, dtype, generator(n))
        first, again = library.lu(a), library.lu(a)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


@pytest.mark.parametrize("batch", [0, 1, 2, 3, 65535, 65536, 65537, 131071])
@pytest.mark.parametrize("n", [3, 12, 33])
def test_batch_edges(library: Library, batch: int, n: int) -> None:
    a = random(batch, n, torch.float32, generator(n))
    lu, pivots, info = library.lu(a)
    if batch:
        assert_factored(a, lu, pivots, info)


def test_batch_beyond_the_vendor_limit_in_the_blocked_route(library: Library) -> None:
    a = random(65537, 40, torch.float32, generator(1))
    assert_factored(a, *library.lu(a, plan=Plan("blocked", 16, 32)))


@pytest.mark.parametrize(("n", "batch"), [(20, 5_500_000), (640, 6000)])
def test_offsets_past_two_to_the_31(library: Library, n: int, batch: int) -> None:
    a = random(batch, n, torch.float32, generator(n))
    lu, pivots, info = library.lu(a)
    tail = slice(batch - 200, batch)
    assert_factored(a[tail], lu[tail], pivots[tail], info[tail])


@pytest.mark.parametrize("n", [12, 48, 100, 300])
def test_padded_storage_is_left_alone(library: Library, n: int) -> None:
    for dtype in DTYPES:
        storage = random(3, n + 5, dtype, generator(n))
        view = storage.mT[:, :n, :n]
        kept = storage.clone()
        pivots = torch.zeros((3, n), dtype=torch.int32, device="cuda")
        info = torch.full((3,), -7, dtype=torch.int32, device="cuda")
        a = view.clone()
        workspace = library.workspace(view)
        library.factor(view, pivots, info, workspace=workspace)
        assert_factored(a, view, pivots, info)
        kept.mT[:, :n, :n] = storage.mT[:, :n, :n]
        assert torch.equal(kept, storage)


@pytest.mark.parametrize("n", [12, 48, 300, 600])
def test_graph_capture(library: Library, n: int) -> None:
    a = random(4, n, torch.float32, generator(n))
    expected = library.lu(a)
    work = torch.empty_like(expected[0]).copy_(a)
    pivots, info = torch.empty_like(expected[1]), torch.empty_like(expected[2])
    workspace = library.workspace(work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        library.factor(work, pivots, info, workspace=workspace)
    for _ in range(2):
        work.copy_(a)
        graph.replay()
        assert all(torch.equal(x, y) for x, y in zip(expected, (work, pivots, info), strict=True))


def test_workspace_stays_small(library: Library) -> None:
    for n in [64, 300, 512, 1024]:
        for batch in [1, 64, 1024]:
            a = torch.empty((1,), device="cuda").expand(batch, n, n)
            size = batch * n * n * a.element_size()
            assert library.workspace_bytes(a) <= size / 10 + 2**20


def test_small_workspace_works_in_steps(library: Library) -> None:
    a = random(7, 300, torch.float64, generator(3))
    expected = library.lu(a)
    work = torch.empty_like(expected[0]).copy_(a)
    pivots, info = torch.empty_like(expected[1]), torch.empty_like(expected[2])
    workspace = library.workspace(a[:2])
    library.factor(work, pivots, info, workspace=workspace)
    assert torch.equal(work, expected[0]) or float(residual(a, work, pivots).max()) <= 30
    with pytest.raises(RuntimeError, match="workspace"):
        library.factor(work, pivots, info, workspace=workspace[:16])
