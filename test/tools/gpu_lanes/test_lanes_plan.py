"""test/gpu/lanes: what is measured, in which order, and what is left out; without a GPU."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from aotools.env import ROOT

FOLDER = ROOT / "test/gpu/lanes"
NAMES = ("library", "plan", "problems", "measure")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripts as modules, forgotten afterwards: their names are no one else's."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


def test_the_plan_covers_every_routine(modules: Any) -> None:
    plan, library = modules("plan"), modules("library")
    assert tuple(plan.SECONDS) == library.OPS
    assert sum(plan.SECONDS.values()) <= 115
    for op in library.OPS:
        points = list(plan.points(op))
        assert {p.dtype for p in points} == set(library.DTYPES)
        assert all(p.bytes <= plan.MOST_BYTES and p.op == op for p in points)
        assert len(set(points)) == len(points)
        # Small batches first: the times of later points are guessed from them.
        seen: dict[tuple[str, int, int], int] = {}
        for p in points:
            key = (p.dtype, p.n, p.nrhs)
            assert seen.get(key, 0) < p.batch
            seen[key] = p.batch
    assert {p.nrhs == p.n for p in plan.points("ormqr")} == {True, False}
    assert {p.dtype for p in plan.rest("potrs")} == {"complex64", "complex128"}
    real = {p.n for p in plan.rest("geqrf") if p.dtype == "float32"}
    assert real and not real & {64, 256, 1024}


def test_what_takes_too_long_is_left_out(modules: Any) -> None:
    plan = modules("plan")
    guesses = plan.Guesses()
    small = plan.Point("geqrf", "float32", 256, 4)
    assert guesses.allowed(small, "looped") and guesses.guess(small, "looped") == 0
    guesses.note(small, {"looped": 8.0, "streamed4": 3.0, "batched": 300.0, "stock": 8.0})
    for batch, allowed in ((16, True), (64, False)):  # 32 ms, and 128
        point = plan.Point("geqrf", "float32", 256, batch)
        assert guesses.allowed(point, "looped") is allowed
        assert guesses.allowed(point, "streamed4") is allowed
    larger = plan.Point("geqrf", "float32", 1024, 4)
    assert guesses.guess(larger, "looped") == pytest.approx(8.0 * 4**plan.GROWTH)
    assert guesses.allowed(larger, "looped") and not guesses.allowed(larger, "batched")
    other = plan.Point("geqrf", "float64", 256, 4)
    assert guesses.guess(other, "looped") == 0
    assert [plan.rounds_for(ms) for ms in (0.1, 20, 100, 300)] == [7, 4, 2, 1]


def test_commands(modules: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    measure = modules("measure")
    assert measure.main(["--dry-run"]) == 0
    assert "geqrf" in capsys.readouterr().out
    for wrong in (["--out", "x", "--ops", "getrf"], []):
        with pytest.raises(SystemExit):
            measure.main(wrong)
    record = measure.Record(tmp_path / "r.json", {"gpu": "x"})
    record.check("a", {"op": "b"}, "pass", 1)
    record.flush()  # not yet
    assert not record.path.exists()
    record.flush(now=True)
    assert json.loads(record.path.read_text())["checks"][0]["params"] == {"op": "b"}


def test_the_library_compiles(modules: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    version = str(torch.version.cuda or "0")
    if int(version.split(".")[0]) < 13:
        pytest.skip(f"Xgeev came with CUDA 12.6, and the headers here are of {version}")
    made = modules("library").build(torch, tmp_path)
    assert made.stat().st_size > 10000
