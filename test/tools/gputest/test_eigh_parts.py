"""The scripts for eigh run to their end on a stand-in for the GPU, and notice wrong answers."""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fake_cuda  # noqa: E402
import fake_overrides  # noqa: E402

from aotools.env import ROOT  # noqa: E402
from aotools.gputest.record import check_row  # noqa: E402
from aotools.gputest.session import Rows, Session  # noqa: E402
from aten_overrides._names import EIGH_BACKENDS  # noqa: E402
from aten_overrides.tables.eigh.table import from_records  # noqa: E402

pytestmark = pytest.mark.wheel
FOLDER = ROOT / "test/gpu/overrides"
NAMES = [path.stem for path in sorted(FOLDER.glob("*.py"))]


def _at(address: int, sizes: tuple[int, ...], dtype: Any) -> Any:
    count = 1
    for size in sizes:
        count *= size
    width = torch.empty(0, dtype=dtype).element_size()
    memory = (ctypes.c_char * (count * width)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).view(sizes)


class Library(fake_overrides.Library):
    """Every route of eigh is the CPU's."""

    workspace = 1024

    def force_route(self, op: str, route: str | None) -> None:
        assert op in ("eigh", "eigvalsh") and (route is None or route in EIGH_BACKENDS)
        self.forced[op] = route

    def eigh_workspace(self, mib: int = -1) -> int:
        self.workspace = mib if mib >= 0 else self.workspace
        return self.workspace

    def eigh(
        self, dtype: str, shape: tuple[int, int], a: int, values: int, infos: int, **given: Any
    ) -> None:
        batch, n = shape
        kind = getattr(torch, dtype)
        matrices = _at(a, (batch, n, n), kind).mT
        real = torch.empty(0, dtype=kind).real.dtype
        for i in range(batch):
            try:
                w, v = torch.linalg.eigh(matrices[i].clone(), "U" if given["upper"] else "L")
            except torch.linalg.LinAlgError:
                _at(infos, (batch,), torch.int32)[i] = n + 1
                continue
            _at(values, (batch, n), real)[i] = w
            matrices[i] = v


class Torch(fake_overrides.Torch):
    def __getattr__(self, name: str) -> Any:
        if name in ("empty", "ones"):
            return fake_cuda._on_cpu(getattr(torch, name))
        return super().__getattr__(name)


class Parts:
    """The modules and a session of them on the stand-in."""

    def __init__(self) -> None:
        self.library = Library("stock")
        self.out = io.StringIO()
        self.session = Session(Rows(self.out), "overrides", {}, {})
        self.session.torch = Torch(self.library)
        cuda = self.session.torch.cuda
        cuda.reset_peak_memory_stats = lambda: None
        cuda.max_memory_allocated = lambda: 0

    def part(self, name: str) -> Any:
        return importlib.import_module(name)

    def run(self, module: str, function: str, **options: Any) -> list[dict[str, Any]]:
        self.session.options = options
        getattr(self.part(module), function)(self.session)
        rows = [check_row(json.loads(line)) for line in self.out.getvalue().splitlines()]
        self.out.truncate(0)
        self.out.seek(0)
        return rows


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("eigh", "eigvalsh"):
        monkeypatch.setitem(fake_overrides.COUNTED, name, (name,))
    made = Parts()
    common = made.part("common")

    def enable(**_: object) -> Library:
        made.library.ours = True
        return made.library

    monkeypatch.setattr(common, "enable", enable)
    monkeypatch.setattr(common, "disable", lambda: setattr(made.library, "ours", False))
    monkeypatch.setattr(
        common, "switch", lambda torch, library, ours: setattr(library, "ours", ours)
    )
    yield made
    for name in NAMES:
        sys.modules.pop(name, None)


def failures(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"{row['name']} {row['params']}: {row['value']} {row['reason']}"
        for row in rows
        if row.get("result") == "fail"
    ]


def test_the_checks_run_and_pass(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    eigh = parts.part("part_eigh")
    monkeypatch.setattr(eigh, "SMALL", (1, 2, 5, 17))
    monkeypatch.setattr(eigh, "LARGE", (20,))
    monkeypatch.setattr(eigh, "TINY_BATCHES", (1, 50))
    for function in ("routes", "limits", "uses"):
        rows = parts.run("part_eigh", function)
        found = [text for text in failures(rows) if "allocations" not in text]
        assert not found and len(rows) > 10, function


def test_bad_matrices_are_told(parts: Parts) -> None:
    rows = parts.run("part_eigh", "bad")
    assert not failures(rows)
    bad = [row for row in rows if row["name"] == "bad matrix"]
    # As LAPACK has it: an error for some, NaN for others, and the same by every route.
    assert {row["value"]["ours"].partition(":")[0] for row in bad} >= {"_LinAlgError"}
    assert all(row["value"]["ours"] == row["value"]["stock"] for row in bad)
    assert any(row["value"]["info"][2] > 0 for row in bad)


def test_wrong_answers_are_noticed(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    eig = parts.part("eigh_common")
    a = torch.diag(torch.tensor([1.0, 2.0])).repeat(3, 1, 1)
    values, vectors = torch.linalg.eigh(a)
    assert eig.errors(torch, a, values, vectors) == 0
    assert eig.errors(torch, a, values.flip(-1), vectors.flip(-1)) == float("inf")
    assert eig.errors(torch, a, values + 1e-3, vectors) > eig.LIMIT
    assert eig.errors(torch, a, values, vectors * 1.001) > eig.LIMIT
    vectors[1, 0, 0] = float("nan")
    assert eig.errors(torch, a, values, vectors) == float("inf")
    assert eig.value_error(torch, a, values + 1e-3, values) > eig.LIMIT


def test_the_grid_makes_a_table(parts: Parts, tmp_path: Any) -> None:
    options = {"op": "eigh", "dtype": "float32", "seconds": 60, "batches": (2, 1), "sizes": (2, 4)}
    few = options | {"batches": (3,), "sizes": (33, 65), "loops_from": 65}
    rows = parts.run("part_eigh_times", "grid", grids=[options, few])
    assert not failures(rows)
    keys = ("gpu", "command", "commit", "date", "driver", "torch", "cuda", "cusolver")
    record = tmp_path / "eigh.json"
    points = [row for row in rows if "op" in row]
    record.write_text(json.dumps({"meta": dict.fromkeys(keys, "x"), "points": points}))
    table = from_records([record])
    assert [(p.batch, p.n, len(p.ms)) for p in table.points] == [
        (1, 2, 4),  # one matrix is no work for streams
        (1, 4, 4),
        (2, 2, 5),
        (2, 4, 5),
        (3, 33, 2),  # without loops, stock among them
        (3, 65, 4),  # without Jacobi's method
    ]


def test_a_failing_route_is_told_and_the_rest_goes_on(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = parts.part("part_eigh_times")
    monkeypatch.setattr(times, "REPORTED", [("eigh", "float64", 128, n, 1e9) for n in (32, 33)])
    monkeypatch.setattr(times, "STEPS", ("float64",))
    monkeypatch.setattr(times, "_workspaces", lambda session, library: None)
    measure = times._wall
    broken = ["stock"]

    def wall(session: Session, call: Any) -> Any:
        ours = parts.library.forced.get("eigh") if parts.library.ours else "stock"
        if ours in broken:
            raise RuntimeError("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR")
        return measure(session, call)

    monkeypatch.setattr(times, "_wall", wall)
    rows = parts.run("part_eigh_times", "reported")
    calls = [row for row in rows if row.get("name") == "call"]
    assert [row["result"] for row in calls] == ["vendor", "vendor"]
    assert "INTERNAL_ERROR" in calls[0]["reason"]
    assert [row["result"] for row in rows if row.get("name") == "goal"] == ["pass", "pass"]
    broken[:] = ["batched_cusolver"]
    rows = parts.run("part_eigh_times", "reported")
    assert [row["result"] for row in rows if row.get("name") == "call"] == ["fail", "fail"]


def test_a_route_that_fell_behind_is_left_out(parts: Parts) -> None:
    hopeless = parts.part("part_eigh_times").hopeless
    behind = {("looped_cusolver", 8, 64): 4.0, ("jacobi_batched_cusolver", 8, 64): 4.0}
    assert hopeless(behind, "looped_cusolver", 128, 64)
    assert not hopeless(behind, "looped_cusolver", 1, 64)
    assert not hopeless(behind, "looped_cusolver", 8, 128)
    assert hopeless(behind, "jacobi_batched_cusolver", 8, 100)
    assert not hopeless(behind, "jacobi_batched_cusolver", 8, 48)
    assert not hopeless(behind, "batched_cusolver", 128, 64)
    assert not hopeless({("stock", 8, 16): 9.0}, "stock", 128, 16)  # a batched routine there


def test_reported_shapes_have_a_goal(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    times = parts.part("part_eigh_times")
    shapes = [("eigh", "float32", 128, 32, 1e9), ("eigh", "float64", 128, 32, 1e-9)]
    shapes += [("eigh", dtype, 128, 33, 1e9) for dtype in ("float32", "float64")]
    monkeypatch.setattr(times, "REPORTED", shapes)
    monkeypatch.setattr(times, "WORKSPACES", (16,))
    monkeypatch.setattr(times, "_workspaces", lambda session, library: None)
    rows = parts.run("part_eigh_times", "reported")
    goals = [row["result"] for row in rows if row.get("name") == "goal"]
    assert goals == ["pass", "fail", "pass", "pass"]
    assert [row["result"] for row in rows if row.get("name") == "cupy"] == ["skip"] * 4
    assert len([row for row in rows if row.get("name") == "step from 32 to 33"]) == 2
