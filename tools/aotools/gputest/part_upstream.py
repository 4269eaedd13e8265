"""Upstream's test_linalg.py of 2.6.0 with the unpatched and the patched library, compared test by
test.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotools.gputest import compare
from aotools.gputest.compare import Outcomes
from aotools.gputest.session import Session

PLAIN, PATCHED = "unpatched-magma", "patched-magma"
LEFT_OUT = {
    "test_preferred_linalg_library_environment": "the initial preference is compiled into "
    "libtorch_cpu, which a relinked library does not replace",
}
RETRY_SECONDS = 45.0
MOST_RETRIED = 60
MOST_STARTS = 10  # of one shard
TEST_SECONDS = 90
FINISHED = (0, 1, 5)  # pytest's exit codes: all passed, some failed, none collected


@dataclass
class Shard:
    """One pytest process at a time, started again after a crash with what is left."""

    library: str
    config: dict[str, Any]
    folder: Path
    name: str
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None
    outcomes: Outcomes = field(default_factory=Outcomes)
    trouble: str = ""

    def start(self, file: Path, device: str) -> None:
        """Starts pytest on what has no outcome yet."""
        self.starts += 1
        stem = f"{self.library}-{self.name}-{self.starts}"
        self.out, self.output = self.folder / f"{stem}.jsonl", self.folder / f"{stem}.txt"
        settings = self.folder / f"{stem}.json"
        done = sorted(self.outcomes.results)
        settings.write_text(json.dumps({**self.config, "out": str(self.out), "done": done}))
        with self.output.open("wb") as sink:
            self.process = subprocess.Popen(
                pytest_command(file),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=file.parent,
                env=environment(os.environ, settings, device),
            )

    def step(self, file: Path, device: str) -> bool:
        """Looks after the process; True while there is something to wait for."""
        if self.process is None:
            return False
        code = self.process.poll()
        if code is None:
            return True
        self.process = None
        self.collect()
        if code in FINISHED:
            if not self.outcomes.collected:
                self.trouble = f"no test was collected (exit code {code}): {self.tail()}"
            return False
        crashed = self.outcomes.crashed(f"the process ended with code {code}: {self.tail()}")
        if (not crashed and not self.outcomes.results) or self.starts >= MOST_STARTS:
            self.trouble = f"gave up after {self.starts} starts, exit code {code}: {self.tail()}"
            return False
        self.start(file, device)
        return True

    def collect(self) -> None:
        """Reads what the process has written."""
        if self.out.exists():
            text = self.out.read_text(encoding="utf-8", errors="replace")
            compare.read(text.splitlines(), self.outcomes)

    def stop(self) -> None:
        """Ends a process that is still running, and keeps what it wrote."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.collect()
            if self.outcomes.running:
                self.trouble = f"time was up in {self.outcomes.running}"

    def tail(self) -> str:
        """The end of the process's output, in one line."""
        text = (
            self.output.read_text(encoding="utf-8", errors="replace")
            if self.output.exists()
            else ""
        )
        return " ".join(text.split())[-300:]


def pytest_command(file: Path) -> list[str]:
    """The pytest call for upstream's file, with nothing of the user's settings."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "-c", os.devnull]
    command += ["--rootdir", str(file.parent), "-p", "no:cacheprovider", "--disable-warnings"]
    if importlib.util.find_spec("pytest_timeout"):
        command += [f"--timeout={TEST_SECONDS}", "--timeout-method=signal"]
    return [*command, "-p", "aotools.gputest.upstream_plugin", str(file)]


def environment(base: Mapping[str, str], settings: Path, device: str) -> dict[str, str]:
    """A shard's environment: only CUDA tests, and few CPU threads, since several shards run at
    once.
    """
    env = dict(base) | {"ATEN_OVERRIDES_UPSTREAM": str(settings)}
    env |= {"PYTORCH_TESTING_DEVICE_ONLY_FOR": device}
    return env | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "2")


def run_shards(shards: Sequence[Shard], file: Path, device: str, deadline: float) -> None:
    """Runs all at once, until they end or the deadline (time.monotonic) has come."""
    for shard in shards:
        shard.start(file, device)
    while time.monotonic() < deadline:
        waiting = [shard.step(file, device) for shard in shards]  # all of them, so no generator
        if not any(waiting):
            break
        time.sleep(0.3)
    for shard in shards:
        shard.stop()


def merge(shards: Sequence[Shard]) -> dict[str, Outcomes]:
    """The outcomes of each library's shards together."""
    merged: dict[str, Outcomes] = {}
    for shard in shards:
        into = merged.setdefault(shard.library, Outcomes())
        into.collected += shard.outcomes.collected
        into.results |= shard.outcomes.results
    return merged


def run(session: Session) -> None:
    """Runs both libraries side by side in `shards` processes each; suspects run again."""
    started = time.monotonic()
    deadline = started + session.timeout - RETRY_SECONDS - 20
    plain, patched = test_files(Path(session.options["tests"]))
    device = session.options["device"]
    with tempfile.TemporaryDirectory(prefix="upstream-") as name:
        folder = Path(name)
        file = folder / "test_linalg.py"
        file.write_text(for_later_torch(patched.read_text(encoding="utf-8")), encoding="utf-8")
        added = () if plain is None else _check_files(session, plain, patched)
        count = int(session.options["shards"])
        shards = [
            Shard(library, config(session, library, shard, count, first=added), folder, f"{shard}")
            for shard in range(count)
            for library in (PLAIN, PATCHED)
        ]
        run_shards(shards, file, device, deadline)
        outcomes = merge(shards)
        difference = compare.compare(outcomes[PLAIN], outcomes[PATCHED], added)
        again = run_again(
            difference.only_patched,
            (PLAIN, PATCHED),
            lambda library, few: config(session, library, 0, 1, only=few),
            folder,
            file,
            device,
        )
    _keep(outcomes)
    _report(session, shards, outcomes, difference, again)


def test_files(tests: Path) -> tuple[Path | None, Path]:
    """The plain file (None if there is none) and the patched one, from a folder or the patched file
    itself.
    """
    if tests.is_dir():
        plain = tests / "test_linalg.py"
        return (plain if plain.is_file() else None), tests / "test_linalg_patched.py"
    return None, tests


def for_later_torch(text: str) -> str:
    """Upstream's file for a torch in whose test classes the generic class has become a base.

    There its setUp and tearDown, which name super(self.__class__, self), would call themselves for
    ever.
    """
    return text.replace("super(self.__class__, self)", "super()")


def config(
    session: Session,
    library: str,
    shard: int,
    shards: int,
    only: Sequence[str] = (),
    first: Sequence[str] = (),
) -> dict[str, Any]:
    """The plugin's settings for a process.

    The tests that the series adds run with the patched library only. Without the patches they must
    fail, and one that fails inside a graph capture spoils the generator for all tests after it.
    """
    added = [name.partition("::")[2] for name in first]
    return {
        "torch": True,
        "library": str(session.paths[library]),
        "preference": library == PATCHED,
        "shard": shard,
        "shards": shards,
        "only": list(only),
        "left_out": [*LEFT_OUT, *(added if library == PLAIN else ())],
        "first": added,
    }


def run_again(
    names: Sequence[str],
    libraries: tuple[str, str],
    settings: Callable[[str, Sequence[str]], dict[str, Any]],
    folder: Path,
    file: Path,
    device: str,
) -> list[str]:
    """Runs suspects again, with the plain and the other one of `libraries`, and little beside them.

    `settings` makes a library's configuration for these tests alone. Returns those that are
    cleared: they pass with the other library now, or fail with the plain one too.
    """
    few = list(names[:MOST_RETRIED])
    if not few:
        return []
    shards = [Shard(library, settings(library, few), folder, "again") for library in libraries]
    run_shards(shards, file, device, time.monotonic() + RETRY_SECONDS)
    again = merge(shards)
    plain, other = (again[library] for library in libraries)
    return cleared(few, plain, other)


def cleared(names: Sequence[str], plain: Outcomes, patched: Outcomes) -> list[str]:
    """The suspects that a second run clears; one without a second outcome is not cleared."""
    passed = [name for name in names if patched.results.get(name, {}).get("outcome") == "passed"]
    return passed + [name for name in names if plain.bad(name) and name not in passed]


def _check_files(session: Session, plain: Path, patched: Path) -> tuple[str, ...]:
    files = compare.compare_files(plain, patched)
    with session.check("upstream: the series only adds tests") as check:
        check.value = {
            "added": list(files.added),
            "changed": list(files.changed),
            "removed": list(files.removed),
        }
        check.ok = not files.changed and not files.removed
    return files.added


def _keep(outcomes: Mapping[str, Outcomes]) -> None:
    """Writes all outcomes beside the log."""
    folder = os.environ.get("ATEN_OVERRIDES_GPU_TEST_LOGS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "upstream-outcomes.json").write_text(
            compare.to_json(outcomes), encoding="utf-8"
        )


def _with_messages(names: Sequence[str], outcomes: Outcomes, most: int = 12) -> str:
    said = [f"{name}: {outcomes.results[name]['message'][:160]}" for name in names[:most]]
    return "; ".join(said) + (f"; and {len(names) - most} more" if len(names) > most else "")


def report_ran(
    session: Session, shards: Sequence[Shard], outcomes: Mapping[str, Outcomes], **which: Any
) -> None:
    """A check for each library: whether its tests ran, and what the trouble was."""
    for library, found in outcomes.items():
        with session.check("upstream: tests ran", of=library, **which) as check:
            check.value = found.counts()
            trouble = [
                shard.trouble for shard in shards if shard.library == library and shard.trouble
            ]
            check.ok = bool(found.results) and not trouble and not found.not_run()
            check.skip = not check.ok and len(found.not_run()) < len(found.collected)
            check.reason = "; ".join(trouble)[:600]


def _report(
    session: Session,
    shards: Sequence[Shard],
    outcomes: Mapping[str, Outcomes],
    difference: compare.Difference,
    cleared_names: Sequence[str],
) -> None:
    report_ran(session, shards, outcomes)
    confirmed = [name for name in difference.only_patched if name not in cleared_names]
    with session.check("upstream: none fails only with the patches") as check:
        compared = outcomes[PLAIN].results.keys() & outcomes[PATCHED].results.keys()
        check.ok = not confirmed and bool(compared)
        check.value = {
            "compared": len(compared),
            "only_patched": confirmed,
            "only_unpatched": list(difference.only_unpatched),
            "cleared_by_a_second_run": list(cleared_names),
        }
        check.reason = _with_messages(confirmed, outcomes[PATCHED])
    with session.check("upstream: none is skipped only with the patches") as check:
        check.ok, check.value = not difference.lost, list(difference.lost)
    with session.check("upstream: the tests that the series adds pass") as check:
        check.value = {
            "passed": len(difference.added_passed),
            "failed": list(difference.added_bad),
            "skipped": list(difference.added_not_run),
        }
        check.ok = not difference.added_bad and bool(difference.added_passed)
        check.reason = _with_messages(difference.added_bad, outcomes[PATCHED])
    for name, reason in LEFT_OUT.items():
        with session.check("upstream: left out", test=name) as check:
            check.skip, check.reason = True, reason
    with session.check("upstream: fail without the patches too") as check:
        check.skip, check.value = True, list(difference.both)
        check.reason = _with_messages(difference.both, outcomes[PLAIN])
