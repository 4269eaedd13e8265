"""EighChoice.h: the choice is total and feasible, and the header is that of the table."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aten_overrides import _compile, _select
from aten_overrides._errors import UserError
from aten_overrides._explain import explain
from aten_overrides._names import DTYPES, EIGH_BACKENDS, EIGH_OPS, PREFERENCES
from aten_overrides._select import Facts, Problem
from aten_overrides.tables.eigh import fit, generate
from aten_overrides.tables.eigh.table import EighTable, Point, load

INT32_MAX = 2**31 - 1
sizes = st.one_of(
    st.integers(0, 3000),
    st.sampled_from([0, 1, 2, 32, 33, 16384, 16385, 46340, 46341, 65536, INT32_MAX, 2**63 - 1]),
    st.integers(0, 2**63 - 1),
)
problems = st.builds(lambda batch, n: Problem(batch, n, n), sizes, sizes)
facts = st.builds(
    Facts,
    lanes=st.integers(-1, 9),
    stock=st.booleans(),
    capturing=st.booleans(),
)


def invented() -> EighTable:
    """Times in which every back end is ahead somewhere, streams included."""
    points = []
    for op in EIGH_OPS:
        for batch in (1, 8, 128, 4096):
            for n in (2, 8, 16, 32, 33, 64, 256, 1024):
                one = 0.02 + n * 1e-3 + n**3 * 1e-8
                ms = {
                    "batched_cusolver": 0.1 + one * batch**0.8,
                    "jacobi_batched_cusolver": 0.03 + n**3 * batch * 2e-8,
                    "looped_cusolver": one * batch,
                    "streamed_cusolver": (one if n < 40 else one / 3) * batch + 0.01,
                    "stock": one * batch * (1 if n > 32 else 0.2),
                }
                if batch < 2:
                    del ms["streamed_cusolver"]
                if n > fit.MOST_JACOBI_ROWS:
                    ms["jacobi_batched_cusolver"] = 1e-3  # ahead, but not taken there
                points.append(Point(op, "float32", batch, n, ms))
    meta = dict.fromkeys(("date", "driver", "torch", "cusolver"), "x")
    return EighTable("a GPU", meta, tuple(points))


@pytest.fixture(scope="module")
def library() -> _select.Library:
    return _select.load()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> _select.Library:
    """The select library with the header of the invented times."""
    folder = tmp_path_factory.mktemp("linalg")
    for header in _compile.HEADERS:
        shutil.copy(_compile.CSRC / "linalg" / header, folder)
    (folder / "EighThresholds.h").write_text(generate.header(invented()), encoding="utf-8")
    return _select.load(folder)


def test_names_are_those_of_the_header(library: _select.Library) -> None:
    assert library.eigh_backend_names() == EIGH_BACKENDS


def test_the_header_is_that_of_the_table() -> None:
    assert generate.HEADER.read_text(encoding="utf-8") == generate.header(load())


@given(
    st.sampled_from(EIGH_OPS),
    st.sampled_from(DTYPES),
    problems,
    st.sampled_from(PREFERENCES),
    facts,
    st.booleans(),
)
def test_the_choice_is_feasible_or_stock(
    measured: _select.Library,
    op: str,
    dtype: str,
    problem: Problem,
    preference: str,
    facts: Facts,
    batched: bool,
) -> None:
    chosen = measured.eigh(op, dtype, problem, preference, facts, batched)
    possible = {
        name
        for name in EIGH_BACKENDS
        if measured.eigh_infeasible(name, problem, facts, batched) is None
    }
    if preference == "magma" or not possible:
        assert chosen == "stock"
    else:
        assert chosen in possible
    if preference in ("cusolver", "cublas", "native"):
        assert chosen == measured.eigh(op, dtype, problem, "default", facts, batched)


@given(
    st.sampled_from(EIGH_OPS),
    st.sampled_from(DTYPES),
    st.integers(1, 20000),
    st.integers(1, 3000),
    st.booleans(),
    st.sampled_from([0, 4]),
)
def test_the_header_chooses_as_the_fit(
    measured: _select.Library, op: str, dtype: str, batch: int, n: int, batched: bool, lanes: int
) -> None:
    rows = fit.fit(invented())[op, dtype]
    usable = fit.RANKED if batched else fit.RANKED[1:]
    problem = Problem(batch, n, n)
    chosen = measured.eigh(op, dtype, problem, "default", Facts(lanes=lanes), batched)
    assert chosen == fit.choose(rows, batch, n, usable, lanes)


def test_every_back_end_is_chosen_where_it_is_ahead(measured: _select.Library) -> None:
    """Within 10 % of the best, at every invented point."""
    seen = set()
    for point in invented().points:
        problem = Problem(point.batch, point.n, point.n)
        chosen = measured.eigh(point.op, point.dtype, problem, "default", Facts())
        seen.add(chosen)
        possible = dict(fit.loop_times(point, 1)) | {
            name: point.ms[name]
            for name in ("looped_cusolver", "streamed_cusolver", "stock")
            if name in point.ms
        }
        best = min(possible.values())
        assert point.ms[chosen] <= 1.10 * best, (point, chosen)
    assert {"batched_cusolver", "jacobi_batched_cusolver", "streamed_cusolver", "stock"} <= seen


@pytest.mark.parametrize(
    ("backend", "problem", "facts", "batched", "reason"),
    [
        ("batched_cusolver", Problem(4, 3, 3), Facts(), False, "CUDA 12.6 Update 2"),
        ("batched_cusolver", Problem(1, 46341, 46341), Facts(), True, "2^31 - 1 elements"),
        ("jacobi_batched_cusolver", Problem(1, 65, 65), Facts(), True, "at most 64 rows"),
        ("jacobi_batched_cusolver", Problem(2**40, 64, 64), Facts(), False, None),
        ("streamed_cusolver", Problem(4, 3, 3), Facts(lanes=1), True, "fewer than two"),
        ("streamed_cusolver", Problem(1, 3, 3), Facts(), True, "one matrix"),
        ("looped_cusolver", Problem(4, 3, 3), Facts(capturing=True), True, "host memory"),
        ("stock", Problem(4, 3, 3), Facts(capturing=True), True, "host memory"),
        ("stock", Problem(4, 3, 3), Facts(stock=False), True, "may not be used"),
        ("stock", Problem(16385, 3, 3), Facts(), True, "refuses more than 16384"),
        ("stock", Problem(16384, 3, 3), Facts(), True, None),
        ("stock", Problem(16385, 3, 3), Facts(), False, None),
        ("jacobi_batched_cusolver", Problem(4, 3, 3), Facts(capturing=True), False, "may wait"),
        ("batched_cusolver", Problem(4, 3, 3), Facts(capturing=True), True, None),
        ("batched_cusolver", Problem(2**40, 46340, 46340), Facts(), True, None),
    ],
)
def test_reasons(
    library: _select.Library,
    backend: str,
    problem: Problem,
    facts: Facts,
    batched: bool,
    reason: str | None,
) -> None:
    found = library.eigh_infeasible(backend, problem, facts, batched)
    assert found is None if reason is None else found is not None and reason in found


@given(st.sampled_from(EIGH_BACKENDS[:2]), st.integers(1, 2**62), st.integers(0, 50000))
def test_a_call_stays_below_the_limits(
    library: _select.Library, backend: str, batch: int, n: int
) -> None:
    """JAX once computed 0 matrices per call for one large matrix; here that is infeasible."""
    most = library.eigh_per_call(backend, batch, n)
    assert most * n * n <= INT32_MAX and most <= batch
    assert backend == "jacobi_batched_cusolver" or most <= 16384
    problem = Problem(batch, n, n)
    refused = most < 1 or (backend == "jacobi_batched_cusolver" and n > fit.MOST_JACOBI_ROWS)
    assert refused == (library.eigh_infeasible(backend, problem, Facts()) is not None)


@pytest.mark.parametrize("op", EIGH_OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_measured_choice(library: _select.Library, op: str, dtype: str) -> None:
    """What the record shows, and no loop where the batch is large and nothing was measured."""

    def chosen(batch: int, n: int) -> str:
        return library.eigh(op, dtype, Problem(batch, n, n), "default", Facts())

    for batch in (32, 128, 500, 5000, 100000):
        for n in (64, 100, 192, 256, 512, 1024, 2000):
            assert chosen(batch, n) == "batched_cusolver", (batch, n)
        for n in range(1, 64):
            allowed = EIGH_BACKENDS[:2] + (("stock",) if batch <= fit.MOST_MATRICES else ())
            assert chosen(batch, n) in allowed, (batch, n)
    if op == "eigh" and not dtype.startswith("complex"):
        assert chosen(8, 1024) == "batched_cusolver"
        assert chosen(128, 33) == chosen(262144, 2) == "jacobi_batched_cusolver"


@given(st.sampled_from(EIGH_OPS), st.sampled_from(DTYPES), problems, facts, st.booleans())
def test_jacobi_is_never_taken_where_it_is_inaccurate(
    library: _select.Library, op: str, dtype: str, problem: Problem, facts: Facts, batched: bool
) -> None:
    chosen = library.eigh(op, dtype, problem, "default", facts, batched)
    if problem.n > fit.MOST_JACOBI_ROWS or facts.capturing:
        assert chosen != "jacobi_batched_cusolver"


def test_explain_tells_of_eigh() -> None:
    found = explain("linalg.eigh", (4, 33, 33), "float64")
    assert found.op == "eigh" and {c.backend for c in found.candidates} == set(EIGH_BACKENDS)
    assert all(c.ms is not None or c.reason for c in found.candidates)
    assert explain("eigvalsh", (4, 33, 33), "float64", prefer="magma").chosen == "stock"
    with pytest.raises(UserError, match="square matrices, found 3 x 4"):
        explain("eigh", (2, 3, 4), "float32")
