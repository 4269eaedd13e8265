"""aten-overrides bench: grids, rivals in rounds, table, record."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from expecttest import assert_expected_inline

from aten_overrides import cli
from aten_overrides._errors import UserError
from aten_overrides.bench import grids, report
from aten_overrides.bench import run as running
from aten_overrides.bench.grids import Case
from aten_overrides.bench.rivals import NotHere, Rival, Rivals
from aten_overrides.bench.run import Limits, bench

CASES = grids.cases(
    [{"op": "solve_ex", "dtypes": ["float32"], "n": [64, 128], "batch": [4]}], "test"
)


def test_grids_are_data() -> None:
    for name in grids.names():
        cases = grids.load(name)
        assert cases and len(set(cases)) == len(cases)
    readme = grids.load("readme")
    assert {case.nrhs for case in readme if case.op == "lu_solve"} == {1, 64}
    assert {case.nrhs for case in readme if case.op == "eigh"} == {0}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"op": "solve_ex"}], "a row has op, dtypes, n, batch"),
        ([{"op": "a", "dtypes": [], "n": [1], "batch": [1]}], "there is no operation 'a'"),
        ([{"op": "det", "dtypes": ["int8"], "n": [1], "batch": [1]}], "there is no dtype"),
        ([{"op": "det", "dtypes": ["float32"], "n": [0], "batch": [1]}], "n must be a list"),
        ([{"op": "det", "dtypes": ["float32"], "n": 4, "batch": [1]}], "n must be a list"),
        ({}, "a row has op"),
    ],
)
def test_grids_that_are_refused(rows: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        grids.cases(rows, "test")


class FakeClock:
    """Returns what a call returns, and keeps the order of the calls."""

    name = "fake"

    def __init__(self) -> None:
        self.order: list[float] = []

    def warm(self, call: Callable[[], Any]) -> float:
        return float(call())

    def seconds(self, call: Callable[[], Any], estimate: float) -> float:
        self.order.append(float(call()))
        return self.order[-1]


def rival(name: str, seconds: float, error: Exception | None = None) -> Rival:
    def call(problems: Any, case: Case) -> Callable[[], float]:
        if error is not None:
            raise error
        return lambda: seconds * case.n

    return Rival(name, "choice", "default", contextlib.nullcontext, call)


class FakeRivals(Rivals):
    def __init__(self, *rivals: Rival) -> None:
        super().__init__(None, "cpu")
        self._rivals = list(rivals)
        self.missing = {"cupy": "cupy cannot be imported"}

    def of(self, case: Case) -> list[Rival]:
        return self._rivals

    def answers(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = Limits(1e12, {"float32": 1e12})
    monkeypatch.setattr(running, "measure_limits", lambda *arguments: fixed)


def test_rivals_share_the_rounds_and_failures_are_named() -> None:
    clock = FakeClock()
    rivals = FakeRivals(
        rival("a", 1e-5),
        rival("b", 2e-5),
        rival("slow", 9e-4),
        rival("c", 1.0, NotHere("c cannot take it")),
        rival("d", 1.0, RuntimeError("out of memory")),
    )
    found = bench(CASES, rivals, clock, 60)
    first = clock.order[: 2 * running.ROUNDS]
    assert all(set(first[i : i + 2]) == {64e-5, 128e-5} for i in range(0, len(first), 2))
    assert len({tuple(first[i : i + 2]) for i in range(0, len(first), 2)}) == 2  # either order
    times = {(row["library"], row["n"]): row["ms"] for row in found.points}
    assert times == pytest.approx(
        {("a", 64): 0.64, ("b", 64): 1.28, ("slow", 64): 57.6}
        | {("a", 128): 1.28, ("b", 128): 2.56, ("slow", 128): 115.2}
    )
    slow = next(row for row in found.points if row["library"] == "slow")
    assert slow["repeats"] == 1 and "20 times" in slow["note"]
    reasons = [row["reason"] for row in found.checks]
    assert reasons.count("c cannot take it") == 2
    assert reasons.count("RuntimeError: out of memory") == 2
    assert reasons[-1] == "cupy cannot be imported"


def test_a_rival_that_fails_in_a_round_keeps_no_time() -> None:
    calls = {"left": 3}

    class Breaking(FakeClock):
        def seconds(self, call: Callable[[], Any], estimate: float) -> float:
            taken = super().seconds(call, estimate)
            calls["left"] -= taken > 1e-3
            if taken > 1e-3 and calls["left"] == 0:
                raise RuntimeError("CUDA error: launch failure")
            return taken

    rivals = FakeRivals(rival("a", 1e-5), rival("b", 2e-5))
    found = bench(CASES[:1], rivals, Breaking(), 60)
    assert [row["library"] for row in found.points] == ["a"]
    assert found.checks[0]["reason"] == "RuntimeError: CUDA error: launch failure"
    assert found.left_out == []
    calls["left"] = 3
    rivals.answers = lambda: False  # type: ignore[method-assign]
    found = bench(CASES, rivals, Breaking(), 60)
    assert found.left_out == CASES[1:]
    assert found.checks[1]["name"] == "device"


def test_slow_rivals_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"time": 0.0}
    monkeypatch.setattr("time.monotonic", lambda: now["time"])

    class Passing(FakeClock):
        def seconds(self, call: Callable[[], Any], estimate: float) -> float:
            now["time"] += float(call())
            return float(call())

        def warm(self, call: Callable[[], Any]) -> float:
            return self.seconds(call, 0.0) + self.seconds(call, 0.0)

    told: list[int] = []
    many = grids.cases(
        [{"op": "eigh", "dtypes": ["float32"], "n": list(range(1, 31)), "batch": [1]}], "test"
    )
    rivals = FakeRivals(*(rival(name, seconds) for name, seconds in [("a", 0.01), ("b", 0.2)]))
    found = bench(many, rivals, Passing(), 40, lambda number, result: told.append(number))
    assert now["time"] < 40 + 3 * 6  # at most the three calls of one rival too long
    assert told == list(range(len(told))) and len(found.points) > len(told)
    assert len(told) + len(found.left_out) == len(many)
    assert any("time for this problem" in row["reason"] for row in found.checks)


def test_figures_of_a_point() -> None:
    found = bench(CASES[:1], FakeRivals(rival("a", 1e-5)), FakeClock(), 60)
    (row,) = found.points
    operations = 4 * (2 / 3 * 64**3 + 2 * 64**2)
    assert row["gflops"] == pytest.approx(operations / 64e-5 * 1e-9, rel=1e-3)
    assert row["limit_share"] == pytest.approx(operations / 1e12 / 64e-5, rel=1e-3)
    small = Case("inv_ex", "float32", 1, 4, 0)
    assert Limits(1e9, {"float32": 1e30}).seconds(small) == pytest.approx(2 * 16 * 4 / 1e9)
    solve = Case("lu_solve", "float32", 2, 4, 3)  # reads the factors only
    assert Limits(1e9, {"float32": 1e30}).seconds(solve) == pytest.approx(
        2 * (16 + 2 * 12) * 4 / 1e9
    )
    wide = Case("inv_ex", "complex64", 1, 4, 0)
    assert Limits(1e30, {"float32": 1e9}).seconds(wide) == pytest.approx(4 * 2 * 64 / 1e9)


def test_what_does_not_fit_is_named() -> None:
    found = bench(CASES, FakeRivals(rival("a", 1e-5)), FakeClock(), -1.0)
    assert found.points == [] and found.left_out == CASES


def test_table() -> None:
    found = bench(CASES, FakeRivals(rival("overrides", 1e-5), rival("cupy", 2e-5)), FakeClock(), 60)
    assert_expected_inline(
        report.table(found.points),
        """\
[------------ solve_ex, milliseconds -------------]
                             | overrides |   cupy
float32 4 x 64 x 64, 1 rhs   |    0.64 * | 1.28
float32 4 x 128 x 128, 1 rhs |    1.28 * | 2.56

* the fastest of the row; +- where the samples differ by more than a tenth""",
    )


def test_command_on_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    grid = tmp_path / "grid.json"
    grid.write_text('[{"op": "qr", "dtypes": ["float32"], "n": [4, 8], "batch": [2]}]')
    words = ["bench", "--grid", str(grid), "--device", "cpu", "--out", str(tmp_path)]
    assert cli.main([*words, "--png", str(tmp_path / "share.png")]) == 0
    said = capsys.readouterr()
    assert "qr, milliseconds" in said.out and "2 of 2: qr float32 2 x 8" in said.err
    assert cli.main([*words, "--unit", "gflops"]) == 0
    assert "qr, GFLOP/s (nominal)" in capsys.readouterr().out
    assert cli.main([*words, "--quiet"]) == 0
    said = capsys.readouterr()
    assert said.err == "" and said.out.startswith("qr: 2 problems, 2 times of 1 rivals; ")
    (path,) = tmp_path.glob("bench-cpu-torch*.json")
    record = json.loads(path.read_text())
    assert record["meta"]["topic"] == "bench" and record["meta"]["gpu"] is None
    assert [row["n"] for row in record["points"]] == [4, 8]
    assert all(row["ms"] > 0 and row["gflops"] > 0 for row in record["points"])
    names = {path.name, "grid.json", "share.png"}
    assert {entry.name for entry in tmp_path.iterdir()} == names


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grid", "absent"], "there is no grid 'absent'; known are readme"),
        (["--grid", "absent.json"], "--grid absent.json cannot be read"),
        (["--budget", "0"], "--budget must be above 0"),
        (["--out", "/absent"], "there is no folder /absent"),
    ],
)
def test_errors(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err
