"""lu_solve, patched against unpatched, from made-up records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import expecttest

from aotools.gputest import summary, summary_solve
from aotools.gputest.record import Record


def point(
    ms: float,
    library: str = summary_solve.PATCHED,
    backend: str = "choice",
    preference: str = "default",
    n: int = 512,
) -> dict[str, Any]:
    row = {"op": "lu_solve", "dtype": "float32", "m": n, "n": n, "batch": 8, "nrhs": 3}
    row |= {"operation": "T", "backend": backend, "preference": preference, "library": library}
    return row | {"ms": ms, "spread": [ms, ms], "job": f"solve/{library}"}


def checks(*points: dict[str, Any]) -> list[tuple[str, str, str, Any]]:
    rows = summary_solve.checks(Record(Path("r.json"), {}, points=list(points)))
    return [
        (row["name"], row["params"]["preference"], row["result"], row["value"]["worst"])
        for row in rows
    ]


def test_a_point_that_became_slower_fails() -> None:
    old = point(1.0, summary_solve.UNPATCHED)
    found = checks(old, point(1.2))
    assert found == [("solve: against unpatched", "default", "fail", 1.2)]
    assert checks(old, point(1.05)) == [("solve: against unpatched", "default", "pass", 1.05)]


def test_what_takes_next_to_nothing_is_not_judged() -> None:
    assert checks(point(0.01, summary_solve.UNPATCHED), point(0.04)) == []


def test_the_regret_leaves_magma_out_where_it_may_not_be_taken() -> None:
    routes = [point(2.0, backend="batched_cublas"), point(1.0, backend="stock")]
    assert checks(point(1.1), point(2.0, preference="cusolver"), *routes) == [
        ("solve: regret of the choice", "default", "pass", 1.1),
        ("solve: regret of the choice", "cusolver", "pass", 1.0),
    ]
    assert checks(point(2.0), *routes)[0][2:] == ("fail", 2.0)


def test_other_jobs_are_not_taken_for_it() -> None:
    elsewhere = point(5.0) | {"job": "cliff/patched-magma"}
    assert checks(point(1.0, summary_solve.UNPATCHED), elsewhere) == []


def test_the_table_shows_both_preferences() -> None:
    points = [
        point(2.0, summary_solve.UNPATCHED),
        point(1.0),
        point(28.1, summary_solve.UNPATCHED, preference="cusolver"),
        point(1.1, preference="cusolver"),
    ]
    text = summary.table(Record(Path("r.json"), {}, points=points))
    expecttest.assert_expected_inline(
        "\n".join(line for line in text.splitlines() if "512" in line or "lu_solve" in line),
        """\
lu_solve: ms unpatched -> patched, without a preference and with cusolver
float32         8 x  512,    3 T      2.0000 ->   1.0000 ( 2.00x)     28.1000 ->   1.1000 (25.55x)\
""",
    )


def test_rows_of_the_overrides_suite_are_not_taken_for_the_series() -> None:
    row = point(1.0, library="overrides")
    del row["operation"]
    record = Record(Path("r.json"), {}, points=[row])
    assert summary_solve.checks(record) == [] == summary_solve.table(record)
