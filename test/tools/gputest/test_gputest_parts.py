"""The parts' scripts run to their end on a stand-in for the GPU, and write rows that a record
takes.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fake_cuda import Patched, Torch  # noqa: E402

from aotools.gputest import (  # noqa: E402
    part_allocs,
    part_cliff,
    part_lanes,
    part_routes,
    part_solve,
    part_unchanged,
)
from aotools.gputest.record import check_row  # noqa: E402
from aotools.gputest.session import Rows, Session  # noqa: E402
from aotools.patchset.relink import ENTRIES  # noqa: E402

CHANGED = ["lu_factor", "lu_solve"]
pytestmark = pytest.mark.wheel


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts' sizes are a GPU's, and threads only get in each other's way at these."""
    torch.set_num_threads(1)
    monkeypatch.setattr(part_lanes, "GRAPH_SHAPES", ((4, 16), (2, 8), (3, 8)))
    monkeypatch.setattr(part_lanes, "FEW", (4, 8))
    monkeypatch.setattr(part_lanes, "OFF_SHAPES", ((4, 8), (6, 5), (2, 16)))
    monkeypatch.setattr(part_lanes, "THREAD_SIZES", (5, 8))
    monkeypatch.setattr(part_allocs, "N", 8)
    monkeypatch.setattr(part_allocs, "TALL", (12, 10))


class Fixture:
    def __init__(self, library: str, options: dict[str, Any]) -> None:
        self.out = io.StringIO()
        self.session = Session(Rows(self.out), library, {}, options)
        self.session.torch = Torch()
        self.patched = Patched(CHANGED, list(ENTRIES))
        self.session._patched = self.patched  # type: ignore[assignment]

    def rows(self) -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in self.out.getvalue().splitlines()]
        return [check_row(row) for row in rows]


def failures(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"{row['name']} {row['params']}: {row['reason']}"
        for row in rows
        if row.get("result") == "fail"
    ]


def test_cliff_writes_every_point_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_cliff, "SIZES", (7, 8))
    monkeypatch.setattr(part_cliff, "BATCHES", (1, 3))
    fixture = Fixture("patched-magma", {"preferences": ["default", "cublas"], "routes": True})
    part_cliff.run(fixture.session)
    rows = fixture.rows()
    assert failures(rows) == []
    solve = [row for row in rows if row["op"] == "solve_ex"]
    assert len(solve) == 4 * 2 * 2 * 2
    assert all(row["residual"] < 1e-5 for row in solve)
    forced = [(row["backend"], row.get("lanes", 0)) for row in rows if row["op"] == "lu_factor_ex"]
    for backend, lanes in part_cliff.ROUTES:
        assert forced.count((backend, lanes)) == 4 * 2 * (1 if lanes else 2)  # no lanes at batch 1
    assert fixture.patched.lanes == 4


def test_cliff_skips_what_is_over_the_byte_cap_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_cliff, "SIZES", (8,))
    monkeypatch.setattr(part_cliff, "BATCHES", (2,))
    monkeypatch.setattr(part_cliff, "BYTE_CAP", 600)
    fixture = Fixture("stock", {"preferences": ["default"]})
    part_cliff.run(fixture.session)
    rows = fixture.rows()
    assert [row["dtype"] for row in rows if "op" in row] == ["float32"]
    assert [row["result"] for row in rows if "result" in row] == ["skip"] * 3


def test_cliff_keeps_going_when_one_route_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_cliff, "SIZES", (8,))
    monkeypatch.setattr(part_cliff, "BATCHES", (2,))
    fixture = Fixture("patched-magma", {"preferences": ["default"], "routes": True})

    def refuse(name: str, lanes: int = 0) -> None:
        if name == "batched_cublas":
            raise ValueError("no such route")

    fixture.patched.route = refuse  # type: ignore[method-assign]
    part_cliff.run(fixture.session)
    rows = fixture.rows()
    assert len(failures(rows)) == 4
    assert all("no such route" in text for text in failures(rows))
    assert {row["backend"] for row in rows if "op" in row} >= {"stock", "looped_cusolver", "choice"}


@pytest.mark.parametrize("function", [part_allocs.count, part_allocs.uncached])
def test_allocs(function: Any) -> None:
    fixture = Fixture("patched-nomagma", {})
    function(fixture.session)
    rows = fixture.rows()
    assert failures(rows) == []
    counted = [row for row in rows if "op" in row and row["op"] == "lu_factor_ex"]
    assert {(row["batch"], row["backend"]) for row in counted} >= {
        (1, "choice"),
        (1024, "streamed_cusolver"),
    }
    assert all(row.get("allocations", 4) == 4 for row in counted)


def test_lanes_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_lanes, "POINTS", (("float32", 8),))
    fixture = Fixture("patched-nomagma", {})
    part_lanes.speed(fixture.session)
    names = [row["name"] for row in fixture.rows() if "result" in row]
    # The stand-in is no faster on lanes: that check has to fail, those of the bits must not.
    assert {text.split(" {")[0] for text in failures(fixture.rows())} <= {
        "lanes: speed-up over the loop"
    }
    assert names.count("lanes: bits equal to the loop's") == 2


def test_lanes_bits_that_differ_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_lanes, "POINTS", (("float32", 8),))
    fixture = Fixture("patched-nomagma", {})
    calls = [0]
    real = fixture.session.torch.linalg.lu_factor_ex

    def sometimes_other(a: Any) -> Any:
        calls[0] += 1
        return real(a if calls[0] % 10 else a * (1 + 1e-6))

    fixture.session.torch.linalg.lu_factor_ex = sometimes_other
    part_lanes.speed(fixture.session)
    bits = [row for row in fixture.rows() if row.get("name") == "lanes: bits equal to the loop's"]
    assert [row["result"] for row in bits] == ["fail"] * 2
    assert all(row["value"] == 5 for row in bits)


def test_lanes_graphs() -> None:
    fixture = Fixture("patched-magma", {})
    part_lanes.graphs(fixture.session)
    rows = fixture.rows()
    assert failures(rows) == []
    assert len(rows) == 3 * (4 + 3)


def test_lanes_threads() -> None:
    fixture = Fixture("patched-nomagma", {})
    fixture.patched.made = 6
    part_lanes.threads(fixture.session)
    rows = fixture.rows()
    assert failures(rows) == []
    assert len(rows) == 3


def test_lanes_limits_and_off_come_to_their_end() -> None:
    fixture = Fixture("patched-nomagma", {})
    part_lanes.limits(fixture.session)
    names = {row["name"] for row in fixture.rows() if row["result"] == "pass"}
    assert {"lanes: memory limit 0 keeps one stream", "lanes: negative limits are refused"} <= names
    fixture = Fixture("patched-nomagma", {})
    part_lanes.off(fixture.session)
    assert [row["result"] for row in fixture.rows()] == ["pass"] * 3 + [
        "fail"
    ]  # nothing is refused here


@pytest.mark.parametrize("late", [True, False])
def test_unchanged(late: bool) -> None:
    fixture = Fixture("patched-magma", {"late": late})
    part_unchanged.run(fixture.session)
    rows = fixture.rows()
    assert failures(rows) == []
    assert len(rows) == 2 + 4 * 9


def test_unchanged_tells_a_change_of_code_and_of_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = Fixture("patched-magma", {"late": True})
    fixture.patched = Patched([*CHANGED, "svd"], list(ENTRIES))
    fixture.session._patched = fixture.patched  # type: ignore[assignment]
    times = [0]
    real = part_unchanged._result

    def result(call: Any) -> Any:
        times[0] += 1
        got = real(call)
        return tuple(tensor + 1 for tensor in got) if times[0] > 72 and got else got

    monkeypatch.setattr(part_unchanged, "_result", result)
    part_unchanged.run(fixture.session)
    said = "\n".join(failures(fixture.rows()))
    assert "svd must stay the wheel's" in said
    assert said.count("unchanged: bits") == 36


@pytest.fixture
def few_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_routes, "SQUARE", (1, 2, 5))
    monkeypatch.setattr(part_routes, "RECTANGULAR", ((5, 3), (3, 5)))
    monkeypatch.setattr(part_routes, "UNPIVOTED", ((5, 5), (4, 6)))
    monkeypatch.setattr(part_routes, "BAD_SIZES", (3, 9))
    monkeypatch.setattr(part_routes, "LARGE_BATCHES", (40, 41))


def _routes(lu_factor_ex: Any = None) -> list[dict[str, Any]]:
    fixture = Fixture("patched-magma", {})
    if lu_factor_ex is not None:
        fixture.session.torch.linalg.lu_factor_ex = lu_factor_ex
    part_routes.run(fixture.session)
    return fixture.rows()


@pytest.mark.usefixtures("few_routes")
def test_routes_pass_for_an_lu_that_is_right() -> None:
    # LAPACK on the CPU refuses pivot=False, so the stand-in leaves pivoting to a matrix that needs
    # none.
    rows = _routes(lambda a, pivot=True: torch.linalg.lu_factor_ex(a))
    assert failures(rows) == []
    kinds = {row["name"] for row in rows}
    assert len(kinds) == 6
    assert len(rows) == len(part_routes.ROUTES) * (3 * 4 + 2 * 2 + 1)
    skipped = {row["params"]["backend"] for row in rows if row["result"] == "skip"}
    assert skipped == {"looped_cusolver", "streamed_cusolver"}


@pytest.mark.usefixtures("few_routes")
@pytest.mark.parametrize(
    ("spoil", "kind", "word"),
    [
        (lambda a, lu, p, i: (lu * (1 + 1e-4), p, i), "routes: residual, pivots, info", "residual"),
        (lambda a, lu, p, i: (lu, p * 0, i), "routes: residual, pivots, info", "pivots"),
        (lambda a, lu, p, i: (lu, p, i + 1), "routes: residual, pivots, info", "info"),
        (
            lambda a, lu, p, i: (lu.nan_to_num() + (~torch.isfinite(a.real)).sum() * 1e-3, p, i),
            "routes: NaN and inf",
            "another matrix",
        ),
        (lambda a, lu, p, i: (lu[..., :1], p, i), "routes: empty", "(0, 4, 4)"),
    ],
)
def test_routes_find_what_is_wrong(spoil: Any, kind: str, word: str) -> None:
    def lu_factor_ex(a: Any, pivot: bool = True) -> Any:
        return spoil(a, *torch.linalg.lu_factor_ex(a))

    rows = [row for row in _routes(lu_factor_ex) if row["name"] == kind]
    wrong = [row for row in rows if row["result"] == "fail" and word in row["reason"]]
    assert {row["params"]["backend"] for row in wrong} >= {"choice", "batched_cublas"}
    stock = [row for row in rows if row["params"]["backend"] == "stock"]
    assert {row["result"] for row in stock} == {"vendor"}


@pytest.mark.usefixtures("few_routes")
def test_routes_call_a_wrong_info_of_a_singular_matrix_the_vendors() -> None:
    def lu_factor_ex(a: Any, pivot: bool = True) -> Any:
        lu, pivots, info = torch.linalg.lu_factor_ex(a)
        return lu, pivots, info * 0

    rows = [row for row in _routes(lu_factor_ex) if row["name"] == "routes: singular matrices"]
    assert {row["result"] for row in rows} == {"vendor"}
    assert all("the first zero pivot is" in row["reason"] for row in rows)


@pytest.fixture
def few_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_solve, "SIZES", (1, 5))
    monkeypatch.setattr(part_solve, "BATCHES", (1, 3))
    monkeypatch.setattr(part_solve, "SHARED_ROWS", 6)
    monkeypatch.setattr(part_solve, "COLUMNS", 90)
    monkeypatch.setattr(part_solve, "LARGE", 40)


@pytest.mark.usefixtures("few_solves")
def test_solve_passes_for_answers_that_are_right() -> None:
    fixture = Fixture("patched-magma", {})
    part_solve.correct(fixture.session)
    rows = fixture.rows()
    assert failures(rows) == [] and all(row["result"] == "pass" for row in rows)
    residuals = [row["params"] for row in rows if row["name"] == "solve: residual"]
    forced = {row["backend"] for row in residuals}
    assert forced == {"choice", "stock", *(name for name, _ in part_solve.ROUTES)}
    assert len(residuals) == 4 * (5 + 3)
    captured = [row for row in rows if row["name"] == "solve: captured"]
    assert len(captured) == 4


@pytest.mark.usefixtures("few_solves")
@pytest.mark.parametrize("fault", ["transposed", "one column"])
def test_solve_finds_wrong_answers(fault: str) -> None:
    fixture = Fixture("patched-magma", {})

    def wrong(lu: Any, pivots: Any, b: Any, adjoint: bool = False, left: bool = True) -> Any:
        if fault == "transposed":
            return torch.linalg.lu_solve(lu, pivots, b, adjoint=False, left=left)
        x = torch.linalg.lu_solve(lu, pivots, b, adjoint=adjoint, left=left)
        if left and b.shape[-1] == 90:
            x[..., -1] = 0  # the last column alone, of the many
        return x

    fixture.session.torch.linalg.lu_solve = wrong
    part_solve.correct(fixture.session)
    found = {row["name"] for row in fixture.rows() if row["result"] in ("fail", "vendor")}
    # what is replaced here is no call that a graph of the stand-in replays
    assert found - {"solve: captured"} == (
        {"solve: limits of cuBLAS"}
        if fault == "one column"
        else {"solve: residual", "solve: shared factors", "solve: limits of cuBLAS"}
    )


def test_solve_times(monkeypatch: pytest.MonkeyPatch) -> None:
    points = (
        ("float32", 1, 8, 1, True),
        ("complex128", 3, 5, 2, True),
        ("float64", 80, 4, 2, False),
    )
    monkeypatch.setattr(part_solve, "POINTS", points)
    for library, routes in (("patched-magma", True), ("unpatched-magma", False)):
        fixture = Fixture(library, {"routes": routes})
        part_solve.times(fixture.session)
        rows = fixture.rows()
        assert failures(rows) == []
        timed = [row for row in rows if "op" in row]
        assert {row["operation"] for row in timed} == {"T", "C", "N"}
        assert {row["preference"] for row in timed} == {"default", "cusolver"}
        # a loop over one matrix needs no lanes, and one over 80 is not timed
        assert len(timed) == (2 * 3 + (4 + 5 + 3) * routes)
