"""Prediction by the select library's cost table: exact where measured, sensible elsewhere."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aten_overrides import _select
from aten_overrides._errors import UserError
from aten_overrides._select import Basis, Problem, Table
from aten_overrides.tables.table import CostTable, find, load

MEASURED, INTERPOLATED, EXTRAPOLATED, NONE = Basis


def table_of(times: dict[tuple[int, int], float], backend: str = "batched_cublas") -> Table:
    """A table of square float32 times by (batch, n)."""
    return _select.fill(
        _select.load_table_part(),
        4,
        (("lu_factor", "float32", backend, Problem(b, n, n), ms) for (b, n), ms in times.items()),
    )


def at(table: Table, batch: int, n: int, backend: str = "batched_cublas") -> tuple[Any, Basis]:
    ms, basis = table.predict("lu_factor", "float32", backend, Problem(batch, n, n))
    assert ms is not None
    return ms, basis


def power(batch: float, n: float) -> float:
    """Times that are powers of batch and n are straight in logarithms, so told without error."""
    return 1e-3 * math.pow(batch, 0.5) * math.pow(n, 1.7)


GRID = {(b, n): power(b, n) for b in (1, 4, 16, 64) for n in (32, 128, 512, 2048)}


@given(st.integers(1, 64), st.integers(32, 2048))
def test_powers_are_interpolated_exactly(batch: int, n: int) -> None:
    ms, basis = at(table_of(GRID), batch, n)
    assert ms == pytest.approx(power(batch, n), rel=1e-9)
    assert basis == (MEASURED if (batch, n) in GRID else INTERPOLATED)


@given(st.integers(65, 10**6), st.integers(2049, 10**6))
def test_beyond_the_grid_growth_goes_on(batch: int, n: int) -> None:
    table = table_of(GRID)
    for asked in ((batch, 512), (16, n), (batch, n)):
        ms, basis = at(table, *asked)
        assert ms == pytest.approx(power(*asked), rel=1e-6)
        assert basis == EXTRAPOLATED


def test_below_the_grid_nothing_becomes_cheaper_by_guess() -> None:
    table = table_of({key: ms for key, ms in GRID.items() if key[0] >= 4})
    assert at(table, 16, 4) == (pytest.approx(power(16, 32)), EXTRAPOLATED)
    assert at(table, 1, 128) == (pytest.approx(power(4, 128)), EXTRAPOLATED)


def test_one_call_per_matrix_stays_in_proportion_below_the_grid() -> None:
    table = table_of({(b, n): 0.1 * b * n for b in (4, 16) for n in (32, 64)})
    assert at(table, 1, 64) == (pytest.approx(6.4), EXTRAPOLATED)


def test_a_batch_never_costs_less_than_a_smaller_one_beyond_the_grid() -> None:
    table = table_of({(1, 64): 2.0, (8, 64): 1.0})
    assert at(table, 64, 64)[0] == pytest.approx(1.0)
    table = table_of({(1, 64): 1.0, (2, 64): 100.0})
    assert at(table, 4, 64)[0] == pytest.approx(200.0)


def test_a_hole_is_told_by_the_neighbouring_batches() -> None:
    """A leap between 511 and 512 is seen though 512 is missing, for the other batches have it."""
    leap = {32: 1.0, 511: 9.0, 512: 5.0, 1024: 20.0}
    times = {(b, n): ms * b**0.5 for b in (4, 8, 16) for n, ms in leap.items()}
    del times[8, 512]
    assert at(table_of(times), 8, 512) == (pytest.approx(5.0 * 8**0.5), INTERPOLATED)
    alone = {key: ms for key, ms in times.items() if key[0] == 8}
    ms, basis = at(table_of(alone), 8, 512)
    assert (8.9 * 8**0.5 < ms < 9.1 * 8**0.5) and basis == INTERPOLATED


def test_what_was_too_slow_to_measure_grows_as_in_smaller_batches() -> None:
    times = {(b, n): b * n**1.5 for b in (8, 16, 32) for n in (64, 256, 1024)}
    for missing in ((16, 1024), (32, 256), (32, 1024)):
        del times[missing]
    table = table_of(times)
    for batch, n in ((16, 1024), (32, 256), (32, 1024)):
        assert at(table, batch, n) == (pytest.approx(batch * n**1.5), EXTRAPOLATED)


def test_a_batch_of_another_back_end_is_filled_too() -> None:
    """The axes are those of all back ends; this one has neither batch 4 nor n = 100."""
    library = _select.load_table_part()
    table = library.table(4)
    for batch in (1, 4, 16):
        table.add("lu_factor", "float32", "stock", Problem(batch, 100, 100), 1.0)
    for batch in (1, 16):
        for n in (50, 200):
            problem = Problem(batch, n, n)
            table.add("lu_factor", "float32", "looped_cusolver", problem, 0.1 * batch * n)
    table.finish()
    ms, basis = at(table, 4, 100, "looped_cusolver")
    assert ms == pytest.approx(0.1 * 4 * 100) and basis == INTERPOLATED


def rectangles() -> Table:
    library = _select.load_table_part()
    table = library.table(4)
    for batch in (1, 16):
        for m, n in ((256, 128), (512, 256), (1024, 512)):
            problem = Problem(batch, m, n)
            ms = 1e-6 * batch * m * n
            table.add("lu_factor", "float32", "looped_cusolver", problem, ms)
    table.finish()
    return table


def test_rectangles() -> None:
    table = rectangles()

    def ask(batch: int, m: int, n: int, pivot: bool = True) -> tuple[Any, Basis]:
        problem = Problem(batch, m, n, pivot)
        return table.predict("lu_factor", "float32", "looped_cusolver", problem)

    assert ask(16, 512, 256) == (pytest.approx(16e-6 * 512 * 256), MEASURED)
    assert ask(4, 512, 256) == (pytest.approx(4e-6 * 512 * 256), INTERPOLATED)
    ms, basis = ask(4, 700, 300)
    assert ms is not None and ms == pytest.approx(4e-6 * 700 * 300, rel=0.2)
    assert basis == INTERPOLATED
    assert ask(64, 512, 256) == (pytest.approx(64e-6 * 512 * 256), EXTRAPOLATED)
    assert ask(4, 9000, 10)[1] == EXTRAPOLATED
    # Without pivoting nothing was measured: the pivoted times stand in, and say so.
    assert ask(16, 512, 256, pivot=False) == (pytest.approx(16e-6 * 512 * 256), EXTRAPOLATED)
    assert ask(4, 64, 64) == (None, NONE)


def test_nothing_measured_tells_nothing() -> None:
    table = table_of(GRID)
    square = Problem(4, 64, 64)
    assert table.predict("lu_factor", "float32", "stock", square) == (None, NONE)
    assert table.predict("lu_factor", "float64", "batched_cublas", square) == (None, NONE)
    assert table.predict("geqrf", "float32", "batched_cublas", square) == (None, NONE)
    unpivoted = Problem(4, 64, 64, pivot=False)
    assert table.predict("lu_factor", "float32", "batched_cublas", unpivoted) == (None, NONE)
    for empty in (Problem(0, 4, 4), Problem(4, 0, 0), Problem(4, 0, 3)):
        assert table.predict("lu_factor", "float32", "batched_cublas", empty) == (None, NONE)


@given(st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1))
def test_any_size_has_a_positive_time(batch: int, m: int, n: int) -> None:
    for table, problem in (
        (table_of(GRID), Problem(batch, n, n)),
        (rectangles(), Problem(batch, m, n)),
    ):
        for backend in ("batched_cublas", "looped_cusolver"):
            ms, _ = table.predict("lu_factor", "float32", backend, problem)
            assert ms is None or (ms > 0 and not math.isnan(ms))


@pytest.mark.parametrize("ms", [0.0, -1.0, math.nan, math.inf])
def test_bad_times_are_refused(ms: float) -> None:
    table = _select.load_table_part().table(4)
    with pytest.raises(ValueError, match="positive number"):
        table.add("lu_factor", "float32", "stock", Problem(1, 2, 2), ms)


def test_bad_problems_are_refused() -> None:
    table = _select.load_table_part().table(4)
    with pytest.raises(ValueError, match="at least 1"):
        table.add("lu_factor", "float32", "stock", Problem(0, 2, 2), 1.0)
    for problem in (Problem(1, 2, 2), Problem(1, 3, 2)):
        table.add("lu_factor", "float32", "stock", problem, 1.0)
        with pytest.raises(ValueError, match="already"):
            table.add("lu_factor", "float32", "stock", problem, 2.0)
    with pytest.raises(UserError, match="between 0 and"):
        table.add("lu_factor", "float32", "stock", Problem(2**63, 2, 2), 1.0)


@pytest.fixture(scope="module")
def h200() -> CostTable:
    return load(find("h200"))


def test_every_measured_time_is_predicted_as_measured(h200: CostTable) -> None:
    costs = h200.costs(_select.load_table_part())
    for point in h200.points:
        for backend, ms in point.ms.items():
            told, basis = costs.predict(point.op, point.dtype, backend, point.problem)
            assert basis == MEASURED and told == pytest.approx(ms, rel=1e-9)


def test_left_out_times_are_predicted_well(h200: CostTable) -> None:
    """Every seventh time is left out and predicted from the rest: 5 % off in the median."""
    times = [(p, b, ms) for p in h200.points for b, ms in p.ms.items()]
    library = _select.load_table_part()
    kept = [(p.op, p.dtype, b, p.problem, ms) for i, (p, b, ms) in enumerate(times) if i % 7]
    costs = _select.fill(library, 4, kept)
    off = []
    for point, backend, ms in times[::7]:
        told, basis = costs.predict(point.op, point.dtype, backend, point.problem)
        if told is not None and basis == INTERPOLATED:
            off.append(abs(math.log(told / ms)))
    off.sort()
    assert len(off) > 300
    assert off[len(off) // 2] < math.log(1.05)
    assert off[int(len(off) * 0.95)] < math.log(1.5)
