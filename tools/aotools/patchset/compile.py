"""Runs g++ over several sources, two things in mind: the machine's memory, and never compiling the
same twice.

A result is kept under a key made of the compiler, the arguments, the source's text and the names of
the headers in the folders that come first and hide another of that name; beside it stands what the
source included, with each file's state. It is used again only if all of that is unchanged. Paths
below the given roots are written as names, so that a tree may move.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from aotools import env
from aotools.env import UserError

_GCC_AT_LEAST = 11
_BYTES_PER_JOB = 1.2e9  # the largest unit takes 0.55 GB
_CACHE_BYTES = 400e6


@cache
def compiler() -> tuple[str, str]:
    """The C++ compiler's command and what it calls itself; UserError when there is none that
    serves.
    """
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        raise UserError(
            f"no C++ compiler: {name} was not found. Install g++ {_GCC_AT_LEAST} or newer "
            "(Debian, Ubuntu: apt-get install g++), or name one: CXX=g++-13"
        )
    done = subprocess.run([path, "--version"], capture_output=True, text=True)
    version = done.stdout.splitlines()[0] if done.stdout else ""
    number = subprocess.run(
        [path, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True
    )
    major = re.match(r"\d+", number.stdout)
    if (
        done.returncode != 0
        or "clang" in done.stdout
        or major is None
        or int(major[0]) < _GCC_AT_LEAST
    ):
        raise UserError(
            f"{path} is {version or 'not a compiler that answers --version'}; GNU g++ "
            f"{_GCC_AT_LEAST} or newer is "
            "needed, because the wheels were built with g++ and its old string ABI is one of "
            "g++'s. Name one: CXX=g++-13"
        )
    return path, version


def job_count() -> int:
    """How many compilers at once: $MAX_JOBS, else as many as cores and free memory allow."""
    asked = os.environ.get("MAX_JOBS", "")
    if asked:
        if not asked.isdecimal() or int(asked) < 1:
            raise UserError(f"MAX_JOBS={asked}: a whole number of at least 1 is needed")
        return int(asked)
    free = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    memory = int(int(free[1]) * 1024 / _BYTES_PER_JOB) if free else 1
    return max(1, min(len(os.sched_getaffinity(0)), memory))


@dataclass(frozen=True)
class Unit:
    """One source to compile; `arguments` without -c, -o and the source itself.

    `program`: another compiler than g++, by its command and what it calls itself.
    """

    label: str
    source: Path
    arguments: tuple[str, ...]
    syntax_only: bool = False
    program: tuple[str, str] | None = None


@dataclass(frozen=True)
class Result:
    """What became of a unit: the object (None for a syntax check or a failure) and the compiler's
    words.
    """

    unit: Unit
    ok: bool
    object: Path | None
    messages: str
    seconds: float
    cached: bool


@dataclass
class Compiler:
    """Compiles units; `roots` names folders whose place must not matter, the longest first."""

    roots: Mapping[str, Path]
    first: Sequence[Path] = ()  # include folders whose header names are part of the key
    store: Path = field(default_factory=lambda: env.cache_dir() / "objects")
    _states: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        units: Sequence[Unit],
        done: Callable[[Result], None] | None = None,
        starting: Callable[[int], None] | None = None,
    ) -> list[Result]:
        """Compiles all units, several at once; returns the results in the order of the units.

        `done` is called as each one ends, `starting` with the number that must be compiled.
        """
        results: dict[str, Result] = {}
        missing = []
        for unit in units:
            found = self._look_up(unit)
            if found is None:
                missing.append(unit)
            else:
                results[unit.label] = found
                if done:
                    done(found)
        if missing:
            compiler()
            if starting:
                starting(len(missing))
            pool = ThreadPoolExecutor(min(job_count(), len(missing)))
            try:
                for future in as_completed([pool.submit(self._compile, unit) for unit in missing]):
                    result = future.result()
                    results[result.unit.label] = result
                    if done:
                        done(result)
            finally:
                pool.shutdown(cancel_futures=True)
            self._prune()
        return [results[unit.label] for unit in units]

    # --- keys ---

    def _named(self, text: str) -> str:
        for name, root in self.roots.items():
            text = text.replace(str(root), f"<{name}>")
        return text

    def _placed(self, text: str) -> str:
        for name, root in self.roots.items():
            text = text.replace(f"<{name}>", str(root))
        return text

    def _state(self, path: str) -> str:
        """The content for files that are ours; size and time for the wheel's and the system's."""
        if path not in self._states:
            try:
                if path.startswith(tuple(str(folder) for folder in self.first)):
                    state = hashlib.sha256(Path(path).read_bytes()).hexdigest()
                else:
                    info = Path(path).stat()
                    state = f"{info.st_size}:{info.st_mtime_ns}"
            except OSError:
                state = "gone"
            self._states[path] = state
        return self._states[path]

    def _key(self, unit: Unit) -> str:
        headers = self._shadowing(unit.arguments)
        parts = [
            "1",
            *(unit.program or ()),
            *compiler(),
            "syntax" if unit.syntax_only else "object",
            self._named(str(unit.source)),
            *(self._named(argument) for argument in unit.arguments),
            hashlib.sha256(unit.source.read_bytes()).hexdigest(),
            *headers,
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _shadowing(self, arguments: Sequence[str]) -> list[str]:
        """The headers in the first folders that stand before another of the same name."""
        others = [
            Path(argument[8:].removeprefix("="))
            for argument in arguments
            if argument.startswith("-isystem")
        ]
        names = {
            path.relative_to(folder)
            for folder in self.first
            for path in folder.rglob("*")
            if path.is_file() and path.suffix != ".cpp"
        }
        return sorted(
            str(name) for name in names if any((other / name).is_file() for other in others)
        )

    def _look_up(self, unit: Unit) -> Result | None:
        started = time.monotonic()
        manifest = self.store / self._key(unit)[:2] / f"{self._key(unit)}.json"
        try:
            entries = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        for entry in entries:
            if all(
                self._state(self._placed(path)) == state for path, state in entry["files"].items()
            ):
                made = manifest.with_name(entry["object"]) if entry["object"] else None
                if made is not None and _sha256(made) != made.stem:
                    continue  # lost, or damaged by a crash or a full disk: compile it again
                with contextlib.suppress(OSError):  # a cache that others own serves as well
                    os.utime(made or manifest)
                return Result(unit, True, made, "", time.monotonic() - started, True)
        return None

    # --- compiling ---

    def _compile(self, unit: Unit) -> Result:
        started = time.monotonic()
        key = self._key(unit)
        folder = self.store / key[:2]
        env.make_folder(folder)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as name:
            made, deps = Path(name) / "unit.o", Path(name) / "unit.d"
            action = ["-fsyntax-only"] if unit.syntax_only else ["-c", "-o", str(made)]
            program = unit.program[0] if unit.program else compiler()[0]
            command = [program, *unit.arguments, *action, str(unit.source)]
            command += ["-MD", "-MF", str(deps)]
            command += [] if unit.program else ["-fdiagnostics-color=never"]
            # Assembler files of the largest unit take megabytes, and /tmp is often small. What
            # nvcc reads from the environment is not in the key.
            kept_out = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
            inherited = {key: value for key, value in os.environ.items() if key not in kept_out}
            variables = {**inherited, "TMPDIR": name, "LC_ALL": "C"}
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", env=variables
            )
            if done.returncode != 0:
                return Result(unit, False, None, _reason(done), time.monotonic() - started, False)
            kept = None
            try:
                if not unit.syntax_only:
                    kept = folder / f"{_sha256(made)}.o"
                    made.replace(kept)
                self._remember(folder / f"{key}.json", deps, kept)
            except OSError as error:
                raise UserError(
                    f"cannot keep the object of {unit.label} in {folder}: {error.strerror}"
                ) from None
        return Result(unit, True, kept, done.stderr, time.monotonic() - started, False)

    def _remember(self, manifest: Path, deps: Path, kept: Path | None) -> None:
        words = deps.read_text().replace("\\\n", " ").partition(":")[2]
        files = [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r"(?:\\.|\S)+", words)]
        named = {
            self._named(os.path.normpath(path)): self._state(os.path.normpath(path))
            for path in files
        }
        try:
            entries = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            entries = []
        entries = [entry for entry in entries if entry["files"] != named][-7:]
        entries.append({"object": kept.name if kept else "", "files": named})
        env.write_file(manifest, json.dumps(entries))

    def _prune(self) -> None:
        """Drops the results that were not used for longest when they take too much room."""
        for left in self.store.glob("*/.tmp-*"):  # of runs that were killed
            if time.time() - left.stat().st_mtime > 86400:
                shutil.rmtree(left, ignore_errors=True)
        files = sorted(self.store.glob("*/[0-9a-f]*.*"), key=lambda path: path.stat().st_mtime)
        total = sum(path.stat().st_size for path in files)
        for path in files:
            if total < _CACHE_BYTES:
                return
            total -= path.stat().st_size
            path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    """The checksum of a file, "" when it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0 or "Killed signal" in done.stderr:
        return (
            f"the compiler was killed ({done.stderr.strip() or f'signal {-done.returncode}'}): "
            "most often the memory "
            "ran out. Try MAX_JOBS=1"
        )
    return done.stderr.strip()
