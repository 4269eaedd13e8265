"""How wrong choices are, and what ran of the composed patches, in the text of a pull request."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from aotools.env import UserError
from aotools.patchset import pr, pr_composed, pr_loops, pr_severity, pr_views
from aotools.patchset.pr_severity import Case

Row = dict[str, Any]
META = {"gpu": "NVIDIA T0", "driver": "1.2", "torch": "9.9.0", "date": "2026-01-02"}


def write(folder: Path, topic: str, points: list[Row], checks: list[Row] | None = None) -> None:
    data = {"meta": {**META, "topic": topic}, "points": points, "checks": checks or []}
    folder.mkdir(exist_ok=True)
    (folder / f"{topic}-{len(list(folder.iterdir()))}.json").write_text(json.dumps(data))


def test_rows_by_dtype_and_batch() -> None:
    cases = [
        Case("float32", 1, "1 x 2 x 2", 1.0, 2.0),
        Case("float32", 1, "1 x 3 x 3", 4.0, 8.0),
        Case("float32", 64, "64 x 3 x 3", 1.04, None),
        Case("float64", 300, "300 x 9 x 9", 1.0, 1.0),
    ]
    text = pr_severity.tables({"some": cases})
    mean = math.exp((math.log(4) + math.log(1.04)) / 3)
    assert f"| some | float32 | 3 | 66.7 % | {mean:.3f} | 4.00 | 1 x 3 x 3 | 4.00 | 8.0 |" in text
    assert "| some | float32 | 1 | 2 | 50.0 % | 2.000 | 4.00 | 1 x 3 x 3 | 4.00 | 8.0 |" in text
    assert "| some | float32 | 17-256 | 1 | 100.0 % | 1.040 | 1.04 |  |  |  |" in text
    assert "| some | float64 | >= 257 | 1 | 100.0 % | 1.000 | 1.00 |  | 1.00 | 1.0 |" in text


def test_severity_is_that_of_the_thresholds_over_the_records_points() -> None:
    text = pr_severity.severity(pr.RECORDS)
    grids = pr_views.records(pr.RECORDS, "library-grid")
    total = sum(grid["meta"]["problems"] for grid in grids)
    every = [row.split(" | ") for row in text.splitlines() if re.match(r"\| (cuBLAS|all)", row)]
    for columns, many in ((2, 16), (3, 80)):  # without and with a column of the batch
        rows = [row for row in every if len(row) == columns + 7]
        assert len(rows) == many * len(grids)
        assert sum(int(row[columns]) for row in rows) == 4 * total
        assert all(1 <= float(row[columns + 2]) <= float(row[columns + 3]) + 5e-3 for row in rows)
        # The rule is better than the one before, and where it misses, the problem is named.
        assert all(float(row[columns + 2]) <= float(row[columns + 5]) for row in rows)
        missed = [row for row in rows if row[columns + 1] != "100.0 %"]
        assert missed and all(re.match(r"\d+ x \d+ x \d+", row[columns + 4]) for row in missed)
    assert "fitted to" in text and "NVIDIA H200" in text


@pytest.mark.parametrize(
    ("dtype", "batch", "m", "n", "chosen"),
    [
        ("float32", 1, 64, 64, "looped_cusolver"),
        ("float32", 9, 64, 65, "looped_cusolver"),
        ("complex64", 2, 129, 129, "batched_cublas"),
        ("complex64", 2, 130, 130, "looped_cusolver"),
        ("float64", 2, 66, 66, "batched_cublas"),
        ("complex128", 2, 67, 67, "looped_cusolver"),
        ("float32", 4, 272, 272, "batched_cublas"),
        ("float32", 4, 273, 273, "looped_cusolver"),
        ("float64", 10, 705, 705, "batched_cublas"),
        ("float64", 10, 706, 706, "looped_cusolver"),
        ("complex128", 16, 576, 576, "batched_cublas"),
        ("complex128", 16, 577, 577, "looped_cusolver"),
    ],
)
def test_upstreams_rule(dtype: str, batch: int, m: int, n: int, chosen: str) -> None:
    assert pr_severity.upstream_rule(dtype, batch, m, n) == chosen


def test_our_kernels_on_main_leave_its_kernels_window_out() -> None:
    everywhere, outside = (
        view(pr.RECORDS) for view in (pr_severity.native, pr_severity.native_main)
    )
    counts = [
        int(re.findall(r"These are (\d+) problems", text)[0]) for text in (everywhere, outside)
    ]
    assert counts[0] > counts[1] > 100
    assert "MAGMA |" in everywhere and "MAGMA |" not in outside
    rows = [row.split(" | ") for row in outside.splitlines() if row.startswith("| cuBLAS")]
    short = [row for row in rows if len(row) == 9]
    assert len(short) == 8 and sum(int(row[2]) for row in short) == 2 * counts[1]
    assert all(1 <= float(row[4]) <= float(row[7]) for row in short)  # better than main's rule


def test_lu_solve_and_eigh_have_every_problem_of_their_tables() -> None:
    text = pr_severity.solve_main(pr.RECORDS)
    count = int(re.findall(r"These are the (\d+) problems", text)[0])
    rows = [row.split(" | ") for row in text.splitlines() if row.startswith("| cuBLAS")]
    assert sum(int(row[2]) for row in rows if len(row) == 9) == 2 * count
    assert "MAGMA's triangular solves |" in pr_severity.solve(pr.RECORDS)
    assert "MAGMA's triangular solves |" not in text
    eigh = pr_severity.eigh(pr.RECORDS)
    assert "| operation | dtype |" in eigh and "| `eigvalsh` | float64 |" in eigh


def test_a_table_whose_records_are_not_there_says_nothing(tmp_path: Path) -> None:
    for path in pr.RECORDS.glob("calibrate-*.json"):
        shutil.copy(path, tmp_path)
    assert "NVIDIA" in pr_severity.native(tmp_path)
    assert "Not measured yet" in pr_severity.solve(tmp_path)


def test_gains_of_loops_come_from_all_records_of_the_topic(tmp_path: Path) -> None:
    def row(op: str, backend: str, ms: float, n: int = 64, **more: Any) -> Row:
        about = {"op": op, "dtype": "float32", "batch": 4, "n": n, "nrhs": 0}
        return {**about, "backend": backend, "ms": ms, **more}

    folder = tmp_path / "records"
    write(
        folder,
        "lanes",
        [row("geqrf", "looped_cusolver", 8.0), row("geqrf", "streamed_cusolver", 2.0, lanes=4)],
    )
    write(
        folder,
        "lanes",
        [
            row("geqrf", "looped_cusolver", 9.0, n=128),
            row("geqrf", "streamed_cusolver", 9.0, n=128, lanes=4),
            row("geqrf", "streamed_cusolver", 1.0, n=128, lanes=8),
            row("potrf", "batched_cusolver", 6.0),
            row("potrf", "looped_cusolver", 9.0),
            row("potrf", "streamed_cusolver", 3.0, lanes=4),
        ],
    )
    text = pr_loops.loops("geqrf", "potrf")(folder)
    assert "| geqrf | float32 | 4 | 2 | 2.00 | 1.00 | n = 128 | 0 |  |  |" in text
    assert "| potrf | float32 | 4 | 0 |  |  |  | 1 | 2.00 | n = 64 |" in text
    assert "potrf" not in pr_loops.loops("geqrf")(folder)


def test_the_rows_of_the_header_are_read(tmp_path: Path) -> None:
    is_on = pr_loops.loop_threshold("potrf")
    assert [is_on(n, b) for n, b in ((127, 4), (128, 4), (128, 5), (128, 1))] == [
        False,
        True,
        False,
        False,
    ]
    assert pr_loops.loop_threshold("geqrf")(64, 10**6)
    assert not pr_loops.loop_threshold("ormqr")(10**6, 64)
    assert not pr_loops.loop_threshold("gesvd")(10**6, 64)  # has no row
    (tmp_path / "other.h").write_text("struct LoopThreshold {};\n")
    with pytest.raises(UserError, match="has no rows"):
        pr_loops.loop_threshold("geqrf", tmp_path / "other.h")


def test_what_ran_of_the_composed_patches(tmp_path: Path) -> None:
    about = {"op": "lu_factor_ex", "dtype": "float64", "batch": 3, "m": 5, "n": 4, "pivot": False}
    times = {**about, "job": "choices/times", "backend": "choice"}
    points = [
        {**times, "backend": "stock", "preference": "default", "ms": 3.0},
        {**times, "preference": "default", "ms": 2.0},
        {**times, "preference": "native", "ms": 1.5},
        {**about, "job": "streams/lu", "backend": "looped_cusolver", "ms": 9.0},
        {**about, "job": "streams/lu", "backend": "streamed_cusolver", "ms": 4.0},
    ]
    names = (
        "composed: cublas, bits of the routine",
        "composed: the tests that the patches add pass",
    )
    passed: Row = {"params": {}, "result": "pass", "value": True, "reason": ""}
    checks = [{"name": name, **passed} for name in names]
    write(tmp_path / "r", "composed", points, checks)
    shown = {name: view(tmp_path / "r") for name, view in pr_composed.VIEWS.items()}
    assert "| float64 | 3 | 5 x 4 | no | 9.00 | 4.00 | 2.25 |" in shown["composed lanes"]
    assert "| float64 | 3 | 5 x 4 | no | 3.00 | 2.00 | 1.50 |  | 1.50 |" in shown["composed native"]
    assert "float64" not in shown["composed cublas"]
    assert "bits of the routine: 1 pass" in shown["composed cublas checks"]
    assert "patches add pass: 1 pass" in shown["composed tests"]
    assert all("main's own rule and kernel are not in it" in text for text in shown.values())


def test_every_view_has_a_name_of_its_own() -> None:
    parts = (pr_views.VIEWS, pr_severity.VIEWS, pr_loops.VIEWS, pr_composed.VIEWS)
    assert len(pr.VIEWS) == sum(len(part) for part in parts)
    assert pr.heading("loops of QR") == "Loops of QR"
    assert pr.heading("native severity on main") == "Severity of wrong choices"
    assert pr.heading("composed lanes") == "On a GPU: lanes"
