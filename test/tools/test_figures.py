# ruff: noqa: E501  (expected tables are compared as they stand in README)
"""The README's map of back ends, its table and picture of the bench."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from expecttest import assert_expected_inline
from PIL import Image

from aotools import figures, readme
from aten_overrides._explain import Explainer
from aten_overrides._files import record_text
from aten_overrides.scan.backends import Side
from aten_overrides.scan.kernels import Bar, Trace
from aten_overrides.scan.target import Target

META = {
    "topic": "bench",
    "command": "aten-overrides bench --out x",
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.11.0+cu130",
    "date": "2026-12-01",
}


def point(library: str, backend: str, n: int, ms: float, nrhs: int = 0) -> dict[str, object]:
    problem = {"op": "lu_factor_ex", "dtype": "float32", "m": n, "n": n, "batch": 64, "nrhs": nrhs}
    timed = {"ms": ms, "spread": [ms, ms], "gflops": 1.0, "limit_share": 0.1 / ms}
    return {**problem, "library": library, "backend": backend, "preference": "default", **timed}


POINTS = [
    point("stock", "stock", 256, 2.04),
    point("overrides", "choice", 256, 1.28),
    point("stock", "stock", 512, 5.42),
    point("overrides", "choice", 512, 1.99),
    point("direct", "looped_cusolver", 512, 53.3),
]


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "test/gpu/records"
    folder.mkdir(parents=True)
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "RECORDS", folder)
    return folder


def test_map_is_what_explain_says() -> None:
    explainer = Explainer()
    maps = figures.chosen(explainer)
    before, after, ours = maps.values()
    assert ours[64, 512] == "batched_native" and "batched_native" not in after.values()
    assert before.keys() == after.keys() and len(after) == len(figures.SIZES) * len(figures.BATCHES)
    assert before[1, 512] == "looped_cusolver"
    assert before[256, 512] == "stock"
    assert before != after
    assert set(before.values()) | set(after.values()) <= set(figures.LOOK)
    assert set(ours.values()) <= set(figures.LOOK)
    libraries, kernels = (figures.regret(explainer, native) for native in (False, True))
    assert libraries is not None and kernels is not None and 1.0 < libraries < kernels < 20.0


def test_without_a_record(records: Path) -> None:
    parts = (figures.bench_table, figures.limit_picture, figures.kernels_picture)
    assert [part() for part in parts] == ["", "", ""]
    assert "neither has run on a GPU" in figures.tools_status()


def write_bench(records: Path) -> Path:
    path = records / "bench-nvidia-h200-torch2.11.0.json"
    path.write_text(record_text(META, points=POINTS, checks=[]))
    return path


def write_cliffs(records: Path) -> Path:
    """A record with two timelines and the scans that the status counts."""
    path = records / "cliffs-nvidia-h200-torch2.11.0.json"
    bars = (Bar(0.0, 1000.0, "getf2", 0), Bar(1000.0, 500.0, "laswp", 0))
    timelines, scans = [], []
    for overrides, size in ((False, 54.6), (True, 1.85)):
        names = (("getf2", 1, 1000.0), ("laswp", 1, 500.0))
        trace = Trace("kernels", 2, 1500.0 * (1 if overrides else 30), names, bars)
        chosen = "lu_factor: batched_native, lu_solve: stock" if overrides else "cuSOLVER or cuBLAS"
        target = Target(op="solve_ex", batch=64, prefer="" if overrides else "cusolver")
        target = dataclasses.replace(target, overrides=overrides)
        found = {"target": dataclasses.asdict(target), "traces": [trace.json(), None]}
        sides = [Side(511, chosen, size).json(), Side(512, chosen, size).json()]
        timelines.append({**found, "sides": sides})
        certain = [{"confidence": 1.0}] * (1 if overrides else 3)
        scans.append({**found, "findings": [*certain, {"confidence": "AMBIGUOUS"}]})
    meta = {**META, "topic": "cliffs", "command": "python3 test/gpu/scan/run.py --out x"}
    path.write_text(record_text(meta, points=[], scans=scans, timelines=timelines, checks=[]))
    return path


def test_bench_table(records: Path) -> None:
    write_bench(records)
    assert_expected_inline(
        figures.bench_table(),
        """\
| milliseconds | matrices x n | stock | overrides | best routine by itself | overrides, of the limit |
| --- | --- | ---: | ---: | ---: | ---: |
| `lu_factor_ex` float32 | 64 x 256 | 2.04 | **1.28** |  | 7.8 % |
| `lu_factor_ex` float32 | 64 x 512 | 5.42 | **1.99** | 53.3 (looped_cusolver) | 5 % |

Medians. The last column but one: the fastest of cuBLAS's, cuSOLVER's and our routines, called directly (`lu_factor_ex`, `eigh`) or forced within torch's operation. NVIDIA H200, driver 580.1, torch 2.11.0+cu130, 2026-12-01; [record](test/gpu/records/bench-nvidia-h200-torch2.11.0.json), made by `aten-overrides bench`.""",
    )


def test_what_the_tools_ran_on(records: Path) -> None:
    write_bench(records)
    said = figures.tools_status()
    assert said == (
        "`bench` timed 2 problems there; stock torch takes 2.1 times as long as with the "
        "overrides, on average ([table](#figures)).\n`scan` has not run on a GPU yet."
    )
    write_cliffs(records)
    assert figures.tools_status().startswith(
        "On the NVIDIA H200 `scan` found 3 cliffs in 1 ranges of stock torch, and 1 in the 1 of "
        "them that the overrides cover: [docs/cliffs.md](docs/cliffs.md).\n`bench` timed"
    )


def test_rows_of_the_kernels(records: Path) -> None:
    record = json.loads(write_cliffs(records).read_text())
    assert [words for words, _ in figures.timelines(record)] == [
        "stock, n = 511: 54.6 ms\ncuSOLVER or cuBLAS\n2 kernels",
        "overrides, n = 511: 1.85 ms\nbatched_native, stock\n2 kernels",
    ]
    assert 'stock with preference "cusolver", and with' in figures.timelines_title(record)


def test_pictures_follow_their_data(records: Path) -> None:
    path = write_bench(records)
    write_cliffs(records)
    assert len(figures.sync(check=True)) == 3
    assert not (records / "figures").exists()
    assert len(figures.sync(check=False)) == 3
    assert figures.sync(check=True) == []
    for picture in (records / "figures").iterdir():
        with Image.open(picture) as image:
            assert image.width == 1600
    data = json.loads(path.read_text())
    data["points"][0]["ms"] = 2.05
    path.write_text(json.dumps(data))
    (wrong,) = figures.sync(check=True)
    assert "limit-nvidia-h200-torch2.11.0.png is not drawn" in wrong


def test_parts_name_pictures_that_sync_draws(records: Path) -> None:
    write_bench(records)
    write_cliffs(records)
    drawn = {str(path.relative_to(records.parents[2])) for path, _, _ in figures._pictures()}
    text = figures.backend_map() + figures.limit_picture() + figures.kernels_picture()
    assert all(f"]({path})" in text for path in drawn) and len(drawn) == 3
