"""One torch: the package is built against its wheel and every feature is tried."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aotools.compat.features import (
    BROKEN,
    BUILD,
    IMPOSSIBLE,
    NATIVE,
    REFUSED,
    TRIED,
    WORKS,
    Feature,
    Verdict,
)
from aotools.env import ROOT, UserError, make_folder, tree_environment
from aotools.env_base import requirements

CALLER = ROOT / "test/aten_overrides/runtime/stub_caller.cpp"
STUB = ROOT / "aten_overrides/csrc/package/gpu"
CHILD = "aotools.compat.child"
LIMIT_S = 900  # one feature
BUILD_LIMIT_S = 3600  # 900 were too few on one busy core
CLEARED = ("ATEN_OVERRIDES", "TORCH_LINALG_", "CUDA_HOME", "CUDA_PATH")


class Trial:
    """The wheel in `tree`, tried in `work`, a folder of this torch's own."""

    def __init__(self, version: str, tree: Path, work: Path, jobs: int = 0) -> None:
        self.version = version
        self.tree = tree
        self.work = work
        self.jobs = jobs
        self.facts: dict[str, Any] = {}
        make_folder(work)

    def environment(self) -> dict[str, str]:
        """A process with that torch and this checkout's package, nothing of the user's settings."""
        kept = {
            key: value
            for key, value in tree_environment(self.tree).items()
            if not key.startswith(CLEARED)
        }
        return {**kept, "ATEN_OVERRIDES_CACHE": str(self.work)}

    def call(
        self, *command: str | Path, limit: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command for at most `limit` seconds (LIMIT_S), then ends it and what it started: a
        torch that hangs must not hang everything.
        """
        limit = LIMIT_S if limit is None else limit
        with subprocess.Popen(
            command,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=limit)
            except BaseException as error:  # also Ctrl-C, which a session of its own never sees
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return subprocess.CompletedProcess(command, 124, "", f"no end within {limit} s")
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    # --- steps ---

    def build(self) -> dict[str, Verdict]:
        """The gpu library by the command that a user runs; the verdicts on it and on our kernels.

        A refusal by the package itself (exit code 2 and its words) is told from a compiler's error
        by the log, whose end is the reason then.
        """
        command = ["-m", "aten_overrides", "build"]
        command += ["--jobs", str(self.jobs)] if self.jobs else []
        done = self.call(sys.executable, *command, limit=BUILD_LIMIT_S)
        (self.work / "build.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        found = sorted(self.work.glob("gpu/*/libaten_overrides_gpu.json"))
        if done.returncode != 0 or not found:
            compiled = "failed (exit status" in done.stderr
            state = BROKEN if compiled or done.returncode != 2 else REFUSED
            reason = first_error(done.stderr) or f"exit {done.returncode}"
            return {
                BUILD.name: Verdict(state, None, reason),
                NATIVE.name: Verdict(IMPOSSIBLE, None, "the gpu library did not build"),
            }
        self.facts = json.loads(found[0].read_text(encoding="utf-8"))
        value = {
            "compiler": self.facts["compiler"],
            "cuda_headers": self.facts["cuda_headers"],
            "sources": self.facts["sources"],
        }
        return {BUILD.name: Verdict(WORKS, value), NATIVE.name: native_verdict(self.facts)}

    def caller(self) -> Path:
        """The library that calls torch's entries; UserError with the compiler's words."""
        made = self.work / "stub-caller.so"
        abi = int(self.facts["torch"]["cxx11_abi"])
        release = tuple(int(part) for part in self.version.split(".")[:2])
        standard = "gnu++17" if release < (2, 12) else "gnu++20"
        done = self.call(
            *(os.environ.get("CXX") or "g++").split(),
            *(f"-std={standard}", "-O1", "-fPIC", "-shared", "-w", "-DAT_PER_OPERATOR_HEADERS"),
            *(f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-I", STUB, "-isystem"),
            *(self.tree / "torch/include", CALLER, "-o", made),
            *(self.tree / "torch/lib" / name for name in ("libtorch_cpu.so", "libc10.so")),
            "-Wl,--allow-shlib-undefined",
        )
        if done.returncode != 0:
            raise UserError(f"{CALLER.name} does not compile: {first_error(done.stderr)}")
        return made

    def feature(self, feature: Feature, caller: Path) -> Verdict:
        """One feature in a fresh process; a crash is a verdict, too."""
        done = self.call(sys.executable, "-m", CHILD, feature.name, caller)
        lines = done.stdout.strip().splitlines()
        if done.returncode != 0 or not lines:
            said = first_error(done.stderr) or done.stderr.strip()[-300:]
            return Verdict(BROKEN, None, f"the process ended with {done.returncode}: {said}")
        return Verdict(**json.loads(lines[-1]))

    def run(self, tell: Callable[[str, Verdict], None]) -> dict[str, Verdict]:
        """All of it; `tell` gets every verdict as it comes."""
        verdicts: dict[str, Verdict] = {}

        def note(found: Mapping[str, Verdict]) -> None:
            for name, verdict in found.items():
                verdicts[name] = verdict
                tell(name, verdict)

        note(self.build())
        if verdicts[BUILD.name].state != WORKS:
            reason = "the gpu library did not build"
            note({feature.name: Verdict(IMPOSSIBLE, None, reason) for feature in TRIED})
            return verdicts
        caller = self.caller()
        for feature in TRIED:
            note({feature.name: self.feature(feature, caller)})
        return verdicts

    def describe(self) -> dict[str, Any]:
        """What the verdicts are about: the build of torch and the pins that its wheel came with."""
        text = requirements(f"torch-{self.version}").path.read_text(encoding="utf-8")
        pins = [line.strip() for line in text.splitlines() if "==" in line and line[0] != "#"]
        module = (self.tree / "torch/version.py").read_text(encoding="utf-8")
        known = dict(re.findall(r"^(\w+)(?:: [^=]+)? = '([^']*)'", module, re.M))
        return {
            "full": known["__version__"],
            "git": known["git_version"],
            "cuda": known["cuda"],
            "compiler": self.facts.get("compiler", ""),
            "pins": pins,
        }


def native_verdict(facts: Mapping[str, Any]) -> Verdict:
    """Whether the library holds our kernels, by its build facts."""
    native = facts.get("native") or {}
    if native.get("architectures"):
        value = {key: native[key] for key in ("architectures", "nvcc")}
        return Verdict(WORKS, value)
    reason = native.get("reason") or "this version of the package builds none"
    return Verdict(IMPOSSIBLE, None, reason)


def first_error(text: str) -> str:
    """The first line of an output that tells of an error, else its last line, in one piece."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if re.search(r"\berror\b", line, re.I) and "Traceback" not in line:
            return line
    return lines[-1] if lines else ""
