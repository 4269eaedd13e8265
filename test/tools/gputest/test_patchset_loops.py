"""The parts of the other loops and of eigh run to their end on a stand-in for the GPU, and notice
what is wrong.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fake_cuda import Patched, Torch  # noqa: E402

from aotools.env import ROOT  # noqa: E402
from aotools.gputest import part_eigh, part_loops, summary  # noqa: E402
from aotools.gputest.part_unchanged import flat  # noqa: E402
from aotools.gputest.record import Record, check_row  # noqa: E402
from aotools.gputest.session import Rows, Session  # noqa: E402
from aotools.patchset.relink import ENTRIES  # noqa: E402

pytestmark = pytest.mark.wheel
Row = dict[str, Any]
Run = Callable[[Any], list[Row]]


class Graph:
    """Runs the call again and writes into what it returned first."""

    def __init__(self, call: Callable[[], Any], out: Any) -> None:
        self.call, self.out = call, out

    def replay(self) -> None:
        for old, new in zip(flat(self.out), flat(self.call()), strict=True):
            old.copy_(new)


def capture(_: Any, call: Callable[[], Any]) -> tuple[Graph, Any]:
    out = call()
    return Graph(call, out), out


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    torch.set_num_threads(1)
    for part in (part_loops, part_eigh):
        monkeypatch.setattr(part, "capture", capture)
    shapes = (("float32", 4, 9), ("complex64", 4, 8), ("float64", 6, 8))
    monkeypatch.setattr(part_loops, "SHAPES", shapes)
    monkeypatch.setattr(part_loops, "RHS", 3)
    monkeypatch.setattr(part_loops, "LOSS", 100.0)  # the stand-in's times are noise
    monkeypatch.setattr(part_eigh, "SHAPES", ((1, 4), (3, 9), (600, 2)))
    monkeypatch.setattr(part_eigh, "NOT_FINITE", ((3, 9),))
    monkeypatch.setattr(part_eigh, "GRAPH", (("float32", 3, 9),))
    monkeypatch.setattr(part_eigh, "TIMED", (("float32", 3, 9),))
    made = Session(Rows(io.StringIO()), "patched-nomagma", {}, {})
    made.torch = Torch()
    made._patched = Patched(["linalg_eigh"], list(ENTRIES))  # type: ignore[assignment]
    return made


@pytest.fixture
def run(session: Session) -> Run:
    def run(function: Callable[[Session], None]) -> list[Row]:
        function(session)
        text = session.rows._out.getvalue()  # type: ignore[attr-defined]
        return [check_row(json.loads(line)) for line in text.splitlines()]

    return run


def results(rows: list[Row], name: str) -> list[str]:
    return [row["result"] for row in rows if row.get("name") == name]


def test_names_are_those_of_the_table() -> None:
    text = (ROOT / "aten_overrides/csrc/linalg/LoopThresholds.h").read_text()
    rows = re.findall(r"^    \{Loop::(\w+),", text, re.M)
    assert [row.lower() for row in rows] == list(part_loops.LOOPS)


def test_loops(session: Session, run: Run) -> None:
    rows = run(part_loops.run)
    checks = [row for row in rows if "result" in row]
    assert {row["result"] for row in checks} == {"pass"}, checks
    patched: Any = session.patched
    assert set(patched.selected) == {"linalg_eigh", *part_loops.MORE_ENTRIES}
    assert not patched.always, "the thresholds hold again"
    # Five calls reach a loop, one more for complex matrices; one replaces a batched routine, for
    # no more matrices than there are lanes.
    assert len(results(rows, "loops: speed-up over one stream")) == 6 + 7 + 5
    assert len(results(rows, "loops: bits equal to one stream's")) == 5 + 6 + 5
    assert len(results(rows, "loops: info of a bad matrix")) == 2
    assert len(results(rows, "loops: graph replay equals the eager call")) == 6 + 6 + 5
    points = [(row["op"], row["backend"]) for row in rows if "ms" in row]
    assert points.count(("cholesky_ex", "batched_cusolver")) == 2
    assert points.count(("geqrf", "streamed_cusolver")) == 3


def test_a_loop_that_is_on_may_not_lose(
    session: Session, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_loops, "LOSS", 0.0)
    rows = run(part_loops.run)
    failed = [row for row in rows if row.get("result") == "fail"]
    assert {row["params"]["loop"] for row in failed} == {"syevd"}


def test_other_bits_and_lost_infos_on_lanes_are_found(
    session: Session, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched: Any = session.patched
    real = session.torch.geqrf
    linalg = session.torch.linalg
    cholesky = torch.linalg.cholesky_ex

    def geqrf(a: Any) -> Any:
        return real(a * (1 + 1e-6) if patched.always else a)

    def cholesky_ex(a: Any) -> Any:
        factor, info = cholesky(a)
        return factor, info.roll(1) if patched.always else info

    monkeypatch.setattr(session.torch, "geqrf", geqrf, raising=False)
    monkeypatch.setattr(linalg, "cholesky_ex", cholesky_ex, raising=False)
    rows = run(part_loops.run)
    failed = [(row["name"], row["params"]["op"]) for row in rows if row.get("result") == "fail"]
    assert set(failed) == {
        ("loops: bits equal to one stream's", "geqrf"),
        ("loops: info of a bad matrix", "cholesky_ex"),
    }


def test_what_no_stream_can_capture_is_skipped(
    session: Session, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched: Any = session.patched

    def refuse(fake: Any, call: Any) -> Any:
        if call.func is torch.cholesky_inverse or (call.func is torch.geqrf and patched.always):
            raise RuntimeError("operation not permitted when stream is capturing")
        return capture(fake, call)

    monkeypatch.setattr(part_loops, "capture", refuse)
    rows = run(part_loops.run)
    graphs = [row for row in rows if row.get("name", "").startswith("loops: graph")]
    said = {row["params"]["op"]: row["result"] for row in graphs}
    assert said.pop("cholesky_inverse") == "skip"
    assert said.pop("geqrf") == "fail"
    assert set(said.values()) == {"pass"}


def test_eigh(run: Run) -> None:
    rows = run(part_eigh.values)
    assert {row["result"] for row in rows} == {"pass"}, rows
    assert len(results(rows, "eigh: error in n eps")) == 4 * 3
    assert len(results(rows, "eigh: NaN is reported")) == 4


def test_wrong_values_and_silent_nan_are_found(
    session: Session, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def eigh(h: Any) -> Any:
        found, vectors = torch.linalg.eigh(h.nan_to_num())
        return found * 1.001, vectors

    monkeypatch.setattr(session.torch.linalg, "eigh", eigh, raising=False)
    rows = run(part_eigh.values)
    assert set(results(rows, "eigh: error in n eps")) == {"fail"}
    assert set(results(rows, "eigh: NaN is reported")) == {"fail"}


def test_times_are_compared_over_jobs(session: Session, run: Run, tmp_path: Path) -> None:
    rows = run(part_eigh.times)
    assert [row["op"] for row in rows] == ["eigh", "eigvalsh"]
    record, _ = Record.open(tmp_path / "x.json", {"libraries": {}}, None)
    assert summary.eigh_checks(record) == []
    for library, factor in (("patched-nomagma", 1.0), ("unpatched-nomagma", 3.0)):
        changed = [row | {"library": library, "ms": factor} for row in rows]
        record.put(f"eigh/{library}", changed, {"state": "done"})
    found = summary.eigh_checks(record)
    assert [row["result"] for row in found] == ["pass", "pass"]
    assert found[0]["value"] == {"ms": 1.0, "unpatched_ms": 3.0, "times_as_fast": 3.0}
    slow = [row | {"ms": 3.4} for row in changed[:1]]
    record.put("eigh/patched-nomagma", [row | {"library": "patched-nomagma"} for row in slow], {})
    assert [row["result"] for row in summary.eigh_checks(record)] == ["fail"]
