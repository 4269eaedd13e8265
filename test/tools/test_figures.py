"""The README's map of back ends, its table and picture of the bench."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from expecttest import assert_expected_inline
from PIL import Image

from aotools import figures, readme
from aten_overrides._explain import Explainer
from aten_overrides._files import record_text

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
    before, after = maps.values()
    assert before.keys() == after.keys() and len(after) == len(figures.SIZES) * len(figures.BATCHES)
    assert before[1, 512] == "looped_cusolver"
    assert before[256, 512] == "stock"
    assert before != after
    assert set(before.values()) | set(after.values()) <= set(figures.LOOK)
    mean = figures.regret(explainer)
    assert mean is not None and 1.0 < mean < 4.0


def test_without_a_record(records: Path) -> None:
    assert figures.bench_table() == figures.limit_picture() == figures.NO_RECORD


def test_bench_table(records: Path) -> None:
    path = records / "bench-nvidia-h200-torch2.11.0.json"
    path.write_text(record_text(META, points=POINTS, checks=[]))
    assert_expected_inline(
        figures.bench_table(),
        """\
| milliseconds | matrices x n | stock, default | overrides | looped_cusolver |
| --- | --- | ---: | ---: | ---: |
| `lu_factor_ex` float32 | 64 x 256 | 2.04 | **1.28** |  |
| `lu_factor_ex` float32 | 64 x 512 | 5.42 | **1.99** | 53.3 |

NVIDIA H200, driver 580.1, torch 2.11.0+cu130, 2026-12-01; [record](test/gpu/records/bench-nvidia-h200-torch2.11.0.json), made by `aten-overrides bench`.""",  # noqa: E501
    )


def test_pictures_follow_their_data(records: Path) -> None:
    path = records / "bench-nvidia-h200-torch2.11.0.json"
    path.write_text(record_text(META, points=POINTS, checks=[]))
    assert len(figures.sync(check=True)) == 2
    assert not (records / "figures").exists()
    assert len(figures.sync(check=False)) == 2
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
    (records / "bench-nvidia-h200-torch2.11.0.json").write_text(
        record_text(META, points=POINTS, checks=[])
    )
    drawn = {str(path.relative_to(records.parents[2])) for path, _, _ in figures._pictures()}
    text = figures.backend_map() + figures.limit_picture()
    assert all(f"]({path})" in text for path in drawn) and len(drawn) == 2
