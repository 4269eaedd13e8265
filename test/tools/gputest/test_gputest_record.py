"""Records: rows, replacing, resuming, and never losing what was there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aotools.env import UserError
from aotools.gputest import record
from aotools.gputest.record import Record

META = {
    "gpu": "NVIDIA H200",
    "driver": "580.1",
    "torch": "2.11.0+cu130",
    "cublas": "13.1.0",
    "cusolver": "12.0.4",
    "libraries": {"patched-magma": "aa"},
    "date": "2026-01-01",
}


def point(**more: Any) -> dict[str, Any]:
    row = {"op": "solve_ex", "dtype": "float32", "m": 8, "n": 8, "batch": 1, "nrhs": 1}
    return row | {"backend": "choice", "ms": 1.5, "spread": [1.4, 1.6]} | more


def check(result: str = "pass") -> dict[str, Any]:
    return {"name": "bits", "params": {}, "result": result, "value": 0, "reason": ""}


def test_names_follow_the_design() -> None:
    assert (
        record.record_name("patchset", "NVIDIA H200", "2.11.0+cu130")
        == "patchset-nvidia-h200-torch2.11.0.json"
    )
    assert (
        record.record_name("patchset", "Tesla V100-SXM2", "2.6.0")
        == "patchset-tesla-v100-sxm2-torch2.6.0.json"
    )


@pytest.mark.parametrize("missing", ["ms", "spread", "batch", "backend"])
def test_a_point_needs_all_of_the_format(missing: str) -> None:
    row = point()
    del row[missing]
    with pytest.raises(ValueError, match=missing):
        record.check_row(row)


def test_a_check_needs_all_of_the_format_and_a_known_result() -> None:
    with pytest.raises(ValueError, match="reason"):
        record.check_row({key: value for key, value in check().items() if key != "reason"})
    with pytest.raises(ValueError, match="'ok' is none of"):
        record.check_row(check("ok"))


def test_a_job_replaces_its_own_rows_only(tmp_path: Path) -> None:
    made = Record(tmp_path / "new" / "r.json", META)
    made.put("a/1", [point(ms=1), check()], {"state": "done", "key": "k"})
    made.put("a/2", [point(ms=2)], {"state": "timed out", "key": "k"})
    made.put("a/1", [point(ms=3)], {"state": "done", "key": "k2"})
    again = Record.load(made.path)
    assert [(row["job"], row["ms"]) for row in again.points] == [("a/2", 2), ("a/1", 3)]
    assert again.checks == []
    assert again.meta == META
    assert again.finished("a/1", "k2") and not again.finished("a/1", "k")
    assert not again.finished("a/2", "k") and not again.finished("a/3", "k")
    assert [path.name for path in made.path.parent.iterdir()] == ["r.json"]


def test_a_bad_row_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    made = Record(tmp_path / "r.json", META)
    made.put("a", [point()], {"state": "done"})
    before = made.path.read_text()
    with pytest.raises(ValueError, match="lacks"):
        made.put("b", [point(), {"op": "x"}], {"state": "done"})
    assert made.path.read_text() == before


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Record(tmp_path / "r.json", META)
    made.put("a", [point()], {"state": "done"})
    before = made.path.read_text()

    def interrupted(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.put("b", [point()], {"state": "done"})
    assert made.path.read_text() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_going_on_with_a_record_of_the_same_machine(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    made, words = Record.open(path, META)
    assert words == ""
    made.put("a", [point()], {"state": "done", "key": "k"})
    again, words = Record.open(path, {**META, "date": "2026-02-02"})
    assert "going on" in words
    assert again.finished("a", "k")
    assert again.meta["date"] == "2026-02-02"


@pytest.mark.parametrize("key", record.IDENTITY)
def test_rows_of_another_machine_or_library_are_kept_apart(tmp_path: Path, key: str) -> None:
    path = tmp_path / "r.json"
    made, _ = Record.open(path, META)
    made.put("a", [point()], {"state": "done", "key": "k"})
    old = path.read_text()
    (tmp_path / "r.json.old-1").write_text("someone's")
    fresh, words = Record.open(path, {**META, key: "another"})
    assert key in words and "r.json.old-2" in words
    assert fresh.points == [] and not path.exists()
    assert (tmp_path / "r.json.old-2").read_text() == old
    assert (tmp_path / "r.json.old-1").read_text() == "someone's"


def test_resuming_from_elsewhere(tmp_path: Path) -> None:
    made, _ = Record.open(tmp_path / "old.json", META)
    made.put("a", [point()], {"state": "done", "key": "k"})
    again, words = Record.open(tmp_path / "out" / "r.json", META, tmp_path / "old.json")
    assert "going on from" in words and again.finished("a", "k")
    with pytest.raises(UserError, match="of another driver"):
        Record.open(tmp_path / "out" / "r.json", {**META, "driver": "590"}, tmp_path / "old.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"meta": {}}',
        '{"meta": [], "points": [], "checks": []}',
        '{"meta": {}, "points": 5, "checks": []}',
        '{"meta": {}, "points": [null], "checks": []}',
        '{"meta": {}, "points": [{"op": "solve"}], "checks": []}',
        '{"meta": {}, "points": [{"name": "a", "result": "pass"}], "checks": []}',
        '{"meta": {}, "points": [], "checks": [], "jobs": []}',
        '{"meta": {}, "points": [], "checks": [], "jobs": {"a": "done"}}',
    ],
)
def test_what_is_no_record_is_refused_and_left(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(UserError, match="not a record"):
        Record.open(path, META)
    assert path.read_text() == text


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the record"):
        Record(tmp_path / "file" / "r.json", META).save()


def test_the_file_is_json_with_one_row_a_line(tmp_path: Path) -> None:
    made = Record(tmp_path / "r.json", META)
    made.put("a", [point(ms=1), point(ms=2), check()], {"state": "done"})
    text = made.path.read_text()
    assert set(json.loads(text)) == {"meta", "jobs", "points", "checks"}
    assert sum(line.startswith('{"op"') for line in text.splitlines()) == 2
