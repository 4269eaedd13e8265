"""tools/compat: sizes first, one wheel at a time, and what was there before stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from aotools import env
from aotools.compat import cli, record
from aotools.compat.features import BROKEN, REFUSED, WORKS, Verdict
from aotools.env import UserError


class World:
    """Wheels that are there or are made when asked for, and trials with set verdicts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.states: dict[str, str] = {}
        self.seen: list[tuple[str, list[str]]] = []
        world = self

        class Trial:
            def __init__(self, version: str, tree: Path, work: Path, jobs: int) -> None:
                assert tree.is_dir()
                self.version = version

            def run(self, tell: Callable[[str, Verdict], None]) -> dict[str, Verdict]:
                world.seen.append((self.version, world.trees()))
                verdict = Verdict(world.states.get(self.version, WORKS), None, "")
                tell("build", verdict)
                return {"build": verdict}

            def describe(self) -> Mapping[str, Any]:
                return {"full": f"{self.version}+cu130", "compiler": "", "cuda": "13.0"}

        monkeypatch.setattr(cli, "Trial", Trial)
        monkeypatch.setattr(env, "wheel_tree", self.fetch)
        monkeypatch.setattr(env, "tree_ready", lambda version: (folder / version).is_dir())
        monkeypatch.setattr(env, "cache_dir", lambda: folder)

    def fetch(self, version: str) -> Path:
        if self.states.get(version) == "unreachable":
            raise UserError("pip could not reach its package index")
        (self.folder / version).mkdir(exist_ok=True)
        return self.folder / version

    def trees(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())

    def run(self, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
        out = self.folder / "record.json"
        monkeypatch.setattr("sys.argv", ["tools/compat", "--out", str(out), *arguments])
        return cli.main()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_one_wheel_at_a_time_and_the_users_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fetch("2.11.0")
    assert world.run(monkeypatch, "--torch", "2.12.1", "2.11.0", "2.13.0") == 0
    assert world.seen == [
        ("2.12.1", ["2.11.0", "2.12.1"]),
        ("2.11.0", ["2.11.0"]),
        ("2.13.0", ["2.11.0", "2.13.0"]),
    ]
    assert world.trees() == ["2.11.0"]
    made = record.load(world.folder / "record.json")
    assert list(made["meta"]["torch"]) == ["2.11.0", "2.12.1", "2.13.0"]
    assert made["meta"]["torch"]["2.13.0"]["command"] == "tools/compat --torch 2.13.0"


def test_keep(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.run(monkeypatch, "--keep", "--torch", "2.12.1") == 0
    assert world.trees() == ["2.12.1"]


def test_a_wheel_that_cannot_be_had_does_not_stop_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.states = {"2.12.1": "unreachable", "2.13.0": REFUSED}
    assert world.run(monkeypatch, "--torch", "2.12.1", "2.13.0") == 1
    assert "error: torch 2.12.1: pip could not reach" in capsys.readouterr().err
    assert list(record.load(world.folder / "record.json")["meta"]["torch"]) == ["2.13.0"]


def test_only_what_is_broken_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.states = {"2.12.1": REFUSED, "2.13.0": BROKEN}
    assert world.run(monkeypatch, "--torch", "2.12.1") == 0
    assert world.run(monkeypatch, "--torch", "2.13.0") == 1


def test_sizes_come_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.fetch("2.11.0")
    text = cli.plan_text(["2.11.0", "2.12.1", "2.15.0"], keep=False)
    assert "torch 2.11.0+cu130   is there" in text
    assert "torch 2.12.1+cu130   2.6 GB to download, 4.3 GB on disk" in text
    assert "To download: 5.4 GB in all" in text and "removed again, one after the other" in text
    assert "Free space needed at one time: 7.6 GB." in text
    assert "9.1 GB stay there" in cli.plan_text(["2.12.1", "2.15.0"], keep=True)
    assert world.run(monkeypatch, "--dry-run") == 0
    assert world.trees() == ["2.11.0"] and not world.seen


def test_a_full_disk_is_found_out_before_the_first_download(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Free", (), {"free": 1e9})())
    with pytest.raises(UserError, match="the disk is too full for the wheels"):
        world.run(monkeypatch, "--torch", "2.12.1")
    assert world.trees() == []


def test_a_version_that_is_not_pinned(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"torch 2\.9\.0 is not among the versions"):
        world.run(monkeypatch, "--torch", "2.9.0")


def test_another_files_loss_is_refused_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.folder / "record.json").write_text("mine")
    with pytest.raises(UserError, match="left alone"):
        world.run(monkeypatch, "--torch", "2.12.1")
    assert (world.folder / "record.json").read_text() == "mine" and not world.seen
