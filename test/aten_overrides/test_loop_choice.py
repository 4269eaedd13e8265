"""LoopChoice.h: the choice is total and feasible, and the header is that of the table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aten_overrides import _select
from aten_overrides._errors import UserError
from aten_overrides._explain import explain
from aten_overrides._loops import LoopQuestion
from aten_overrides._names import DTYPES, LOOP_BACKENDS, LOOP_OPS, PREFERENCES
from aten_overrides.tables.loops import fit, generate, predict
from aten_overrides.tables.loops.table import load

INT32_MAX = 2**31 - 1
sizes = st.one_of(
    st.integers(0, 3000),
    st.sampled_from([0, 1, 2, 63, 64, 255, 256, 257, 1024, 65537, INT32_MAX, INT32_MAX + 1]),
    st.integers(0, 2**63 - 1),
)
questions = st.builds(
    LoopQuestion,
    st.sampled_from(LOOP_OPS),
    st.sampled_from(DTYPES),
    sizes,
    sizes,
    sizes,
    nrhs=sizes,
    hermitian=st.booleans(),
    preference=st.sampled_from(PREFERENCES),
    lanes=st.integers(-1, 9),
    magma=st.booleans(),
    capturing=st.booleans(),
    deterministic=st.booleans(),
)
FITTED = fit.fit(load())


@pytest.fixture(scope="module")
def library() -> _select.Library:
    return _select.load()


def test_names_are_those_of_the_header(library: _select.Library) -> None:
    assert library.loop_backend_names() == LOOP_BACKENDS


def test_the_header_is_that_of_the_table() -> None:
    assert generate.HEADER.read_text(encoding="utf-8") == generate.header(load())


@given(questions)
def test_the_choice_is_feasible_or_stock(library: _select.Library, asked: LoopQuestion) -> None:
    chosen = library.loop(asked)
    possible = {name for name in LOOP_BACKENDS if library.loop_infeasible(name, asked) is None}
    if asked.preference == "magma" or not possible:
        assert chosen == "stock"
    else:
        assert chosen in possible
    if asked.preference == "cublas" and asked.op == "geqrf" and "batched_cublas" in possible:
        assert chosen == "batched_cublas"
    if asked.preference == "native":
        assert chosen == library.loop(replace(asked, preference="default"))
    if asked.lanes < 2:
        assert chosen != "streamed_cusolver"


@given(questions)
def test_bits_do_not_depend_on_the_streams_when_they_must_not(
    library: _select.Library, asked: LoopQuestion
) -> None:
    """Deterministic: with streams and without, the loop's routine or not, both times."""
    asked = replace(asked, deterministic=True)
    rival = library.loop_rival(asked)
    routines = set()
    for lanes in (0, 4):
        chosen = library.loop(replace(asked, lanes=lanes))
        looped = chosen in ("looped_cusolver", "streamed_cusolver")
        looped = looped or (chosen == "stock" and rival == "loop")
        routines.add("loop" if looped else chosen)
    assert len(routines) == 1


def key_of(library: _select.Library, asked: LoopQuestion) -> fit.Key:
    routine, columns = predict.ROUTINE_OF[asked.op], predict.columns_of(asked)
    return routine, columns, library.loop_rival(asked), asked.dtype


@given(
    st.sampled_from(LOOP_OPS),
    st.sampled_from(DTYPES),
    st.integers(2, 2000),
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.booleans(),
    st.sampled_from(["default", "cusolver"]),
)
def test_the_header_chooses_as_the_fit(
    library: _select.Library,
    op: str,
    dtype: str,
    batch: int,
    n: int,
    nrhs: int,
    magma: bool,
    preference: str,
) -> None:
    asked = LoopQuestion(op, dtype, batch, n, n, nrhs, magma=magma, preference=preference)
    expected = fit.choose(FITTED.get(key_of(library, asked), ()), batch, n)
    alone = library.loop(replace(asked, lanes=0))
    assert alone == ("looped_cusolver" if expected == "looped_cusolver" else "stock")
    streamed = expected in ("looped_cusolver", "streamed_cusolver")
    assert library.loop(asked) == ("streamed_cusolver" if streamed else "stock")


def test_no_measured_point_is_slower_than_torch() -> None:
    """Nor far from the best, beyond the lead that is needed for a change."""
    for key in ((*key, dtype) for key in fit.KEYS for dtype in DTYPES):
        for gain, miss in fit.gains(load(), FITTED, key):
            assert gain >= 1.0, key
            # MAGMA's lead in milliseconds is more than its factor for short calls.
            assert miss <= fit.LEADS[key[2]] + 1e-9 or key[2] == "magma", key


def test_calls_that_wait_or_are_bound_by_the_host_are_left_to_torch(
    library: _select.Library,
) -> None:
    """The record: sytrf makes the host wait, orgqr and ormqr take the host as long as the GPU."""
    for op in ("orgqr", "ormqr", "ldl_factor"):
        assert not library.loop_measured(op)
        for dtype in DTYPES:
            for n in (64, 256, 1024):
                assert library.loop(LoopQuestion(op, dtype, 64, n, n, n)) == "stock"
    for op in ("geqrf", "cholesky", "cholesky_solve", "cholesky_inverse"):
        assert library.loop_measured(op)


@pytest.mark.parametrize(
    ("asked", "rival"),
    [
        (LoopQuestion("geqrf", "float32", 16, 256, 256), "batched_cublas"),
        (LoopQuestion("geqrf", "float32", 15, 256, 256), "loop"),
        (LoopQuestion("geqrf", "float32", 1000, 257, 8), "loop"),
        (LoopQuestion("geqrf", "float32", 1, 8, 8), "loop"),
        (LoopQuestion("geqrf", "float32", 2, 8, 8), "batched_cublas"),
        (LoopQuestion("cholesky", "float32", 2, 8, 8), "batched_cusolver"),
        (LoopQuestion("cholesky", "float32", 1, 8, 8), "loop"),
        (LoopQuestion("cholesky_solve", "float32", 2, 8, 8, 1), "magma"),
        (LoopQuestion("cholesky_solve", "float32", 1, 8, 8, 1), "loop"),
        (
            LoopQuestion("cholesky_solve", "float32", 2, 8, 8, 1, preference="cusolver"),
            "batched_cusolver",
        ),
        (LoopQuestion("cholesky_solve", "float32", 2, 8, 8, 2, magma=False), "loop"),
        (LoopQuestion("cholesky_inverse", "float32", 2, 8, 8), "magma"),
        (LoopQuestion("cholesky_inverse", "float32", 2, 8, 8, magma=False), "loop"),
        (LoopQuestion("ldl_factor", "float32", 2, 8, 8), "loop"),
    ],
)
def test_what_torch_does(library: _select.Library, asked: LoopQuestion, rival: str) -> None:
    assert library.loop_rival(asked) == rival


@pytest.mark.parametrize(
    ("backend", "asked", "reason"),
    [
        ("streamed_cusolver", LoopQuestion("geqrf", "float32", 4, 9, 9, lanes=1), "fewer than two"),
        ("streamed_cusolver", LoopQuestion("geqrf", "float32", 1, 9, 9), "one matrix"),
        ("batched_cublas", LoopQuestion("orgqr", "float32", 4, 9, 9), "no batched routine"),
        ("looped_cusolver", LoopQuestion("geqrf", "float32", 4, 2**31, 9), "up to 2^31 - 1"),
        (
            "looped_cusolver",
            LoopQuestion("ldl_factor", "complex64", 4, 9, 9, hermitian=True),
            "complex Hermitian",
        ),
        ("looped_cusolver", LoopQuestion("ldl_factor", "float32", 4, 9, 9, hermitian=True), None),
        ("stock", LoopQuestion("cholesky_solve", "float32", 4, 9, 9, 1, capturing=True), "MAGMA"),
        ("stock", LoopQuestion("cholesky", "float32", 4, 9, 9, capturing=True), None),
        ("stock", LoopQuestion("ldl_factor", "complex64", 4, 9, 9, hermitian=True), None),
    ],
)
def test_reasons(
    library: _select.Library, backend: str, asked: LoopQuestion, reason: str | None
) -> None:
    found = library.loop_infeasible(backend, asked)
    assert found is None if reason is None else found is not None and reason in found


def test_a_capture_never_meets_magma(library: _select.Library) -> None:
    for lanes, expected in ((4, "streamed_cusolver"), (0, "looped_cusolver")):
        asked = LoopQuestion(
            "cholesky_solve", "float32", 500, 30, 30, 1, lanes=lanes, capturing=True
        )
        assert library.loop(asked) == expected
        assert library.loop(replace(asked, capturing=False)) == "stock"


def test_a_tall_matrix_leaves_the_batched_routine_to_torch(library: _select.Library) -> None:
    """Only squares were measured; what the loop gains holds for any shape."""
    near = LoopQuestion("geqrf", "float32", 64, 256, 200)
    assert library.loop(near) == "streamed_cusolver"
    assert library.loop(replace(near, n=100)) == "stock"
    for n in (200, 128, 64, 10):
        assert library.loop(replace(near, m=4096, n=n)) == "streamed_cusolver"


def test_explain_tells_of_the_loops() -> None:
    found = explain("geqrf", (64, 256, 256), "float32")
    assert found.op == "geqrf" and found.chosen == "streamed_cusolver"
    assert {c.backend for c in found.candidates} == set(LOOP_BACKENDS)
    assert all(c.ms is not None or c.reason for c in found.candidates)
    times = {c.backend: c.ms for c in found.candidates}
    assert times["stock"] is not None and found.ms is not None and times["stock"] > 3 * found.ms
    assert "cuBLAS" in found.rule
    assert explain("geqrf", (64, 256, 256), "float32", prefer="magma").chosen == "stock"
    assert explain("cholesky", (4, 512, 512), "float64").chosen == "streamed_cusolver"
    with pytest.raises(UserError, match="square matrices, found 3 x 4"):
        explain("cholesky", (2, 3, 4), "float32")
    with pytest.raises(UserError, match="made of geqrf and orgqr"):
        explain("qr", (2, 3, 4), "float32")
