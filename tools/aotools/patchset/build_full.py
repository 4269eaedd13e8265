"""tools/patchset build-full: builds a whole PyTorch wheel from a patched checkout.

Everything is looked at before the first compiler call, since a failure after an hour costs the
hour: submodules, the series, compilers, Python packages, memory for each job.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset.base import Base, Patch, blob_id

NAME, TEXT = "build-full", "Build a PyTorch wheel from a patched checkout (hours; needs nvcc)."
PACKAGES = ("numpy", "setuptools", "typing_extensions", "yaml")
GIB_A_JOB = (
    4  # a CUDA file of this size class takes several; too many jobs end in a killed compiler
)
LINALG_TARGET = "torch_cuda_linalg"
FACTS = "build-facts.json"


@dataclass(frozen=True)
class Toolchain:
    """The programs of a build and their versions, as they name themselves."""

    python: Path
    versions: Mapping[str, str]
    ccache: str | None

    @property
    def nvcc(self) -> bool:
        """Whether there is a CUDA compiler."""
        return "nvcc" in self.versions


def submodules(tree: Path) -> list[str]:
    """The submodule folders of a checkout that are empty; UserError for a tree without any."""
    listed = tree / ".gitmodules"
    if not listed.is_file():
        if (tree / "third_party/pybind11").is_dir():
            return []
        raise UserError(
            f"{tree} holds no third_party sources (a distribution's source package has none). "
            "Clone PyTorch: git clone --recurse-submodules --depth 1 --branch TAG URL; if the "
            "system's libraries take their place: --system-libraries"
        )
    paths = re.findall(r"^\s*path = (.+)$", listed.read_text(encoding="utf-8"), re.M)
    return [
        path for path in paths if not (tree / path).is_dir() or not any((tree / path).iterdir())
    ]


def position(base: Base, patches: Sequence[Patch], tree: Path) -> int:
    """After how many patches of the series the tree is; UserError when it is at no such place.

    A file that only later patches touch may be another than the release's, as a distribution's.
    """
    state: dict[str, str | None] = {
        change.path: base.blobs.get(change.path) for patch in patches for change in patch.changes
    }
    found: dict[str, str | None] = {}
    for path in state:
        try:
            found[path] = blob_id((tree / path).read_bytes())
        except OSError:
            found[path] = None
    later = [{change.path: change.new for change in patch.changes} for patch in patches]
    own: set[str] = set()
    at = 0 if found == state else None
    for number, news in enumerate(later, 1):
        state |= news
        own |= news.keys()
        others = {path: blob for path, blob in found.items() if path not in own}
        if all(found[path] == state[path] for path in own) and not any(
            others.get(path, "") == blob for more in later[number:] for path, blob in more.items()
        ):
            at = number
    if at is None:
        wrong = [path for path, blob in state.items() if found[path] != blob]
        raise UserError(
            f"{tree} is neither {base.tag} nor {base.tag} with patches of the series: "
            f"{len(wrong)} files differ, the first is {wrong[0]}. "
            f"`tools/patchset apply --base {base.name} --onto {tree}` applies the series"
        )
    return at


def jobs(cores: int, memory_gib: float) -> int:
    """How many compilers at a time: no more than cores, and GIB_A_JOB for each."""
    return max(1, min(cores, int(memory_gib / GIB_A_JOB)))


def memory_gib(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """The memory this process may use: the machine's, or its container's limit."""
    total = re.search(r"^MemTotal:\s+(\d+) kB", (proc / "meminfo").read_text(), re.M)
    limits = [int(total[1]) * 1024] if total else []
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limits.append(int((cgroup / name).read_text()))
        except (OSError, ValueError):  # "max": no limit
            continue
    return min(limits, default=0) / 2**30


def toolchain(python: Path, *, cuda: bool, wheel: bool) -> Toolchain:
    """Finds what a build needs; UserError that names everything that is missing."""
    packages = (*PACKAGES, "wheel") if wheel else PACKAGES
    missing, versions = [], {}
    programs = {"g++": "g++", "cmake": "cmake", "ninja": "ninja"}
    if cuda:
        home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        there = Path(home) / "bin/nvcc"
        programs["nvcc"] = str(there) if there.is_file() else "nvcc"
    own = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"  # the Python's own cmake first
    for name, program in programs.items():
        path = shutil.which(program, path=own)
        if path is None:
            missing.append(name)
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        number = re.findall(r"\d+\.\d+(?:\.\d+)*", said)
        versions[name] = number[-1 if name == "nvcc" else 0] if number else "unknown"
    code = (
        "import importlib.util as u, platform; print(platform.python_version(), "
        f"*[n for n in {packages!r} if u.find_spec(n) is None])"
    )
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd="/")
    except OSError as error:
        raise UserError(f"--python {python} does not run: {error.strerror}") from None
    if done.returncode != 0:
        raise UserError(f"--python {python} does not run: {done.stderr.strip()[-200:]}")
    version, *absent = done.stdout.split()
    versions["python"] = version
    missing += [f"the Python package {name}" for name in absent]
    if missing:
        raise UserError(
            f"a build needs what is not here: {', '.join(missing)}. Packages of Python go into "
            f"{python}: pip install -r docker/requirements/build.txt; nvcc is looked for in "
            "CUDA_HOME and on PATH"
        )
    return Toolchain(python, versions, shutil.which("ccache"))


def version_of(base: Base, patches: Sequence[Patch]) -> str:
    """The wheel's version: the base's, with a local part that tells the patches apart."""
    if not patches:
        return f"{base.version}+aten.unpatched"
    ids = "".join(patch.sha256 for patch in patches)
    return f"{base.version}+aten.{len(patches)}.{hashlib.sha256(ids.encode()).hexdigest()[:8]}"


def variables(
    base: Base,
    patches: Sequence[Patch],
    tools: Toolchain,
    *,
    arch_list: str,
    max_jobs: int,
    magma: bool,
    cuda: bool,
    more: Sequence[str] = (),
) -> dict[str, str]:
    """What is set for PyTorch's setup.py over the caller's environment; `more`: NAME=VALUE."""
    result = {
        "USE_CUDA": str(int(cuda)),
        "USE_MAGMA": str(int(magma and cuda)),
        "BUILD_TEST": "0",
        "MAX_JOBS": str(max_jobs),
        "PYTORCH_BUILD_VERSION": version_of(base, patches),
        "PYTORCH_BUILD_NUMBER": "1",
        "PATH": f"{tools.python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    if cuda:
        result["TORCH_CUDA_ARCH_LIST"] = arch_list
    if tools.ccache:
        languages = ("C", "CXX", "CUDA") if cuda else ("C", "CXX")
        result |= {f"CMAKE_{name}_COMPILER_LAUNCHER": tools.ccache for name in languages}
    for text in more:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            raise UserError(f"--set {text}: write NAME=VALUE, as in --set USE_FLASH_ATTENTION=0")
        result[name] = value
    return result


def commands(tools: Toolchain, tree: Path, out: Path, what: str) -> list[list[str]]:
    """The calls for `what`: "configure", "linalg" or "wheel"."""
    python = str(tools.python)
    configure = [python, "setup.py", "build", "--cmake-only"]
    if what == "configure":
        return [configure]
    if what == "linalg":
        return [configure, ["cmake", "--build", "build", "--target", LINALG_TARGET]]
    return [[python, "setup.py", "bdist_wheel", "--dist-dir", str(out)]]


def users_environment() -> dict[str, str]:
    """The caller's environment without what points our own Python at this checkout: PyTorch's
    setup.py imports from its own folder, and has a package `tools` of its own.
    """
    kept = {key: v for key, v in os.environ.items() if key not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    given = os.environ.get("AOTOOLS_USER_PYTHONPATH")
    return {**kept, **({"PYTHONPATH": given} if given else {})}


def call(command: Sequence[str], tree: Path, settings: Mapping[str, str], log: Path) -> None:
    """Runs one command, its output on the terminal and in `log`; UserError with the end of it."""
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env={**users_environment(), **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        tail: list[bytes] = []
        for line in process.stdout:
            sink.write(line)
            sys.stdout.write(line.decode(errors="replace"))
            sys.stdout.flush()
            tail = [*tail[-19:], line]
        code = process.wait()
    if code != 0:
        said = b"".join(tail).decode(errors="replace")
        killed = (
            " (killed, as for want of memory: a smaller --max-jobs may help)"
            if code in (-9, 137)
            else ""
        )
        raise UserError(
            f"`{shlex.join(command)}` failed with {code}{killed}; all of its output is in {log}. "
            f"It ended with\n{said}"
        )


def inspect(wheel: Path, base: Base, patches: Sequence[Patch]) -> dict[str, object]:
    """What the wheel is; UserError when it is no wheel of PyTorch, or lacks the series' code."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            library = next((n for n in names if n.endswith("/libtorch_cuda_linalg.so")), None)
            data = archive.read(library) if library else b""
    except zipfile.BadZipFile as error:
        raise UserError(f"{wheel} is no wheel: {error}") from None
    lanes = b"TORCH_LINALG_STREAMS"
    added = any(
        change.path.endswith("/CUDASolverLanes.cpp") for p in patches for change in p.changes
    )
    if library and added and lanes not in data:
        raise UserError(
            f"{wheel}: {library} does not hold the series' code, so something else was built"
        )
    return {
        "name": wheel.name,
        "bytes": wheel.stat().st_size,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "linalg_library": library,
    }


# --- the command ----------------------------------------------------------------------------------


def add(sub: argparse.ArgumentParser) -> None:
    """The command's options."""
    sub.add_argument(
        "--tree", type=Path, required=True, help="a PyTorch checkout with the series in"
    )
    sub.add_argument(
        "--out", type=Path, help="folder for the wheel and its facts (build/<base>/wheel)"
    )
    sub.add_argument(
        "--python", type=Path, help="the Python to build for (default: $PYTHON, python3)"
    )
    sub.add_argument(
        "--arch-list", default="8.0;8.6;8.9;9.0", help="TORCH_CUDA_ARCH_LIST (default: %(default)s)"
    )
    sub.add_argument(
        "--max-jobs", type=int, help=f"default: the cores, {GIB_A_JOB} GiB for each job"
    )
    sub.add_argument("--magma", action="store_true", help="with MAGMA, which has to be installed")
    sub.add_argument("--cpu", action="store_true", help="without CUDA, to try the rest")
    sub.add_argument(
        "--system-libraries",
        action="store_true",
        help="do not ask for submodules: a distribution's source, its own libraries installed",
    )
    sub.add_argument("--unpatched", action="store_true", help="build a tree without the series")
    sub.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="for setup.py"
    )
    what = sub.add_mutually_exclusive_group()
    what.add_argument(
        "--configure-only", action="store_true", help="stop after cmake's configure step"
    )
    what.add_argument(
        "--linalg-only", action="store_true", help=f"only the target {LINALG_TARGET}, no wheel"
    )


def run(base: Base, options: argparse.Namespace, source: Callable[[], Path]) -> int:
    """Checks, builds, inspects, and writes the facts."""
    tree = options.tree.expanduser().absolute()
    if not (tree / "setup.py").is_file() or not (tree / "version.txt").is_file():
        raise UserError(f"{tree} is no PyTorch checkout: it has no setup.py and version.txt")
    every = base.patches()
    patches = every[: position(base, every, tree)]
    if not patches and not options.unpatched:
        raise UserError(
            f"{tree} has none of the series in it. `tools/patchset apply --base {base.name} --onto "
            f"{tree}` applies it; --unpatched builds it as it is"
        )
    if not options.system_libraries and (empty := submodules(tree)):
        raise UserError(
            f"{tree}: {len(empty)} submodules are empty, such as {empty[0]}. In it: git submodule "
            "update --init --recursive --depth 1"
        )
    # A virtual environment's interpreter is a link; resolved, it would lose its packages.
    python = options.python or Path(shutil.which(os.environ.get("PYTHON", "python3")) or "python3")
    what = "configure" if options.configure_only else "linalg" if options.linalg_only else "wheel"
    tools = toolchain(python.absolute(), cuda=not options.cpu, wheel=what == "wheel")
    memory = memory_gib()
    cores = len(os.sched_getaffinity(0))
    count = options.max_jobs or jobs(cores, memory)
    settings = variables(
        base,
        patches,
        tools,
        arch_list=options.arch_list,
        max_jobs=count,
        magma=options.magma,
        cuda=not options.cpu,
        more=options.set,
    )
    out = (options.out or env.ROOT / "build" / base.name / "wheel").expanduser().absolute()
    print(f"{tree}: {base.tag} with {len(patches)} of {len(every)} patches")
    print(
        f"tools: {', '.join(f'{name} {v}' for name, v in tools.versions.items())}, "
        f"ccache {tools.ccache or 'not found'}"
    )
    print(f"{count} jobs at a time ({cores} cores, {memory:.1f} GiB)")
    for name in sorted(settings.keys() - {"PATH"}):
        print(f"  {name}={settings[name]}")
    for command in commands(tools, tree, out, what):
        print(f"{'would run' if options.dry_run else 'runs'}: {shlex.join(command)}")
    if options.dry_run:
        return 0
    return _build(base, patches, tools, tree, out, what, settings)


def _build(
    base: Base,
    patches: Sequence[Patch],
    tools: Toolchain,
    tree: Path,
    out: Path,
    what: str,
    settings: Mapping[str, str],
) -> int:
    env.make_folder(out)
    started = time.monotonic()
    log = out / f"{what}.log"
    log.unlink(missing_ok=True)
    facts: dict[str, object] = {
        "base": base.name,
        "what": what,
        "patches": [{"name": patch.name, "sha256": patch.sha256} for patch in patches],
        "tools": dict(tools.versions),
        "settings": {name: settings[name] for name in sorted(settings.keys() - {"PATH"})},
    }
    with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as name:
        for command in commands(tools, tree, Path(name), what):
            call(command, tree, settings, log)
        wheels = sorted(Path(name).glob("*.whl"))
        if what == "wheel":
            if len(wheels) != 1:
                raise UserError(
                    f"setup.py left {len(wheels)} wheels in its folder; one was expected"
                )
            facts["wheel"] = inspect(wheels[0], base, patches)
            wheels[0].replace(out / wheels[0].name)
    facts["seconds"] = round(time.monotonic() - started, 1)
    env.write_file(out / FACTS, json.dumps(facts, indent=1) + "\n")
    print(f"{out / (wheels[0].name if wheels else FACTS)}")
    return 0
