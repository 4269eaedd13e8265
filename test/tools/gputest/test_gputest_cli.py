"""The command line: plan, refusals, packing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import expecttest
import pytest

from aotools.env import ROOT, UserError
from aotools.gputest import cli, libraries, plan, runner, suite_pack, suite_patchset
from aotools.gputest.record import Record, Row

MACHINE: Row = {
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.11.0+cu130",
    "cublas": "13",
    "cusolver": "12",
}


FACTS = {"torch": "2.11.0+cu130", "magma": {"mode": "wheel"}, "runpath": ["/home/someone/torch"]}


def make_libraries(folder: Path) -> Path:
    for name in libraries.NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "libtorch_cuda_linalg_patched.so").write_text(name)
        (folder / name / "build-facts.json").write_text(json.dumps(FACTS))
    make_overrides(folder / "overrides")
    return folder


def make_overrides(cache: Path) -> None:
    library = cache / "gpu" / "torch-2.11.0+cu130-70d99e998b-abi1-x86_64"
    library.mkdir(parents=True)
    (library / "libaten_overrides_gpu.so").write_text("gpu")
    facts = {"torch": {"version": "2.11.0+cu130"}, "sha256": "0", "compiler": "GNU 12.2.0"}
    (library / "libaten_overrides_gpu.json").write_text(json.dumps(facts))
    (cache / "select" / "a1").mkdir(parents=True)
    (cache / "select" / "a1" / "libaten_overrides_select.so").write_text("select")


class TestPlan(expecttest.TestCase):
    def test_the_plan_of_two_parts(self) -> None:
        jobs = plan.jobs(plan.parse_parts("unchanged, cliff"))
        self.assertExpectedInline(
            suite_patchset.plan_text(jobs),
            """\
job                               library             about  limit
cliff/patched-magma               patched-magma        85 s  200 s
cliff/stock                       stock                45 s  200 s
cliff/unpatched-nomagma           unpatched-nomagma    60 s  200 s
cliff/patched-nomagma             patched-nomagma      30 s  200 s
unchanged/patched-magma           patched-magma        15 s   60 s  with others at once
unchanged/patched-nomagma         patched-nomagma      15 s   60 s  with others at once
6 jobs, about 3.9 minutes on an H200""",
        )


def test_all_but_upstreams_tests_take_at_most_nine_minutes_on_an_h200() -> None:
    jobs = plan.jobs([part for part in plan.PARTS if part != "upstream"])
    text = suite_patchset.plan_text(jobs).splitlines()[-1]
    assert float(text.split("about ")[1].split()[0]) <= 9, text
    assert all(job.timeout <= 300 for job in plan.jobs(list(plan.PARTS)))
    assert {job.part for job in plan.jobs(list(plan.PARTS))} == plan.PARTS.keys()


def test_every_job_names_a_function_that_exists() -> None:
    folder = Path(plan.__file__).parent
    for job in plan.jobs(list(plan.PARTS)):
        module, _, function = job.function.partition(":")
        assert f"def {function}(session: Session) -> None:" in (folder / f"{module}.py").read_text()
        assert {job.library, *job.also} <= {plan.STOCK, *libraries.NAMES}
    titles = [job.title for job in plan.jobs(list(plan.PARTS))]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    ("text", "message"), [("cliff,foo", "unknown part foo"), (" , ", "no part was named")]
)
def test_unknown_parts_are_refused_with_those_there_are(text: str, message: str) -> None:
    with pytest.raises(UserError, match=f"{message}.*cliff, allocs, lanes"):
        plan.parse_parts(text)


def test_dry_run_needs_neither_gpu_nor_libraries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(
            ["patchset", "--dry-run", "--libs", str(tmp_path / "none"), "--out", str(tmp_path)]
        )
        == 0
    )
    assert "minutes on an H200" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf"])
def test_a_budget_of_nothing_is_refused(budget: str) -> None:
    with pytest.raises(UserError, match="positive"):
        cli.main(["patchset", f"--budget={budget}"])


def test_missing_libraries_are_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "probe", lambda log, gpus: MACHINE)
    folder = make_libraries(tmp_path / "libs")
    (folder / "patched-magma" / "libtorch_cuda_linalg_patched.so").unlink()
    with pytest.raises(UserError, match=r"lacks patched-magma.*gpu-test pack"):
        cli.main(
            ["patchset", "--libs", str(folder), "--out", str(tmp_path), "--parts", "unchanged"]
        )


def test_a_run_writes_a_record_with_its_meta_data_and_tells_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "probe", lambda log, gpus: MACHINE)
    folder = make_libraries(tmp_path / "libs")
    (folder / libraries.MANIFEST).write_text(json.dumps({"commit": "abc"}))
    asked: list[str] = []

    def run_jobs(record: Record, jobs: list[plan.Job], found: object, **_: object) -> bool:
        asked.extend(job.title for job in jobs)
        for job in jobs:
            row = {"name": "x", "params": {}, "result": "pass", "value": 1, "reason": ""}
            record.put(job.title, [row], {"state": "done"})
        return True

    monkeypatch.setattr(runner, "run_jobs", run_jobs)
    arguments = [
        "patchset",
        "--libs",
        str(folder),
        "--out",
        str(tmp_path / "out"),
        "--parts",
        "unchanged",
    ]
    assert cli.main([*arguments, "--commit", "def"]) == 0
    record = Record.load(tmp_path / "out" / "patchset-nvidia-h200-torch2.11.0.json")
    assert asked == ["unchanged/patched-magma", "unchanged/patched-nomagma"]
    assert record.meta["commit"] == "def"
    assert record.meta["libraries"].keys() == set(libraries.NAMES)
    assert record.meta["command"] == "tools/gpu-test patchset --parts unchanged"
    assert record.meta["built"]["patched-magma"] == {"torch": "2.11.0+cu130", "magma": "wheel"}
    assert str(tmp_path) not in record.path.read_text()
    assert {"topic", "command", "commit", "date", "gpu", "driver", "torch"} <= record.meta.keys()
    assert "record: " in capsys.readouterr().out


def test_the_command_of_a_record_made_in_two_runs_names_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "probe", lambda log, gpus: MACHINE)
    folder = make_libraries(tmp_path / "libs")

    def run_jobs(record: Record, jobs: list[plan.Job], found: object, **_: object) -> bool:
        for job in jobs:
            record.put(job.title, [], {"state": "done"})
        return True

    monkeypatch.setattr(runner, "run_jobs", run_jobs)
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["patchset", "--libs", str(folder)]
    assert cli.main([*options, "--out", str(first), "--parts", "lanes"]) == 0
    name = "patchset-nvidia-h200-torch2.11.0.json"
    options += ["--resume", str(first / name)]
    assert cli.main([*options, "--out", str(second), "--parts", "cliff"]) == 0
    record = Record.load(second / name)
    assert record.meta["command"] == "tools/gpu-test patchset --parts cliff,lanes"
    assert {"cliff/stock", "lanes/speed", "summary"} <= record.jobs.keys()


def test_a_failed_check_shows_in_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "probe", lambda log, gpus: MACHINE)
    folder = make_libraries(tmp_path / "libs")

    def run_jobs(record: Record, jobs: list[plan.Job], found: object, **_: object) -> bool:
        row = {"name": "x", "params": {}, "result": "fail", "value": 1, "reason": "bits differ"}
        record.put(jobs[0].title, [row], {"state": "done"})
        return True

    monkeypatch.setattr(runner, "run_jobs", run_jobs)
    assert (
        cli.main(["patchset", "--libs", str(folder), "--out", str(tmp_path), "--parts", "lanes"])
        == 1
    )


def test_the_commit_outside_a_checkout_is_the_packed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_patchset, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert suite_patchset.commit_of_checkout(None, {"commit": "abc"}) == "abc"
    assert suite_patchset.commit_of_checkout("def", {"commit": "abc"}) == "def"
    assert suite_patchset.commit_of_checkout(None, {}) is None


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of pack that name things built before; nothing is built."""
    monkeypatch.setattr(suite_pack, "call", lambda command, environment=None: None)
    make_libraries(tmp_path / "source")
    (tmp_path / "plain.py").write_text("plain")
    (tmp_path / "patched.py").write_text("patched")
    options = ["--from", str(tmp_path / "source"), "--plain-tests", str(tmp_path / "plain.py")]
    return [*options, "--patched-tests", str(tmp_path / "patched.py")]


def test_pack_copies_libraries_and_notes_where_they_came_from(
    tmp_path: Path, sources: list[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(["pack", "--out", str(out), *sources]) == 0
    found = libraries.find(out)
    assert found.keys() == set(libraries.NAMES)
    noted = libraries.manifest(out)
    assert noted["files"]["upstream/test_linalg_patched.py"] == libraries.sha256(
        tmp_path / "patched.py"
    )
    assert noted["files"]["patched-magma/libtorch_cuda_linalg_patched.so"] == (
        found["patched-magma"].sha256
    )
    gpu = "torch-2.11.0+cu130-70d99e998b-abi1-x86_64/libaten_overrides_gpu"
    assert {name for name in noted["files"] if name.startswith("overrides/")} == {
        f"overrides/gpu/{gpu}.json",
        f"overrides/gpu/{gpu}.so",
        "overrides/libaten_overrides_select.so",
    }
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    assert noted["commit"] == (head or None)


def test_pack_tells_what_is_missing_and_keeps_what_was_there(
    tmp_path: Path, sources: list[str]
) -> None:
    out = tmp_path / "out"
    cli.main(["pack", "--out", str(out), *sources])
    (tmp_path / "source" / "patched-nomagma" / "build-facts.json").unlink()
    with pytest.raises(UserError, match=r"cannot copy .*patched-nomagma/build-facts.json"):
        cli.main(["pack", "--out", str(out), *sources])
    assert (out / "patched-nomagma" / "build-facts.json").is_file()
    assert not list(out.rglob("*.part"))


def test_pack_builds_what_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def call(command: list[str], environment: dict[str, str] | None = None) -> None:
        calls.append(command[1:])
        if environment is not None:
            if command[-1] == "build":
                make_overrides(Path(environment["ATEN_OVERRIDES_CACHE"]))
            return
        to = Path(command[command.index("--out" if "--out" in command else "--to") + 1])
        (to / "test").mkdir(parents=True)
        for file in (*suite_pack._FILES, "test/test_linalg.py"):
            (to / file).write_text(" ".join(command[1:]))

    monkeypatch.setattr(suite_pack, "call", call)
    monkeypatch.setattr(suite_pack, "wheel_tree", lambda version: tmp_path / version)
    assert cli.main(["pack", "--out", str(tmp_path / "out")]) == 0
    assert [command[0] for command in calls] == ["relink"] * 4 + ["-m"] * 2 + ["apply"] * 2
    assert "--upto none" in (tmp_path / "out/upstream/test_linalg.py").read_text()
    assert "--upto" not in (tmp_path / "out/upstream/test_linalg_patched.py").read_text()
    assert len(libraries.manifest(tmp_path / "out")["files"]) == 4 * 2 + 2 + 3


def test_pack_for_one_suite_leaves_the_rest(tmp_path: Path, sources: list[str]) -> None:
    out = tmp_path / "out"
    make_overrides(tmp_path / "cache")
    options = [*sources, "--only", "overrides", "--overrides", str(tmp_path / "cache")]
    assert cli.main(["pack", "--out", str(out), *options]) == 0
    assert {path.name for path in out.iterdir()} == {"manifest.json", "overrides", "upstream"}
    assert [path.name for path in (out / "upstream").iterdir()] == ["test_linalg.py"]
    assert cli.main(["pack", "--out", str(out), *sources, "--only", "patchset"]) == 0
    assert libraries.find(out).keys() == set(libraries.NAMES)
    assert len(libraries.manifest(out)["files"]) == 4 * 2 + 2 + 3


def test_pack_without_a_select_library_is_refused(tmp_path: Path, sources: list[str]) -> None:
    cache = tmp_path / "source" / "overrides"
    next(cache.glob("select/*/*.so")).unlink()
    with pytest.raises(UserError, match=r"holds no libaten_overrides_select\.so"):
        cli.main(["pack", "--out", str(tmp_path / "out"), *sources])


def test_a_failing_build_stops_the_packing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this failed: false"):
        suite_pack.call(["false"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("patched-magma", ["--magma", "wheel"]),
        ("unpatched-nomagma", ["--magma", "off", "--patches", "none"]),
    ],
)
def test_pack_builds_with_the_patch_tool(name: str, expected: list[str]) -> None:
    command = suite_pack.relink_command(name, "2.11.0", Path("/o"))
    assert command[1:6] == ["relink", "--wheel", "2.11.0", "--out", "/o"]
    assert command[6:] == expected


def test_ambiguous_and_broken_folders_are_refused(tmp_path: Path) -> None:
    folder = make_libraries(tmp_path)
    (folder / "patched-magma" / "other.so").write_text("")
    with pytest.raises(UserError, match="holds 2 libraries"):
        libraries.find(folder)
    (folder / "patched-magma" / "other.so").unlink()
    (folder / "patched-magma" / "build-facts.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        libraries.find(folder)


def test_the_entry_point_runs_where_there_is_no_torch(tmp_path: Path) -> None:
    command = [str(ROOT / "tools/gpu-test"), "patchset", "--dry-run", "--parts", "lanes"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "lanes/threads" in done.stdout
    done = subprocess.run(
        [*command[:3], "--parts", "nothing"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --parts: unknown part nothing")
