"""LinalgChoice.h: the choice is total, feasible and honours the preference, for any problem."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aten_overrides import _compile, _select
from aten_overrides._names import BACKENDS, DTYPES, OPS, PREFERENCES
from aten_overrides._select import Facts, Native, Problem
from aten_overrides.tables import regret

INT64_MAX = 2**63 - 1
sizes = st.one_of(
    st.integers(0, 5000),
    st.sampled_from([0, 1, 2, 511, 512, 513, 65535, 65536, 2**31 - 1, 2**31, INT64_MAX]),
    st.integers(0, INT64_MAX),
)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    n = draw(sizes)
    m = n if draw(st.booleans()) else draw(sizes)
    return Problem(draw(sizes), m, n, draw(st.booleans()))


facts = st.builds(
    Facts,
    lanes=st.one_of(st.integers(-1, 9), st.just(2**31 - 1)),
    stock=st.booleans(),
    capturing=st.booleans(),
    native=st.sampled_from(Native),
)


@pytest.fixture(scope="module")
def library() -> _select.Library:
    return _select.load()


@given(st.sampled_from(DTYPES), problems(), st.sampled_from(PREFERENCES), facts)
def test_choice_is_feasible_and_honours_the_preference(
    library: _select.Library, dtype: str, problem: Problem, preference: str, facts: Facts
) -> None:
    chosen = library.by_thresholds(dtype, problem, preference, facts)
    possible = {
        backend
        for backend in BACKENDS
        if library.infeasible("lu_factor", dtype, backend, problem, facts) is None
    }
    assert chosen in possible
    if preference in ("cusolver", "cublas"):
        assert chosen not in ("stock", "batched_native")
    default = library.by_thresholds(dtype, problem, "default", facts)
    if preference == "native":
        assert chosen == ("batched_native" if "batched_native" in possible else default)
    if preference == "cublas" and problem.m == problem.n:
        assert chosen == "batched_cublas"
    if preference == "cublas" and problem.m != problem.n:
        assert chosen == library.by_thresholds(dtype, problem, "cusolver", facts)
    if preference == "magma":
        assert chosen == ("stock" if "stock" in possible else default)
    if preference == "default" and not facts.stock and chosen != "batched_native":
        assert chosen == library.by_thresholds(dtype, problem, "cusolver", facts)


@given(st.sampled_from(DTYPES), problems(), st.sampled_from(PREFERENCES), facts)
def test_a_capture_never_takes_what_synchronizes(
    library: _select.Library, dtype: str, problem: Problem, preference: str, facts: Facts
) -> None:
    captured = Facts(facts.lanes, facts.stock, capturing=True, native=facts.native)
    assert library.by_thresholds(dtype, problem, preference, captured) != "stock"


@given(problems(), facts)
def test_the_fit_knows_the_same_back_ends_as_feasible(
    library: _select.Library, problem: Problem, facts: Facts
) -> None:
    possible = tuple(
        backend
        for backend in BACKENDS
        if library.infeasible("lu_factor", "float32", backend, problem, facts) is None
    )
    assert regret.feasible(problem, facts) == possible


@pytest.mark.parametrize(
    ("backend", "problem", "facts", "reason"),
    [
        ("batched_cublas", Problem(4, 3, 5), Facts(), "m == n"),
        ("streamed_cusolver", Problem(4, 3, 3), Facts(lanes=1), "fewer than two"),
        ("streamed_cusolver", Problem(1, 3, 3), Facts(), "one matrix"),
        ("stock", Problem(4, 3, 3), Facts(stock=False), "MAGMA is not in this build"),
        ("stock", Problem(4, 3, 3), Facts(capturing=True), "synchronizes"),
        ("looped_cusolver", Problem(4, 3, 5), Facts(0, False, True), None),
        ("batched_cublas", Problem(0, 0, 0), Facts(), None),
        ("batched_native", Problem(4, 3, 5), Facts(native=Native.USABLE, capturing=True), None),
        ("batched_native", Problem(4, 3, 5), Facts(), "built without our kernels"),
        (
            "batched_native",
            Problem(4, 3, 5),
            Facts(native=Native.NOT_FOR_THIS_GPU),
            "not compiled for this GPU",
        ),
        (
            "batched_native",
            Problem(4, 3, 5),
            Facts(native=Native.DRIVER_TOO_OLD),
            "driver is too old",
        ),
        ("batched_native", Problem(1, 2**31 - 1, 1), Facts(native=Native.USABLE), "below 2^31 - 1"),
    ],
)
def test_reasons(
    library: _select.Library, backend: str, problem: Problem, facts: Facts, reason: str | None
) -> None:
    found = library.infeasible("lu_factor", "float64", backend, problem, facts)
    assert found is None if reason is None else found is not None and reason in found


@pytest.mark.parametrize(
    ("op", "m", "n", "has"),
    [
        ("lu_factor", 3, 3, True),
        ("lu_factor", 4, 3, False),
        ("lu_solve", 3, 3, True),
        ("geqrf", 3, 9, True),
        ("gels", 4, 3, True),
        ("gels", 3, 4, False),
    ],
)
def test_where_cublas_has_a_batched_routine(
    library: _select.Library, op: str, m: int, n: int, has: bool
) -> None:
    found = library.infeasible(op, "float32", "batched_cublas", Problem(2, m, n), Facts())
    assert (found is None) is has


def test_names_are_those_of_the_header(library: _select.Library) -> None:
    assert library.backend_names() == BACKENDS


def test_fewer_streams_than_measured_decide_as_one_stream(library: _select.Library) -> None:
    """Two streams of a batch of 16: cuBLAS up to where one stream leaves it, then the streams."""
    two, none = Facts(lanes=2, stock=False), Facts(lanes=0, stock=False)
    for n in range(16, 2000, 37):
        problem = Problem(16, n, n)
        as_one = library.by_thresholds("float32", problem, "default", none)
        expected = {"batched_cublas": "batched_cublas", "looped_cusolver": "streamed_cusolver"}
        assert library.by_thresholds("float32", problem, "default", two) == expected[as_one]
    # Two matrices cannot use more than two streams anyway.
    pair = Problem(2, 256, 256)
    assert library.by_thresholds("float32", pair, "default", two) == "streamed_cusolver"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(8, 4), (4, 8), (2048, 127), (127, 2048)])
def test_small_rectangular_problems_keep_magma(
    library: _select.Library, dtype: str, m: int, n: int
) -> None:
    """None below min(m, n) = 128 was measured: one call of MAGMA, as PyTorch had it."""
    for batch in (1, 2, 16, 1000):
        for lanes in (0, 2, 4):
            problem = Problem(batch, m, n)
            streams = lanes >= 2 and batch >= 2
            cusolver = "streamed_cusolver" if streams else "looped_cusolver"
            with_magma, without = Facts(lanes, True), Facts(lanes, False)
            assert library.by_thresholds(dtype, problem, "default", with_magma) == "stock"
            assert library.by_thresholds(dtype, problem, "default", without) == cusolver
            assert library.by_thresholds(dtype, problem, "cusolver", with_magma) == cusolver
    # From 128 on the measured rule holds: a single matrix goes to cuSOLVER.
    first = Problem(1, max(m, n, 129), 128)
    assert library.by_thresholds(dtype, first, "default", Facts(4, True)) == "looped_cusolver"


def test_header_compiles_alone_without_warnings_and_at_compile_time(tmp_path: Path) -> None:
    folder = tmp_path / "ATen/native/cuda/linalg"
    folder.mkdir(parents=True)
    for name in _compile.HEADERS:
        (folder / name).write_text((_compile.CSRC / "linalg" / name).read_text())
    unit = tmp_path / "unit.cpp"
    unit.write_text(
        "#include <ATen/native/cuda/linalg/LinalgChoice.h>\n"
        "using namespace at::native::linalg_choice;\n"
        "constexpr Problem huge{INT64_MAX, INT64_MAX, INT64_MAX, true};\n"
        "static_assert(choose_lu_factor(Dtype::Float, huge, Preference::Cublas, {4, true, false})\n"
        "              == Backend::BatchedCublas);\n"
        "static_assert(noexcept(choose_lu_factor(Dtype::Float, huge, {}, {})));\n"
        + "".join(
            f"static_assert(static_cast<int>({kind}::{name}) == {value});\n"
            for kind, names in (
                ("Op", ("LuFactor", "LuSolve", "Geqrf", "Gels")),
                ("Dtype", ("Float", "Double", "ComplexFloat", "ComplexDouble")),
                ("Preference", ("Default", "Cusolver", "Magma", "Cublas", "Native")),
            )
            for value, name in enumerate(names)
        )
    )
    assert OPS[:4] == ("lu_factor", "lu_solve", "geqrf", "gels") and len(DTYPES) == 4
    assert PREFERENCES == ("default", "cusolver", "magma", "cublas", "native")
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror"]
    command = [*_compile.find_compiler(), "-std=c++17", "-fsyntax-only", *warnings]
    done = subprocess.run(
        [*command, f"-I{tmp_path}", str(unit)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    package = tmp_path / "package.cpp"
    package.write_text(
        f'#include "{_compile.CSRC / "package/select/Choice.h"}"\n'
        "using namespace aten_overrides::choice;\n"
        "constexpr Problem one{1, 5, 5, true};\n"
        "constexpr Facts usable{4, true, false, Native::Usable};\n"
        "static_assert(choose_lu_factor(Dtype::Float, one, Preference::Native, usable)\n"
        "              == Backend::BatchedNative);\n"
        "constexpr Facts unbuilt{4, true, false};\n"
        "static_assert(choose_lu_factor(Dtype::Float, one, Preference::Native, unbuilt)\n"
        "              == choose_lu_factor(Dtype::Float, one, Preference::Default, unbuilt));\n"
    )
    done = subprocess.run(
        [*command, f"-I{tmp_path}", str(package)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_table_takes_native_only_where_it_can_and_is_the_fastest(
    library: _select.Library,
) -> None:
    """With a table in which our kernels win at n = 64 and lose at n = 512."""
    times = [
        ("lu_factor", "float32", backend, Problem(8, n, n), ms)
        for n, row in (
            (64, {"batched_cublas": 3.0, "looped_cusolver": 4.0, "batched_native": 1.0}),
            (512, {"batched_cublas": 3.0, "looped_cusolver": 1.0, "batched_native": 2.0}),
        )
        for backend, ms in row.items()
    ]
    costs = _select.fill(library, 4, times)

    def chosen(n: int, preference: str, native: Native) -> str:
        facts = Facts(lanes=0, stock=False, native=native)
        return costs.choose("float32", Problem(8, n, n), preference, facts).by_table

    for preference, small, large in (
        ("default", "batched_native", "looped_cusolver"),
        ("magma", "batched_native", "looped_cusolver"),
        ("native", "batched_native", "batched_native"),
        ("cusolver", "batched_cublas", "looped_cusolver"),
        ("cublas", "batched_cublas", "batched_cublas"),
    ):
        found = tuple(chosen(n, preference, Native.USABLE) for n in (64, 512))
        assert found == (small, large), preference
        for state in (Native.NOT_BUILT, Native.NOT_FOR_THIS_GPU, Native.DRIVER_TOO_OLD):
            assert "batched_native" not in (chosen(n, preference, state) for n in (64, 512))
    report = costs.choose("float32", Problem(8, 64, 64), "cublas", Facts(native=Native.USABLE))
    told = next(c for c in report.candidates if c.backend == "batched_native")
    assert (told.allowed, told.reason) == (False, "the preference is cublas")
    assert told.ms == pytest.approx(1.0)
    # Nothing measured in this dtype: ATen's thresholds.
    report = costs.choose("float64", Problem(8, 64, 64), "default", Facts(native=Native.USABLE))
    assert not report.measured and report.by_table == report.by_thresholds
