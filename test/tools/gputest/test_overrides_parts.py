"""The scripts of `tools/gpu-test overrides` run to their end on a stand-in for the GPU."""

from __future__ import annotations

import importlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fake_overrides  # noqa: E402
from fake_overrides import Clock, Library, Torch  # noqa: E402

from aotools.env import ROOT  # noqa: E402
from aotools.gputest import plan_overrides  # noqa: E402
from aotools.gputest.record import check_row  # noqa: E402
from aotools.gputest.session import Rows, Session  # noqa: E402

pytestmark = pytest.mark.wheel
FOLDER = ROOT / plan_overrides.FOLDER
NAMES = [path.stem for path in sorted(FOLDER.glob("*.py"))]


class Fixture:
    """The parts' modules and a session of them on the stand-in."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.out = io.StringIO()
        self.session = Session(Rows(self.out), "overrides", {}, {})
        self.session.torch = Torch(library)

    def part(self, name: str) -> Any:
        return importlib.import_module(name)

    def run(self, module: str, function: str = "run", **options: Any) -> list[dict[str, Any]]:
        self.session.options = options
        getattr(self.part(module), function)(self.session)
        rows = [check_row(json.loads(line)) for line in self.out.getvalue().splitlines()]
        self.out.truncate(0)
        self.out.seek(0)
        return rows


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripts as modules, forgotten afterwards: their names are no one else's."""
    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    fixture = Fixture(Library())
    common = fixture.part("common")
    library = fixture.library

    def enable(**_: object) -> Library:
        library.ours = True
        return library

    monkeypatch.setattr(common, "enable", enable)
    monkeypatch.setattr(common, "disable", lambda: setattr(library, "ours", False))
    monkeypatch.setattr(
        common, "switch", lambda torch, library, ours: setattr(library, "ours", ours)
    )
    monkeypatch.setattr(common, "OPS", ("lu_factor", "lu_solve"))
    monkeypatch.setattr(common, "stock_kind", lambda torch: 1)
    yield fixture
    for name in NAMES:
        sys.modules.pop(name, None)


def failures(rows: list[dict[str, Any]]) -> list[str]:
    return [
        f"{row['name']} {row['params']}: {row['value']} {row['reason']}"
        for row in rows
        if row.get("result") == "fail"
    ]


def names(rows: list[dict[str, Any]]) -> set[str]:
    return {row["name"] for row in rows if "result" in row}


def points(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "op" in row]


def test_samples_are_taken_in_turns_after_a_warm_up(parts: Fixture) -> None:
    clock = Clock({"a": [900.0, 10.0], "b": [12.0, 11.0]})
    prepared: list[str] = []
    found = parts.part("common").in_turns(
        clock, {"a": lambda: "a", "b": lambda: "b"}, prepared.append, far=100
    )
    assert clock.order == ["a", "b"] * 7  # a warm-up and 6 samples of 10 ms each
    assert prepared == clock.order
    assert found == {"a": [10.0] * 6, "b": [11.0] * 6}


def test_a_call_far_from_the_best_is_sampled_once(parts: Fixture) -> None:
    clock = Clock({"best": [1.0], "far": [9.0, 8.0], "hopeless": [5000.0]})
    calls = {name: (lambda name=name: name) for name in clock.times}
    found = parts.part("common").in_turns(clock, calls)
    assert found["hopeless"] == [5000.0] and found["far"] == [8.0]
    assert len(found["best"]) == 11
    assert clock.order.count("hopeless") == 1
    assert parts.part("common").far_note(found["far"]).startswith("one sample")


def test_a_residual_of_nan_is_no_small_one(parts: Fixture) -> None:
    common = parts.part("common")
    a = torch.eye(3).repeat(2, 1, 1)
    x = a.clone()
    x[1, 0, 0] = float("nan")
    assert common.solve_error(torch, a, x, a) == float("inf")
    assert max(0.0, common.solve_error(torch, a, x, a)) == float("inf")
    assert common.solve_error(torch, a, a, a) == 0
    assert common.factor_error(torch, a, x, torch.tensor([[1, 2, 3]] * 2).int()) == float("inf")


def test_scripts_in_processes_say_how_they_ended(parts: Fixture) -> None:
    script = parts.part("common").script
    assert script("import sys; print(sys.argv[1])", "x", timeout=60) == ("", "x\n")
    assert script("raise SystemExit(3)", timeout=60)[0] == "exit code 3"
    assert script("import os; os.kill(os.getpid(), 11)", timeout=60)[0] == "signal 11"
    bad, text = script("import time; print(1, flush=True); time.sleep(60)", timeout=2)
    assert (bad, text) == ("timed out", "1\n")


def test_a_script_that_hangs_is_ended_with_what_its_tool_started(parts: Fixture) -> None:
    """As a sanitizer does, which runs its target as a child, here even in a session of its own."""
    tool = (
        "import subprocess, sys; "
        "sys.exit(subprocess.Popen(sys.argv[1:], start_new_session=True).wait())"
    )
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    started = time.monotonic()
    bad, text = parts.part("common").script(code, timeout=3, before=[sys.executable, "-c", tool])
    assert bad == "timed out" and time.monotonic() - started < 30
    target = Path(f"/proc/{int(text)}/stat")
    for _ in range(50):
        if not target.exists() or target.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("the target runs on")


def test_our_kernels_in_eight_threads(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = parts.part("part_threads")
    row = parts.run("part_threads", "native_streams")[0]
    assert row["result"] == "skip" and "cannot run" in row["reason"]
    monkeypatch.setattr(threads, "NATIVE_SHAPES", ((8, 2), (5, 3)))
    monkeypatch.setattr(threads, "NATIVE_ROUNDS", 2)
    common = parts.part("common")
    monkeypatch.setattr(common, "lu_routes", lambda library: (common.NATIVE,))
    monkeypatch.setattr(common, "used", lambda library, before: {common.NATIVE})
    monkeypatch.setattr(fake_overrides, "ROUTES", (*fake_overrides.ROUTES, common.NATIVE))
    monkeypatch.setattr(
        common,
        "matrices",
        lambda t, dtype, b, m, n: torch.randn(b, m, n, dtype=getattr(torch, dtype)),
    )
    assert failures(parts.run("part_threads", "native_streams")) == []
    monkeypatch.setattr(common, "factor_error", lambda *_: float("inf"))
    assert len(failures(parts.run("part_threads", "native_streams"))) == 1


def test_cliff_compares_with_stock_in_turns(
    parts: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cliff = parts.part("part_cliff")
    monkeypatch.setattr(cliff, "BATCHES", (1, 80))
    monkeypatch.setattr(parts.part("common"), "matrices", lambda t, d, b, m, n: torch.eye(4, 4))
    monkeypatch.setattr(
        parts.part("common"),
        "in_turns",
        lambda session, calls, prepare, far: {
            name: [4.0 if name == "overrides 512" else 2.0] * 3 for name in calls
        },
    )
    rows = parts.run("part_cliff")
    assert names(rows) == {"cliff", "not slower"}
    first = [row for row in rows if "result" in row][:2]
    assert [row["value"] for row in first] == [2.0, {"511": 1.0, "512": 2.0, "513": 1.0}]
    assert [row["result"] for row in first] == ["fail", "fail"]
    assert first[0]["reason"] == "2.000 ms at 511, 4.000 ms at 512"
    # stock under "cusolver" is timed for float32 and small batches only
    stock = [row for row in points(rows) if row["library"] == "stock"]
    assert {(r["dtype"], r["batch"]) for r in stock if r["preference"] == "cusolver"} == {
        ("float32", 1)
    }
    assert not parts.library.ours


def test_the_regret_grid_is_whole_and_its_beginnings_are_thin(parts: Fixture) -> None:
    sizes = parts.part("part_regret").sizes()
    assert sorted(sizes) == list(range(480, 545))
    assert sizes[:5] == [480, 511, 512, 513, 544]
    assert sizes[5:13] and all(n in (487, 491, 499, 503, 509, 521, 523, 541) for n in sizes[5:13])
    assert all(n % 2 for n in sizes[5:35])


def times(monkeypatch: pytest.MonkeyPatch, parts: Fixture, ms: dict[str, float]) -> None:
    monkeypatch.setattr(
        parts.part("common"),
        "in_turns",
        lambda session, calls, prepare, far: {name: [ms[name]] * 3 for name in calls},
    )
    monkeypatch.setattr(parts.part("common"), "matrices", lambda *_: None)


def test_regret_is_against_the_best_library_route(
    parts: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ms = {"batched_cublas": 2.4, "streamed_cusolver": 3.0, "looped_cusolver": 9.0, "stock": 2.0}
    times(monkeypatch, parts, ms)
    rows = parts.run("part_regret", dtypes=["float32"], seconds=60)
    checks = {row["params"]["preference"]: row for row in rows if "result" in row}
    assert checks["default"]["result"] == "fail"
    assert checks["default"]["value"]["worst"] == 1.2
    assert checks["default"]["value"]["mean"] == 1.2
    assert checks["default"]["value"]["over 1.10"] == checks["default"]["value"]["points"] == 325
    assert checks["default"]["value"]["n"] == "65 of 65"
    assert "batched_cublas, best stock" in checks["default"]["reason"]
    assert checks["cusolver"]["result"] == "pass" and checks["cusolver"]["value"]["worst"] == 1.0
    # The loop is hopeless at the coarse n, so it is not timed at the other 60.
    assert len(points(rows)) == 5 * 5 * 4 + 60 * 5 * 3
    assert checks["default"]["value"]["only at the coarse n"] == [
        f"looped_cusolver at batch {batch}" for batch in (3, 5, 12, 100, 700)
    ]


def test_a_choice_outside_the_libraries_is_timed_and_is_no_rival(
    parts: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ms = dict.fromkeys(parts.part("common").LU_ROUTES, 2.0) | {"batched_native": 1.0}
    times(monkeypatch, parts, ms)
    parts.library.choice = "batched_native"
    rows = parts.run("part_regret", dtypes=["float64"], seconds=60)
    assert [row["value"]["worst"] for row in rows if "result" in row] == [0.5, 0.5]
    assert any(row["backend"] == "batched_native" for row in points(rows))


def test_regret_ends_in_time_and_says_how_far_it_came(
    parts: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, parts, dict.fromkeys(parts.part("common").LU_ROUTES, 1.0))
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    rows = parts.run("part_regret", dtypes=["float32"], seconds=7)
    assert {row["value"]["n"] for row in rows if "result" in row} == {"7 of 65"}
    assert {row["value"]["points"] for row in rows if "result" in row} == {35}


def test_small_parts(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    small = parts.part("part_small")
    monkeypatch.setattr(small, "N", 8)
    monkeypatch.setattr(small, "BATCHES", (1, 2, 5))
    monkeypatch.setattr(small, "STREAM_SIZES", (8,))
    monkeypatch.setattr(small, "GAIN", 0.0)
    monkeypatch.setattr(small, "BIT_SHAPES", ((4, 8), (3, 5)))
    monkeypatch.setattr(small, "REPORTED", (("B1", "solve_ex", "float32", (3, 4), 1),))
    rows = parts.run("part_small", "allocs")
    assert failures(rows) == [] and len(rows) == 5
    assert rows[0]["value"] == {"1": 4, "2": 4, "5": 4}
    rows = parts.run("part_small", "streams", runs=20)
    assert failures(rows) == []
    bits = [row for row in rows if row.get("name", "").startswith("streams bit-identical")]
    assert [row["value"] for row in bits] == [{"runs": 20, "differ": 0}] * 2
    memory = [row for row in rows if row.get("name") == "memory of the handles"]
    assert [row["value"]["handles"] for row in memory] == [7, 2, 3]
    assert {row["lanes"] for row in points(rows)} == {4, 8}
    rows = parts.run("part_small", "overhead")
    assert rows[0]["value"]["rounds"] == 54
    rows = parts.run("part_small", "reported")
    assert {row["library"] for row in points(rows)} == {"overrides", "stock"}


def test_streams_that_differ_or_did_not_run_are_told(
    parts: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = parts.part("part_small")
    monkeypatch.setattr(small, "BIT_SHAPES", ((4, 8),))
    linalg = parts.session.torch.linalg
    real = type(linalg).__getattr__

    class Noisy:
        def __getattr__(self, name: str) -> Any:
            function = real(linalg, name)

            def call(a: Any) -> Any:
                out = function(a)
                if parts.library.forced.get("lu_factor") == "streamed_cusolver":
                    out.LU[0, 0, 0] += 1
                return out

            return call

    parts.library.ours = True
    parts.session.torch.linalg = Noisy()
    small._bits(parts.session, parts.library, 5)
    parts.library.ours = False  # as if no call went through streams
    small._bits(parts.session, parts.library, 5)
    rows = [json.loads(line) for line in parts.out.getvalue().splitlines()]
    assert [(row["result"], row["value"]) for row in rows] == [
        ("fail", {"runs": 5, "differ": 5}),
        ("fail", {"runs": 0, "differ": 5}),
    ]


def test_graphs(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = parts.part("part_graphs")
    monkeypatch.setattr(graphs, "SHAPES", ((3, 8, 8),))
    monkeypatch.setattr(graphs, "MORE_SHAPES", ())
    rows = parts.run("part_graphs")
    assert failures(rows) == []
    assert len(rows) == 4 * 2 + 1
    assert rows[-1]["value"] == "RuntimeError"
    assert rows[1]["reason"] == "lu_factor by batched_cublas, lu_solve by batched_cublas"
    rows = parts.run("part_graphs", "stock")
    assert len(rows) == 4 and failures(rows) == []


def test_synchronisations_of_stock_and_ours_are_counted(
    parts: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = parts.part("part_graphs")
    monkeypatch.setattr(graphs, "SHAPES", ((3, 8, 8),))
    monkeypatch.setattr(
        parts.part("common"),
        "synchronisations",
        lambda torch, call: {} if parts.library.ours else {"cudaDeviceSynchronize": 3},
    )
    rows = parts.run("part_graphs", "syncs")
    assert len(rows) == 8 and failures(rows) == []
    assert rows[0]["value"] == {"stock": {"cudaDeviceSynchronize": 3}, "overrides": {}}
    monkeypatch.setattr(parts.part("common"), "synchronisations", lambda torch, call: None)
    assert {row["result"] for row in parts.run("part_graphs", "syncs")} == {"skip"}


def test_kinds(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = parts.part("part_kinds")
    monkeypatch.setattr(kinds, "LIMIT_BATCHES", (20,))
    monkeypatch.setattr(kinds, "OFFSETS", ((200, 6, "float32"),))
    monkeypatch.setattr(kinds, "WIDE", 50)
    monkeypatch.setattr(kinds, "SIDES", ((3, 11, (5, 11)),))
    monkeypatch.setattr(parts.part("common"), "LIMIT", 1000.0)
    assert failures(parts.run("part_kinds", "limits")) == []
    assert failures(parts.run("part_kinds", "offsets")) == []
    rows = parts.run("part_kinds", "views")
    assert failures(rows) == []
    assert {"zero sizes", "view equals its copy", "out= of every layout", "broadcasting"} <= names(
        rows
    )


def test_bad_matrices(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = parts.part("part_bad")
    monkeypatch.setattr(bad, "SHAPES", ((3, 5),))
    monkeypatch.setattr(bad, "NAN_SHAPES", ((1, 3), (3, 8)))
    monkeypatch.setattr(bad, "PLAIN_SHAPES", ((2, 9),))
    monkeypatch.setattr(bad, "SIDES", (1, 3))
    monkeypatch.setattr(bad, "ILL", 20)
    monkeypatch.setattr(parts.part("common"), "LIMIT", 1000.0)
    rows = parts.run("part_bad")
    assert failures(rows) == []
    cases = {case for row in rows for case in str(row["params"].get("case", "")).split()}
    wanted = "B23 B24 B28 B29 B33 B34 B35 B37 B40 B45 B47 B51 B84 B86"
    assert set(wanted.split()) <= cases


def test_derivatives(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    derivatives = parts.part("part_derivatives")
    monkeypatch.setattr(derivatives, "FAKE_SHAPES", ((3, 3), (4, 0, 0)))
    rows = parts.run("part_derivatives")
    assert failures(rows) == []
    assert {"vmap", "forward twice as stock", "half precision"} <= names(rows)


def test_pivots_are_judged_by_what_the_process_said(parts: Fixture) -> None:
    pivots = parts.part("part_pivots")
    said = [{"kind": kind, "guards": "unchanged"} for kind in pivots.KINDS[:-1]]
    said[2]["guards"] = "changed"
    text = "noise\n" + "\n".join(map(json.dumps, said)) + "\nCUDA error: illegal access\n"
    pivots.judge(parts.session, "batched_cublas", "signal 6", text)
    rows = [check_row(json.loads(line)) for line in parts.out.getvalue().splitlines()]
    assert [row["result"] for row in rows] == ["pass", "pass", "vendor", "pass", "vendor"]
    assert rows[-1]["value"] == "the process ended"
    assert "signal 6" in rows[-1]["reason"] and "illegal access" in rows[-1]["reason"]


def test_right_pivots_must_work(parts: Fixture) -> None:
    pivots = parts.part("part_pivots")
    pivots.judge(parts.session, "choice", "exit code 1", "ImportError: no module")
    rows = [json.loads(line) for line in parts.out.getvalue().splitlines()]
    assert rows[0]["result"] == "fail" and "ImportError" in rows[0]["reason"]


def test_stock_and_lifetime(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    stock, lifetime = parts.part("part_stock"), parts.part("part_lifetime")
    monkeypatch.setattr(stock.aten_overrides, "is_enabled", lambda: parts.library.ours)
    monkeypatch.setattr(stock, "TABLE_SIZES", (8,))
    monkeypatch.setattr(lifetime, "ORDER_N", 12)
    stock.round_trip(parts.session)
    stock.routes_of_this_wheel(parts.session)
    monkeypatch.setattr(parts.part("common"), "LIMIT", 1000.0)
    lifetime.order(parts.session)
    lifetime.device_guard(parts.session)
    rows = [check_row(json.loads(line)) for line in parts.out.getvalue().splitlines()]
    assert [row["name"] for row in rows if row["result"] == "skip"] == ["device guard"]
    assert "enable and disable" in names(rows) and "back ends" in names(rows)


def test_churn_says_how_many_calls_there_were(parts: Fixture) -> None:
    rows = parts.run("part_lifetime", "churn", calls=2000, seconds=60)
    assert rows[0]["value"]["calls"] == 2000 and rows[0]["reason"] == ""
    rows = parts.run("part_lifetime", "churn", calls=10**6, seconds=0.2)
    assert 0 < rows[0]["value"]["calls"] < 10**6
    assert rows[0]["reason"] == "time was up before all calls were made"
    assert rows[0]["params"]["asked"] == 10**6


def test_solve_forces_routes_and_preferences(
    parts: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve = parts.part("part_solve")
    monkeypatch.setattr(solve, "SHAPES", ((2, 4), (100, 4)))
    rows = parts.run("part_solve")
    forced = [row["backend"] for row in points(rows) if row["batch"] == 100]
    assert "looped_cusolver" not in forced and "triangular_cublas" in forced
    assert {row["preference"] for row in points(rows)} == {"default", "cusolver"}
    assert parts.library.forced["lu_solve"] is None


def test_smoke(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    smoke = parts.part("part_smoke")
    monkeypatch.setattr(smoke, "SHAPES", ((2, 8, 8),))
    monkeypatch.setattr(smoke, "LIMIT", 1000.0)
    rows = parts.run("part_smoke")
    assert failures(rows) == []


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("part_")])
def test_no_script_is_larger_than_a_screenful_of_pages(name: str) -> None:
    assert len((FOLDER / f"{name}.py").read_text().splitlines()) <= 400


def test_scripts_in_strings_are_python(parts: Fixture) -> None:
    for module, variables in {
        "part_bad": ("ALL_NAN",),
        "part_magma": ("NO_MEMORY",),
        "part_pivots": ("SCRIPT",),
        "part_sanitize": ("SCRIPT",),
        "part_stock": ("FIRST",),
        "part_lifetime": ("FULL_POOL", "SAME"),
        "part_threads": ("FRESH",),
    }.items():
        for variable in variables:
            compile(getattr(parts.part(module), variable), f"{module}.{variable}", "exec")


def test_every_job_has_its_function() -> None:
    for job in plan_overrides.jobs(list(plan_overrides.PARTS), Path("tests")):
        module, _, function = job.function.partition(":")
        folder = ROOT / job.folder if job.folder else ROOT / "tools/aotools/gputest"
        text = (folder / f"{module}.py").read_text()
        assert f"def {function}(session: Session) -> None:" in text, job.title
