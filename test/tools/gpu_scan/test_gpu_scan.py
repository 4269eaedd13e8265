"""test/gpu/scan/run.py on a stand-in: it ends in time, loses nothing, and goes on after a fault."""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from stand_in import Gpu  # noqa: E402

from aotools.env import ROOT  # noqa: E402
from aten_overrides.measure import machine  # noqa: E402
from aten_overrides.scan.target import Target  # noqa: E402

FOLDER = ROOT / "test/gpu/scan"
META = {"gpu": "NVIDIA H200", "torch": "2.11.0+cu130", "date": "2026-12-01", "driver": "580"}
META |= {"cublas": "13", "cusolver": "12"}


def milliseconds(target: Target, n: int) -> float:
    """About what the H200 takes, with the known cliffs."""
    each: dict[str, float] = {
        "solve_ex": 55.0 if n >= 512 and target.prefer == "cusolver" else 12.0 * n / 511,
        "eigh": 66.0 * target.batch / 128 if n > 32 else 0.4,
        "qr": 5.0 + n / 12,
        "svdvals": 60.0 if n > 32 else 1.0,
        "lstsq": 5.0 + n / 15,
        "cholesky_ex": 3.0 * (n / 600) ** 2,
    }
    whole = each.get(target.op, float(6.0 * (n / 512) ** 1.5))
    return max(0.03, whole * (0.2 if target.overrides else 1.0))


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("run", "scan_jobs"):
        sys.modules.pop(name, None)
    run, jobs = importlib.import_module("run"), importlib.import_module("scan_jobs")
    yield run, jobs
    for name in ("run", "scan_jobs"):
        sys.modules.pop(name, None)


def options(out: Path, budget: float, todo: list[dict[str, Any]]) -> Namespace:
    named = {"out": out, "budget": budget, "started": 0.0, "command": "python3 run.py --out x"}
    return Namespace(**named, commit="abc", child=json.dumps(todo))


def prepared(
    monkeypatch: pytest.MonkeyPatch, modules: Any, slower: float = 1.0
) -> tuple[Any, Any, Gpu]:
    run, jobs = modules
    gpu = Gpu(monkeypatch, lambda target, n: slower * milliseconds(target, n) * 1e-3)
    monkeypatch.setattr(jobs, "measured", gpu.measured)
    monkeypatch.setattr(jobs, "surroundings", lambda target: contextlib.nullcontext())
    monkeypatch.setattr(machine, "machine", lambda torch, cuda: dict(META))
    monkeypatch.setattr(machine, "clocks", lambda: None)
    monkeypatch.setattr(run.faulthandler, "dump_traceback_later", lambda *a, **k: None)
    return run, jobs, gpu


def record(out: Path) -> dict[str, Any]:
    path = out / "cliffs-nvidia-h200-torch2.11.0.json"
    read: dict[str, Any] = json.loads(path.read_text())
    return read


def test_plan_names_every_operation(modules: Any) -> None:
    _, jobs = modules
    names = "lu_factor_ex solve_ex inv_ex lu_solve slogdet eigh cholesky_ex qr svdvals lstsq"
    assert {job["op"] for job in jobs.jobs(None)} == set(names.split())
    covered = {
        job["op"] for job in jobs.jobs(None) if job["mode"] == "overrides" and jobs.target_of(job)
    }
    assert covered == set(names.split()) - {"svdvals"}


def test_what_does_not_work_is_said(monkeypatch: pytest.MonkeyPatch, modules: Any) -> None:
    _, jobs = modules
    said = jobs.warm_up(torch)
    assert "the overrides: " in said and "the profiler: " in said
    monkeypatch.setattr("aten_overrides._runtime.enabled", contextlib.nullcontext)
    trace = SimpleNamespace(what="kernels")
    monkeypatch.setattr(jobs, "profile_call", lambda *arguments: trace)
    assert jobs.warm_up(torch) == ""
    trace.what = "operators"
    assert jobs.warm_up(torch) == "the profiler: it sees no kernels"


def test_the_plan_fits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, jobs, gpu = prepared(monkeypatch, modules)
    gpu.time.now = 12.0  # torch's import
    todo = jobs.jobs(None)
    assert run.child(options(tmp_path, 105, todo)) == 0
    said = capsys.readouterr().out
    assert said.count("\n") == len(todo)  # a line a job
    assert gpu.time.now < 105 + 5
    data = record(tmp_path)
    cliffs = {
        (scan["target"]["op"], finding["size"], len(finding["sides"]))
        for scan in data["scans"]
        for finding in scan["findings"]
        if finding["confidence"] != "AMBIGUOUS" and not scan["target"]["overrides"]
    }
    assert {("solve_ex", 512, 2), ("eigh", 33, 2), ("svdvals", 33, 2)} <= cliffs
    assert len(data["timelines"]) == 2 and all(all(one["traces"]) for one in data["timelines"])


def test_slow_calls_end_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: Any
) -> None:
    run, jobs, gpu = prepared(monkeypatch, modules, slower=12.0)
    todo = jobs.jobs("eigh,svdvals,qr,lstsq")
    assert run.child(options(tmp_path, 60, todo)) == 0
    assert gpu.time.now < 60 + 12  # single calls take 0.8 s
    data = record(tmp_path)
    assert len(data["scans"]) == sum(jobs.target_of(job) is not None for job in todo)
    assert all(scan["levels"] is None for scan in data["scans"])
    assert {point["op"] for point in data["points"]} == {"eigh", "svdvals", "qr", "lstsq"}


def test_an_error_costs_its_job_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    modules: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, jobs, _ = prepared(monkeypatch, modules)
    scan = jobs.scan

    def failing(target: Target, *arguments: Any, **named: Any) -> Any:
        found = scan(target, *arguments, **named)
        if target.op == "qr":
            raise RuntimeError("CUDA error: an illegal memory access")
        return found

    monkeypatch.setattr(jobs, "scan", failing)
    assert run.child(options(tmp_path, 60, jobs.jobs("qr,cholesky_ex"))) == 0
    data = record(tmp_path)
    assert [check["params"]["job"] for check in data["checks"]] == ["14/stock", "14/overrides"]
    assert all("an illegal memory" in check["reason"] for check in data["checks"])
    # What the scan had saved counts, as one that did not end.
    scans = {scan["target"]["op"]: scan["complete"] for scan in data["scans"]}
    assert scans == {"qr": False, "cholesky_ex": True}
    assert sum(point["op"] == "qr" for point in data["points"]) > 5
    assert "14/stock: RuntimeError: CUDA error" in capsys.readouterr().out


def test_a_gpu_that_answers_no_more_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: Any
) -> None:
    run, jobs, _ = prepared(monkeypatch, modules)
    monkeypatch.setattr(run, "run_job", lambda *arguments: 1 // 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(run, "_answers", lambda torch: False)
    assert run.child(options(tmp_path, 60, jobs.jobs("qr,cholesky_ex"))) == 3
    ends = [row["end"] for row in run.Files(tmp_path).read() if "end" in row]
    assert ends == ["4/stock"]


def test_a_process_that_ends_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: Any
) -> None:
    run, jobs = modules
    files = run.Files(tmp_path)
    started: list[list[str]] = []

    def process(command: list[str], **named: Any) -> Any:
        """Ends the first job, and dies in the second with half a line written."""
        todo = json.loads(command[command.index("--child") + 1])
        started.append([job["name"] for job in todo])
        files.tell(meta=META)
        for job in todo[:2]:
            files.tell(begin=job["name"], job=job)
            if job is todo[0]:
                files.tell(end=job["name"])
        with files.rows.open("a") as out:
            out.write('{"end": ')
        return Namespace(returncode=-11)

    monkeypatch.setattr(run.subprocess, "run", process)
    todo = jobs.jobs("qr,lstsq,svdvals,cholesky_ex", ("stock",))
    made = options(tmp_path, 60, [])
    made.started = run.time.time()
    wrong = run.run_jobs(todo, files, made)
    names = [job["name"] for job in todo]
    assert started == [names, names[2:]]
    assert wrong == [f"{names[i]}: the process ended (exit -11)" for i in (1, 3)]
    path = run.write_record(files)
    reasons = [row["params"]["job"] for row in json.loads(path.read_text())["checks"]]
    assert reasons == [names[1], names[3]]
    made.budget = 1.0
    (said,) = run.run_jobs(todo, files, made)
    assert "no time was left for 4 jobs" in said


def run_begun(out: Path) -> int:
    return (out / "cliffs-rows.jsonl").read_text().count('"begin"')


def test_a_run_that_is_ended_leaves_its_record(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "run.py"), "--device", "cpu", "--out", str(tmp_path)]
    started = subprocess.Popen(
        [*command, "--budget", "60", "--only", "lu_solve"], stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert "lu_solve float32 b64" in started.stdout.readline()  # the first of two jobs
    while run_begun(tmp_path) < 2 and started.poll() is None:
        time.sleep(0.05)
    left = tmp_path / "left"
    left.mkdir()
    for path in tmp_path.glob("cliffs-*"):
        shutil.copy(path, left)
    started.terminate()
    assert started.communicate(timeout=30)[0] and started.returncode == 1
    (path,) = tmp_path.glob("cliffs-*")
    data = json.loads(path.read_text())
    assert data["points"] and data["checks"][0]["reason"] == "the run was ended"
    # After a kill that could not be noticed:
    refused = subprocess.run(
        [*command[:-1], str(left)], capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 2 and "--collect makes its record" in refused.stderr
    collect = [*command[:-1], str(left), "--collect"]
    assert subprocess.run(collect, timeout=60, check=False).returncode == 1
    (path,) = left.iterdir()
    assert json.loads(path.read_text())["points"]


def test_command_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, str(FOLDER / "run.py"), "--device", "cpu", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--budget", "12", "--only", "cholesky_ex"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "cholesky_ex float32 b64" in done.stdout
    (path,) = tmp_path.iterdir()
    data = json.loads(path.read_text())
    assert data["meta"]["topic"] == "cliffs" and len(data["points"]) >= 1
