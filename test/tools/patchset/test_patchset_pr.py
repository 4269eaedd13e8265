"""`pr`: every figure comes from a record, and what is missing or stale is said."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_base import FakeBase

from aotools.env import ROOT, UserError
from aotools.patchset import base as bases
from aotools.patchset import cli, edits, pr, pr_views
from aotools.patchset.base import Base

META = {
    "topic": "patchset",
    "command": "tools/gpu-test patchset --parts lanes",
    "commit": "0123456789abcdef",
    "date": "2026-01-02",
    "gpu": "NVIDIA T0",
    "driver": "1.2",
    "torch": "9.9.0",
    "cublas": "3.4",
}


def record(folder: Path, points: list[dict[str, Any]], **more: Any) -> Path:
    """Writes a record of the topic patchset."""
    folder.mkdir(exist_ok=True)
    meta = META | more.pop("meta", {})
    path = folder / f"{meta['topic']}-{meta['gpu'].split()[-1]}-{meta['date']}.json"
    path.write_text(json.dumps({"meta": meta, "points": points, **more}))
    return path


def point(**more: Any) -> dict[str, Any]:
    base = {"op": "solve_ex", "dtype": "float32", "batch": 64, "m": 512, "n": 512, "nrhs": 1}
    return base | {"backend": "choice", "preference": "cusolver"} | more


@pytest.fixture(scope="module")
def real() -> Base:
    return bases.load("v2.6.0")


def test_each_patch_of_the_series_has_a_text(real: Base) -> None:
    series = real.patches()
    for patch in series:
        assert pr.about(patch.name)["known"], f"pr.toml says nothing of {patch.name}"
        text = pr.text(real, patch, series)
        assert text.startswith("# [linalg] ")
        assert patch.subject.partition("] ")[2] in text.splitlines()[0]
        for heading in (
            "Issue",
            "Change",
            "Benchmark and checks",
            "Measured on",
            "Tests",
            "Builds",
        ):
            assert text.count(f"\n## {heading}\n") == 1
        for word in ("ROCm", "MAGMA", "Windows", "CUDA"):
            assert f"\n- {word}: " in text
        for number in re.findall(r"issues/(\d+)", patch.fields["Bug"]):
            assert f"#{number}" in text
        assert all(f"`{change.path}` (+" in text for change in patch.changes)
    named = {name for patch in series for name in pr.about(patch.name).get("tests", ())}
    added = {name for patch in series for name in pr.tests(patch, series, {})}
    assert named == added  # each test belongs to some patch


@pytest.mark.source
def test_each_patch_that_is_composed_has_a_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = edits.load("main")
    before: set[str] = set()  # what an earlier patch adds, a later one need not
    for patch in base.patches:
        monkeypatch.setattr(sys, "argv", ["patchset", "pr", patch.name, "--base", "main"])
        assert cli.main() == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        assert shown.out.startswith(f"# [linalg] {patch.subject.partition('] ')[2]}\n")
        assert "Composed on the text of v2.6.0." in shown.out
        own = [edit for edit in patch.edits if edit.paths == ("test/test_linalg.py",)]
        names = [name for edit in own for name in re.findall(r"def (test_\w+)", edit.lines)]
        assert names and all(f"-k {name}`" in shown.out for name in names)
        paths = {added.path for added in patch.added} - before
        assert all(f"`{path}` (+" in shown.out for path in paths)
        before |= paths
        # What was measured was the patch for another base, if any: said before the tables.
        said = ("Measured: composed on", "Its header says: composed on", "Its header says: none")
        assert any(text in shown.out for text in said)


def test_a_text_for_what_cannot_be_composed(
    fake: FakeBase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "patches/main", fake.root / "main")
    base_toml = fake.root / "main/base.toml"
    base_toml.write_text(base_toml.read_text().replace("v2.6.0", "v0.1"))

    def run(*more: str) -> int:
        words = ["pr", *more, "--base", "main", "--patches-root", str(fake.root)]
        monkeypatch.setattr(sys, "argv", ["patchset", *words])
        return cli.main()

    with pytest.raises(UserError, match=r"auxiliary-streams\.patch on .*: does not fit\n"):
        run("auxiliary-streams", "--onto", str(fake.source))
    with pytest.raises(UserError, match=r"third\.patch is not in patches/main\. It has: preferred"):
        run("third", "--onto", str(fake.source))
    with pytest.raises(UserError, match="with --onto"):
        run("auxiliary-streams", "--source", "git")
    monkeypatch.setattr(sys, "argv", ["patchset", "pr", "tests", "--onto", str(tmp_path)])
    with pytest.raises(UserError, match="holds patches"):
        cli.main()


def test_a_merged_issue_is_not_fixed_again(real: Base) -> None:
    by_name = {patch.name: patch for patch in real.patches()}
    merged = pr.issues(by_name["shared-getrf-workspace.patch"])
    assert "Related to #181997" in merged and "pull/181998" in merged and "Fixes" not in merged
    assert pr.issues(by_name["auxiliary-streams.patch"]).startswith("Fixes #182001")
    part = pr.text(real, by_name["auxiliary-streams.patch"], real.patches())
    assert "\nPart of #182001\n" in part and "Fixes" not in part  # closes what it covers half of


def test_lines_are_counted_as_git_counts_them(real: Base) -> None:
    for patch in real.patches():
        rows = pr.changed_lines(patch)
        stat = re.search(
            r"files? changed(?:, (\d+) insertions?\(\+\))?(?:, (\d+) deletions?\(-\))?",
            patch.path.read_text(encoding="utf-8"),
        )
        assert stat is not None
        found = (sum(row[1] for row in rows), sum(row[2] for row in rows))
        assert found == (int(stat[1] or 0), int(stat[2] or 0))


def test_pr_toml_holds_no_measured_figure() -> None:
    text = pr.ABOUT.read_text(encoding="utf-8")
    assert re.findall(r"\d+(?:\.\d+)? ?(?:ms|x\b|%|times|MiB|us)", text) == []


def test_the_cliff_shows_what_the_record_has(tmp_path: Path) -> None:
    rows = [
        point(library="unpatched-nomagma", n=511, ms=10.0),
        point(library="unpatched-nomagma", n=512, ms=47.11),
        point(library="patched-nomagma", n=511, ms=9.5),
        point(library="patched-nomagma", n=512, ms=9.25),
    ]
    record(tmp_path / "r", rows)
    text = pr_views.cliff(tmp_path / "r")
    line = "| cusolver | without MAGMA | float32 | 64 | 10.0 | 47.1 | 9.50 | 9.25 | 5.09 |"
    assert line in text
    assert "NVIDIA T0, driver 1.2, torch 9.9.0, cuBLAS 3.4, 2026-01-02" in text
    assert "with MAGMA |" not in text.replace("without MAGMA |", "")
    rows[1]["ms"] = 20.0
    record(tmp_path / "r", rows)
    assert "| 20.0 | 9.50 | 9.25 | 2.16 |" in pr_views.cliff(tmp_path / "r")


def test_the_newest_record_of_each_gpu_counts(tmp_path: Path) -> None:
    rows = [point(job="lanes/speed", ms=8.0), point(job="lanes/speed", ms=2.0, lanes=4)]
    record(tmp_path / "r", rows)
    record(tmp_path / "r", [rows[0], {**rows[1], "ms": 4.0}], meta={"date": "2026-02-02"})
    record(tmp_path / "r", [rows[0], {**rows[1], "ms": 1.0}], meta={"gpu": "NVIDIA T1"})
    text = pr_views.lanes(tmp_path / "r")
    gains = re.findall(r"^\| float32 \| 64 \| 512 \|.*\| (\S+) \|$", text, re.M)
    assert gains == ["2.00", "8.00"]
    assert text.count("NVIDIA T0") == 1 and text.count("NVIDIA T1") == 1


def test_a_part_that_the_newest_run_left_out_is_that_of_another(tmp_path: Path) -> None:
    rows = [point(job="lanes/speed", ms=8.0), point(job="lanes/speed", ms=2.0, lanes=4)]
    record(tmp_path / "r", rows, meta={"topic": "patchset-lanes"})
    record(tmp_path / "r", [point(job="cliff/stock", ms=1.0)], meta={"date": "2026-02-02"})
    assert "| float32 | 64 | 512 | 8.00 | 2.00 | 4.00 |" in pr_views.lanes(tmp_path / "r")
    assert "no such check" in pr_views.handles(tmp_path / "r")


def test_the_cliff_says_which_patches_were_in(tmp_path: Path) -> None:
    rows = [point(library="patched-nomagma", n=n, ms=9.5) for n in (511, 512)]
    for names, said in (
        ([], None),
        (["one.patch"], None),
        (["one.patch", "two.patch"], "not this patch alone (one, two)"),
    ):
        built = {"patched-nomagma": {"patches": [{"name": name} for name in names]}}
        record(tmp_path / "r", rows, meta={"built": built})
        text = pr_views.cliff(tmp_path / "r")
        assert said in text if said else "alone" not in text


def test_the_preference_stands_beside_the_stock_wheels(tmp_path: Path) -> None:
    rows = [
        point(library="stock", preference="default", ms=5.0),
        point(library="stock", ms=54.7),
        point(library="patched-magma", preference="cublas", ms=11.3),
        point(library="patched-magma", preference="default", ms=1.63),  # is of other patches
        point(library="stock", preference="default", batch=4, ms=1.0),
    ]
    record(tmp_path / "r", rows)
    text = pr_views.preferences(tmp_path / "r")
    assert "| float32 | 64 | 5.00 | 54.7 | 11.3 |" in text
    assert "1.63" not in text and "| 4 |" not in text


def test_composed_patches_are_told_from_those_of_a_release(real: Base, tmp_path: Path) -> None:
    patch = real.patches()[0]
    one = {"name": patch.name, "sha256": patch.sha256, "code_sha256": patch.code_sha256}
    record(tmp_path / "r", [], meta={"built": {"x": {"patches": [one]}}})
    assert (
        pr.measured_with(patch, tmp_path / "r", ("composed",)) == "- nothing: there is no record."
    )
    record(
        tmp_path / "r", [], meta={"topic": "composed", "built": {"composed": {"patches": [one]}}}
    )
    assert "this very file" in pr.measured_with(patch, tmp_path / "r", ("composed",))


def test_failed_checks_and_vendors_faults_are_told_with_their_reasons(tmp_path: Path) -> None:
    checks = [
        {"name": "routes: a", "params": {"dtype": "float32"}, "result": "pass", "value": 1},
        {"name": "routes: a", "params": {"n": 3}, "result": "vendor", "value": 7, "reason": "NaN"},
        {"name": "routes: b", "params": {"n": 4}, "result": "fail", "value": 7, "reason": ""},
        {"name": "lanes: c", "params": {}, "result": "fail", "value": 7, "reason": ""},
    ]
    record(tmp_path / "r", [], checks=checks)
    text = pr_views.VIEWS["routes"](tmp_path / "r")
    assert text.startswith(
        "- routes: a: 1 pass, 1 vendor\n  - vendor: n 3: NaN\n- routes: b: 1 fail\n"
        "  - fail: n 4: 7\n"
    )
    assert "lanes" not in text


def test_without_records_nothing_is_claimed(real: Base, tmp_path: Path) -> None:
    series = real.patches()
    (tmp_path / "none").mkdir()
    for view in pr.VIEWS.values():
        assert "Not measured yet" in view(tmp_path / "none")
    text = pr.text(real, series[0], series, tmp_path / "none")
    assert "Not measured yet" in text and "there is no record" in text


def test_a_record_of_another_version_of_the_patch_is_told(real: Base, tmp_path: Path) -> None:
    patch = real.patches()[0]
    for sha256, code, said in (
        (patch.sha256, patch.code_sha256, "measured with this very file"),
        ("0" * 64, patch.code_sha256, "the description was edited since"),
        ("0" * 64, "0" * 64, "measure again before sending"),
        ("0" * 64, None, "measure again before sending"),
        (None, None, "did not hold this patch"),
    ):
        one = {"name": patch.name, "sha256": sha256, "code_sha256": code}
        built = {"patches": [one] if sha256 else []}
        record(tmp_path / "r", [], meta={"built": {"patched-magma": built}})
        assert said in pr.measured_with(patch, tmp_path / "r")


def test_a_patch_that_pr_toml_does_not_know(
    fake: FakeBase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(*more: str | Path) -> int:
        words = ["pr", "--base", "v0.1", "--patches-root", fake.root, *more]
        monkeypatch.setattr(sys, "argv", ["patchset", *map(str, words)])
        return cli.main()

    assert run("first-topic") == 0
    shown = capsys.readouterr()
    assert "pr.toml says nothing of first-topic.patch" in shown.err
    assert "# [linalg] Change the third line\n" in shown.out
    assert "No table for this patch. Its header says: none, a test" in shown.out
    out = tmp_path / "pr.md"
    assert run("first-topic", "--out", out, "--dry-run") == 0
    assert not out.exists()
    assert run("first-topic", "--out", out) == 0
    assert out.read_text().startswith("# [linalg]")
    with pytest.raises(UserError, match="exists already"):
        run("first-topic", "--out", out)
    with pytest.raises(UserError, match="third-topic is not in"):
        run("third-topic")


def test_a_wrong_pr_toml(real: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(shutil.copy(pr.ABOUT, tmp_path / "pr.toml"))
    path.write_text(path.read_text().replace('views = ["allocations"]', 'views = ["speed"]'))
    with pytest.raises(UserError, match="asks for the view speed"):
        pr.about("shared-getrf-workspace.patch", path)
    series = real.patches()
    with pytest.raises(UserError, match="adds the test test_nothing"):
        pr.tests(series[0], series, {"tests": ["test_nothing"]})
