"""`tools/gpu-test overrides`: plan, refusals, packed libraries, record, sanitizer, upstream."""

from __future__ import annotations

import importlib
import io
import json
import shutil
import sys
import time
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotools.env import ROOT, UserError
from aotools.gputest import (
    cli,
    compare,
    overrides_library,
    part_upstream_overrides,
    plan,
    plan_overrides,
    runner,
    suite_patchset,
    upstream_plugin,
)
from aotools.gputest.record import Record, Row, check_row
from aotools.gputest.session import Rows, Session
from aten_overrides import _probe

MACHINE: Row = {
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.11.0+cu130",
    "cublas": "13",
    "cusolver": "12",
}


def make_libs(folder: Path, version: str = "2.11.0+cu130") -> Path:
    """A folder as `tools/gpu-test pack` makes it, as far as this suite reads it."""
    library = folder / "overrides" / "gpu" / f"torch-{version}-abi1-x86_64"
    library.mkdir(parents=True)
    (library / overrides_library.GPU).write_text("gpu")
    facts: dict[str, Any] = {
        "torch": {"version": version},
        "compiler": "GNU 12.2.0",
        "secret": "/home/someone",
    }
    facts["sources"] = _probe.sources_digest()
    (library / "libaten_overrides_gpu.json").write_text(json.dumps(facts))
    (folder / "overrides" / overrides_library.SELECT).write_text("select")
    (folder / "upstream").mkdir()
    (folder / "upstream" / "test_linalg.py").write_text("")
    return folder


def all_jobs() -> list[plan.Job]:
    return plan_overrides.jobs(list(plan_overrides.PARTS), Path("tests"))


def test_parts_run_in_order_of_priority() -> None:
    jobs = all_jobs()
    order = list(plan_overrides.PARTS)
    assert [order.index(job.part) for job in jobs] == sorted(order.index(job.part) for job in jobs)
    assert {job.part for job in jobs} == set(order)
    assert len({job.title for job in jobs}) == len(jobs)
    assert all(job.timeout <= 300 for job in jobs)


def test_what_times_runs_alone_and_so_does_what_fills_the_memory() -> None:
    alone = {job.part for job in all_jobs() if job.timed}
    assert alone == {
        "smoke",
        "cliff",
        "regret",
        "allocs",
        "streams",
        "overhead",
        "lifetime",
        "solve",
        "upstream-rest",
    }


def test_the_first_parts_take_less_than_five_hundred_seconds_on_an_h200() -> None:
    last = list(plan_overrides.PARTS).index("solve")
    first = plan_overrides.jobs(list(plan_overrides.PARTS)[:last], Path("tests"))
    minutes = suite_patchset.plan_text(first).splitlines()[-1].split("about ")[1].split()[0]
    assert float(minutes) * 60 <= 500


def test_the_regret_grid_is_bounded_in_time() -> None:
    assert sum(plan_overrides.REGRET_SECONDS.values()) <= 150
    assert plan_overrides.REGRET_SECONDS.keys() == set(plan.DTYPES)


@pytest.mark.parametrize(
    ("text", "message"), [("cliff,foo", "unknown part foo"), (" , ", "no part was named")]
)
def test_unknown_parts_are_refused_with_those_there_are(text: str, message: str) -> None:
    with pytest.raises(UserError, match=f"{message}.*smoke, cliff, regret"):
        plan_overrides.parse_parts(text)
    assert plan_overrides.parse_parts("kinds, cliff") == ["cliff", "kinds"]


def test_dry_run_needs_neither_gpu_nor_libraries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["overrides", "--dry-run", "--libs", str(tmp_path / "none"), "--out", str(tmp_path)]
    assert cli.main(options) == 0
    assert "sanitizer/racecheck" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_code_of_a_script_and_of_what_it_shares_is_part_of_a_jobs_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "ROOT", tmp_path)
    folder = tmp_path / plan_overrides.FOLDER
    folder.mkdir(parents=True)
    job = next(job for job in all_jobs() if job.part == "cliff")
    keys = []
    for name, text in (("part_cliff.py", "a"), ("common.py", "b"), ("part_cliff.py", "c")):
        (folder / name).write_text(text)
        if (folder / "part_cliff.py").exists():
            keys.append(job.key({"overrides": "1"}))
    assert len({*keys, job.key({"overrides": "2"})}) == 4


class TestPacked:
    """The libraries that were packed."""

    def test_the_one_for_this_torch_is_found(self, tmp_path: Path) -> None:
        cache = make_libs(tmp_path) / "overrides"
        other = cache / "gpu" / "torch-2.6.0+cu124"
        other.mkdir()
        (other / overrides_library.GPU).write_text("older")
        (other / "libaten_overrides_gpu.json").write_text('{"torch": {"version": "2.6.0+cu124"}}')
        found = overrides_library.find(cache, "2.11.0+cu130")
        assert found.path.read_text() == "gpu" and found.name == "overrides"
        with pytest.raises(UserError, match=r"for torch 2.11.0\+cu130, 2.6.0\+cu124, and torch 2"):
            overrides_library.find(cache, "2.12.1+cu130")

    def test_an_empty_folder_and_broken_facts_are_told(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"no library of the overrides.*gpu-test pack"):
            overrides_library.find(tmp_path, "2.11.0+cu130")
        cache = make_libs(tmp_path) / "overrides"
        next(cache.glob("gpu/*/*.json")).write_text("{}")
        for check in (overrides_library.require_present, self.find):
            with pytest.raises(UserError, match=r"build facts of .* cannot be read"):
                check(cache)

    def find(self, cache: Path) -> None:
        overrides_library.find(cache, "2.11.0+cu130")

    def test_one_of_other_sources_is_refused_also_by_a_dry_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        libs = make_libs(tmp_path)
        assert cli.main(["overrides", "--dry-run", "--libs", str(libs)]) == 0
        monkeypatch.setattr(_probe, "sources_digest", lambda: "feed" * 16)
        with pytest.raises(UserError, match=r"other sources .* checkout's \(feedfeedfeed\)"):
            cli.main(["overrides", "--dry-run", "--libs", str(libs)])

    def test_the_select_library_stands_in_for_a_compiler(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_libs(tmp_path)
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setattr(shutil, "which", lambda name: None)
        made = overrides_library.environment(tmp_path)
        assert made["ATEN_OVERRIDES_CACHE"] == str(tmp_path / "overrides")
        assert made[overrides_library.SELECT_VARIABLE].endswith("libaten_overrides_select.so")
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
        assert overrides_library.environment(tmp_path).keys() == {"ATEN_OVERRIDES_CACHE"}


class TestRun:
    """The suite itself, with a machine and jobs that are not there."""

    @pytest.fixture(autouse=True)
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runner, "probe", lambda log, gpus: MACHINE)
        monkeypatch.setenv("ATEN_OVERRIDES_CACHE", "as before")  # the suite sets it
        monkeypatch.setattr(runner, "run_jobs", self.run_jobs)
        self.asked: list[str] = []
        self.result = "pass"

    def run_jobs(
        self, record: Record, jobs: list[plan.Job], found: dict[str, Any], **_: object
    ) -> bool:
        assert {job.library for job in jobs} == found.keys() == {"overrides"}
        self.asked += [job.title for job in jobs]
        for job in jobs:
            row = {"name": "x", "params": {}, "result": self.result, "value": 1, "reason": ""}
            record.put(job.title, [row], {"state": "done"})
        return True

    def call(self, tmp_path: Path, *more: str) -> int:
        libs = tmp_path / "libs"
        if not libs.exists():
            make_libs(libs)
        out = str(tmp_path / "out")
        return cli.main(["overrides", "--libs", str(libs), "--out", out, "--commit", "abc", *more])

    def test_a_record_with_its_meta_data(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.call(tmp_path, "--parts", "allocs,cliff") == 0
        assert self.asked == ["cliff/all", "allocs/all"]
        record = Record.load(tmp_path / "out" / "overrides-nvidia-h200-torch2.11.0.json")
        assert record.meta["commit"] == "abc" and record.meta["topic"] == "overrides"
        assert record.meta["command"] == "tools/gpu-test overrides --parts cliff,allocs"
        assert record.meta["built"]["overrides"]["compiler"] == "GNU 12.2.0"
        assert record.meta["libraries"].keys() == {"overrides"}
        text = record.path.read_text()
        assert str(tmp_path) not in text and "someone" not in text
        assert "record: " in capsys.readouterr().out

    def test_a_second_run_names_all_parts(self, tmp_path: Path) -> None:
        self.call(tmp_path, "--parts", "kinds")
        self.call(tmp_path, "--parts", "cliff")
        record = Record.load(tmp_path / "out" / "overrides-nvidia-h200-torch2.11.0.json")
        assert record.meta["command"] == "tools/gpu-test overrides --parts cliff,kinds"

    def test_a_failed_check_shows_in_the_exit_code(self, tmp_path: Path) -> None:
        self.result = "fail"
        assert self.call(tmp_path, "--parts", "cliff") == 1

    def test_what_is_missing_is_told_before_anything_runs(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="positive"):
            self.call(tmp_path, "--budget", "0")
        (tmp_path / "libs" / "upstream" / "test_linalg.py").unlink()
        with pytest.raises(UserError, match=r"upstream's tests.*gpu-test pack.*--parts"):
            self.call(tmp_path)
        assert self.call(tmp_path, "--parts", "smoke") == 0
        next((tmp_path / "libs").glob("overrides/gpu/*/*.so")).unlink()
        with pytest.raises(UserError, match="no library of the overrides"):
            self.call(tmp_path, "--parts", "smoke")
        assert self.asked == ["smoke/all"]


def test_a_group_of_jobs_ends_with_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        plan.Job("kinds", f"{i}", "overrides", "m:f", float(i), 30, timed=False) for i in range(6)
    ]
    ran: list[str] = []
    clock = [0.0]

    def run_child(job: plan.Job, paths: object, timeout: float, log: Path) -> runner.Outcome:
        ran.append(job.name)
        clock[0] += 30
        return runner.Outcome("done", [], 1.0)

    monkeypatch.setattr(runner, "TOGETHER", 1)
    monkeypatch.setattr(runner, "run_child", run_child)
    monkeypatch.setattr(plan.Job, "key", lambda self, libraries: "k")
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    record = Record(tmp_path / "r.json", {})
    assert not runner.run_jobs(record, jobs, {}, budget=100, log=tmp_path / "log")
    assert ran == ["5", "4", "3"]  # the longest first
    assert record.jobs.keys() == {f"kinds/{name}" for name in ran}
    assert "not run, 10 s are left of the budget: kinds/2, kinds/1, kinds/0" in (
        capsys.readouterr().out
    )


MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at void getrf_kernel<float, (int)32>(T1 **, int)+0x1f0
=========     by thread (3,0,0) in block (0,0,0)
=========     Address 0x7f is out of bounds
========= Invalid __global__ write of size 8 bytes
=========     at void at::native::batched_native::warp_lu<double>(int)+0x20 in WarpLU.cu:10
=========     by thread (1,0,0) in block (0,0,0)
========= ERROR SUMMARY: 2 errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at vendor_kernel(int)+0x10 in a.cu:4
=========     and Read access at vendor_kernel(int)+0x20 in a.cu:5 [8 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


class TestSanitizer:
    """The tools' reports, ours and others'."""

    @pytest.fixture
    def part(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        pytest.importorskip("torch")
        monkeypatch.syspath_prepend(str(ROOT / plan_overrides.FOLDER))
        yield importlib.import_module("part_sanitize")
        for name in ("part_sanitize", "common"):
            sys.modules.pop(name, None)

    def row(self, part: Any, bad: str, out: str, log: str) -> Row:
        found = io.StringIO()
        session = Session(Rows(found), "overrides", {}, {})
        part.judge(session, "memcheck", bad, out, log)
        return check_row(json.loads(found.getvalue()))

    def test_kernels_are_read(self, part: Any) -> None:
        assert part.reports(MEMCHECK) == {
            "void getrf_kernel<float, (int)32>(T1 **, int)": 1,
            "void at::native::batched_native::warp_lu<double>(int)": 1,
        }
        assert part.reports(RACE) == {"vendor_kernel(int)": 1}
        assert part.reports(CLEAN) == {}
        assert part.reports("========= Invalid __global__ read of size 4 bytes\n") == {"": 1}

    def test_results(self, part: Any) -> None:
        done = "DONE 40 OF 44\n"
        row = self.row(part, "", done, CLEAN)
        assert row["result"] == "pass" and row["value"]["cases"] == "40 of 44"
        assert self.row(part, "", done, RACE)["result"] == "vendor"
        assert self.row(part, "", done, MEMCHECK)["result"] == "fail"
        assert self.row(part, "", "DONE 0 OF 44\n", CLEAN)["result"] == "fail"
        row = self.row(part, "timed out", "", "")
        assert row["result"] == "fail" and "timed out" in row["reason"]
        row = self.row(part, "exit code 1", "", "========= Error: Device not supported\n")
        assert row["result"] == "skip" and "Device not supported" in row["reason"]

    def test_the_set_has_every_small_size_and_both_kinds_of_route(self, part: Any) -> None:
        cases = part.cases(False)
        for route in ("batched_native", "choice", "batched_cublas", "streamed_cusolver"):
            sizes = {n for name, dtype, _, m, n, _ in cases if name == route and m == n}
            assert set(range(1, 34)) <= sizes
        assert len(part.cases(True)) < len(cases) * 0.6
        assert len(cases) == len(set(cases))
        ours = [case for case in part.cases(True) if case[0] == "batched_native"]
        assert part.cases(True)[: len(ours)] == ours and ours[0][3] == 1
        assert len(ours) >= 20

    def test_without_the_tool_the_row_says_so(
        self, part: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(part, "TOOLS", ("no-such-tool",))
        found = io.StringIO()
        session = Session(Rows(found), "overrides", {}, {})
        part.memcheck(session)
        assert json.loads(found.getvalue())["result"] == "skip"


class TestUpstream:
    """Upstream's tests with the overrides."""

    def session(self, part: int, parts: int, others: bool) -> Any:
        return SimpleNamespace(options={"part": part, "parts": parts, "others": others})

    def test_every_test_runs_once_with_and_once_without(self) -> None:
        names = [f"C::test_{kind}_{i}" for kind in ("lu", "matmul", "inverse") for i in range(50)]
        for library in (part_upstream_overrides.STOCK, part_upstream_overrides.OVERRIDES):
            seen: list[str] = []
            for others, parts in ((False, 1), (True, plan_overrides.REST_SHARDS)):
                for part in range(parts):
                    for shard in range(4):
                        config = part_upstream_overrides.config(
                            self.session(part, parts, others), library, shard, 4
                        )
                        config["done"] = []
                        assert config["overrides"] is (library == "overrides")
                        seen += [n for n in names if upstream_plugin.selected(n, config)]
            assert sorted(seen) == sorted(names)

    def test_the_plugin_enables_the_overrides(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        enabled: list[int] = []
        package = types.ModuleType("aten_overrides")
        package.enable = lambda: enabled.append(1)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "aten_overrides", package)
        manager: Any = SimpleNamespace(pluginmanager=SimpleNamespace(register=lambda *_: None))
        for overrides in (False, True):
            settings = {"torch": False, "library": "", "preference": False, "out": "x"}
            file = tmp_path / "settings.json"
            file.write_text(json.dumps(settings | {"overrides": overrides}))
            monkeypatch.setenv("ATEN_OVERRIDES_UPSTREAM", str(file))
            upstream_plugin.pytest_configure(manager)
            assert len(enabled) == int(overrides)

    def test_what_fails_only_with_the_overrides_is_told(self) -> None:
        out = io.StringIO()
        rows = Rows(out)
        session: Any = SimpleNamespace(
            options={"part": 1, "parts": 4, "others": True},
            library="overrides",
            rows=rows,
        )
        session.check = lambda name, **params: Session.check(session, name, **params)
        outcomes = {}
        for library, results in {
            "stock": {"a": "passed", "b": "passed", "c": "failed"},
            "overrides": {"a": "failed", "b": "failed", "c": "failed"},
        }.items():
            found = compare.Outcomes(list(results))
            found.results = {
                name: {"outcome": outcome, "seconds": 1, "message": f"{name} says"}
                for name, outcome in results.items()
            }
            outcomes[library] = found
        difference = compare.compare(outcomes["stock"], outcomes["overrides"], ())
        part_upstream_overrides._report(session, [], outcomes, difference, ["b"])
        found_rows = [check_row(json.loads(line)) for line in out.getvalue().splitlines()]
        by_name = {row["name"]: row for row in found_rows}
        row = by_name["upstream: none fails only with the overrides"]
        assert row["result"] == "fail" and row["reason"] == "a: a says"
        assert row["value"]["only with the overrides"] == ["a"]
        assert row["value"]["cleared by a second run"] == ["b"]
        assert row["params"]["part"] == "2 of 4" and row["params"]["tests"] == "others"
        assert by_name["upstream: fail without the overrides too"]["value"] == ["c"]
