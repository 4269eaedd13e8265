"""What tools/compat makes of builds and children that go wrong, without building anything."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from aotools.compat import child, trial
from aotools.compat.features import BROKEN, BUILD, IMPOSSIBLE, REFUSED, TRIED, WORKS
from aotools.compat.trial import Trial

FACTS = {
    "compiler": "GNU 12.2.0",
    "cuda_headers": "13.0",
    "sources": "ab",
    "torch": {"cxx11_abi": True},
    "native": {"architectures": ["90"], "nvcc": "13.0", "reason": ""},
}
Answer = tuple[int, str, str]


class Fake(Trial):
    """A trial whose commands are answered instead of run."""

    def __init__(self, folder: Path, answer: Callable[[Sequence[Any]], Answer]) -> None:
        super().__init__("2.11.0", folder / "tree", folder / "work")
        self.answer = answer
        self.commands: list[list[str]] = []

    def call(
        self, *command: str | Path, limit: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        assert limit == (trial.BUILD_LIMIT_S if "build" in command else None)
        self.commands.append([str(part) for part in command])
        code, out, err = self.answer(self.commands[-1])
        if "build" in command and code == 0:
            library = self.work / "gpu/key/libaten_overrides_gpu.json"
            library.parent.mkdir(parents=True, exist_ok=True)
            library.write_text(json.dumps(FACTS))
        return subprocess.CompletedProcess(command, code, out, err)


def told(one: Fake) -> dict[str, tuple[str, str]]:
    return {name: (v.state, v.reason) for name, v in one.run(lambda *_: None).items()}


def test_every_feature_has_a_check() -> None:
    assert list(child.CHECKS) == [feature.name for feature in TRIED]


def test_all_goes_well(tmp_path: Path) -> None:
    answer = json.dumps({"state": WORKS, "value": [1], "reason": ""})
    one = Fake(tmp_path, lambda command: (0, f"noise\n{answer}\n", "a warning"))
    assert set(told(one).values()) == {(WORKS, "")}
    assert [command[3] for command in one.commands if trial.CHILD in command] == [
        feature.name for feature in TRIED
    ]


@pytest.mark.parametrize(
    ("code", "said", "state", "reason"),
    [
        (2, "error: torch 2.5.0 is too old\n", REFUSED, "error: torch 2.5.0 is too old"),
        (
            2,
            "error: the compilation of the gpu library failed (exit status 1)\n",
            BROKEN,
            "error: the compilation of the gpu library failed (exit status 1)",
        ),
        (-11, "", BROKEN, "exit -11"),
    ],
)
def test_without_a_library_nothing_is_possible(
    tmp_path: Path, code: int, said: str, state: str, reason: str
) -> None:
    one = Fake(tmp_path, lambda command: (code, "", said))
    found = told(one)
    assert found.pop(BUILD.name) == (state, reason)
    assert set(found.values()) == {(IMPOSSIBLE, "the gpu library did not build")}
    assert len(found) == len(TRIED) + 1 and len(one.commands) == 1
    assert (one.work / "build.log").read_text() == said


def test_a_crash_is_a_verdict(tmp_path: Path) -> None:
    def answer(command: Sequence[Any]) -> Answer:
        return (-6, "", "terminate called: error here\n") if "call" in command else (0, "{", "")

    one = Fake(tmp_path, answer)
    found = one.feature(next(feature for feature in TRIED if feature.name == "call"), Path("x"))
    assert (found.state, found.reason) == (
        BROKEN,
        "the process ended with -6: terminate called: error here",
    )


def test_kernels_by_the_build_facts(tmp_path: Path) -> None:
    assert trial.native_verdict(FACTS).value == {"architectures": ["90"], "nvcc": "13.0"}
    without = {"native": {"architectures": [], "nvcc": "", "reason": "no usable nvcc"}}
    assert trial.native_verdict(without).state == IMPOSSIBLE
    assert trial.native_verdict(without).reason == "no usable nvcc"
    assert trial.native_verdict({}).state == IMPOSSIBLE


def test_a_users_settings_stay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_OVERRIDES_PREFER", "magma")
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    monkeypatch.setenv("SOMETHING_ELSE", "1")
    found = Trial("2.11.0", tmp_path / "tree", tmp_path / "work").environment()
    assert "ATEN_OVERRIDES_PREFER" not in found and "CUDA_HOME" not in found
    assert found["SOMETHING_ELSE"] == "1"
    assert found["ATEN_OVERRIDES_CACHE"] == str(tmp_path / "work")


def test_a_child_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LIMIT_S", 0.2)
    done = Trial("2.11.0", tmp_path / "tree", tmp_path / "work").call("sleep", "60")
    assert (done.returncode, done.stderr) == (124, "no end within 0.2 s")


def test_what_a_child_started_is_ended_with_it(tmp_path: Path) -> None:
    one = Trial("2.11.0", tmp_path / "tree", tmp_path / "work")
    noted = tmp_path / "pid"
    # A compiler driver that waits for its compiler
    done = one.call("sh", "-c", f"sleep 60 & echo $! >{noted}; wait", limit=0.5)
    assert (done.returncode, done.stderr) == (124, "no end within 0.5 s")
    state = Path(f"/proc/{int(noted.read_text())}/stat")
    for _ in range(100):  # the kernel needs a moment; nobody may have waited for it yet
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child of the child goes on")
