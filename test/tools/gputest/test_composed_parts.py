"""The parts of the composed patches run to their end on a stand-in for the GPU, and notice what is
wrong.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fake_cuda import Patched, Torch  # noqa: E402

from aotools.env import ROOT, UserError  # noqa: E402
from aotools.gputest import part_loops  # noqa: E402
from aotools.gputest.record import check_row  # noqa: E402
from aotools.gputest.session import Rows, Session  # noqa: E402
from aotools.patchset import edits  # noqa: E402
from aotools.patchset.relink import ENTRIES  # noqa: E402

sys.path.append(str(ROOT / "test/gpu/composed"))
part_composed: Any = importlib.import_module("part_composed")
run_composed: Any = importlib.import_module("run_composed")

pytestmark = pytest.mark.wheel
Row = dict[str, Any]
Run = Callable[[Callable[[Session], None]], list[Row]]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    torch.set_num_threads(1)
    monkeypatch.setattr(part_composed, "POINTS", ((1, 9, 9, True), (3, 5, 7, True)))
    monkeypatch.setattr(part_composed, "BITS", ((2, 6, 6), (3, 9, 5)))
    monkeypatch.setattr(part_composed, "STREAMED", ((4, 9, 9, True), (5, 7, 4, True)))
    monkeypatch.setattr(part_composed, "REGRET", 1000.0)  # the stand-in's times are noise
    monkeypatch.setattr(part_composed, "LOSS", 1000.0)
    monkeypatch.setattr(part_loops, "LOSS", 1000.0)
    monkeypatch.setattr(part_loops, "SHAPES", (("float32", 4, 9), ("complex64", 6, 8)))
    monkeypatch.setattr(part_loops, "RHS", 3)
    made = Session(Rows(io.StringIO()), "composed", {}, {})
    made.torch = Torch()
    made._patched = Patched(["lu_factor"], list(ENTRIES))  # type: ignore[assignment]
    return made


@pytest.fixture
def run(session: Session) -> Run:
    def run(function: Callable[[Session], None]) -> list[Row]:
        function(session)
        text = session.rows._out.getvalue()  # type: ignore[attr-defined]
        return [check_row(json.loads(line)) for line in text.splitlines()]

    return run


def failed(rows: list[Row]) -> list[str]:
    return [row["name"] for row in rows if row.get("result") == "fail"]


def test_choices_are_timed_and_leave_the_default(run: Run, session: Session) -> None:
    rows = run(part_composed.times)
    assert not failed(rows)
    points = [row for row in rows if "ms" in row and row["dtype"] == "float32"]
    assert len([row for row in points if row["batch"] == 1]) == 4  # no cublas for one matrix
    assert {row["backend"] for row in points} == {"choice", "stock"}
    assert session.torch._C._get_linalg_preferred_backend() == 0


def test_a_slow_default_is_noticed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_composed, "REGRET", 0.0)
    assert set(failed(run(part_composed.times))) == {"composed: default against the wheel"}


def test_bits(run: Run, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not failed(run(part_composed.bits))
    factor = torch.linalg.lu_factor_ex
    calls = []

    def restless(a: Any, **kwargs: Any) -> Any:
        calls.append(a)
        found = factor(a, **kwargs)
        found.LU.add_(len(calls))
        return found

    monkeypatch.setattr(session.torch.linalg, "lu_factor_ex", restless, raising=False)
    assert {
        "composed: native, bits of repeated calls",
        "composed: cublas, bits of the routine",
    } <= set(failed(run(part_composed.bits)))


def test_streams(run: Run, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run(part_composed.streams)
    assert not failed(rows)
    assert {row["backend"] for row in rows if "ms" in row} == {
        "looped_cusolver",
        "streamed_cusolver",
    }
    factor = torch.linalg.lu_factor_ex

    def other_bits_on_lanes(a: Any, **kwargs: Any) -> Any:
        found = factor(a, **kwargs)
        if session.patched.lanes > 1:  # type: ignore[attr-defined]
            found.LU.mul_(1.0001)
        return found

    monkeypatch.setattr(session.torch.linalg, "lu_factor_ex", other_bits_on_lanes, raising=False)
    assert "composed: lanes, bits of the loop" in failed(run(part_composed.streams))


def test_loops_leave_out_what_is_not_changed(run: Run) -> None:
    rows = run(part_composed.loops)
    seen = {row["params"]["op"] for row in rows if row.get("name", "").startswith("loops: speed")}
    assert seen == {"geqrf", "householder_product", "ormqr", "cholesky_ex"}


def test_the_tests_are_those_that_the_edits_add() -> None:
    added = set()
    for patch in edits.load("main", ROOT / "patches").patches:
        for edit in patch.edits:
            if edit.paths == ("test/test_linalg.py",):
                added |= set(re.findall(r"^    def (test_\w+)\(", edit.lines, re.M))
    assert set(part_composed.TESTS) == added
    text = "\n".join(f"    def {name}(self):" for name in added)
    assert len(part_composed.wanted(text)) == 4 * len(added) - 2  # one is of two types only
    with pytest.raises(ValueError, match="has no test_lu_factor_native"):
        part_composed.wanted(text.replace("def test_lu_factor_native(", ""))


def test_what_a_folder_holds(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no library"):
        run_composed.find(tmp_path)
    (tmp_path / "x.so").write_bytes(b"x")
    (tmp_path / "build-facts.json").write_text('{"base": "v2.6.0"}')
    assert run_composed.find(tmp_path).facts == {"base": "v2.6.0"}
    assert run_composed.composed(None) == []
    everything = run_composed.jobs(list(run_composed.PARTS), tmp_path)
    assert {job.part for job in everything} == set(run_composed.PARTS)
    assert len(run_composed.jobs(["upstream"], None)) == 0
