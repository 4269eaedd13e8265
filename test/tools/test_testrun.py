"""tools/test itself: what it finds to check, and that no failing step is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotools import testrun
from aotools.env import ROOT, UserError


def test_finds_our_cpp_files_and_not_the_patches() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in testrun.cpp_files()}
    assert "aten_overrides/csrc/linalg/LinalgChoice.h" in found
    assert "tools/aotools/patchset/relink_entries.cpp" in found
    assert "patches/main/added/StreamedLU.cpp" in found
    others = [path for path in found if not path.startswith("patches/main/added/")]
    assert not any(path.startswith(("patches/", "build/")) for path in others)


def test_finds_every_bash_script(tmp_path: Path) -> None:
    found = {path.relative_to(ROOT).as_posix() for path in testrun.shell_files()}
    assert {".ci/run", "tools/python.sh", "tools/quickstart", "tools/test"} <= found
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/a").write_text("#!/usr/bin/env bash\n")
    (tmp_path / "tools/b.py").write_text("#!/usr/bin/env python3\n")
    assert [path.name for path in testrun.shell_files(tmp_path)] == ["a"]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Replaces what tools/test runs; the test sets the commands. Setting up does nothing."""
    commands = {name: ["true"] for name in ("first", "second", "build", "pytest")}
    monkeypatch.setattr(testrun, "set_up", lambda run, *, fast: None)
    monkeypatch.setattr(
        testrun, "checks", lambda: iter([(name, commands[name]) for name in ("first", "second")])
    )
    monkeypatch.setattr(testrun, "builds", lambda: iter([("build", commands["build"])]))
    monkeypatch.setattr(testrun, "check_types_of_tests", lambda run: True)
    monkeypatch.setattr(testrun, "pytest_command", lambda *_: commands["pytest"])
    monkeypatch.setattr("sys.argv", ["tools/test"])
    return commands


def test_success(steps: dict[str, list[str]], capfd: pytest.CaptureFixture[str]) -> None:
    steps["pytest"] = ["echo", "3 passed in 0.01s"]
    assert testrun.main() == 0
    said = capfd.readouterr()
    assert said.out.endswith("== pytest\n3 passed in 0.01s\n")
    assert said.err == ""


@pytest.mark.parametrize("failing", ["first", "second", "build", "pytest"])
def test_any_failing_step_fails_the_run_and_the_others_still_run(
    steps: dict[str, list[str]], failing: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in steps:
        code = "1" if name == failing else "0"
        steps[name] = ["sh", "-c", f"touch {tmp_path / name}; exit {code}"]
    assert testrun.main() == 1
    assert {path.name for path in tmp_path.iterdir()} == steps.keys()
    said = capfd.readouterr()
    assert f"tools/test: failed: {failing}" in said.err
    assert said.out.count("FAILED") == (failing != "pytest")


def test_pytest_finding_no_test_is_a_failure(steps: dict[str, list[str]]) -> None:
    steps["pytest"] = [sys.executable, "-m", "pytest", "-q", "-k", "no such test", __file__]
    assert testrun.main() == 1


def test_a_step_that_raises_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    run = testrun.Run({})

    def refused() -> bool:
        raise UserError("no such thing")

    assert not run.step("x", refused)
    assert run.failed == ["x"]
    assert "error: no such thing" in capsys.readouterr().out


def test_steps_have_no_standard_input(capfd: pytest.CaptureFixture[str]) -> None:
    testrun.Run(dict(os.environ)).call(["cat"])
    assert capfd.readouterr().out == ""


def test_fast_leaves_out_what_needs_downloads() -> None:
    command = testrun.pytest_command(True, "name", ["test/tools"])
    assert command[-5:] == ["-m", "not wheel and not source", "-k", "name", "test/tools"]
    assert "-m" not in testrun.pytest_command(False, None, [])[3:]


def test_material_that_is_required_and_missing_fails(tmp_path: Path) -> None:
    """Without the wheels a test that needs them is skipped, under tools/test it fails."""
    tests = tmp_path / "test"
    tests.mkdir()
    shutil.copy(ROOT / "test/conftest.py", tests)
    (tests / "test_it.py").write_text(
        "import pytest\n@pytest.mark.wheel\ndef test_it():\n    raise RuntimeError('ran')\n"
    )
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    command += [f"--rootdir={tests}", "-p", "no:cacheprovider", str(tests)]
    variables = {**os.environ, "ATEN_OVERRIDES_CACHE": str(tmp_path / "none")}
    for required, summary in (("", "1 skipped"), ("wheel,source", "1 error")):
        done = subprocess.run(
            command,
            env={**variables, "AOTOOLS_REQUIRE": required},
            capture_output=True,
            text=True,
            check=False,
        )
        assert summary in done.stdout.splitlines()[-1], done.stdout
        assert "no unpacked wheel of torch 2.6.0, 2.11.0" in done.stdout


def test_ci_runs_the_readmes_command() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == [
        "set -euo pipefail",
        'exec "$(dirname "${BASH_SOURCE[0]}")/../tools/test" "$@"',
    ]


# --- the packages that a bare machine lacks ---


class Machine:
    """A PATH with the programs asked for, a root user, and an apt-get that notes its calls."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls"
        for name in ("bash", "cat", "dirname", "sh", "env"):
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)
        self.program("id", "echo ${FAKE_UID:-0}")
        self.program("apt-get", f'echo "$@" >> "{self.calls}"')

    def program(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.bin / name).chmod(0o755)

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs tools/test as far as the missing packages; it then stops for want of a Python."""
        return subprocess.run(
            [ROOT / "tools/test"],
            env={"PATH": str(self.bin), "PYTHON": "python-not-here", **variables},
            capture_output=True,
            text=True,
            check=False,
        )


def test_root_gets_the_missing_packages(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.program("g++", "echo 10")  # too old
    done = machine.run()
    assert "== installing git g++ python3 python3-venv with apt-get" in done.stdout
    update, install = machine.calls.read_text().splitlines()
    assert update == "-qq update"
    assert install.split()[-4:] == ["git", "g++", "python3", "python3-venv"]


def test_others_are_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.program("g++", "echo 12")
    machine.program("git", "")
    done = machine.run(FAKE_UID="1000")
    assert done.returncode == 2
    assert "sudo apt-get install python3 python3-venv" in done.stderr
    assert not machine.calls.exists()
