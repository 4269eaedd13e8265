"""explain() of lu_solve, and of solve and inv, which are made of lu_factor and lu_solve."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aten_overrides import _select, cli
from aten_overrides._errors import UserError
from aten_overrides._explain import explain
from aten_overrides._names import DTYPES, LU_SOLVE_BACKENDS, PREFERENCES
from aten_overrides._select import Basis, Facts, Native
from aten_overrides.tables.lu_solve import predict, table
from aten_overrides.tables.lu_solve.table import Point, SolveTable


def test_a_measured_problem_has_the_record_s_times() -> None:
    point = next(
        p for p in table.load().of("float32", True) if (p.batch, p.n, p.nrhs) == (64, 512, 1)
    )
    found = explain("linalg.lu_solve", (64, 512, 512), "float32", adjoint=True)
    assert found.op == "lu_solve" and found.nrhs == 1 and found.transposed
    times = {c.backend: c.ms for c in found.candidates if c.basis is Basis.MEASURED}
    assert times == pytest.approx(dict(point.ms))
    assert found.chosen == min(point.ms, key=lambda name: point.ms[name]) and found.measured
    assert found.thresholds.regret == 1.0
    assert found.stock_rule.regret == pytest.approx(point.ms["stock"] / point.ms[found.chosen])


def test_the_leading_sizes_are_the_batch_and_nrhs_counts() -> None:
    one = explain("lu_solve", (4, 16, 512, 512), "float32", nrhs=512)
    assert one.problem.batch == 64 and one.chosen == "blocked_native"
    assert explain("lu_solve", (512, 512), "float32").problem.batch == 1


@pytest.mark.parametrize("op", ["solve", "linalg.solve_ex", "inv", "torch.linalg.inv_ex"])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_both_halves(op: str, dtype: str) -> None:
    found = explain(op, (64, 128, 128), dtype)
    first = explain("lu_factor", (64, 128, 128), dtype)
    columns = 128 if "inv" in op else 1
    second = explain("lu_solve", (64, 128, 128), dtype, nrhs=columns, adjoint=dtype == "float32")
    assert found.asked == ("inv" if "inv" in op else "solve")
    assert (found.op, found.chosen, found.ms) == ("lu_factor", first.chosen, first.ms)
    assert found.then == second and first.then is None
    assert first.ms is not None and second.ms is not None
    assert found.whole_ms == first.ms + second.ms and first.whole_ms == first.ms


def test_every_rejected_back_end_has_a_reason() -> None:
    found = explain("lu_solve", (1, 512, 512), "float64", prefer="cusolver", native=False)
    reasons = {c.backend: c.reason for c in found.candidates if not c.allowed}
    assert set(reasons) == {"batched_native", "blocked_native", "streamed_cusolver", "stock"}
    assert "without our kernels" in reasons["batched_native"]
    assert "one matrix" in reasons["streamed_cusolver"]
    assert reasons["stock"] == "the preference is cusolver"
    many = explain("lu_solve", (8, 64, 64), "float32", nrhs=524281)
    told = {c.backend: c.reason for c in many.candidates}
    assert "wrong from 524281 columns" in told["stock"] and not many.measured
    native = explain("lu_solve", (64, 64, 64), "float32", prefer="native")
    assert {c.backend for c in native.candidates if c.allowed} <= set(LU_SOLVE_BACKENDS[:2])
    captured = explain("lu_solve", (64, 600, 600), "float32", capturing=True)
    assert "MAGMA synchronizes" in {c.backend: c.reason for c in captured.candidates}["stock"]


@given(
    st.sampled_from(DTYPES),
    st.tuples(*[st.sampled_from([0, 1, 2, 9, 64, 65, 600, 5000, 524281, 2**31])] * 3),
    st.sampled_from(PREFERENCES),
    st.builds(
        Facts, st.integers(0, 4), st.booleans(), st.booleans(), st.sampled_from(list(Native))
    ),
    st.booleans(),
    st.booleans(),
)
def test_what_is_chosen_is_never_rejected(
    dtype: str,
    sizes: tuple[int, int, int],
    preference: str,
    facts: Facts,
    transposed: bool,
    regular: bool,
) -> None:
    library = _select.load()
    how: dict[str, Any] = {"transposed": transposed, "regular": regular}
    chosen = library.lu_solve(dtype, sizes, preference, facts, **how)
    taken = [
        name
        for name in LU_SOLVE_BACKENDS
        if library.lu_solve_rejected(name, dtype, sizes, preference, facts, **how) is None
    ]
    assert chosen in taken
    if preference in ("magma", "cublas"):
        assert taken == [chosen]
    others = set(LU_SOLVE_BACKENDS) - set(taken)
    assert all(
        library.lu_solve_rejected(name, dtype, sizes, preference, facts, **how) for name in others
    )


def test_unknown_numbers() -> None:
    library = _select.load()
    good = [0, 0, 4, 4, 1, 0, 1, 0, 4, 1, 0, 1, 8192]
    for at, wrong in ((0, -1), (0, 7), (1, 4), (7, 5), (11, 4)):
        arguments = [*good[:at], wrong, *good[at + 1 :]]
        assert library.call("lu_solve_rejected", None, *arguments) == b"unknown"
    assert library.call("lu_solve_rejected", None, *good) is None


def invented() -> SolveTable:
    """Times that are powers of the sizes, so that interpolation in logarithms is exact."""
    points = [
        Point("float32", True, batch, n, nrhs, {"stock": law(batch, n, nrhs)})
        for batch in (1, 8, 64)
        for n in (16, 64, 256)
        for nrhs in (1, 8, n)
    ]
    return SolveTable("NVIDIA Test 1", {}, tuple(points))


def law(batch: int, n: int, nrhs: int) -> float:
    return float(1e-4 * batch**0.5 * n**1.5 * nrhs**0.25)


def test_predictions() -> None:
    made = invented()
    for sizes in ((1, 16, 1), (8, 64, 8), (64, 256, 256), (3, 100, 4), (20, 200, 50), (5, 33, 33)):
        ms, basis = predict.predict(made, "float32", True, sizes, "stock")
        assert ms is not None and math.isclose(ms, law(*sizes), rel_tol=1e-9), sizes
        known = any((p.batch, p.n, p.nrhs) == sizes for p in made.points)
        assert basis is (Basis.MEASURED if known else Basis.INTERPOLATED), sizes
        # A direction without measurements has the other one's times.
        assert predict.predict(made, "float32", False, sizes, "stock")[0] == ms
    for outside in ((65, 64, 1), (1, 15, 1), (1, 257, 1), (1, 64, 65), (0, 64, 1), (1, 64, 0)):
        nothing = predict.predict(made, "float32", True, outside, "stock")
        assert nothing == (None, Basis.NONE)
    assert predict.predict(made, "float32", True, (1, 64, 1), "batched_native")[0] is None
    assert predict.predict(made, "float64", True, (1, 64, 1), "stock")[0] is None


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        (("lu_solve", (2, 3, 4), "float32"), {}, "square matrices, found 3 x 4"),
        (("solve", (2, 3, 4), "float32"), {}, "solve takes square matrices"),
        (("lu_solve", (2, 4, 4), "float32"), {"nrhs": 0}, "above 0, found 0"),
        (("lu_solve", (2, 4, 4), "float32"), {"nrhs": 2**63}, "between 0 and"),
        (("lu_solve", (2, 4, 4), "float32", "no.json"), {}, "no.json cannot be read"),
        (("inv", (2, 4, 4), "float32"), {"nrhs": 4}, "as many right-hand sides as rows"),
        (("lu_factor", (2, 4, 4), "float32"), {"nrhs": 1}, "has no right-hand sides"),
        (("solve", (2, 4, 4), "float32"), {"adjoint": True}, "an option of lu_solve"),
        (("inv", (2, 4, 4), "float32"), {"pivot": False}, "an option of lu_factor"),
    ],
)
def test_errors(arguments: tuple[object, ...], settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        explain(*arguments, **settings)  # type: ignore[arg-type]


def test_a_table_of_one_s_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(table.render(invented()))
    found = explain("lu_solve", (8, 64, 64), "float32", str(path), adjoint=True)
    assert found.source.gpu == "NVIDIA Test 1"
    times = {c.backend: c.ms for c in found.candidates if c.ms is not None}
    assert times == {"stock": pytest.approx(law(8, 64, 1))}


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--shape", "9,128,128"]
    assert cli.main(["explain", "lu_solve", *shape, "--nrhs", "3", "--adjoint"]) == 0
    said = capsys.readouterr().out
    assert "9 matrices of 128 x 128, 3 right-hand sides (adjoint)" in said
    assert "its calls are dealt out to streams" in said and "the compiled ranking: " in said
    assert cli.main(["explain", "inv_ex", *shape]) == 0
    said = capsys.readouterr().out
    assert said.startswith("inv: lu_factor and lu_solve, ")
    assert "128 right-hand sides (adjoint)" in said and "ATen's thresholds: " in said
    assert cli.main(["explain", "solve", *shape, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["then"]["op"] == "lu_solve" and data["whole_ms"] == data["ms"] + data["then"]["ms"]
    assert {c["basis"] for c in data["then"]["candidates"]} <= {b.name.lower() for b in Basis}
    assert cli.main(["explain", "lu_factor", "--grid", "--nrhs", "3"]) == 2
    assert "go with --shape" in capsys.readouterr().err
