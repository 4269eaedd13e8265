"""Calibration with a bench that needs no GPU: budget, resuming, what is left out, files."""

from __future__ import annotations

import argparse
import io
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fake_gpu import FACTS

from aten_overrides import _select
from aten_overrides._errors import UserError
from aten_overrides._names import BACKENDS, DTYPES
from aten_overrides._select import Facts, Native, Problem
from aten_overrides.calibration import grids, measuring, output, session, state
from aten_overrides.calibration.grids import Grid
from aten_overrides.calibration.measuring import Unusable
from aten_overrides.calibration.tasks import Task
from aten_overrides.cli import calibrate as command
from aten_overrides.tables import build, native, table, thresholds

SETUP = {"gpu": "NVIDIA Test", "grid": "one"}


def cost(backend: str, task: Task) -> float:
    """Milliseconds, by a model with the traits of the real ones."""
    p = task.problem
    work = p.m * p.n * min(p.m, p.n) / 1e6
    return {
        "batched_cublas": 0.05 + work * (1 + p.batch / 100) / 60,
        "looped_cusolver": p.batch * (0.1 + work / 200),
        "streamed_cusolver": 0.05 + p.batch * (0.1 + work / 200) / 3,
        "stock": 0.3 + work * p.batch / 2000,
        "batched_native": 0.01 + work * p.batch / 5000,
    }[backend]


class FakeBench:
    """Costs nothing and counts."""

    def __init__(self) -> None:
        self.calls: list[tuple[Task, str]] = []
        self.task: Task | None = None
        self.broken: dict[str, str] = {}
        self.stop_after = -1

    def backends(self, task: Task) -> Mapping[str, str]:
        square = task.problem.m == task.problem.n
        told = dict.fromkeys(BACKENDS, "")
        told["batched_cublas"] = "" if square else "not feasible"
        told["streamed_cusolver"] = "" if task.problem.batch > 1 else "not feasible"
        return told

    def prepare(self, task: Task) -> None:
        if len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        self.task = task

    def once(self, backend: str) -> float:
        assert self.task is not None
        if backend in self.broken:
            raise Unusable(self.broken[backend])
        self.calls.append((self.task, backend))
        return cost(backend, self.task) * (1 + 0.01 * (len(self.calls) % 3))


class Clock:
    """A second per look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def grid() -> Grid:
    return grids.load("quick")


def calibrate(bench: FakeBench, grid: Grid, path: Path, budget: float = 1e9) -> session.Outcome:
    with state.State(path, SETUP) as kept:
        return session.run(
            bench, grid, kept, budget, clock=Clock(), started=0.0, stream=io.StringIO()
        )


def results_of(path: Path) -> list[measuring.Result]:
    return [measuring.Result.of(json.loads(line)) for line in path.read_text().splitlines()[1:]]


@pytest.mark.parametrize("name", ["quick", "full"])
def test_grids_fit_their_limit_and_cover_every_dtype(name: str) -> None:
    made = grids.load(name)
    assert len(set(made.tasks)) == len(made.tasks)
    assert max(task.bytes for task in made.tasks) <= made.limit
    assert {task.dtype for task in made.tasks} == set(DTYPES)
    problems = [task.problem for task in made.tasks if isinstance(task, Task)]
    assert len(problems) == len(made.tasks)
    for pivot in (True, False):
        assert any(p.pivot is pivot and p.m == p.n for p in problems)
    assert any(p.m > p.n for p in problems)
    assert any(p.m < p.n for p in problems)


def test_full_begins_with_quick() -> None:
    quick, full = grids.load("quick").tasks, grids.load("full").tasks
    assert full[: len(quick)] == quick
    assert len(full) > 2 * len(quick)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "must be an object"),
        ('{"full": {"blocks": []}}', "'bytes' above 0"),
        (
            '{"limits": {"bytes": 9}, "full": {"blocks": [{"op": "svd"}]}}',
            "'op': one of .*'lu_factor'",
        ),
        ('{"limits": {"bytes": 9}, "full": {"include": ["full"]}}', "includes itself"),
        ('{"limits": {"bytes": 9}, "full": {"blocks": []}}', "no problem of at most 9 bytes"),
        ('{"limits": {"bytes": 9}, "other": {}}', "no grid 'full'"),
        (
            '{"limits": {"bytes": 9}, "full": {"blocks": [{"op": "lu_factor", "pivot": true, '
            '"dtypes": ["float32"], "n": [0], "batch": [1]}]}}',
            "integers above 0",
        ),
    ],
)
def test_a_wrong_grid_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "own.json"
    file.write_text(text)
    with pytest.raises(UserError, match=words):
        grids.load(str(file))


def test_a_grid_of_the_users(tmp_path: Path) -> None:
    block = {"op": "lu_factor", "pivot": True, "dtypes": ["float64"], "n": [3, 2], "batch": [2]}
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"limits": {"bytes": 100}, "mine": {"blocks": [block]}}))
    assert grids.load(f"{file}:mine").tasks == (Task("float64", Problem(2, 2, 2)),)  # 3: 144 bytes
    with pytest.raises(UserError, match="no grid 'slow'"):
        grids.load("slow")


def test_every_back_end_is_timed_in_turns(tmp_path: Path) -> None:
    task = Task("float32", Problem(4, 64, 64))
    bench = FakeBench()
    result = measuring.measure(bench, task, measuring.History())
    assert set(result.times) == set(BACKENDS) and not result.left_out
    names = [name for _, name in bench.calls]
    warm = list(itertools.chain.from_iterable((name, name) for name in BACKENDS))
    assert names[: len(warm)] == warm
    assert names[len(warm) : len(warm) + len(BACKENDS)] == list(BACKENDS)
    for name, timing in result.times.items():
        assert timing.samples == measuring.MOST
        least, most = timing.spread
        assert cost(name, task) <= least <= timing.ms <= most <= cost(name, task) * 1.021


def test_what_is_far_behind_gets_one_sample() -> None:
    result = measuring.measure(
        FakeBench(), Task("float32", Problem(512, 64, 64)), measuring.History()
    )
    assert result.times["looped_cusolver"].samples == 1
    assert result.times["batched_native"].samples == measuring.MOST


def test_what_was_hopeless_is_left_out_with_the_reason_and_native_never() -> None:
    history, bench = measuring.History(), FakeBench()
    for batch in (16, 64):
        history.add(measuring.measure(bench, Task("float32", Problem(batch, 64, 64)), history))
    result = measuring.measure(bench, Task("float32", Problem(1024, 64, 64)), history)
    assert "times behind the best library back end" in result.left_out["looped_cusolver"]
    assert set(result.times) >= {"batched_cublas", "stock", "batched_native"}
    history = measuring.History()
    slow = {"batched_native": measuring.Timing(100.0, (100.0, 100.0), 1),
            "stock": measuring.Timing(1.0, (1.0, 1.0), 1)}  # fmt: skip
    history.add(measuring.Result(Task("float32", Problem(64, 64, 64)), slow, {}))
    history.add(measuring.Result(Task("float32", Problem(128, 32, 32)), slow, {}))
    larger = Task("float32", Problem(128, 64, 64))
    assert history.hopeless(larger, "batched_native") == ""


def test_a_back_end_that_fails_is_told(grid: Grid, tmp_path: Path) -> None:
    bench = FakeBench()
    bench.broken = {"stock": "the call took another route"}
    result = measuring.measure(bench, grid.tasks[0], measuring.History())
    assert result.left_out["stock"] == "the call took another route"
    assert "batched_native" in result.times


def test_the_budget_ends_it_and_the_next_run_goes_on(grid: Grid, tmp_path: Path) -> None:
    path = tmp_path / "state"
    first = calibrate(FakeBench(), grid, path, budget=100)
    assert 0 < first.done < first.total == len(grid.tasks)
    before = results_of(path)
    bench = FakeBench()
    second = calibrate(bench, grid, path)
    assert second.complete
    after = results_of(path)
    assert after[: first.done] == before
    assert {r.task for r in after} == set(grid.tasks)
    again = {task for task, _ in bench.calls} & {r.task for r in before}
    assert again == set()


def test_an_interruption_loses_only_the_problem_under_way(grid: Grid, tmp_path: Path) -> None:
    path = tmp_path / "state"
    bench = FakeBench()
    bench.stop_after = 0
    with pytest.raises(KeyboardInterrupt):
        calibrate(bench, grid, path)
    calibrate(FakeBench(), grid, path, budget=40)
    kept = results_of(path)
    text = path.read_text()
    path.write_text(text + '{"op": "lu_factor", "dty')  # killed in the middle of a line
    with state.State(path, SETUP) as resumed:
        assert list(resumed.results.values()) == kept
        resumed.add(kept[0])
    assert path.read_text() == text + json.dumps(kept[0].to_json()) + "\n"


def test_results_of_another_setup_are_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "state"
    task = Task("float32", Problem(1, 2, 2))
    one = measuring.Result(task, {"stock": measuring.Timing(1.0, (1.0, 1.0), 1)}, {})
    with state.State(path, SETUP) as kept:
        kept.add(one)
    text = path.read_text()
    with pytest.raises(UserError, match=r"another setup \(gpu: NVIDIA Test there, Else here\)"):
        state.State(path, {**SETUP, "gpu": "Else"})
    assert path.read_text() == text
    with state.State(path, {**SETUP, "gpu": "Else"}, restart=True) as kept:
        assert kept.results == {}


def test_a_state_file_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("chapter one\n")
    for restart in (False, True):
        with pytest.raises(UserError, match="not written by aten-overrides calibrate"):
            state.State(path, SETUP, restart=restart)
    assert path.read_text() == "chapter one\n"


def test_two_calibrations_do_not_share_a_state(tmp_path: Path) -> None:
    with (
        state.State(tmp_path / "state", SETUP),
        pytest.raises(UserError, match="another calibration writes"),
    ):
        state.State(tmp_path / "state", SETUP)


def test_targets_of_others_are_refused(tmp_path: Path) -> None:
    own, other = tmp_path / "own.json", tmp_path / "other.json"
    own.write_text('{"meta": {"made_by": "aten-overrides calibrate"}}')
    other.write_text('{"meta": {}}')
    output.check_target(own, force=False)
    output.check_target(tmp_path / "new.json", force=False)
    with pytest.raises(UserError, match="left alone; name another file, or give --force"):
        output.check_target(other, force=False)
    output.check_target(other, force=True)
    with pytest.raises(UserError, match="is a folder"):
        output.check_target(tmp_path, force=True)


class FakeLibrary:
    def native(self) -> int:
        return int(Native.USABLE)


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeBench]:
    """The command's surroundings without a GPU."""
    from aten_overrides import _info, _runtime

    bench = FakeBench()
    monkeypatch.setattr(command, "_library", lambda torch: (FakeLibrary(), 4))
    monkeypatch.setattr(command, "_bench", lambda *arguments: bench)
    monkeypatch.setattr(_runtime, "import_torch", lambda: None)
    monkeypatch.setattr(_runtime, "disable", lambda: None)
    monkeypatch.setattr(_info, "_driver", lambda: "1.2")
    monkeypatch.setattr(output, "machine", lambda torch, driver: dict(FACTS))
    monkeypatch.setenv("ATEN_OVERRIDES_DATA", str(tmp_path / "data"))
    yield bench


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    given = arguments if "--op" in arguments else ("--op", "lu_factor", *arguments)
    return command.run(parser.parse_args(given))


def test_the_command_writes_table_record_and_header(fake_gpu: FakeBench, tmp_path: Path) -> None:
    record, header = tmp_path / "record.json", tmp_path / "Thresholds.h"
    assert call("--record", str(record), "--emit-cpp", str(header)) == 0
    path = tmp_path / "data/tables/nvidia-test.json"
    made = table.load(path)
    assert not list(path.parent.glob("*.calibration"))  # done: nothing to resume
    assert made.gpu.name == "NVIDIA Test"
    assert {name for point in made.points for name in point.ms} == set(BACKENDS)
    data = json.loads(record.read_text())
    assert data["meta"]["timing"] and data["meta"]["problems"] == len(grids.load("quick").tasks)
    assert build.render(build.read_record(record), record) == path.read_text()
    assert header.read_text() == thresholds.generate(made)
    assert "NVIDIA Test" in header.read_text()
    own = tmp_path / "NativeThresholds.h"  # our kernels were measured too
    assert own.read_text() == native.generate(made, made)
    costs = made.costs(_select.load())
    facts = Facts(native=Native.USABLE)
    assert costs.choose("float32", Problem(256, 512, 512), "default", facts).by_table == (
        "batched_native"
    )
    assert call() == 0  # its own table is replaced


def test_the_command_replaces_nothing_of_others(fake_gpu: FakeBench, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text("precious")
    with pytest.raises(UserError, match="left alone"):
        call("--output", str(path))
    assert path.read_text() == "precious" and not fake_gpu.calls
    beside = tmp_path / "NativeThresholds.h"
    beside.write_text("precious")
    with pytest.raises(UserError, match=r"NativeThresholds\.h was not written by"):
        call("--emit-cpp", str(tmp_path / "LinalgThresholds.h"))
    with pytest.raises(UserError, match="name of the other header"):
        call("--emit-cpp", str(beside))
    assert beside.read_text() == "precious" and not fake_gpu.calls
    assert call("--output", str(path), "--force") == 0
    table.load(path)


def test_an_interrupted_command_says_how_to_go_on(
    fake_gpu: FakeBench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_gpu.stop_after = 0
    assert call() == command.INTERRUPTED
    told = capsys.readouterr().err
    assert "the same command goes on. No table of it was written" in told
    assert not (tmp_path / "data/tables/nvidia-test.json").exists()
    fake_gpu.stop_after = -1
    assert call() == 0


def test_wrong_budgets_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("0", "-3", "soon", "inf", "nan"):
        with pytest.raises(SystemExit):
            call("--budget", text)
    assert "expected seconds above 0" in capsys.readouterr().err


def test_a_budget_that_is_over_leaves_a_table_of_what_there_is(
    fake_gpu: FakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = session.run

    def short(*arguments: object, **more: object) -> session.Outcome:
        return run(*arguments, **{**more, "clock": Clock(), "started": 0.0})  # type: ignore[arg-type]

    monkeypatch.setattr(session, "run", short)
    assert call("--budget", "60") == 1
    path = tmp_path / "data/tables/nvidia-test.json"
    few = len(table.load(path).points)
    assert path.with_suffix(".calibration").is_file()
    assert call("--budget", "100000") == 0
    assert few < len(table.load(path).points) == len(grids.load("quick").tasks)


def test_a_record_names_no_folder_of_the_machine() -> None:
    words = ["calibrate", "--grid", "full", "--record", "/some/where/r.json"]
    said = command.stated_command(words)
    assert said == "aten-overrides calibrate --grid full --record r.json"
