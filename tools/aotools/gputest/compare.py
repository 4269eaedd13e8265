"""Outcomes of upstream's tests with two libraries, and what differs between them."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BAD = ("failed", "crashed")


@dataclass
class Outcomes:
    """What is known of one library's tests, by id."""

    collected: list[str] = field(default_factory=list)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: str = ""  # started and not finished

    def bad(self, name: str) -> bool:
        """Whether the test failed or took the process down."""
        return name in self.results and self.results[name]["outcome"] in BAD

    def counts(self) -> dict[str, int]:
        """How many tests had each outcome, "not run" among them."""
        counts = Counter(result["outcome"] for result in self.results.values())
        counts["not run"] = len(self.not_run())
        return dict(sorted(counts.items()))

    def not_run(self) -> list[str]:
        """Collected tests without an outcome."""
        return sorted(set(self.collected) - self.results.keys())

    def crashed(self, message: str) -> str:
        """Notes that the process ended in the running test, and returns its id ("" if there was
        none).
        """
        name, self.running = self.running, ""
        if name:
            self.results[name] = {"outcome": "crashed", "seconds": 0.0, "message": message[:240]}
        return name


def read(lines: Iterable[str], into: Outcomes) -> Outcomes:
    """Adds the events that the pytest plugin wrote; a line cut off by a crash is passed over."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if "collected" in event:
            into.collected += [
                name for name in event["collected"] if name not in set(into.collected)
            ]
        elif "start" in event:
            into.running = event["start"]
        elif "test" in event:
            into.running = ""
            into.results[event["test"]] = {
                key: event[key] for key in ("outcome", "seconds", "message")
            }
    return into


def test_functions(path: Path) -> dict[str, str]:
    """The test functions in a test file, each with its code in a form that ignores layout and
    comments.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        f"{cls.name}::{node.name}": ast.dump(node)
        for cls in tree.body
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    }


@dataclass(frozen=True)
class FileDifference:
    """How the patched test file differs from the plain one, in names Class::test."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


def compare_files(plain: Path, patched: Path) -> FileDifference:
    """Which tests the series adds; it may change or remove none."""
    old, new = test_functions(plain), test_functions(patched)
    return FileDifference(
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(name for name in old.keys() & new.keys() if old[name] != new[name])),
        tuple(sorted(old.keys() - new.keys())),
    )


def is_added(name: str, added: Iterable[str]) -> bool:
    """Whether an instantiated test (TestLinalgCUDA::test_x_cuda_float32) stems from an added
    function.
    """
    cls, _, function = name.partition("::")
    for each in added:
        base, _, wanted = each.partition("::")
        device = re.fullmatch(rf"{re.escape(wanted)}(?:_(?:cuda|cpu)\w*)?", function)
        if device and cls.startswith(base):
            return True
    return False


@dataclass(frozen=True)
class Difference:
    """The comparison; every list holds test ids."""

    only_patched: tuple[str, ...]  # bad with the patches, not bad without
    only_unpatched: tuple[str, ...]
    both: tuple[str, ...]
    lost: tuple[str, ...]  # passed without the patches, skipped with them
    added_passed: tuple[str, ...]
    added_bad: tuple[str, ...]
    added_not_run: tuple[str, ...]  # skipped ones among them


def compare(unpatched: Outcomes, patched: Outcomes, added: Iterable[str]) -> Difference:
    """Compares the outcomes test by test. Tests that the series adds count by themselves."""
    added = tuple(added)
    names = sorted(
        unpatched.results.keys()
        | patched.results.keys()
        | set(unpatched.collected)
        | set(patched.collected)
    )
    old = [name for name in names if not is_added(name, added)]
    new = [name for name in names if is_added(name, added)]

    def passed(outcomes: Outcomes, name: str) -> bool:
        return outcomes.results.get(name, {}).get("outcome") in ("passed", "xfailed")

    return Difference(
        tuple(name for name in old if patched.bad(name) and not unpatched.bad(name)),
        tuple(name for name in old if unpatched.bad(name) and not patched.bad(name)),
        tuple(name for name in old if unpatched.bad(name) and patched.bad(name)),
        tuple(
            name
            for name in old
            if passed(unpatched, name)
            and name in patched.results
            and not passed(patched, name)
            and not patched.bad(name)
        ),
        tuple(name for name in new if passed(patched, name)),
        tuple(name for name in new if patched.bad(name)),
        tuple(name for name in new if not passed(patched, name) and not patched.bad(name)),
    )


def to_json(outcomes: Mapping[str, Outcomes]) -> str:
    """All outcomes as JSON, one test a line: [outcome, seconds, message] by library."""
    lines = []
    for library, found in outcomes.items():
        rows = ",\n".join(
            f"{json.dumps(name)}: {json.dumps([r['outcome'], r['seconds'], r['message']])}"
            for name, r in sorted(found.results.items())
        )
        lines.append(f'"{library}": {{\n{rows}\n}}')
    return "{" + ",\n".join(lines) + "}\n"
