"""aten-overrides scan: exit codes, files, what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_clock import FakeClock

from aotools import env
from aten_overrides import cli
from aten_overrides.scan import run, target

HERE = str(Path(__file__).parent)
RANGE = ["--n", "100:180"]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "clock_for", lambda torch, cuda: FakeClock())
    monkeypatch.syspath_prepend(HERE)


def scan(name: str, *arguments: object) -> int:
    words = ["scan", "--callable", f"scanned:{name}", *RANGE, *map(str, arguments)]
    return cli.main(words)


def test_exit_codes_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert scan("smooth") == 0
    said = capsys.readouterr().out
    assert "no jump of 1.12x or more between neighbouring sizes" in said
    assert said.endswith("exit code 0, no cliff\n")
    assert scan("cliff") == 1
    said = capsys.readouterr().out
    assert "step at 128: 3.0" in said and "x slower than the trend below it" in said
    assert "exit code 1, found: step at 128: 3.0" in said
    assert scan("prepared") == 1
    assert scan("never") == 2
    said = capsys.readouterr().out
    assert "only 0 sizes could be measured" in said
    assert "81 sizes were skipped: 100: ValueError: 100 is not my size" in said


def test_out_of_memory_is_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert scan("memory") == 2
    assert "30 sizes were skipped, the first 151: out of memory: no room" in capsys.readouterr().out


def test_fail_over() -> None:
    assert scan("small_cliff") == 1
    assert scan("small_cliff", "--fail-over", "1.3") == 0
    assert scan("cliff", "--fail-over", "1.3") == 1


def test_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tmp_path / "before.json"
    assert scan("cliff", "--json", before) == 1
    assert scan("cliff", "--baseline", before) == 0  # known, and nothing became slower
    assert "81 sizes: 81 SAME" in capsys.readouterr().out
    smooth = tmp_path / "smooth.json"
    assert scan("smooth", "--json", smooth) == 0
    data = json.loads(smooth.read_text())
    data["target"]["path"] = "scanned:cliff"
    smooth.write_text(json.dumps(data))
    assert scan("cliff", "--baseline", smooth) == 1
    said = capsys.readouterr().out
    assert "53 SLOWER" in said and "53 sizes are slower than in the baseline" in said
    data["meta"]["cpu"] = "another"
    smooth.write_text(json.dumps(data))
    assert scan("cliff", "--baseline", smooth) == 2
    assert "that scan is of another cpu" in capsys.readouterr().err
    (tmp_path / "none.json").write_text("{}")
    assert scan("cliff", "--baseline", tmp_path / "none.json") == 2
    assert "is not a scan that can be read" in capsys.readouterr().err


def test_json_holds_all_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "scan.json"
    assert scan("cliff", "--json", path) == 1
    data = json.loads(path.read_text())
    assert data["complete"] is True and data["clock"] == "wall"
    assert data["meta"]["gpu"] is None and data["meta"]["cpu"]
    assert len(data["levels"]) == 81 and data["resolution"] == 1
    (finding,) = data["findings"]
    assert (finding["kind"], finding["below"], finding["size"]) == ("step", 127, 128)
    assert run.read(path).json() == data
    assert [entry.name for entry in tmp_path.iterdir()] == ["scan.json"]


def test_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scan.json"
    assert scan("cliff", "--json", path, "--budget", "0.0001") == 2
    assert "the time budget ended the search" in capsys.readouterr().out
    assert scan("cliff", "--json", path, "--resume") == 1
    samples = json.loads(path.read_text())["samples"]
    assert scan("cliff", "--json", path, "--resume") == 1
    assert json.loads(path.read_text())["samples"] == samples  # there was nothing left to do
    assert scan("smooth", "--json", path, "--resume") == 2
    assert "the earlier scan is of another target" in capsys.readouterr().err
    assert json.loads(path.read_text())["samples"] == samples


def test_picture(tmp_path: Path) -> None:
    from PIL import Image

    assert scan("cliff", "--png", tmp_path / "scan.png") == 1
    with Image.open(tmp_path / "scan.png") as image:
        assert image.width == 1600
    assert [entry.name for entry in tmp_path.iterdir()] == ["scan.png"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--callable", "scanned:cliff"], "--n is missing"),
        (["--callable", "scanned", *RANGE], "expected package.module:function"),
        (["--callable", "absent_module:f", *RANGE], "absent_module cannot be imported"),
        (["--callable", "scanned:absent", *RANGE], "scanned has no absent"),
        (["--callable", "scanned:not_callable", *RANGE], "this is int, not a function"),
        (["--op", "absent", *RANGE], "there is no operation 'absent'; known are lu_factor_ex"),
        (["--op", "det", *RANGE, "--dtype", "int8"], "there is no dtype 'int8'"),
        (["--op", "det", *RANGE, "--batch", "0"], "--batch must be at least 1"),
        (["--op", "det", *RANGE, "--factor", "1.01"], "noise is no cliff"),
        (["--op", "det", *RANGE, "--fail-over", "1.05"], "is below --factor 1.12"),
        (["--op", "det", *RANGE, "--budget", "0"], "--budget must be above 0"),
        (["--op", "det", *RANGE, "--resume"], "goes on with the file of --json"),
        (["--op", "det", *RANGE, "--json", "/absent/x.json"], "folder of /absent/x.json"),
    ],
)
def test_errors(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scan", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["512", "9:5", "0:9", "1:9:0", "5:8", "a:b"])
def test_sizes_that_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["scan", "--op", "det", "--n", text])
    assert exit_.value.code == 2
    assert "--n" in capsys.readouterr().err


def test_without_torch() -> None:
    command = [sys.executable, "-S", "-m", "aten_overrides", "scan", *RANGE]
    settings = {"cwd": HERE, "env": {"PYTHONPATH": str(env.ROOT)}, "text": True}
    done = subprocess.run(  # type: ignore[call-overload]
        [*command, "--callable", "scanned:never"], capture_output=True, check=False, **settings
    )
    assert done.returncode == 2, done.stderr
    assert "torch None; wall clock" in done.stdout
    done = subprocess.run(  # type: ignore[call-overload]
        [*command, "--op", "det"], capture_output=True, check=False, **settings
    )
    assert done.returncode == 2
    assert "--callable works without it" in done.stderr


def test_self_test_says_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["scan", "--self-test", "--curves", "20"]) == 0
    said = capsys.readouterr().out
    assert "of 20 found at the exact size" in said and said.endswith("with a finding: held\n")
