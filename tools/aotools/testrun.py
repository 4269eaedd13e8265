"""tools/test: sets everything up, then runs every check and the CPU tests.

Standard library only, since it starts before there is a .venv.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aotools.env import (
    ROOT,
    UserError,
    cache_dir,
    ensure_venv,
    link_torch,
    run_cli,
    tree_path,
    venv_python,
)
from aotools.progress import seconds_text

TORCH = ("2.6.0", "2.11.0")
PYTHON_CODE = ("aten_overrides", "tools", "test")
CPP_FOLDERS = (
    "aten_overrides/csrc",
    "patches/main/added",
    "test/csrc",
    "test/gpu",
    "test/prototypes",
    "tools",
)
CPP_SUFFIXES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h"}
SHELL_FOLDERS = (".ci", "tools", "docker")


def cpp_files(root: Path = ROOT) -> list[Path]:
    """Every C++ and CUDA file of our own (the patches hold upstream's lines too: not those)."""
    found = (path for folder in CPP_FOLDERS for path in (root / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in CPP_SUFFIXES and path.is_file())


def shell_files(root: Path = ROOT) -> list[Path]:
    """Every bash script: its first line says so, whatever its name."""

    def is_bash(path: Path) -> bool:
        if not path.is_file():
            return False
        with path.open("rb") as handle:
            return b"bash" in handle.readline()

    found = (path for folder in SHELL_FOLDERS for path in (root / folder).glob("*"))
    return sorted(path for path in found if is_bash(path))


@dataclass
class Run:
    """The steps so far: prints each with its duration and keeps the names of those that failed."""

    environment: dict[str, str]
    failed: list[str] = field(default_factory=list)

    def step(self, name: str, action: Callable[[], bool]) -> bool:
        """Runs one step; a step that raises UserError has failed, and the others still run."""
        print(f"== {name}", flush=True)
        started = time.monotonic()
        try:
            good = action()
        except UserError as error:
            print(f"error: {error}", flush=True)
            good = False
        word = "" if good else "FAILED, "
        print(f"   {word}{seconds_text(time.monotonic() - started)}", flush=True)
        if not good:
            self.failed.append(name)
        return good

    def command(self, name: str, command: Sequence[str]) -> bool:
        """Runs one command as a step; it has failed if it exits with anything but 0."""
        return self.step(name, lambda: self.call(command) == 0)

    def call(self, command: Sequence[str], **variables: str) -> int:
        """The exit code of a command that runs in the checkout without standard input."""
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode


def set_up(run: Run, *, fast: bool) -> None:
    """Makes .venv and, unless `fast`, fetches the wheels and PyTorch's source."""
    if not run.step(".venv", lambda: bool(ensure_venv())):
        raise UserError("without .venv nothing else can run")
    if fast:
        return
    print(f"   downloads are kept in {cache_dir()}", flush=True)
    for version in TORCH:
        fetch = [str(venv_python()), "-m", "aotools.env", "tree", version]
        run.command(f"stock wheel of torch {version}", fetch)
    if tree_path(TORCH[0]).is_dir():
        link_torch(tree_path(TORCH[0]))
    run.command("PyTorch's source", ["tools/patchset", "fetch"])


def checks() -> Iterator[tuple[str, list[str]]]:
    """The checks that read code only: (name, command)."""
    python = str(venv_python())
    ruff, clang_format, shellcheck = (
        str(venv_python().with_name(name)) for name in ("ruff", "clang-format", "shellcheck")
    )
    yield "ruff check", [ruff, "check", *PYTHON_CODE]
    yield "ruff format", [ruff, "format", "--check", *PYTHON_CODE]
    yield "mypy", [python, "-m", "mypy", "aten_overrides", "tools"]
    yield "clang-format", [clang_format, "--dry-run", "-Werror", *map(str, cpp_files())]
    yield "shellcheck", [shellcheck, "-x", *map(str, shell_files())]
    table = "nvidia-h200.json"
    thresholds = [python, "-m", "aten_overrides.tables.thresholds", "--table", table, "--check"]
    yield "generated thresholds", thresholds
    yield "generated README tables", [python, "-m", "aotools.readme", "--check"]


def builds() -> Iterator[tuple[str, list[str]]]:
    """The checks that compile PyTorch's sources: (name, command)."""
    yield "series: applies, compiles after each patch", ["tools/patchset", "check"]
    for version in TORCH:
        relink = ["tools/patchset", "relink", "--wheel", version]
        yield f"library relinked against torch {version}", relink


def check_types_of_tests(run: Run, root: Path = ROOT) -> bool:
    """mypy, once for each folder of tests: a test imports helpers by name, from its folder or one
    above it.
    """
    good = True
    for folder in sorted({path.parent for path in (root / "test").rglob("*.py")}):
        files = sorted(map(str, folder.glob("*.py")))
        above = [str(path) for path in (folder, *folder.parents) if root in path.parents]
        command = [str(venv_python()), "-m", "mypy", "--no-error-summary", *files]
        good = run.call(command, MYPYPATH=os.pathsep.join(above)) == 0 and good
    return good


def pytest_command(fast: bool, keyword: str | None, rest: Sequence[str]) -> list[str]:
    """The pytest call; `fast` leaves out what needs the wheels or PyTorch's source."""
    command = [str(venv_python()), "-m", "pytest", "--durations=8"]
    if fast:
        command += ["-m", "not wheel and not source"]
    if keyword is not None:
        command += ["-k", keyword]
    return [*command, *rest]


def parser() -> argparse.ArgumentParser:
    """The command line of tools/test."""
    made = argparse.ArgumentParser(
        prog="tools/test",
        description="Sets everything up and runs every check and CPU test. No GPU is needed. "
        "The first run downloads 5.6 GB into the cache (9 GB on disk); see ATEN_OVERRIDES_CACHE.",
        epilog="Exit code: 0 when every step passed, 1 when one failed, 2 when it could not start.",
    )
    made.add_argument(
        "--fast", action="store_true", help="no wheels, no PyTorch source, no tests that need them"
    )
    made.add_argument("-k", metavar="EXPRESSION", help="only the tests that pytest's -k selects")
    made.add_argument("pytest", nargs="*", metavar="PATH", help="test files for pytest")
    return made


def main() -> int:
    """Runs all steps; pytest comes last, so that its closing line ends the output."""
    options = parser().parse_args()
    # With this set, tests that need the wheels or the source fail without them instead of skipping.
    environment = {**os.environ, "AOTOOLS_REQUIRE": "" if options.fast else "wheel,source"}
    run = Run(environment)
    set_up(run, fast=options.fast)
    for name, command in checks():
        run.command(name, command)
    run.step("mypy of the tests", lambda: check_types_of_tests(run))
    if not options.fast:
        for name, command in builds():
            run.command(name, command)
    if run.failed:
        print(f"== failed so far: {', '.join(run.failed)}", flush=True)
    print("== pytest", flush=True)
    code = run.call(pytest_command(options.fast, options.k, options.pytest))
    if code != 0:
        run.failed.append(f"pytest (exit {code})")
    if run.failed:
        print(f"tools/test: failed: {', '.join(run.failed)}", file=sys.stderr, flush=True)
    return 1 if run.failed else 0


if __name__ == "__main__":
    run_cli(main)
