"""Jobs as child processes: rows, crashes, time-outs, budget, resuming."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aotools.env import ROOT, UserError
from aotools.gputest import runner
from aotools.gputest.libraries import Library
from aotools.gputest.plan import Job
from aotools.gputest.record import Record

HERE = Path(__file__).parent
LIBRARIES = {"patched-magma": Library("patched-magma", Path("/x/p.so"), "aa", {})}


@pytest.fixture(autouse=True)
def fake_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CHILD", "fake_child")
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def job(name: str = "one", timeout: float = 30, **options: object) -> Job:
    return Job("cliff", name, "patched-magma", "part_cliff:run", 5, timeout, options)


def run(
    tmp_path: Path, *jobs: Job, budget: float = 100, again: bool = False
) -> tuple[Record, bool]:
    path = tmp_path / "r.json"
    record = Record.load(path) if path.exists() else Record(path, {})
    done = runner.run_jobs(
        record, jobs, LIBRARIES, budget=budget, log=tmp_path / "logs/log", again=again
    )
    return record, done


def test_rows_of_a_job_are_filed(tmp_path: Path) -> None:
    record, done = run(tmp_path, job(points=[1.0, 2.0]))
    assert done
    assert [(row["ms"], row["job"], row["seen"]) for row in record.points] == [
        (1.0, "cliff/one", ["patched-magma"]),
        (2.0, "cliff/one", ["patched-magma"]),
    ]
    assert record.jobs["cliff/one"]["state"] == "done"
    assert "cliff/one code 0" in (tmp_path / "logs/log").read_text()


def test_a_crash_costs_only_its_job_and_keeps_what_was_written(tmp_path: Path) -> None:
    record, done = run(tmp_path, job("a", then="crash"), job("b"))
    assert not done
    assert record.jobs["cliff/a"]["state"] == "crashed"
    assert "SIGSEGV" in record.jobs["cliff/a"]["reason"]
    assert [row["job"] for row in record.points] == ["cliff/a", "cliff/b"]
    assert record.jobs["cliff/b"]["state"] == "done"


def test_an_error_is_told_with_its_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, _ = run(tmp_path, job(then="raise"))
    assert "exit code 1" in record.jobs["cliff/one"]["reason"]
    assert "the device is on fire" in record.jobs["cliff/one"]["reason"]
    assert "the device is on fire" in capsys.readouterr().out


def test_folders_of_the_machine_do_not_get_into_a_record() -> None:
    row = {"reason": f"{ROOT}/tools/x.py and {sys.prefix}/lib/y.py", "value": [1.5, None]}
    done = runner.without_paths(runner.Outcome("crashed", [row], 1.0, f"at {ROOT}/z"))
    assert done.rows == [
        {"reason": "<checkout>/tools/x.py and <python>/lib/y.py", "value": [1.5, None]}
    ]
    assert done.reason == "at <checkout>/z"


def test_a_hanging_job_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    started = time.monotonic()
    record, done = run(tmp_path, job("a", 3, then="hang", pid_file=str(pid_file)), job("b"))
    assert time.monotonic() - started < 25
    assert not done
    assert record.jobs["cliff/a"]["state"] == "timed out"
    assert len(record.points) == 2
    assert not alive(int(pid_file.read_text()))


def test_what_a_job_leaves_behind_is_ended(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    _, done = run(tmp_path, job("a", then="leave", pid_file=str(pid_file)))
    assert done
    assert not alive(int(pid_file.read_text()))


def alive(pid: int) -> bool:
    """Whether the process runs; given a moment to end."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":
            return False
        time.sleep(0.1)
    return True


def test_an_interrupted_run_ends_its_children_and_keeps_what_is_done(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    run(tmp_path, job("a"))
    code = (
        "import signal, sys; sys.path[:0] = sys.argv[3:];"
        # a shell's background job, as which these tests may run, ignores the signal
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "import pathlib; from aotools.env import run_cli; from aotools.gputest import runner;"
        "import test_gputest_runner as t; runner.CHILD = 'fake_child';"
        "p = pathlib.Path(sys.argv[1]);"
        "run_cli(lambda: t.run(p, t.job('a'), t.job('b', then='hang', pid_file=sys.argv[2]))[1])"
    )
    paths = [str(HERE), str(HERE.parents[2] / "tools")]
    started = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(pid_file), *paths])
    for _ in range(600):
        if pid_file.exists() and pid_file.read_text():
            break
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    assert started.wait(30) == 130
    assert not alive(int(pid_file.read_text()))
    assert [row["job"] for row in Record.load(tmp_path / "r.json").points] == ["cliff/a"]


def test_what_is_done_is_not_run_again_unless_asked_or_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, job(points=[1.0]))
    _, done = run(tmp_path, job(points=[1.0]))
    assert done and "in the record already" in capsys.readouterr().out
    record, _ = run(tmp_path, job(points=[5.0]))
    assert [row["ms"] for row in record.points] == [5.0]
    run(tmp_path, job(points=[5.0]), again=True)
    assert "in the record already" not in capsys.readouterr().out


def test_a_try_that_fails_does_not_cost_good_rows(tmp_path: Path) -> None:
    good = job(points=[1.0])
    run(tmp_path, good)
    bad = Job("cliff", "one", "patched-magma", "part_cliff:run", 5, 0.01, good.options)
    record, done = run(tmp_path, bad, again=True)
    assert not done
    assert [row["ms"] for row in record.points] == [1.0]
    assert record.jobs["cliff/one"]["state"] == "done"


def test_the_budget_ends_the_run_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, done = run(tmp_path, job(), budget=runner.START_S - 1)
    assert not done
    assert record.jobs == {}
    assert "of the budget" in capsys.readouterr().out


def test_jobs_that_only_check_run_together_and_timed_ones_alone(tmp_path: Path) -> None:
    def made(name: str, timed: bool) -> Job:
        return Job("cliff", name, "patched-magma", "part_cliff:run", 5, 30, timed=timed)

    jobs = [made(name, name.isupper()) for name in "AbcDEf"]
    assert [[job.name for job in group] for group in runner.groups(jobs)] == [
        ["A"],
        ["b", "c"],
        ["D"],
        ["E"],
        ["f"],
    ]
    record, done = run(tmp_path, *jobs)
    assert done
    assert sorted(record.jobs) == [f"cliff/{name}" for name in "ADEbcf"]
    assert sorted(row["job"] for row in record.points) == sorted(record.jobs)


def test_the_key_covers_library_options_environment_and_code() -> None:
    base = job().key({"patched-magma": "aa"})
    other = Job("cliff", "one", "patched-magma", "part_allocs:count", 5, 30)
    keys = {
        base,
        job().key({"patched-magma": "bb"}),
        job(points=[2.0]).key({"patched-magma": "aa"}),
        other.key({"patched-magma": "aa"}),
        Job("cliff", "one", "patched-magma", "part_cliff:run", 5, 30, {}, {"A": "1"}).key(
            {"patched-magma": "aa"}
        ),
        Job("cliff", "one", "patched-magma", "part_cliff:run", 5, 30, {}, {}, ("x",)).key(
            {"patched-magma": "aa", "x": "cc"}
        ),
    }
    assert len(keys) == 6
    assert job(timeout=99).key({"patched-magma": "aa"}) == base


def test_the_users_settings_do_not_reach_a_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_LINALG_STREAMS", "7")
    monkeypatch.setenv("TORCH_LINALG_PREFER_CUSOLVER", "1")
    monkeypatch.setenv("MINE", "kept")
    asked = Job(
        "lanes",
        "x",
        "patched-magma",
        "part_lanes:off",
        5,
        30,
        {"then": "environment"},
        {"TORCH_LINALG_STREAMS": "1"},
    )
    record, _ = run(tmp_path, asked)
    seen = record.points[-1]["environment"]
    assert seen["TORCH_LINALG_STREAMS"] == "1"
    assert "TORCH_LINALG_PREFER_CUSOLVER" not in seen
    assert seen["MINE"] == "kept"


def test_timed_jobs_are_spread_over_gpus(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in "ab"]
    jobs = [
        job(name, then="meet", mine=mine, other=other)
        for name, mine, other in zip("ab", files, reversed(files), strict=True)
    ]
    record = Record(tmp_path / "r.json", {})
    assert runner.run_jobs(
        record, jobs, LIBRARIES, budget=100, log=tmp_path / "log", gpus=["3", "5"]
    )
    seen = {row["job"]: row["environment"] for row in record.points if "environment" in row}
    assert {env["CUDA_VISIBLE_DEVICES"] for env in seen.values()} == {"3,5", "5,3"}


def test_a_timed_job_waits_for_a_gpu_of_its_own() -> None:
    def made(timed: bool) -> Job:
        return Job("cliff", "x", "patched-magma", "part_cliff:run", 5, 30, timed=timed)

    one, two = runner.Place({}), runner.Place({})
    assert runner.free_place([one, two], made(True)) is one
    one.running.append(made(True))
    assert runner.free_place([one, two], made(True)) is two
    assert runner.free_place([one], made(False)) is None
    two.running.append(made(False))
    assert runner.free_place([one, two], made(True)) is None
    assert runner.free_place([one, two], made(False)) is two
    two.running.extend(made(False) for _ in range(runner.TOGETHER))
    assert runner.free_place([one, two], made(False)) is None


@pytest.mark.parametrize("text", ["0,,1", ",", "0,0", " 1 ,1"])
def test_a_wrong_list_of_gpus_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="a comma list of different GPUs"):
        runner.parse_gpus(text)
    assert runner.parse_gpus("") == []
    assert runner.parse_gpus("0, 1") == ["0", "1"]


@pytest.mark.parametrize("models", [["H200"], ["H200", "A100"]])
def test_gpus_that_are_missing_or_differ_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: list[str]
) -> None:
    def run_child(*_: object) -> runner.Outcome:
        meta = {"gpu": "H200", "visible_gpus": models}
        return runner.Outcome("done", [{"meta": meta}], 1.0)

    monkeypatch.setattr(runner, "run_child", run_child)
    with pytest.raises(UserError, match=r"--gpus 0,1: torch sees H200.*of one model"):
        runner.probe(tmp_path / "log", ["0", "1"])
    assert runner.probe(tmp_path / "log") == {"gpu": "H200"}
    models[:] = ["H200", "H200"]
    assert runner.probe(tmp_path / "log", ["0", "1"]) == {"gpu": "H200", "gpus_used": 2}


@pytest.mark.wheel
def test_without_a_gpu_the_probe_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(runner, "CHILD", "aotools.gputest.child")
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join(str(path) for path in (HERE.parents[2] / "tools", HERE.parents[2])),
    )
    with pytest.raises(UserError, match=r"needs an NVIDIA GPU.*sees no NVIDIA GPU.*--dry-run"):
        runner.probe(tmp_path / "log")
