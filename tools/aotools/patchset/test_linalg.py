"""tools/patchset test-linalg: upstream's test_linalg.py with the series' tests, on a real torch.

A test that takes the process down is noted, and the rest goes on in a new process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotools import env
from aotools.env import UserError
from aotools.gputest import compare
from aotools.gputest.compare import Outcomes
from aotools.patchset import test_linalg_skips as skips
from aotools.patchset.base import Base

NAME, TEXT = "test-linalg", "Run upstream's test_linalg.py with the series' tests; needs a GPU."
TESTS = "test/test_linalg.py"
MOST_STARTS = 20
FINISHED = (0, 1, 5)  # pytest: all passed, some failed, none collected
_PROBE = """
import json, platform
import torch
gpu = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
print(json.dumps({
    "torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version(),
    "magma": bool(torch.cuda.has_magma), "gpu": gpu and gpu.name,
    "capability": gpu and f"{gpu.major}.{gpu.minor}",
    "memory_gib": gpu and gpu.total_memory / 2**30,
}))
"""


@dataclass
class Result:
    """What came of a run."""

    facts: Mapping[str, Any]
    outcomes: Outcomes
    skipped_by_list: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    trouble: str = ""

    @property
    def exit_code(self) -> int:
        """0 when tests passed and none failed; a run in which nothing passed is no success."""
        counts = self.outcomes.counts()
        bad = sum(counts.get(word, 0) for word in (*compare.BAD, "not run"))
        return 1 if bad or self.trouble or not counts.get("passed") else 0


def facts_of(
    python: Path, environment: Mapping[str, str], device: str, relinked: bool
) -> dict[str, Any]:
    """What the torch of that Python is; UserError when it does not import or has no GPU."""
    done = subprocess.run(
        [python, "-c", _PROBE], capture_output=True, text=True, env=dict(environment), cwd="/"
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise UserError(
            f"torch cannot be imported by {python}: {said[-1] if said else 'no reason given'}. "
            "--python names the interpreter that has it"
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if device == "cuda" and not found["gpu"]:
        raise UserError(
            f"torch {found['torch']} of {python} sees no GPU. In a container: docker run --gpus all"
            " or the compose file's service; --device cpu runs the CPU tests"
        )
    return {**found, "device": device, "relinked": relinked}


def run_tests(
    python: Path,
    file: Path,
    environment: Mapping[str, str],
    settings: Mapping[str, Any],
    rest: Sequence[str] = (),
) -> tuple[Outcomes, str]:
    """Runs pytest until every test has an outcome; the second value says what went wrong."""
    outcomes = Outcomes()
    with tempfile.TemporaryDirectory(prefix="test-linalg-") as name:
        for start in range(1, MOST_STARTS + 1):
            out, config = Path(name) / f"{start}.jsonl", Path(name) / f"{start}.json"
            config.write_text(
                json.dumps({**settings, "out": str(out), "done": sorted(outcomes.results)})
            )
            command = [str(python), "-m", "pytest", "-q", "--no-header", "--tb=short", "-rfE"]
            command += ["-c", os.devnull, "--rootdir", str(file.parent), "-p", "no:cacheprovider"]
            command += ["--disable-warnings", "-p", "aotools.patchset.test_linalg_plugin"]
            variables = {**environment, "ATEN_OVERRIDES_TEST_LINALG": str(config)}
            code = subprocess.run(
                [*command, *rest, str(file)],
                env=variables,
                cwd=file.parent,
                stdin=subprocess.DEVNULL,
            ).returncode
            before = len(outcomes.results)
            if out.exists():
                compare.read(
                    out.read_text(encoding="utf-8", errors="replace").splitlines(), outcomes
                )
            if code in FINISHED:
                return outcomes, "" if outcomes.collected else "no test was collected"
            crashed = outcomes.crashed(f"the process ended with code {code}")
            if not crashed and len(outcomes.results) == before:
                return outcomes, f"pytest ended with code {code} before any test"
    return outcomes, f"gave up after {MOST_STARTS} starts"


def summary(result: Result) -> str:
    """The closing lines: counts, what failed, what is stale."""
    counts = result.outcomes.counts()
    counts["skipped by the list"] = len(result.skipped_by_list)
    rows = [", ".join(f"{count} {word}" for word, count in counts.items() if count)]
    results = result.outcomes.results
    for name in sorted(results):
        if results[name]["outcome"] in compare.BAD:
            rows.append(f"{results[name]['outcome']}: {name}: {results[name]['message']}")
    rows += [f"warning: stale entry of the skip list: {text}" for text in result.stale]
    if result.trouble:
        rows.append(f"error: {result.trouble}")
    return "\n".join(row for row in rows if row)


# --- the command ----------------------------------------------------------------------------------


def add(sub: argparse.ArgumentParser) -> None:
    """The command's options."""
    sub.add_argument(
        "--tree", type=Path, help=f"a patched PyTorch tree with {TESTS} (build/<base>/src)"
    )
    sub.add_argument("--python", type=Path, help="the interpreter with torch and pytest")
    sub.add_argument("--library", type=Path, help="a relinked library to load first")
    sub.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    sub.add_argument("--skips", type=Path, default=skips.DEFAULT, help="another skip list")
    sub.add_argument(
        "--only-skipped", action="store_true", help="run what the skip list leaves out"
    )
    sub.add_argument("--report", type=Path, help="write every outcome to this JSON file")
    sub.add_argument("-k", metavar="EXPRESSION", help="only the tests that pytest's -k selects")
    sub.add_argument("pytest", nargs="*", help="more for pytest, after --")


def _require_writable(folder: Path) -> None:
    """UserError unless a report can be written there: known before the tests, not hours later."""
    env.make_folder(folder)
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(
            f"--report: user {os.getuid()} cannot write to {folder}: {error.strerror}. Name "
            "another folder; in a container, run it as a user who may write to the mounted one "
            "(docker/README.md)"
        ) from None


def run(base: Base, options: argparse.Namespace, source: Callable[[], Path]) -> int:
    """Runs the tests, prints the summary, writes the report."""
    tree = (options.tree or env.ROOT / "build" / base.name / "src").expanduser().absolute()
    file = tree / TESTS
    if not file.is_file():
        raise UserError(
            f"{file} is not there. `tools/patchset apply` makes such a tree, --tree names one"
        )
    listed = skips.read(options.skips)
    python = (options.python or Path(sys.executable)).absolute()
    path = [str(env.ROOT / "tools"), str(env.ROOT), os.environ.get("AOTOOLS_USER_PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in path if part)}
    environment |= {"PYTHONSAFEPATH": "1", "PYTORCH_TESTING_DEVICE_ONLY_FOR": options.device}
    facts = facts_of(python, environment, options.device, options.library is not None)
    active = [skip for skip in listed if skip.applies(facts)]
    what = f"torch {facts['torch']}, {facts['gpu'] or 'no GPU'}"
    print(f"{what}; {len(active)} of {len(listed)} skips apply", flush=True)
    settings = {
        "skips": [(skip.test, skip.reason) for skip in active],
        "only_skipped": options.only_skipped,
        "torch": True,
        "library": str(options.library.absolute()) if options.library else "",
        "preference": options.library is not None,
    }
    rest = [*(["-k", options.k] if options.k else []), *options.pytest]
    if options.dry_run:
        for skip in active:
            print(f"would skip {skip.test}: {skip.reason}")
        print(f"would run {file} with {python}")
        return 0
    if options.report:
        _require_writable(options.report.absolute().parent)
    outcomes, trouble = run_tests(python, file, environment, settings, rest)
    result = Result(facts, outcomes, trouble=trouble)
    result.skipped_by_list = sorted(
        name
        for name, one in outcomes.results.items()
        if one["outcome"] == "skipped" and "skip list: " in one["message"]
    )
    if options.only_skipped:
        meant = [name for name in outcomes.collected if any(s.matches(name) for s in active)]
        outcomes.collected = meant
        passed = {name for name, one in outcomes.results.items() if one["outcome"] == "passed"}
        result.stale = skips.stale(listed, facts, meant, passed)
    elif not rest:  # with a selection, what matches nothing need not be stale
        result.stale = skips.stale(listed, facts, outcomes.collected)
    print(summary(result))
    if options.report:
        report = {
            "facts": facts,
            "counts": outcomes.counts(),
            "results": outcomes.results,
            "skipped_by_list": result.skipped_by_list,
            "stale": result.stale,
            "trouble": trouble,
        }
        env.write_file(options.report.absolute(), json.dumps(report, indent=1) + "\n")
    return result.exit_code
