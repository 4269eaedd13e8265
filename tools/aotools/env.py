"""The project's surroundings: checkout, cache folder, .venv and unpacked torch wheels.

Standard library only: it runs before there is a .venv. `python -m aotools.env venv` makes or
updates .venv, `python -m aotools.env tree VERSION` fetches a wheel tree and prints its path.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from aotools.env_base import (
    ROOT,
    STAMP,
    Requirements,
    UserError,
    cache_dir,
    known_versions,
    lock,
    make_folder,
    read_stamp,
    require_space,
    requirements,
    run_cli,
    write_file,
)
from aotools.env_pip import pip_install

__all__ = [
    "ROOT",
    "UserError",
    "cache_dir",
    "ensure_venv",
    "known_versions",
    "link_torch",
    "lock",
    "make_folder",
    "require_space",
    "run_cli",
    "tree_environment",
    "tree_path",
    "tree_ready",
    "venv_python",
    "venv_ready",
    "wheel_tree",
    "write_file",
]

VENV = ROOT / ".venv"
PTH = "aten_overrides_torch.pth"


# --- .venv ---


def python_name() -> str:
    """The running interpreter's minor version: "3.11"."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def venv_python() -> Path:
    """The interpreter of .venv (it may not exist yet)."""
    return VENV / "bin/python"


def venv_site() -> Path:
    """The site-packages folder of .venv for the running interpreter's version."""
    return VENV / "lib" / f"python{python_name()}" / "site-packages"


def _runs(python: Path) -> bool:
    try:
        return subprocess.run([python, "-c", ""], capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


def venv_ready() -> bool:
    """Whether .venv is complete, of this interpreter's version, and holds what tools.txt pins."""
    stamp = read_stamp(VENV)
    want = {"python": python_name(), "requirements": requirements("tools").digest}
    return stamp == want and venv_python().exists()


def ensure_venv(*, progress: bool = True) -> Path:
    """Makes .venv, or brings it up to tools/requirements/tools.txt, and returns its interpreter.

    A .venv that this project did not make is refused, never changed. An interrupted run is taken
    up again.
    """
    if venv_ready():
        return venv_python()
    with lock(ROOT / "build/venv.lock", "preparing .venv"):
        if venv_ready():
            return venv_python()
        _make_venv()
        with tempfile.TemporaryDirectory(prefix=".pip-", dir=VENV) as temporary:
            needs = requirements("tools")
            require_space(VENV, needs.disk_bytes, ".venv")
            what = "the tools' packages into .venv"
            pip_install(venv_python(), needs, [], Path(temporary), what, progress=progress)
        stamp = {"python": python_name(), "requirements": needs.digest}
        write_file(VENV / STAMP, json.dumps(stamp, indent=1) + "\n")
    return venv_python()


def _make_venv() -> None:
    """Makes .venv with pip in it, or keeps the one that is there if it can be used."""
    stamp = read_stamp(VENV)
    if stamp is None and VENV.exists() and any(VENV.iterdir()):
        raise UserError(
            f"{VENV} exists and was not made by this project's tools, so it is left alone. "
            "Move it away or remove it, and run again"
        )
    made_for = (stamp or {}).get("python", python_name())
    usable = stamp is not None and _runs(venv_python())
    if usable and made_for != python_name():
        raise UserError(
            f"{VENV} was made with Python {made_for}, and Python {python_name()} "
            f"({sys.executable}) is asked for. Either go on with the first and run again without "
            "PYTHON:\n  unset PYTHON\nor make .venv anew, which holds only what "
            "tools/requirements/tools.txt names, and run the same command again:\n"
            f"  rm -r {shlex.quote(str(VENV))}"
        )
    if usable and (venv_site() / "pip").is_dir():
        return
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        raise UserError(
            f"this Python cannot make a virtual environment: {sys.executable} ({python_name()}) "
            f"has no ensurepip. On Debian and Ubuntu: apt-get install python{python_name()}-venv; "
            "otherwise use another Python, named by PYTHON=/path/to/python3.12"
        )
    if stamp is not None:  # ours, but broken or never finished
        shutil.rmtree(VENV)
    make_folder(VENV)
    write_file(VENV / STAMP, "{}\n")  # first of all: a later run then knows that the folder is ours
    done = subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True)
    if done.returncode != 0:
        raise UserError(
            f"`{sys.executable} -m venv` failed:\n{(done.stdout + done.stderr).strip()}"
        )


def link_torch(tree: Path) -> None:
    """Makes `import torch` in .venv find the wheel unpacked in `tree` (by a .pth file)."""
    path = venv_site() / PTH
    # Python reads this file in the locale's encoding, and does not start when it cannot.
    line = str(tree) if str(tree).isascii() else f"import sys; sys.path.append({str(tree)!a})"
    if not path.exists() or path.read_text(encoding="utf-8") != f"{line}\n":
        write_file(path, f"{line}\n")


def tree_environment(tree: Path) -> dict[str, str]:
    """An environment for .venv's Python in which `import torch` is the wheel in `tree`."""
    path = [str(ROOT / "tools"), str(ROOT), str(tree)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}


# --- unpacked wheels ---


def tree_path(version: str) -> Path:
    """Where the unpacked wheel of torch `version` is, or would be, for the running interpreter."""
    return cache_dir() / "wheels" / f"torch-{version}-cp{python_name().replace('.', '')}"


def tree_ready(version: str) -> bool:
    """Whether that tree is complete and holds what its requirements file pins now."""
    stamp = read_stamp(tree_path(version))
    return (
        stamp is not None and stamp.get("requirements") == requirements(f"torch-{version}").digest
    )


def wheel_tree(version: str, *, download: bool = True, progress: bool = True) -> Path:
    """An importable tree of the stock torch wheel `version` and its CUDA packages.

    It holds torch/, nvidia/ and so on as site-packages would. Fetched by one pip call into the
    cache on first use (almost 3 GB; pip keeps finished downloads, so an interrupted run goes on).
    UserError: unknown version, not there and `download` is False, wrong platform, no network,
    disk full, or a package index that serves another build of torch.
    """
    needs = requirements(f"torch-{version}")
    tree = tree_path(version)
    if tree_ready(version):
        return tree
    if not download:
        raise UserError(
            f"torch {version} is not in the cache ({tree}). "
            "tools/test and tools/quickstart fetch it"
        )
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UserError(
            f"the pinned torch {version} wheel is for Linux on x86-64, this is {sys.platform} on "
            f"{platform.machine()}"
        )
    if importlib.util.find_spec("pip") is None:
        raise UserError(f"{sys.executable} has no pip; run this through tools/, which uses .venv")
    with lock(tree.with_name(f".{tree.name}.lock"), f"fetching torch {version}"):
        if not tree_ready(version):
            _fetch_tree(version, needs, tree, progress)
    return tree


def _fetch_tree(version: str, needs: Requirements, tree: Path, progress: bool) -> None:
    prefix = f".tmp-{tree.name}-"
    for left in tree.parent.glob(f"{prefix}*"):  # by a killed run: nobody's, we hold the lock
        shutil.rmtree(left)
    require_space(tree.parent, needs.disk_bytes + needs.download_bytes, f"torch {version}")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=tree.parent) as name:
        temporary = Path(name)
        fresh = temporary / "tree"
        what = f"torch {version} and its CUDA packages"
        target = [f"--target={fresh}"]
        pip_install(Path(sys.executable), needs, target, temporary, what, progress=progress)
        found = _torch_version(fresh)
        if found != needs.expect:
            raise UserError(
                f"pip's index served torch {found}, but {needs.expect} is needed (the build "
                "with CUDA). Another index or find-links in your settings serves its own builds: "
                "see `pip config list`"
            )
        stamp = {"requirements": needs.digest, "torch": found, "python": python_name()}
        write_file(fresh / STAMP, json.dumps(stamp, indent=1) + "\n")
        if tree.exists():  # made from older pins
            tree.rename(temporary / "old")
        fresh.rename(tree)


def _torch_version(tree: Path) -> str:
    """The version that torch/version.py in `tree` states, without importing torch."""
    text = (tree / "torch/version.py").read_text(encoding="utf-8")
    match = re.search(r"^__version__ = '([^']+)'", text, re.M)
    return match[1] if match else "of an unknown version"


def main() -> int:
    """`venv`, or `tree VERSION`; both print the path they prepared (venv only in words)."""
    match sys.argv[1:]:
        case ["venv"]:
            ensure_venv()
        case ["tree", version]:
            print(wheel_tree(version))
        case _:
            raise UserError("usage: python -m aotools.env venv | tree VERSION")
    return 0


if __name__ == "__main__":
    run_cli(main)
