"""The README's table of eigh and its missed goals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from expecttest import assert_expected_inline

from aotools import eigh_figures, readme

META = {
    "topic": "eigh",
    "command": "python3 test/gpu/overrides/run_eigh.py --parts times",
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.11.0+cu130",
    "date": "2026-12-01",
}


def point(backend: str, ms: float, batch: int, n: int, op: str = "eigh") -> dict[str, Any]:
    problem = {"op": op, "dtype": "float64", "m": n, "n": n, "batch": batch, "nrhs": 0}
    return problem | {"backend": backend, "ms": ms, "spread": [ms, ms], "clock": "host"}


def check(name: str, result: str, value: Any, reason: str = "", **params: Any) -> dict[str, Any]:
    params = {"op": "eigh", "dtype": "float64"} | params
    return {"name": name, "params": params, "result": result, "value": value, "reason": reason}


POINTS = [
    point("jacobi_batched_cusolver", 0.646, 128, 33),
    point("stock", 65.5, 128, 33),
    point("choice", 0.656, 128, 33),
    point("cupy", 0.623, 128, 33),
    point("choice", 1.4, 262144, 2),
    point("cupy", 1.36, 262144, 2),
    point("stock", 93.4, 128, 128, "eigvalsh"),
    point("choice", 1.645, 128, 128, "eigvalsh"),
]
CHECKS = [
    check("goal", "pass", {"choice": 1.4, "cupy": 1.36, "asked": "CuPy's time"}, shape=[9, 2, 2]),
    check("goal", "fail", {"choice": 0.656, "cupy": 0.623, "asked": 0.5}, shape=[128, 33, 33]),
    check("goal", "fail", {"choice": 0.656, "asked": 0.5}, shape=[128, 34, 34]),
    check("goal", "fail", {"choice": 1.1, "cupy": 1.0, "asked": "CuPy's time"}, shape=[512, 3, 3]),
    check(eigh_figures.STEP, "vendor", 1.63, "1.69 between the fastest", batch=128),
    check(eigh_figures.STEP, "pass", 1.2, "", batch=128, dtype="float32"),
    check("call", "vendor", None, "cusolver error", route="stock", shape=[262144, 2, 2]),
]


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "test/gpu/records"
    folder.mkdir(parents=True)
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "RECORDS", folder)
    return folder


def write(folder: Path, checks: list[dict[str, Any]], topic: str = "eigh") -> None:
    path = folder / f"{topic}-nvidia-h200-torch2.11.0.json"
    path.write_text(
        json.dumps({"meta": META | {"topic": topic}, "points": POINTS, "checks": checks})
    )


def test_without_a_record(records: Path) -> None:
    write(records, CHECKS, "eigh-grid")  # another topic
    assert eigh_figures.times_table() == eigh_figures.missed_goals() == eigh_figures.NO_RECORD


def test_the_table(records: Path) -> None:
    write(records, CHECKS)
    assert_expected_inline(
        eigh_figures.times_table(),
        """\
| milliseconds | matrices x n | stock | with the package | CuPy |
| --- | --- | ---: | ---: | ---: |
| `eigh` float64 | 128 x 33 | 65.5 | 0.656 | **0.623** |
| `eigh` float64 | 262144 x 2 | error | 1.40 | **1.36** |
| `eigvalsh` float64 | 128 x 128 | 93.4 | **1.65** |  |

By the host's clock. NVIDIA H200, driver 580.1, torch 2.11.0+cu130, 2026-12-01; [record](test/gpu/records/eigh-nvidia-h200-torch2.11.0.json), made by `python3 test/gpu/overrides/run_eigh.py`.""",  # noqa: E501
    )


def test_the_missed_goals(records: Path) -> None:
    write(records, CHECKS)
    assert_expected_inline(
        eigh_figures.missed_goals(),
        """\
- `eigh` float64, 128 x 33: 0.656 ms, the goal was 0.500 ms; CuPy takes 0.623
- `eigh` float64, 128 x 34: 0.656 ms, the goal was 0.500 ms
- `eigh` float64, 512 x 3: 1.10 ms, the goal was CuPy's time, 1.00 ms (10% more)
- step from 32 to 33 at batch 128, float64: a factor of 1.63; 1.69 between the fastest""",
    )
    write(records, [row for row in CHECKS if row["result"] == "pass"])
    assert eigh_figures.missed_goals() == "No goal was missed."


def test_the_parts_have_names_of_their_own() -> None:
    from aotools import figures

    assert not eigh_figures.PARTS.keys() & (readme.PARTS.keys() | figures.PARTS.keys())
