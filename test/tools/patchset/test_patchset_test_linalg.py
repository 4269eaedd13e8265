"""`test-linalg` on a stand-in for torch and for upstream's file, and once on the real ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_base import write_files

from aotools import env
from aotools.env import UserError
from aotools.gputest import compare
from aotools.patchset import apply, cli, fetch, test_linalg
from aotools.patchset import base as bases
from aotools.patchset import test_linalg_skips as skips
from aotools.patchset.test_linalg_skips import Skip

TORCH = {
    "torch/__init__.py": """
        import types
        __version__ = "2.11.0+cu130"
        version = types.SimpleNamespace(cuda="13.0")
        class cuda:
            has_magma = False
            is_available = staticmethod(lambda: GPU)
            synchronize = staticmethod(lambda: None)
            get_device_properties = staticmethod(lambda _: types.SimpleNamespace(
                name="NVIDIA T0", major=9, minor=0, total_memory=2**34))
        """,
    "torch/testing/__init__.py": "",
    "torch/testing/_internal/__init__.py": "",
    "torch/testing/_internal/common_mkldnn.py": "",
}
TESTS = """
    import os, unittest
    class TestLinalgCPU(unittest.TestCase):
        def test_good(self): pass
        def test_wrong(self): self.assertEqual(1, 2)
        def test_crash(self): os._exit(139)
        def test_later(self): pass
        @unittest.skip("upstream's own reason")
        def test_own_skip(self): pass
        def test_listed(self): self.fail("must not run")
        def test_mended(self): pass
    """


def entry(test: str, when: str = "{}") -> str:
    return f'[[skip]]\ntest = "{test}"\nreason = "known"\nwhen = {when}\n'


class World:
    """A tree with tests, a torch, a skip list; runs the command on them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.report = folder / "out/report.json"
        self.tests(TESTS)
        self.torch(gpu=False)
        self.skips("")
        monkeypatch.setenv("AOTOOLS_USER_PYTHONPATH", str(folder / "site"))

    def tests(self, text: str) -> None:
        lines = [line[4:] for line in text.splitlines()]
        write_files(self.folder, {"tree/test/test_linalg.py": "\n".join(lines) + "\n"})

    def torch(self, *, gpu: bool) -> None:
        init = "\n".join(line[8:] for line in TORCH["torch/__init__.py"].splitlines())
        files = {f"site/{name}": text for name, text in TORCH.items()}
        write_files(self.folder, files | {"site/torch/__init__.py": f"GPU = {gpu}\n{init}\n"})

    def skips(self, text: str) -> None:
        write_files(self.folder, {"skips.toml": text})

    def run(self, *more: str) -> int:
        words = ["test-linalg", "--tree", self.folder / "tree", "--device", "cpu"]
        words += ["--skips", self.folder / "skips.toml", "--report", self.report, *more]
        self.monkeypatch.setattr(sys, "argv", ["patchset", *map(str, words)])
        return cli.main()

    def outcomes(self) -> dict[str, str]:
        found = json.loads(self.report.read_text())["results"]
        return {name.partition("::")[2]: one["outcome"] for name, one in found.items()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_run_tells_every_outcome(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.skips(
        entry("*::test_listed") + entry("*::test_gone*") + entry("*::test_x", "{magma=true}")
    )
    assert world.run() == 1
    assert world.outcomes() == {
        "test_good": "passed",
        "test_wrong": "failed",
        "test_crash": "crashed",  # and those after it have run all the same
        "test_later": "passed",
        "test_own_skip": "skipped",
        "test_listed": "skipped",
        "test_mended": "passed",
    }
    said = capfd.readouterr().out
    assert "2 of 3 skips apply" in said
    assert "1 skipped by the list" in said
    assert "failed: TestLinalgCPU::test_wrong: AssertionError: 1 != 2" in said
    assert "crashed: TestLinalgCPU::test_crash: the process ended with code 139" in said
    assert "warning: stale entry of the skip list: *::test_gone* matches no test" in said
    assert "test_x" not in said
    report = json.loads(world.report.read_text())
    assert report["skipped_by_list"] == ["TestLinalgCPU::test_listed"]
    assert (report["facts"]["torch"], report["facts"]["magma"]) == ("2.11.0+cu130", False)


def test_success_needs_a_test_that_passed(world: World) -> None:
    listed = "".join(entry(f"*::test_{name}") for name in ("wrong", "crash", "listed"))
    world.skips(listed)
    assert world.run() == 0
    assert world.run("-k", "own_skip") == 1  # only skipped ones: that shows nothing
    world.tests("    import nothing_of_this_name\n")
    assert world.run() == 1


def test_skipped_tests_can_be_tried(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.skips(entry("*::test_mended") + entry("*::test_wrong"))
    assert world.run("--only-skipped") == 1
    assert world.outcomes() == {"test_wrong": "failed", "test_mended": "passed"}
    said = capfd.readouterr().out
    assert "stale entry of the skip list: *::test_mended: its 1 tests pass" in said
    assert "test_wrong: its" not in said


def test_a_selection_makes_no_entry_stale(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.skips(entry("*::test_gone"))
    assert world.run("-k", "test_good") == 0
    assert "stale" not in capfd.readouterr().out


def test_a_test_that_always_takes_the_process_down_does_not_loop(world: World) -> None:
    world.tests("    import os\n    os._exit(9)\n")
    assert world.run() == 1
    assert "code 9 before any test" in json.loads(world.report.read_text())["trouble"]


def test_what_is_missing_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"sees no GPU.*--gpus all"):
        world.run("--device", "cuda")
    with pytest.raises(UserError, match="is not there"):
        world.run("--tree", str(world.folder / "nowhere"))
    (world.folder / "site/torch/__init__.py").write_text("raise ImportError('no libcudart')\n")
    with pytest.raises(UserError, match=r"torch cannot be imported by .*no libcudart"):
        world.run()


def test_the_gpus_facts_decide(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.torch(gpu=True)
    conditions = (
        '{device="cuda"}',
        '{capability=">=9.0"}',
        '{memory_gib="<16"}',
        '{torch="<2.11"}',
    )
    world.skips("".join(entry(f"*::test_{n}", when) for n, when in enumerate(conditions)))
    assert world.run("--device", "cuda", "--dry-run") == 0
    said = capsys.readouterr().out
    assert [n for n in range(4) if f"would skip *::test_{n}" in said] == [0, 1]
    assert not world.report.exists()


def test_a_report_that_cannot_be_written_is_told_before_the_tests(world: World) -> None:
    world.report = Path("/proc/report.json")  # where not even root makes a file
    with pytest.raises(UserError, match=r"--report: user \d+ cannot write to /proc: "):
        world.run()
    assert not list((world.folder / "tree").rglob("__pycache__"))


# --- the list -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "facts", "holds"),
    [
        ({}, {}, True),
        ({"torch": ">=2.11"}, {"torch": "2.11.0+cu130"}, True),
        ({"torch": ">=2.11"}, {"torch": "2.6.0"}, False),
        ({"torch": "==2.6"}, {"torch": "2.6.1"}, True),
        ({"torch": "!=2.6"}, {"torch": "2.6.1"}, False),
        ({"memory_gib": "<16"}, {"memory_gib": 15.9}, True),
        ({"memory_gib": "<16"}, {"memory_gib": 139.8}, False),
        ({"memory_gib": "<16"}, {"memory_gib": None}, False),
        ({"magma": False}, {"magma": False}, True),
        ({"magma": False}, {"magma": None}, False),
        ({"device": "cuda", "relinked": True}, {"device": "cuda", "relinked": False}, False),
    ],
)
def test_conditions(when: dict[str, Any], facts: dict[str, Any], holds: bool) -> None:
    assert Skip("A::b", "why", when).applies(facts) == holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[skip]]\ntest = "A::b"\n', "has no reason"),
        ('[[skip]]\ntest = "b"\nreason = "x"\n', "test is Class::function"),
        ('[[skip]]\ntest = "A::b"\nreason = "x"\nissue = 3\n', "no field issue"),
        (entry("A::b", '{gpu="x"}'), "gpu is no fact"),
        (entry("A::b") * 2, "there twice"),
        ("[[skip", "not valid TOML"),
    ],
)
def test_a_malformed_list(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "skips.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        skips.read(path)


@pytest.mark.source
def test_every_entry_of_the_real_list_means_a_test_of_the_file(tmp_path: Path) -> None:
    real = bases.load("v2.6.0")
    tree = apply.plain_tree(real, fetch.source(real, progress=False), real.patches(), tmp_path)
    functions = compare.test_functions(tree / test_linalg.TESTS)
    names = {name.partition("::")[2] for name in functions}
    for skip in skips.read():
        wanted = skip.test.partition("::")[2]
        assert any(Skip(f"*::{name}*", "", {}).matches(f"A::{wanted}") for name in names), skip


@pytest.mark.wheel
@pytest.mark.source
def test_upstreams_own_file_on_a_stock_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = bases.load("v2.6.0")
    tree = apply.plain_tree(real, fetch.source(real, progress=False), real.patches(), tmp_path)
    wheel = env.wheel_tree("2.6.0", download=False)
    monkeypatch.setenv("AOTOOLS_USER_PYTHONPATH", str(wheel))
    report = tmp_path / "report.json"
    words = ["test-linalg", "--tree", tree, "--device", "cpu", "--report", report]
    words += ["-k", "test_inverse_cpu_float32 or test_det_cpu_float64"]
    monkeypatch.setattr(sys, "argv", ["patchset", *map(str, words)])
    assert cli.main() == 0, capfd.readouterr().out
    found = json.loads(report.read_text())
    assert found["facts"]["torch"].startswith("2.6.0")
    assert found["counts"]["passed"] == 2
