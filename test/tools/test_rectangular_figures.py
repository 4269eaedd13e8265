"""The README's tables of rectangular LU, from made-up records and without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from expecttest import assert_expected_inline

from aotools import eigh_figures, figures, package_tables, readme, rectangular_figures

META = {
    "topic": rectangular_figures.TOPIC,
    "command": "python3 test/gpu/overrides/run_rectangular.py --parts grid",
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.11.0+cu130",
    "date": "2026-12-01",
}


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "test/gpu/records"
    folder.mkdir(parents=True)
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "RECORDS", folder)
    return folder


def point(
    way: rectangular_figures.Way, ms: float, m: int = 512, n: int = 256, batch: int = 4, **more: Any
) -> dict[str, Any]:
    row = {"op": "lu_factor_ex", "dtype": "float32", "m": m, "n": n, "batch": batch, "nrhs": 0}
    row |= {"library": way[0], "backend": way[1], "preference": way[2], "pivot": m != n}
    return row | {"ms": ms, "spread": [ms, ms], "repeats": 3} | more


POINTS = [
    point(rectangular_figures.CHOICE, 0.2),
    point(rectangular_figures.CUSOLVER, 0.1),  # answers to another wish: no rival
    point(rectangular_figures.NATIVE, 0.2),
    point(rectangular_figures.STOCK, 1.6),
    point(rectangular_figures.STOCK_CUSOLVER, 0.8),
    point(rectangular_figures.CHOICE, 0.5, batch=64),
    point(rectangular_figures.NATIVE, 0.4, batch=64),
    point(rectangular_figures.STOCK, 1.0, batch=64),
    point(("overrides", "streamed_cusolver", "default"), 2.0, batch=64),
    point(rectangular_figures.STOCK, 9.0, batch=256),  # without the choice: not counted
    point(rectangular_figures.CHOICE, 3.0, 64, 64, 1024),
    point(rectangular_figures.STOCK, 2.999, 64, 64, 1024),
    point(rectangular_figures.CHOICE, 0.010, dtype="float64"),
    point(rectangular_figures.NATIVE, 0.008, dtype="float64"),  # 2 microseconds are no difference
]


def write(folder: Path, points: list[dict[str, Any]], topic: str = META["topic"]) -> None:
    path = folder / f"{topic}-nvidia-h200-torch2.11.0.json"
    data = {"meta": META | {"topic": topic}, "points": points, "checks": []}
    path.write_text(json.dumps(data))


def test_without_a_record(records: Path) -> None:
    write(records, POINTS, "lu")  # another topic
    for part in rectangular_figures.PARTS.values():
        assert part() == rectangular_figures.NO_RECORD


def test_the_table(records: Path) -> None:
    write(records, POINTS)
    assert_expected_inline(
        rectangular_figures.times_table(),
        """\
| m x n | batch 1 | batch 4 | batch 64 | batch 256 | batch 1024 |
| --- | ---: | ---: | ---: | ---: | ---: |
| 512 x 256 |  | 0.200 (8.0x) | 0.500 (2.0x) |  |  |
| 64 x 64, pivot=False |  |  |  |  | 3.00 (1.0x) |

`lu_factor_ex`, float32, with the package, no preference set, milliseconds, and how many times stock takes. NVIDIA H200, driver 580.1, torch 2.11.0+cu130, 2026-12-01; [record](test/gpu/records/lu-rectangular-nvidia-h200-torch2.11.0.json), made by `python3 test/gpu/overrides/run_rectangular.py`.""",  # noqa: E501
    )


def test_the_means(records: Path) -> None:
    write(records, POINTS)
    assert_expected_inline(
        rectangular_figures.means_table(),
        """\
| LU | dtype | problems | over stock | over stock, "cusolver" | over the best rival | behind the best by over 1.10 |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| rectangular | float32 | 2 | 4.00x (least 2.00x) | 4.00x | 2.83x | 1 |
| rectangular | float64 | 1 |  |  |  | 0 |
| square, pivot=False | float32 | 1 | 1.00x (least 1.00x) |  | 1.00x | 0 |

Geometric means. The rivals are stock under either preference and every routine of the libraries that can be forced; the best of the last column includes our kernels. NVIDIA H200, driver 580.1, torch 2.11.0+cu130, 2026-12-01; [record](test/gpu/records/lu-rectangular-nvidia-h200-torch2.11.0.json), made by `python3 test/gpu/overrides/run_rectangular.py`.""",  # noqa: E501
    )


def test_the_parts_have_names_of_their_own_and_are_known_to_the_tool() -> None:
    others = (readme.PARTS, figures.PARTS, eigh_figures.PARTS, package_tables.PARTS)
    for parts in others:
        assert not rectangular_figures.PARTS.keys() & parts.keys()
    tool = Path(readme.__file__).read_text(encoding="utf-8")
    assert "rectangular_figures.PARTS" in tool
