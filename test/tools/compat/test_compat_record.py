"""The record of tools/compat: releases are replaced one by one, and nobody else's file is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aotools.compat import record
from aotools.compat.features import BROKEN, FEATURES, IMPOSSIBLE, REFUSED, RESULTS, WORKS, Verdict
from aotools.env import UserError

ABOUT = {"cuda": "13.0", "date": "2026-11-30"}


def test_a_release_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "records/compat.json"
    made = record.load(path)
    made = record.replace(made, "2.11.0", ABOUT, {"build": Verdict(WORKS)})
    made = record.replace(made, "2.6.0", {"cuda": "12.4"}, {"build": Verdict(BROKEN, None, "no")})
    made = record.replace(made, "2.11.0", ABOUT, {"call": Verdict(REFUSED, 3, "why")})
    record.write(path, made)
    made = record.load(path)
    assert list(made["meta"]["torch"]) == ["2.6.0", "2.11.0"]  # by number, not by letter
    rows = [(row["params"]["torch"], row["name"], row["result"]) for row in made["checks"]]
    assert rows == [("2.6.0", "build", "fail"), ("2.11.0", "call", "skip")]
    assert made["checks"][1]["value"] == 3
    assert [entry.name for entry in path.parent.iterdir()] == ["compat.json"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"meta": {"topic": "patchset"}}'])
def test_another_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "compat.json"
    path.write_text(text)
    with pytest.raises(UserError, match="left alone; name another file with --out"):
        record.load(path)
    assert path.read_text() == text


def test_no_folder_of_the_machine_gets_into_it() -> None:
    said = "found /opt/x/cuda-13.0/bin/nvcc: CUDA 13.0; and/or 3/4, see ./a/b"
    row = record.checks_of("2.6.0", {"native kernels": Verdict(IMPOSSIBLE, None, said)})[0]
    assert row["reason"] == "found nvcc: CUDA 13.0; and/or 3/4, see ./a/b"


def test_the_record_that_is_there() -> None:
    """It states for every release what it was, with which pins, and every feature once."""
    text = record.PATH.read_text(encoding="utf-8")
    found = json.loads(text)
    for version, about in found["meta"]["torch"].items():
        rows = [row for row in found["checks"] if row["params"]["torch"] == version]
        assert [row["name"] for row in rows] == [feature.name for feature in FEATURES]
        assert about["full"].partition("+")[0] == version
        assert len(about["git"]) == 40 and about["command"] and about["date"]
        assert any(pin.startswith("torch==") for pin in about["pins"])
        for row in rows:
            assert row["result"] == RESULTS[row["params"]["verdict"]]
            assert bool(row["reason"]) == (row["params"]["verdict"] != WORKS)
