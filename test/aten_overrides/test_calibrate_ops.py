"""calibrate for lu_solve and eigh with a bench that needs no GPU: grids, files, resuming."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_gpu import FACTS

from aten_overrides import _info, _runtime, _select
from aten_overrides._errors import UserError
from aten_overrides._names import DTYPES, EIGH_BACKENDS, LU_SOLVE_BACKENDS
from aten_overrides._select import Facts, Native, Problem, Rankings
from aten_overrides.calibration import grids, measuring, output, session
from aten_overrides.calibration.tasks import AnyTask, EighTask, SolveTask, of_json
from aten_overrides.cli import calibrate as command
from aten_overrides.tables import own
from aten_overrides.tables import table as lu_table

NAMES = {"lu_solve": LU_SOLVE_BACKENDS, "eigh": EIGH_BACKENDS}
# How fast a GPU is that is not the H200: the first is ahead everywhere.
SPEED = {"triangular_cublas": 4.0, "batched_cusolver": 4.0, "looped_cusolver": 0.2,
         "streamed_cusolver": 0.6}  # fmt: skip


class FakeBench:
    """Costs nothing; stops as a user would after so many problems."""

    def __init__(self, op: str, stop: list[int]) -> None:
        self._op, self._stop = op, stop
        self.prepared: list[AnyTask] = []

    def backends(self, task: AnyTask) -> Mapping[str, str]:
        names = NAMES[self._op]
        alone = task.over_batch[1] < 2
        return {name: "one" if alone and name.startswith("streamed") else "" for name in names}

    def prepare(self, task: AnyTask) -> None:
        if self._stop and len(self.prepared) == self._stop[0]:
            raise KeyboardInterrupt
        self.prepared.append(task)

    def once(self, backend: str) -> float:
        task = self.prepared[-1]
        return (0.02 + task.work / 1e8) / SPEED.get(backend, 1.0)


@pytest.fixture
def benches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The benches that the command makes, by operation, and under "stop" where to interrupt."""
    made: dict[str, Any] = {"stop": []}

    class Library:
        def native(self) -> int:
            return int(Native.USABLE)

    def bench(op: str, *more: Any) -> FakeBench:
        made[op] = FakeBench(op, made["stop"])
        return made[op]  # type: ignore[no-any-return]

    monkeypatch.setattr(command, "_library", lambda torch: (Library(), 4))
    monkeypatch.setattr(command, "_bench", bench)
    monkeypatch.setattr(_runtime, "import_torch", lambda: None)
    monkeypatch.setattr(_runtime, "disable", lambda: None)
    monkeypatch.setattr(_info, "_driver", lambda: "1.2")
    monkeypatch.setattr(output, "machine", lambda torch, driver: dict(FACTS))
    monkeypatch.setenv("ATEN_OVERRIDES_DATA", str(tmp_path / "data"))
    yield made


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


@pytest.mark.parametrize("op", own.OPS)
def test_grids_cover_every_dtype_and_way(op: str) -> None:
    quick, full = grids.load("quick", op).tasks, grids.load("full", op).tasks
    assert full[: len(quick)] == quick and len(full) > 2 * len(quick)
    assert len(set(full)) == len(full)
    assert {task.dtype for task in quick} == set(DTYPES)
    for task in full:
        assert of_json(json.loads(json.dumps(task.to_json()))) == task
    if op == "eigh":
        assert {t.op for t in quick if isinstance(t, EighTask)} == {"eigh", "eigvalsh"}
    else:
        solves = [t for t in quick if isinstance(t, SolveTask)]
        assert {t.transposed for t in solves} == {False, True}
        assert any(t.nrhs == t.n > 64 for t in solves)


def test_grids_of_the_users_for_the_new_operations(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    solve = {"op": "lu_solve", "transposed": [True], "dtypes": ["float64"], "n": [3], "batch": [2],
             "nrhs": [3], "as_many_as_rows": True}  # fmt: skip
    eigh = {"op": "eigvalsh", "dtypes": ["float32"], "n": [4], "batch": [1]}
    blocks = {"limits": {"bytes": 1000}, "full": {"blocks": [solve, eigh]}}
    file.write_text(json.dumps(blocks))
    assert grids.load(str(file), "lu_solve").tasks == (SolveTask("float64", True, 2, 3, 3),)
    assert grids.load(str(file), "eigh").tasks == (EighTask("eigvalsh", "float32", 1, 4),)
    with pytest.raises(UserError, match="has no problem of at most 1000 bytes for lu_factor"):
        grids.load(str(file))
    for change, words in (
        ({"transposed": True}, "'transposed' must be a list of true and false"),
        ({"nrhs": [0]}, "integers above 0"),
        ({"nrhs": None, "as_many_as_rows": False}, "'nrhs' must be"),
        ({"as_many_as_rows": 1}, "'as_many_as_rows': true"),
    ):
        file.write_text(json.dumps(blocks | {"full": {"blocks": [solve | change]}}))
        with pytest.raises(UserError, match=words):
            grids.load(str(file), "lu_solve")


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        ("all", command.ALL),
        ("eigh", ("eigh",)),
        ("eigvalsh,lu_factor_ex", ("lu_factor", "eigh")),
        ("linalg.lu_solve, eigh", ("lu_solve", "eigh")),
    ],
)
def test_operations_are_named_as_elsewhere(text: str, ops: tuple[str, ...]) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert parser.parse_args(["--op", text]).op == ops
    assert parser.parse_args([]).op == command.ALL


def test_unknown_operations_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call("--op", "eigh,svd")
    assert "nothing to measure for 'svd'; known are lu_factor, lu_solve, eigh" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("option", ["--output", "--state"])
def test_one_file_is_not_for_several_operations(
    option: str, benches: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"{option} is of one operation, and lu_solve, eigh are"):
        call("--op", "lu_solve,eigh", option, str(tmp_path / "x.json"))
    assert set(benches) == {"stop"}


def test_tables_lie_beside_that_of_lu_and_choose(benches: dict[str, Any], tmp_path: Path) -> None:
    record = tmp_path / "r.json"
    header = tmp_path / "headers" / "LUSolveThresholds.h"
    options = ("--record", str(record), "--emit-cpp", str(header))
    assert call("--op", "lu_solve,eigh", *options) == 0
    library = _select.load()
    for op in own.OPS:
        path = lu_table.user_folder() / op / "nvidia-test.json"
        table = own.load(op, path)
        assert len(table.points) == len(grids.load("quick", op).tasks)
        assert table.meta["made_by"] == "aten-overrides calibrate"
        assert (table.meta["compute_capability"], table.meta["sm_count"]) == ("9.0", 10)
        assert not path.with_suffix(".calibration").exists()
        data = json.loads((tmp_path / f"r-{op}.json").read_text())
        assert own.KINDS[op].of_record(data, tmp_path / f"r-{op}.json").points == table.points
        rankings = Rankings(library, op, own.numbers(op, table))
        if op == "eigh":
            asked = ("eigh", "float32", Problem(4, 16, 16), "default", Facts())
            assert library.eigh(*asked, rankings=rankings) == "batched_cusolver"
            assert library.eigh(*asked) != "batched_cusolver"
        else:
            solve = ("float32", (8, 64, 1), "default", Facts(native=Native.USABLE))
            assert library.lu_solve(*solve, rankings=rankings) == "triangular_cublas"
    names = {file.name: file.read_text() for file in header.parent.iterdir()}
    assert set(names) == {
        "LUSolveThresholds.h", "LuSolveThresholds-package.h", "EighThresholds.h"}  # fmt: skip
    for text in names.values():
        said = " ".join(text.replace("//", "").split())
        assert re.search(r"on one NVIDIA Test, \d+ of them elsewhere on one NVIDIA H200 \(", said)
    assert call("--op", "lu_solve,eigh", *options) == 0  # our own files are replaced


def test_an_interruption_loses_nothing_and_the_same_command_goes_on(
    benches: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benches["stop"] = [7]
    assert call("--op", "eigh") == command.INTERRUPTED
    told = capsys.readouterr().err
    assert "interrupted; 7 of" in told and "No table of it was written" in told
    target = own.target("eigh", "NVIDIA Test")
    assert not target.exists()
    state = target.with_suffix(".calibration")
    kept = state.read_text()
    assert len(kept.splitlines()) == 1 + 7
    first = benches["eigh"].prepared
    state.write_text(kept + '{"op": "eigh", "dty')  # killed in the middle of a line
    benches["stop"] = []
    assert call("--op", "eigh") == 0
    assert "7 problems of eigh are measured already" in capsys.readouterr().err
    assert not {*first} & {*benches["eigh"].prepared}
    assert len(own.load("eigh", target).points) == len(grids.load("quick", "eigh").tasks)


def test_an_interruption_keeps_the_tables_of_before(benches: dict[str, Any]) -> None:
    assert call("--op", "lu_solve,eigh") == 0
    before = {op: own.target(op, "NVIDIA Test").read_text() for op in own.OPS}
    benches["stop"] = [3]
    assert call("--op", "lu_solve,eigh", "--grid", "full") == command.INTERRUPTED
    assert before == {op: own.target(op, "NVIDIA Test").read_text() for op in own.OPS}


def test_the_budget_is_shared_out(benches: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = session.run, {}

    def watched(bench: Any, grid: Any, kept: Any, budget: float, **more: Any) -> session.Outcome:
        seen[bench._op] = budget
        return run(bench, grid, kept, 0.0 if bench._op == "lu_solve" else 1e9, **more)

    monkeypatch.setattr(session, "run", watched)
    with pytest.raises(UserError, match="nothing was measured of lu_solve"):
        call("--op", "lu_solve,eigh", "--budget", "300")
    assert seen == {"lu_solve": pytest.approx(200, abs=5)}
    seen.clear()
    monkeypatch.setattr(session, "run", lambda *given, **more: _part(run, seen, *given))
    assert call("--op", "lu_solve,eigh", "--budget", "300") == 1
    assert seen["eigh"] == pytest.approx(300, abs=10)  # all that is left


def _part(run: Any, seen: dict[str, float], bench: Any, grid: Any, kept: Any, budget: float) -> Any:
    seen[bench._op] = budget
    ticks = iter(range(1000))
    return run(bench, grid, kept, 50.0, clock=lambda: float(next(ticks)), started=0.0)


def test_a_second_calibration_at_the_same_time_is_refused(benches: dict[str, Any]) -> None:
    from aten_overrides.calibration.state import State

    place = own.target("eigh", "NVIDIA Test").with_suffix(".calibration")
    with State(place, {}), pytest.raises(UserError, match="another calibration writes to"):
        call("--op", "eigh")


def test_a_file_of_someone_else_is_left_alone(benches: dict[str, Any]) -> None:
    path = own.target("eigh", "NVIDIA Test")
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    with pytest.raises(UserError, match="was not written by aten-overrides calibrate"):
        call("--op", "eigh")
    assert path.read_text() == "precious"


def test_loops_and_single_routines_that_fall_behind_are_left_out() -> None:
    history = measuring.History()

    def result(task: AnyTask, **ms: float) -> measuring.Result:
        times = {name: measuring.Timing(value, (value, value), 1) for name, value in ms.items()}
        return measuring.Result(task, times, {})

    history.add(result(EighTask("eigh", "float32", 8, 32), batched_cusolver=1.0,
                       looped_cusolver=9.0, jacobi_batched_cusolver=9.0))  # fmt: skip
    more, larger = EighTask("eigh", "float32", 64, 32), EighTask("eigh", "float32", 8, 64)
    assert "times behind" in history.hopeless(more, "looped_cusolver")
    assert history.hopeless(larger, "looped_cusolver") == ""
    assert "times behind" in history.hopeless(larger, "jacobi_batched_cusolver")
    assert history.hopeless(more, "jacobi_batched_cusolver") == ""
    assert history.hopeless(EighTask("eigvalsh", "float32", 64, 32), "looped_cusolver") == ""
    history.add(result(SolveTask("float32", True, 8, 32, 4), batched_native=1.0, stock=100.0))
    assert history.hopeless(SolveTask("float32", True, 64, 32, 4), "batched_native") == ""
