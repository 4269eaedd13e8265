"""Users' own tables of lu_solve and eigh: found, checked, fitted, refused, and told of."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aten_overrides import _device, _explain, _select
from aten_overrides._device import Gpu
from aten_overrides._errors import UserError
from aten_overrides._names import EIGH_BACKENDS, EIGH_OPS, LU_SOLVE_BACKENDS
from aten_overrides._select import Facts, Native, Problem, Rankings
from aten_overrides.calibration import output
from aten_overrides.tables import own
from aten_overrides.tables.eigh.table import EighTable
from aten_overrides.tables.eigh.table import Point as EighPoint
from aten_overrides.tables.lu_solve.table import Point as SolvePoint
from aten_overrides.tables.lu_solve.table import SolveTable

H200 = Gpu("NVIDIA H200", "9.0", 132)
H100 = Gpu("NVIDIA H100", "9.0", 114)
T4 = Gpu("Tesla T4", "7.5", 40)
META = {
    "record": "none: measured by the user",
    "command": "aten-overrides calibrate --op eigh",
    "commit": None,
    "date": "2026-12-01",
    "driver": "580",
    "torch": "2.12.1+cu130",
    "cuda": "13.0",
    "cublas": "13.1.0",
    "cusolver": "12.0.4",
    "made_by": "aten-overrides calibrate",
    "compute_capability": "9.0",
    "sm_count": 132,
}


def eigh_table(gpu: Gpu = H200, best: str = "looped_cusolver", **meta: Any) -> EighTable:
    """``best`` is ahead everywhere between n = 4 and 64 and batch 1 and 64."""
    slow = dict.fromkeys(EIGH_BACKENDS, 2.0)
    points = tuple(
        EighPoint(op, dtype, batch, n, {**slow, best: 0.5, "streamed_cusolver": 3.0})
        for op in EIGH_OPS
        for dtype in ("complex64", "float32")
        for batch in (1, 64)
        for n in (4, 64)
    )
    capability = {"compute_capability": gpu.compute_capability, "sm_count": gpu.sm_count}
    return EighTable(gpu.name, {**META, **capability, **meta}, points)


def solve_table(gpu: Gpu = H200, best: str = "batched_cublas") -> SolveTable:
    slow = {name: 2.0 for name in LU_SOLVE_BACKENDS if name != "looped_cusolver"}
    points = tuple(
        SolvePoint("float32", transposed, batch, n, nrhs, {**slow, best: 0.5})
        for transposed in (False, True)
        for batch in (1, 64)
        for n in (16, 256)
        for nrhs in (1, 8)
    )
    capability = {"compute_capability": gpu.compute_capability, "sm_count": gpu.sm_count}
    return SolveTable(gpu.name, {**META, **capability}, points)


MADE: Mapping[str, Any] = {"eigh": eigh_table, "lu_solve": solve_table}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, empty, on a machine with an H200."""
    monkeypatch.setenv("ATEN_OVERRIDES_DATA", str(tmp_path))
    monkeypatch.setattr(_device, "gpu", lambda: H200)
    return tmp_path


def write(op: str, gpu: Gpu = H200, **more: Any) -> Path:
    path = own.target(op, gpu.name)
    output.write(path, own.KINDS[op].render(MADE[op](gpu, **more)))
    return path


def eigh_choice(rankings: Rankings | None, n: int = 32, batch: int = 64) -> str:
    problem = Problem(batch, n, n)
    return _select.load().eigh("eigh", "float32", problem, "default", Facts(), rankings=rankings)


@pytest.mark.parametrize("op", own.OPS)
def test_the_tables_compiled_in_choose_alike_when_given_at_run_time(op: str) -> None:
    library = _select.load()
    rankings = Rankings(library, op, own.numbers_of(op, own.compiled(op).table))
    facts = Facts(native=Native.USABLE)
    for dtype in ("float32", "complex128"):
        for batch in (1, 2, 5, 64, 300, 9000):
            for n in (1, 3, 33, 64, 65, 500, 3000):
                for some in (1, 3, 40, n):
                    if op == "eigh":
                        asked = (EIGH_OPS[some % 2], dtype, Problem(batch, n, n), "default", facts)
                        assert library.eigh(*asked) == library.eigh(*asked, rankings=rankings)
                    else:
                        sizes = (dtype, (batch, n, some), "default", facts)
                        for way in (False, True):
                            assert library.lu_solve(*sizes, transposed=way) == library.lu_solve(
                                *sizes, transposed=way, rankings=rankings
                            )


def test_without_a_table_of_the_users_what_is_compiled_in_holds(data: Path) -> None:
    for op in own.OPS:
        used = own.for_gpu(op, H200)
        assert not used.own and used.here and not used.notes
        assert used.source == "compiled in, measured on NVIDIA H200 (2026-11-30)"
        assert own.for_gpu(op, None) == own.compiled(op)


@pytest.mark.parametrize("op", own.OPS)
def test_the_users_table_of_this_gpu_chooses(op: str, data: Path) -> None:
    path = write(op)
    used = own.for_gpu(op, H200)
    assert used.own and used.here and used.table.path == path
    assert used.source == "measured on this GPU on 2026-12-01"
    rankings = Rankings(_select.load(), op, own.numbers(op, used.table))
    if op == "eigh":
        assert eigh_choice(None) == "jacobi_batched_cusolver"
        assert eigh_choice(rankings) == "looped_cusolver"
    else:
        asked = ("float32", (64, 100, 1), "default", Facts(native=Native.USABLE))
        assert _select.load().lu_solve(*asked) == "batched_native"
        assert _select.load().lu_solve(*asked, rankings=rankings) == "batched_cublas"


@pytest.mark.parametrize("gpu", [H200, T4])
def test_what_it_does_not_cover_stays_as_compiled_in(gpu: Gpu, data: Path) -> None:
    rankings = Rankings(_select.load(), "eigh", own.numbers("eigh", eigh_table(gpu)))
    assert eigh_choice(rankings, n=64) == "looped_cusolver"
    for n in (128, 512, 1000):
        assert eigh_choice(rankings, n=n) == eigh_choice(None, n=n)


def test_points_of_another_gpu_do_not_lie_among_those_measured_here(data: Path) -> None:
    def inside(table: Any, op: str, nrhs: int = 0) -> set[tuple[int, int]]:
        return {
            (p.batch, p.n)
            for p in own.combined(op, table).points
            if p.dtype == "float32" and p.batch <= 64 and 16 <= p.n <= 64
            if (p.op == "eigh" if op == "eigh" else p.nrhs == nrhs)
        }

    assert inside(eigh_table(T4), "eigh") == {(1, 64), (64, 64)}
    assert inside(eigh_table(H200), "eigh") == {(1, 64), (64, 64)}  # by another torch
    same = own.compiled("eigh").table.meta
    alike = eigh_table(H200, **{key: same[key] for key in ("torch", "cuda", "cusolver")})
    assert len(inside(alike, "eigh")) > 10
    assert inside(solve_table(T4), "lu_solve", nrhs=2) == set()  # between 1 and 8 measured here
    assert inside(own.compiled("lu_solve").table, "lu_solve", nrhs=2)
    made = own.combined("lu_solve", solve_table(T4)).points
    assert [p for p in made if p.dtype == "float64"]
    keys = [tuple(getattr(p, name) for name in own.KINDS["lu_solve"].names) for p in made]
    assert len(keys) == len(set(keys))


def test_another_gpu_takes_the_nearest_one_and_says_so(data: Path) -> None:
    used = own.for_gpu("eigh", H100)
    assert not used.own and not used.here
    assert used.source == (
        "compiled in, measured on NVIDIA H200 (2026-11-30); not measured here. Measure: "
        "aten-overrides calibrate --op eigh"
    )
    write("eigh", T4)
    assert not own.for_gpu("eigh", H100).own  # the H200 is nearer
    nearer = own.for_gpu("eigh", Gpu("Tesla T40", "7.5", 48))
    assert nearer.own and nearer.table.gpu == "Tesla T4"
    assert nearer.source.startswith("measured on Tesla T4 on 2026-12-01; not measured here")
    assert not own.for_gpu("eigh", H200).own


def damaged(text: str, how: str) -> str:
    data = json.loads(text)
    point = data["points"][0]
    if how == "truncated":
        return text[: len(text) // 2]
    if how == "format":
        data["format"] = 2
    elif how == "gpu":
        data["gpu"] = "Tesla T4"
    elif how == "versions":
        del data["meta"]["cusolver"]
    elif how == "device":
        del data["meta"]["sm_count"]
    elif how == "back end":
        point["ms"]["warp_speed"] = 1.0
    elif how == "time":
        point["ms"]["stock"] = -1.0
    elif how == "size":
        point["n"] = 0
    elif how == "twice":
        data["points"].append(point)
    elif how == "nothing":
        data["points"] = []
    elif how == "list":
        return "[]"
    return json.dumps(data)


@pytest.mark.parametrize("op", own.OPS)
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("truncated", "cannot be read"),
        ("format", "has format 2, this program reads 1"),
        ("gpu", r"is of Tesla T4, whose table is called tesla-t4\.json"),
        ("versions", "'meta' lacks 'cusolver'"),
        ("device", "'meta' lacks 'sm_count'"),
        ("back end", "there is no back end 'warp_speed'"),
        ("time", "stock takes -1.0 ms"),
        ("size", "n 0"),
        ("twice", "is there twice"),
        ("nothing", "has no points"),
        ("list", "must be an object, found list"),
    ],
)
def test_a_bad_file_is_refused_and_what_is_compiled_in_goes_on(
    op: str, how: str, words: str, data: Path
) -> None:
    path = write(op)
    bad = damaged(path.read_text(), how)
    path.write_text(bad)
    with pytest.raises(UserError, match=words) as caught:
        own.load(op, path)
    assert str(path) in str(caught.value)
    assert f"aten-overrides calibrate --op {op} makes it again" in str(caught.value)
    used = own.for_gpu(op, H200)
    assert not used.own and used.notes == (str(caught.value),)
    assert path.read_text() == bad  # left as it was
    sizes = (64, 32, 32)
    found = _explain.explain("eigh" if op == "eigh" else "lu_solve", sizes, "float32")
    assert "compiled in" in found.source.note and "is refused" in found.source.note


def test_rankings_that_the_library_refuses_say_why() -> None:
    library = _select.load()
    good = own.numbers("eigh", own.compiled("eigh").table)
    Rankings(library, "eigh", good)
    for change, words in (
        (good[:-1], "end too early"),
        ([*good, 1], "after the last row"),
        ([good[0] + 1, *good[1:]], "back ends, this library has"),
        ([*good[:-1], 99], "there is no back end 99"),
        ([*good[:-1], good[-2]], "twice"),
        ([good[0], 0, *good[2:]], "streams from n = 0"),
        ([*good[:3], 2, *good[4:]], "ascend from 1"),
        ([], "rankings of 0 back ends"),
    ):
        with pytest.raises(ValueError, match=words):
            Rankings(library, "eigh", change)
    with pytest.raises(ValueError, match="has no rankings"):
        Rankings(library, "lu_factor", good)


def test_another_version_of_torch_is_told(data: Path) -> None:
    write("eigh")
    used = own.for_gpu("eigh", H200)
    assert own.versions_note(used, "2.12.1+cu130") == ""
    note = own.versions_note(used, "2.13.0+cu130")
    assert "measured with torch 2.12.1+cu130, and this is 2.13.0+cu130" in note
    assert "aten-overrides calibrate --op eigh --restart" in note
    assert own.versions_note(own.compiled("eigh"), "9.9") == ""


def test_explain_names_the_source_and_chooses_by_it(data: Path) -> None:
    before = _explain.explain("eigh", (64, 32, 32), "float32")
    assert before.source.note == "compiled in, measured on NVIDIA H200 (2026-11-30)"
    write("eigh")
    after = _explain.explain("eigh", (64, 32, 32), "float32")
    assert (before.chosen, after.chosen) == ("jacobi_batched_cusolver", "looped_cusolver")
    assert after.source.note == "measured on this GPU on 2026-12-01"
    assert after.ms == pytest.approx(0.5)
    large = _explain.explain("eigh", (8, 512, 512), "float32")
    assert "times of this size are those of NVIDIA H200: not measured here" in large.source.note
    assert large.ms is not None
    write("lu_solve")
    solve = _explain.explain("lu_solve", (64, 64, 64), "float32")
    assert (solve.chosen, solve.by) == ("batched_cublas", "the ranking measured here")
    both = _explain.explain("solve", (64, 64, 64), "float32")
    assert both.then is not None and both.then.chosen == "batched_cublas"
    named = _explain.explain("eigh", (64, 32, 32), "float32", str(own.target("eigh", H200.name)))
    assert named.chosen == "looped_cusolver"
    with pytest.raises(UserError, match="no such file"):
        _explain.explain("eigh", (64, 32, 32), "float32", str(data / "none.json"))


def _write_often(path: Path, text: str, times: int) -> None:
    for _ in range(times):
        output.write(path, text)


def test_writers_at_the_same_time_leave_one_whole_table(data: Path) -> None:
    path = own.target("eigh", H200.name)
    texts = [
        own.KINDS["eigh"].render(dataclasses.replace(eigh_table(), meta={**META, "date": date}))
        for date in ("2026-12-01", "2026-12-02")
    ]
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(path, text, 60)) for text in texts]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            assert own.load("eigh", path).meta["date"] in ("2026-12-01", "2026-12-02")
            seen += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seen > 0 and path.read_text() in texts
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # no file left over
