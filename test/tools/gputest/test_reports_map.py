"""reports.toml: every report is covered by checks and tests that exist and run, or is not ours."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aotools.env import ROOT
from aotools.gputest import plan_overrides

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = ROOT / plan_overrides.FOLDER
RUNS = ("run_eigh", "run_lu_solve", "run_rectangular")
# All there are: each is a public report of a fault of its kind.
# fmt: off
REPORTS = [f"B{number:02}" for number in (
    1, 2, 3, 6, 8, 12, 14, 15, 17, 20, 21, 22, 23, 24, 26, 27, 28, 29, 30, 33, 34, 35, 37,
    38, 39, 40, 42, 43, 45, 46, 47, 49, 51, 52, 53, 55, 56, 57, 59, 60, 61, 63, 65, 66, 67, 68,
    69, 70, 72, 73, 75, 77, 78, 80, 81, 82, 84, 86, 87, 88, 89, 91, 92, 93, 94, 95, 96, 97, 98,
    99, 101, 102, 103, 105, 106, 107, 108, 110, 111, 114, 117, 118, 119,
)]
# fmt: on


@dataclass
class Script:
    """What a script's checks are called, and which reports they say they are after."""

    names: set[str] = field(default_factory=set)
    after: set[tuple[str, str]] = field(default_factory=set)  # report, name
    texts: set[str] = field(default_factory=set)  # for names that a table of the script holds
    by_variable: bool = False


def name_of(node: ast.expr) -> str | None:
    """A check's name as it is written, "{x}" for what is put in; None for a variable."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = []
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                parts.append(f"{{{ast.unparse(each.value)}}}")
            elif isinstance(each, ast.Constant):
                parts.append(str(each.value))
        return "".join(parts)
    return None


def read(path: Path) -> Script:
    """The checks of a script, from its text."""
    found = Script()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            found.texts |= {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr != "check" or not node.args:
            continue
        name = name_of(node.args[0])
        if name is None:
            found.by_variable = True
            continue
        found.names.add(name)
        for keyword in node.keywords:
            if keyword.arg == "case" and isinstance(keyword.value, ast.Constant):
                reports = re.findall(r"B\d+", str(keyword.value.value))
                found.after |= {(report, name) for report in reports}
    return found


@pytest.fixture(scope="module")
def reports() -> dict[str, dict[str, Any]]:
    return tomllib.loads((FOLDER / "reports.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scripts() -> dict[str, Script]:
    return {path.stem: read(path) for path in sorted(FOLDER.glob("part_*.py"))}


def covered(reports: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    for report, row in reports.items():
        for entry in row.get("covered", []):
            yield report, entry


def test_every_report_is_there_once_and_answered(reports: dict[str, dict[str, Any]]) -> None:
    assert sorted(reports) == sorted(REPORTS) and len(set(REPORTS)) == 83
    for report, row in reports.items():
        assert row.keys() <= {"source", "kind", "covered", "not_ours"}, report
        assert row["source"].strip() and row["kind"].strip(), report
        assert row.get("covered") or row.get("not_ours", "").strip(), report
        entries = row.get("covered", [])
        assert len(set(entries)) == len(entries), report


def test_every_check_and_test_that_is_named_exists(
    reports: dict[str, dict[str, Any]], scripts: dict[str, Script]
) -> None:
    wrong = []
    for report, entry in covered(reports):
        if entry.startswith("test/"):
            path, _, test = entry.partition("::")
            file = ROOT / path
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            if not re.search(rf"^def {test or 'test_'}", text, re.M):
                wrong.append(f"{report}: {entry}")
            continue
        part, _, name = entry.partition(": ")
        script = scripts.get(part)
        known = script is not None and (
            name in script.names or (script.by_variable and name in script.texts)
        )
        if not known:
            wrong.append(f"{report}: {entry}")
    assert not wrong


def test_what_a_check_says_it_is_after_is_in_the_map(
    reports: dict[str, dict[str, Any]], scripts: dict[str, Script]
) -> None:
    there = set(covered(reports))
    missing = [
        f"{report}: {part}: {name}"
        for part, script in scripts.items()
        for report, name in script.after
        if (report, f"{part}: {name}") not in there
    ]
    assert not sorted(missing)


def test_every_script_that_is_named_is_run_by_a_job(
    reports: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    jobs = plan_overrides.jobs(list(plan_overrides.PARTS), Path("tests"))
    for name in (*RUNS, "topic_run"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in RUNS:
        jobs += importlib.import_module(name).jobs(1.0)
    for name in (*RUNS, "topic_run"):
        sys.modules.pop(name, None)
    run = {job.function.partition(":")[0] for job in jobs}
    named = {entry.partition(": ")[0] for _, entry in covered(reports) if entry[:5] == "part_"}
    assert named <= run


def test_the_reader_sees_names_and_reports(tmp_path: Path) -> None:
    script = tmp_path / "part_x.py"
    script.write_text(
        "CASES = {'from a table': 1}\n"
        "def run(session):\n"
        "    with session.check(f'{kind}: one', case='B01 B02', n=1) as check:\n"
        "        pass\n"
        "    with session.check('two', case='187717'):\n"
        "        pass\n"
        "    with session.check(name, case=case):\n"
        "        pass\n"
    )
    found = read(script)
    assert found.names == {"{kind}: one", "two"} and found.by_variable
    assert found.after == {("B01", "{kind}: one"), ("B02", "{kind}: one")}
    assert "from a table" in found.texts
