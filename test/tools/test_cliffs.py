"""docs/cliffs.md agrees with the record, and says what the scans found."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from expecttest import assert_expected_inline

from aotools import cliff_record, cliffs, readme
from aten_overrides.scan.backends import Side
from aten_overrides.scan.kernels import Bar, Trace
from aten_overrides.scan.kinds import Finding
from aten_overrides.scan.run import Explained, Scan
from aten_overrides.scan.search import Settings
from aten_overrides.scan.target import Target

META = {
    "topic": "cliffs",
    "command": "python3 test/gpu/scan/run.py --out /tmp/x",
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.11.0+cu130",
    "date": "2026-12-01",
}
STEP = Finding("step", 512, 511, "slower", 4.4, 4.3, 4.5, 1.0, 10, 0.0123, 0.0548)
TRACE = Trace("kernels", 3, 30.0, (("getf2", 3, 27.0),), (Bar(0.0, 30.0, "getf2", 0),))


def scan(*findings: Explained, overrides: bool = False, **target: Any) -> Scan:
    levels = {n: (n * 2e-5, n * 1.9e-5, n * 2.1e-5, 5) for n in range(500, 525)}
    chosen = Target(op="solve_ex", batch=64, overrides=overrides)
    return Scan(
        dataclasses.replace(chosen, **target),
        (500, 524, 1),
        Settings(),
        META,
        "cuda",
        levels,
        dict.fromkeys(levels, 1000000000.0),
        {},
        True,
        3.0,
        list(findings),
    )


def traced(finding: Finding = STEP) -> Explained:
    sides = (Side(511, "", 12.3), Side(512, "", 54.8, {"overrides": 5.48}))
    return Explained(finding, sides, (TRACE, TRACE), "another back end")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    records = tmp_path / "test/gpu/records"
    records.mkdir(parents=True)
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "RECORDS", records)
    return records


def write(folder: Path, *scans: Scan) -> Path:
    path = folder / "cliffs-nvidia-h200-torch2.11.0.json"
    data = [one.json() for one in scans]
    cliff_record.save(path, META, cliff_record.points_of(data), data, [])
    return path


def test_document_agrees_with_the_record() -> None:
    assert cliffs.sync(check=True) == []


def test_a_record_comes_back(folder: Path) -> None:
    scans = [scan(traced()), scan(overrides=True), scan(nrhs=64, op="lu_solve")]
    record = json.loads(write(folder, *scans).read_text())
    found = cliffs.scans_of(record)
    assert [one.json() for one in found] == [one.json() for one in scans]
    assert found[0].findings[0].traces == (TRACE, TRACE)
    assert len(record["points"]) == 75
    assert record["points"][-1]["nrhs"] == 64 and record["points"][0]["backend"] == "stock"
    assert record["points"][30]["library"] == "overrides"


def test_document(folder: Path) -> None:
    unsure = dataclasses.replace(STEP, size=520, below=519, confidence="AMBIGUOUS", reason="noise")
    cut = dataclasses.replace(scan(op="qr", dtype="float64"), complete=False)
    fall = dataclasses.replace(STEP, size=505, below=504, direction="faster", factor=1.3)
    drop = dataclasses.replace(STEP, kind="drop", size=515, below=514, until=517, factor=1.25)
    write(
        folder,
        scan(traced(), Explained(unsure)),
        scan(Explained(drop), overrides=True),
        scan(Explained(fall), op="qr"),
        cut,
    )
    assert cliffs.sync(check=True)[0].startswith("cliffs-solve_ex-float32-b64-n500-nvidia-h200")
    cliffs.sync(check=False)
    assert cliffs.sync(check=True) == []
    text = cliffs.document_path().read_text()
    assert_expected_inline(
        text[text.index("NVIDIA H200") :],
        """\
NVIDIA H200, driver 580.1, torch 2.11.0+cu130, 2026-12-01; [record](../test/gpu/records/cliffs-nvidia-h200-torch2.11.0.json), made by `python3 test/gpu/scan/run.py`.

![cliffs-solve_ex-float32-b64-n500-nvidia-h200-torch2.11.0](../test/gpu/records/figures/cliffs-solve_ex-float32-b64-n500-nvidia-h200-torch2.11.0.png)

## In stock torch

| operation | cliff | factor | ms before, after | cause | stock over the best there | with the overrides |
| --- | --- | --- | --- | --- | --- | --- |
| `solve_ex` float32, batch 64 | step at 512 | 4.40x | 12.3 to 54.8 | another back end | 10.00x, overrides | none (10.2 to 10.2 ms) |
| `qr` float32, batch 64 | step, up to 504 | 1.30x | 12.3 to 54.8 |  |  | not covered |

## With the overrides only

- `solve_ex` float32, batch 64: drop at 515 to 517, 1.25x

## What was scanned

| operation | torch | n | sizes measured | cliffs | what could not be measured |
| --- | --- | --- | --- | --- | --- |
| `solve_ex` float32, batch 64 | stock | 500 to 524 | 25 | 1 | AMBIGUOUS at 1 sizes, the first 520 |
| `solve_ex` float32, batch 64 | overrides | 500 to 524 | 25 | 1 | all decided |
| `qr` float32, batch 64 | stock | 500 to 524 | 25 | 1 | all decided |
| `qr` float64, batch 64 | stock | 500 to 524 | 25 | 0 | the time budget ended the search; raise --budget or go on with --resume |
""",  # noqa: E501
    )
    cliffs.document_path().write_text(text.replace("4.40x", "4.50x"))
    assert "4.50x" in cliffs.sync(check=True)[0]


def test_what_the_overrides_do(folder: Path) -> None:
    one = traced()
    assert cliffs._ours(one, scan(one), None) == "not covered"
    left = dataclasses.replace(STEP, factor=1.2)
    assert cliffs._ours(one, scan(one), scan(Explained(left))) == "1.20x remains (10.2 to 10.2 ms)"
    bare = dataclasses.replace(scan(overrides=True), levels={}, resolution=7)
    assert cliffs._ours(one, scan(one), bare) == "none found (sizes 7 apart)"
    bare.complete = False
    assert cliffs._ours(one, scan(one), bare) == "not decided in the time given"


def test_without_a_record(folder: Path) -> None:
    cliffs.sync(check=False)
    assert cliffs.NO_RECORD in cliffs.document_path().read_text()
    assert not (folder / "figures").exists()


def test_without_a_cliff(folder: Path) -> None:
    write(folder, scan())
    cliffs.sync(check=False)
    assert "No cliff was found." in cliffs.document_path().read_text()
