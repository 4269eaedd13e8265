"""Goals that span jobs, and the table, from made-up records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import expecttest

from aotools.gputest import summary
from aotools.gputest.record import Record


def solve(
    library: str, preference: str, n: int, ms: float, batch: int = 64, dtype: str = "float32"
) -> dict[str, Any]:
    row = {
        "op": "solve_ex",
        "dtype": dtype,
        "m": n,
        "n": n,
        "batch": batch,
        "nrhs": 1,
        "backend": "choice",
    }
    return row | {"preference": preference, "library": library, "ms": ms, "spread": [ms, ms]}


def factor(
    backend: str, n: int, ms: float, preference: str = "default", lanes: int = 0
) -> dict[str, Any]:
    row = solve("patched-magma", preference, n, ms) | {
        "op": "lu_factor_ex",
        "nrhs": 0,
        "backend": backend,
    }
    return row | ({"lanes": lanes} if lanes else {})


def record(*rows: dict[str, Any]) -> Record:
    made = Record(Path("r.json"), {})
    made.points = [{**row, "job": f"cliff/{row['library']}"} for row in rows if "op" in row]
    made.checks = [row for row in rows if "result" in row]
    return made


def results(rows: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(row["result"], row["value"]) for row in rows]


def test_the_cliff_is_judged_for_patched_libraries_only() -> None:
    rows = summary.cliff_checks(
        record(
            solve("stock", "cusolver", 511, 12.3),
            solve("stock", "cusolver", 512, 54.8),
            solve("patched-magma", "cusolver", 511, 12.0),
            solve("patched-magma", "cusolver", 512, 12.6),
        )
    )
    assert results(rows) == [("pass", {"ratio": 1.05, "batch": 64, "ms_511": 12.0, "ms_512": 12.6})]


def test_a_cliff_fails_unless_the_routes_have_it() -> None:
    cliff = (
        solve("patched-magma", "cusolver", 511, 10.0),
        solve("patched-magma", "cusolver", 512, 14.0),
    )
    flat = (factor("batched_cublas", 511, 9.0), factor("batched_cublas", 512, 9.0))
    assert [row["result"] for row in summary.cliff_checks(record(*cliff))] == ["fail"]
    rows = summary.cliff_checks(record(*cliff, *flat))
    assert (
        rows[0]["result"] == "fail" and rows[0]["reason"] == "batch 64: 1.40, the routes allow 1.00"
    )
    steep = (factor("batched_cublas", 511, 9.0), factor("batched_cublas", 512, 12.0))
    assert [row["result"] for row in summary.cliff_checks(record(*cliff, *steep))] == ["pass"]
    # MAGMA does not count for the preference that excludes it
    stock = (factor("stock", 511, 3.0), factor("stock", 512, 8.0))
    assert [row["result"] for row in summary.cliff_checks(record(*cliff, *flat, *stock))] == [
        "fail"
    ]


def test_a_point_without_its_partner_is_left_out() -> None:
    assert summary.cliff_checks(record(solve("patched-magma", "default", 511, 1.0))) == []


def test_regret_is_against_the_routes_that_the_preference_allows() -> None:
    routes = (
        factor("stock", 512, 5.0),
        factor("batched_cublas", 512, 10.0),
        factor("streamed_cusolver", 512, 22.0, lanes=4),
        factor("streamed_cusolver", 512, 9.0, lanes=8),
    )
    rows = summary.regret_checks(
        record(
            *routes,
            factor("choice", 512, 5.2),
            factor("choice", 512, 10.5, "cusolver"),
            factor("choice", 512, 12, "cublas"),
        )
    )
    assert [(row["params"]["preference"], row["result"]) for row in rows] == [
        ("default", "pass"),
        ("cusolver", "pass"),
        ("cublas", "fail"),
    ]
    assert rows[0]["value"] == {
        "mean": 1.04,
        "worst": 1.04,
        "worst_if_8_lanes_counted": 1.04,
        "points": 1,
    }
    assert rows[1]["value"]["worst_if_8_lanes_counted"] == 1.167
    assert rows[2]["reason"] == "batch 64, n 512: 1.20 against batched_cublas 10.00 ms"


def counted(
    library: str, batch: int, number: int, backend: str = "looped_cusolver"
) -> dict[str, Any]:
    row = factor(backend, 512, 1.0) | {"library": library, "batch": batch, "allocations": number}
    return row


def test_allocations_must_not_depend_on_the_batch() -> None:
    rows = summary.allocation_checks(
        record(
            counted("patched-nomagma", 1, 5),
            counted("patched-nomagma", 16, 4),
            counted("patched-nomagma", 1024, 4),
            counted("unpatched-nomagma", 16, 19),
            counted("unpatched-nomagma", 1024, 1027),
        )
    )
    assert results(rows) == [("pass", {"1": 5, "16": 4, "1024": 4})]
    rows = summary.allocation_checks(
        record(counted("patched-nomagma", 16, 19), counted("patched-nomagma", 1024, 1027))
    )
    assert [row["result"] for row in rows] == ["fail"]
    rows = summary.allocation_checks(
        record(
            counted("patched-nomagma", 16, 4, "choice"),
            counted("patched-nomagma", 1024, 5, "choice"),
        )
    )
    assert [row["result"] for row in rows] == ["pass"]


class TestTable(expecttest.TestCase):
    def test_table(self) -> None:
        rows = []
        for library, preference, factor_512 in (
            ("stock", "cusolver", 4.5),
            ("patched-magma", "default", 1.02),
        ):
            for batch in (1, 64):
                for dtype in ("float32", "complex128"):
                    rows.append(solve(library, preference, 511, 1.5 * batch, batch, dtype))
                    rows.append(
                        solve(library, preference, 512, 1.5 * batch * factor_512, batch, dtype)
                    )
        made = record(
            *rows, counted("unpatched-nomagma", 1024, 1027), counted("patched-nomagma", 1024, 4)
        )
        made.checks = [
            {"name": "bits", "params": {"n": 512}, "result": "pass", "value": 0, "reason": ""},
            {
                "name": "bits",
                "params": {"n": 768},
                "result": "fail",
                "value": 3,
                "reason": "3 runs differ",
            },
            {"name": "info", "params": {}, "result": "vendor", "value": 0, "reason": ""},
        ]
        made.jobs = {"cliff/stock": {"state": "done"}, "lanes/speed": {"state": "timed out"}}
        self.assertExpectedInline(
            summary.table(made),
            """\

solve_ex, one right-hand side: ms at n = 511 -> 512 (512/511), float32; worst 512/511 of all dtypes
library            prefer                 batch 1             batch 64   worst
stock              cusolver   1.50 -> 6.75 (4.50)   96.0 -> 432 (4.50)    4.50
patched-magma      default    1.50 -> 1.53 (1.02)  96.0 -> 97.9 (1.02)    1.02

allocator calls of one call, by batch
  lu_factor_ex         looped_cusolver    unpatched-nomagma 1024: 1027; patched-nomagma 1024: 4

check                                           pass  fail vendor  skip
bits                                               1     1      0     0
info                                               0     0      1     0

failed:
  bits [n=768] 3 3 runs differ

unfinished jobs: lanes/speed""",
        )


def test_numbers_have_three_digits() -> None:
    assert [summary.number(ms) for ms in (0.01234, 0.1234, 1.234, 12.34, 123.4, 1234.0, 0.0)] == [
        "0.012",
        "0.123",
        "1.23",
        "12.3",
        "123",
        "1234",
        "0",
    ]
