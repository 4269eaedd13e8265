"""Upstream's outcomes: reading them, comparing two libraries, telling the series' own tests."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotools.gputest import compare, part_upstream, upstream_plugin
from aotools.gputest.compare import Outcomes

HERE = Path(__file__).parent


def outcomes(**results: str) -> Outcomes:
    made = Outcomes(list(results))
    made.results = {
        f"TestLinalgCUDA::{name}": {"outcome": outcome, "seconds": 0.1, "message": f"{name} says"}
        for name, outcome in results.items()
        if outcome != "not run"
    }
    made.collected = [f"TestLinalgCUDA::{name}" for name in results]
    return made


def test_events_are_read_and_a_crash_is_noticed() -> None:
    lines = [
        {"collected": ["C::a", "C::b", "C::c"]},
        {"start": "C::a"},
        {"test": "C::a", "outcome": "passed", "seconds": 0.2, "message": ""},
        {"start": "C::b"},
    ]
    found = compare.read(
        [json.dumps(line) for line in lines] + ['{"test": "C::b", "outc'], Outcomes()
    )
    assert found.running == "C::b"
    assert found.crashed("signal 11") == "C::b"
    assert found.bad("C::b") and not found.bad("C::a")
    # the next process collects what is left
    more = [{"collected": ["C::c"]}, {"start": "C::c"}]
    more.append({"test": "C::c", "outcome": "skipped", "seconds": 0, "message": "slow"})
    compare.read([json.dumps(line) for line in more], found)
    assert found.collected == ["C::a", "C::b", "C::c"]
    assert found.counts() == {"crashed": 1, "not run": 0, "passed": 1, "skipped": 1}


def test_what_fails_only_with_the_patches_is_found() -> None:
    unpatched = outcomes(
        a="passed",
        b="failed",
        c="failed",
        d="passed",
        e="skipped",
        f="passed",
        g="passed",
        h="crashed",
    )
    patched = outcomes(
        a="passed",
        b="failed",
        c="passed",
        d="failed",
        e="failed",
        f="skipped",
        g="not run",
        h="crashed",
    )
    found = compare.compare(unpatched, patched, ())
    assert [name.partition("::")[2] for name in found.only_patched] == ["d", "e"]
    assert [name.partition("::")[2] for name in found.only_unpatched] == ["c"]
    assert [name.partition("::")[2] for name in found.both] == ["b", "h"]
    assert [name.partition("::")[2] for name in found.lost] == ["f"]


def test_the_series_own_tests_count_by_themselves() -> None:
    names = {
        "test_lu_new_cuda_float32": "failed",
        "test_lu_new_cuda_float64": "passed",
        "test_lu_new_er_cuda": "passed",
    }
    unpatched = outcomes(**dict.fromkeys(names, "failed"))
    found = compare.compare(unpatched, outcomes(**names), ("TestLinalg::test_lu_new",))
    assert [name.partition("::")[2] for name in found.added_passed] == ["test_lu_new_cuda_float64"]
    assert [name.partition("::")[2] for name in found.added_bad] == ["test_lu_new_cuda_float32"]
    assert [name.partition("::")[2] for name in found.only_unpatched] == ["test_lu_new_er_cuda"]


def test_files_are_compared_by_code(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(
        "class T:\n    def test_a(self):\n        pass\n    def test_b(self): return 1\n"
    )
    (tmp_path / "new.py").write_text(
        "class T:\n    # a comment\n    def test_a(self): pass\n"
        "    def test_b(self): return 2\n    def test_c(self): pass\n"
    )
    found = compare.compare_files(tmp_path / "old.py", tmp_path / "new.py")
    assert found == compare.FileDifference(("T::test_c",), ("T::test_b",), ())
    back = compare.compare_files(tmp_path / "new.py", tmp_path / "old.py")
    assert back.removed == ("T::test_c",)


def config(**more: Any) -> dict[str, Any]:
    return {"done": [], "left_out": [], "only": [], "first": [], "shards": 1, "shard": 0} | more


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        ("test_lu_cuda_float32", True),
        ("test_linalg_lu_family_cuda_complex64", True),
        ("test_solve_batched_cuda_float32", True),
        ("test_slogdet_cuda_float32", True),
        ("test_preferred_linalg_library_cuda", True),
        ("test_eigh_cuda_float64", True),
        ("test_matmul_cuda_float32", False),
        ("test_deterministic_cuda", False),
        ("test_values_cuda", False),
    ],
)
def test_selection(function: str, wanted: bool) -> None:
    assert upstream_plugin.selected(f"TestLinalgCUDA::{function}", config()) is wanted


def test_shards_split_the_tests_without_rest_or_overlap() -> None:
    names = [f"TestLinalgCUDA::test_lu_{number}" for number in range(200)]
    parts = [
        [n for n in names if upstream_plugin.selected(n, config(shards=4, shard=s))]
        for s in range(4)
    ]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert all(30 < len(part) < 70 for part in parts)
    assert not upstream_plugin.selected(names[3], config(done=[names[3]]))
    assert not upstream_plugin.selected(names[3], config(left_out=["test_lu_3"]))
    assert upstream_plugin.selected("C::test_matmul", config(only=["C::test_matmul"]))


def test_the_failure_message_is_the_assertion() -> None:
    text = "test_linalg.py:76: in test\n    x\nE   RuntimeError: boom\nE   more\n"
    assert upstream_plugin.first_line(text) == "RuntimeError: boom"
    assert upstream_plugin.first_line("collection broke") == "collection broke"


TESTS = """
import os, unittest

class TestLinalg(unittest.TestCase):
    def setUp(self):
        super(self.__class__, self).setUp()
    def test_lu_passes(self): self.assertEqual(1, 1)
    def test_lu_fails(self): self.assertEqual(1, 2)
    def test_solve_kills(self): os._exit(33)
    def test_solve_skips(self): raise unittest.SkipTest("no reason")
    def test_matmul(self): raise AssertionError("not selected")
    def test_solve_zz(self): pass

class TestLinalgCUDA(TestLinalg):
    def test_lu_passes(self): self.assertEqual(2, 2)
    def test_lu_fails(self): pass
    def test_solve_kills(self): pass
"""


def test_a_shard_goes_on_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = HERE.parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tools"), str(root)]))
    file = tmp_path / "test_linalg.py"
    file.write_text(part_upstream.for_later_torch(TESTS))
    settings = config(torch=False, library="", preference=False, first=["test_solve_zz"])
    shard = part_upstream.Shard("patched-magma", settings, tmp_path, "0")
    part_upstream.run_shards([shard], file, "cpu", time.monotonic() + 120)
    assert shard.trouble == ""
    results = shard.outcomes.results
    assert {name: result["outcome"] for name, result in results.items()} == {
        "TestLinalg::test_lu_passes": "passed",
        "TestLinalg::test_lu_fails": "failed",
        "TestLinalg::test_solve_kills": "crashed",
        "TestLinalg::test_solve_skips": "skipped",
        "TestLinalg::test_solve_zz": "passed",
        "TestLinalgCUDA::test_lu_passes": "passed",
        "TestLinalgCUDA::test_lu_fails": "passed",
        "TestLinalgCUDA::test_solve_kills": "passed",
        "TestLinalgCUDA::test_solve_skips": "skipped",
        "TestLinalgCUDA::test_solve_zz": "passed",
    }
    assert next(iter(results)) == "TestLinalg::test_solve_zz"
    assert shard.outcomes.not_run() == []
    assert shard.starts == 2
    assert "code 33" in results["TestLinalg::test_solve_kills"]["message"]
    assert results["TestLinalg::test_lu_fails"]["message"] == "AssertionError: 1 != 2"


def test_what_upstreams_file_lacks_is_supplied(monkeypatch: pytest.MonkeyPatch) -> None:
    mkldnn = types.ModuleType("common_mkldnn")
    internal = types.ModuleType("torch.testing._internal")
    internal.common_mkldnn = mkldnn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.testing._internal", internal)
    monkeypatch.setitem(sys.modules, "torch.testing", types.ModuleType("torch.testing"))
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    upstream_plugin.prepare_torch()

    def test() -> None:
        pass

    assert mkldnn.bf32_on_and_off(0.01)(test) is test
    assert (Path(sys.path[-1]) / "expecttest.py").is_file()
    own = object()
    mkldnn.bf32_on_and_off = own  # type: ignore[attr-defined]
    upstream_plugin.prepare_torch()
    assert mkldnn.bf32_on_and_off is own


def test_the_stand_in_for_expecttest_compares() -> None:
    path = Path(upstream_plugin.__file__).with_name("shim") / "expecttest.py"
    spec = importlib.util.spec_from_file_location("shim_expecttest", path)
    assert spec is not None and spec.loader is not None
    shim = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shim)
    case = shim.TestCase()
    case.assertExpectedInline("a\n", "a\n")
    with pytest.raises(AssertionError):
        case.assertExpectedInline("a\n", "b\n")
    assert shim.ACCEPT is False


def test_a_shard_that_cannot_start_gives_up_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        part_upstream,
        "pytest_command",
        lambda _: [sys.executable, "-c", "print('no torch'); exit(4)"],
    )
    shard = part_upstream.Shard("patched-magma", config(), tmp_path, "0")
    part_upstream.run_shards([shard], tmp_path / "test_linalg.py", "cpu", time.monotonic() + 60)
    assert "gave up after 1 starts, exit code 4: no torch" in shard.trouble


def test_a_second_run_clears_what_passes_or_fails_without_the_patches_too() -> None:
    names = [f"TestLinalgCUDA::{name}" for name in "abcd"]
    plain = outcomes(a="passed", b="failed", c="passed", d="not run")
    patched = outcomes(a="passed", b="failed", c="failed", d="not run")
    assert part_upstream.cleared(names, plain, patched) == names[:2]


def test_time_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import json, os, time; c = json.load(open(os.environ['ATEN_OVERRIDES_UPSTREAM']));"
        "f = open(c['out'], 'w'); f.write(json.dumps({'collected': ['C::a', 'C::b']}) + '\\n');"
        "f.write(json.dumps({'start': 'C::a'}) + '\\n'); f.flush(); time.sleep(60)"
    )
    monkeypatch.setattr(part_upstream, "pytest_command", lambda _: [sys.executable, "-c", code])
    shard = part_upstream.Shard("patched-magma", config(), tmp_path, "0")
    part_upstream.run_shards([shard], tmp_path / "test_linalg.py", "cpu", time.monotonic() + 4)
    assert shard.process is None
    assert shard.trouble == "time was up in C::a"
    assert shard.outcomes.not_run() == ["C::a", "C::b"]


def test_what_the_series_adds_runs_with_the_patches_only() -> None:
    session: Any = SimpleNamespace(paths={part_upstream.PLAIN: "a", part_upstream.PATCHED: "b"})
    added = ("TestLinalg::test_lu_factor_cuda_graph",)
    name = "TestLinalgCUDA::test_lu_factor_cuda_graph_cuda"
    ours, theirs = (
        part_upstream.config(session, library, 0, 1, first=added) | {"done": []}
        for library in (part_upstream.PATCHED, part_upstream.PLAIN)
    )
    assert upstream_plugin.selected(name, ours)
    assert not upstream_plugin.selected(name, theirs)
    assert upstream_plugin.selected("TestLinalgCUDA::test_inverse_cuda_float32", theirs)
