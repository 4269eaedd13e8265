"""tools/quickstart: the patched linear algebra, built and loaded beside a stock wheel.

Two stages: the first needs only the standard library, says what will be downloaded and makes
.venv; the second (quickstart_run.py) runs in .venv.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotools import env
from aotools.env import ROOT, UserError, run_cli
from aotools.env_base import requirements
from aotools.patchset import fetch
from aotools.progress import size_text

BASE = "v2.6.0"
EXISTING = "existing"
OUT = ROOT / "build/quickstart"
SOURCE_BYTES = (28e6, 40e6)  # Debian's tarball; it and the files taken from it


@dataclass(frozen=True)
class Item:
    """Something that the run needs: bytes to download and on disk, where, whether it is there."""

    what: str
    download: float
    disk: float
    where: Path
    there: bool


def parser() -> argparse.ArgumentParser:
    """The command line of tools/quickstart."""
    made = argparse.ArgumentParser(
        prog="tools/quickstart",
        description="Patches the CUDA linear algebra of PyTorch 2.6.0, rebuilds only that library "
        "against a stock wheel, loads it beside the untouched wheel and shows what changed. Needs "
        "g++ 11 or newer and git; no GPU, no CUDA toolkit. With a GPU it measures the difference.",
        epilog="Everything downloaded lies in the cache (ATEN_OVERRIDES_CACHE, default "
        "~/.cache/aten-overrides), everything built in build/; removing both undoes all of it.",
    )
    made.add_argument(
        "--torch",
        default="2.6.0",
        metavar="WHICH",
        help="the wheel to build against: 2.6.0 (default), 2.11.0, or `existing`: the torch of "
        "your own Python (the one in PYTHON, else python3)",
    )
    made.add_argument(
        "--source",
        nargs="+",
        metavar=("KIND", "PATH"),
        help="where PyTorch's source comes from: apt | git | tarball FILE | dir FOLDER "
        "(default: the cache, then apt, then git)",
    )
    made.add_argument(
        "--no-measure", action="store_true", help="do not time anything, even if there is a GPU"
    )
    made.add_argument(
        "--no-venv",
        action="store_true",
        help="use this Python as it is, without .venv; it needs matplotlib. For machines without "
        "a network",
    )
    made.add_argument("--dry-run", action="store_true", help="print the plan and do nothing")
    made.add_argument("--planned", action="store_true", help=argparse.SUPPRESS)
    return made


def items(torch: str, *, venv: bool = True) -> list[Item]:
    """What a run with `torch` needs; UserError for a version that is not pinned."""
    cache = env.cache_dir()
    needed = []
    if venv:
        tools = requirements("tools")
        what = "Python packages for the tools"
        sizes = (tools.download_bytes, tools.disk_bytes)
        needed.append(Item(what, *sizes, env.VENV, env.venv_ready()))
    if torch != EXISTING:
        wheel = requirements(f"torch-{torch}")
        what = f"stock wheel: torch {wheel.expect} and its CUDA packages"
        sizes = (wheel.download_bytes, wheel.disk_bytes)
        needed.append(Item(what, *sizes, cache / "wheels", env.tree_ready(torch)))
    source = cache / "source" / BASE
    needed.append(
        Item(f"source: PyTorch {BASE}", *SOURCE_BYTES, source, any(source.glob("tree-*")))
    )
    return needed


def plan_text(needed: Sequence[Item]) -> str:
    """The plan: a table of what is needed, and the sum of what is still to be downloaded."""
    rows = [("", "download", "on disk", "kept in")]
    for item in needed:
        download = "is there" if item.there else size_text(item.download)
        rows.append((item.what, download, size_text(item.disk), str(item.where)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}"
        for row in rows
    ]
    missing = [item for item in needed if not item.there]
    if missing:
        total = sum(item.download for item in missing)
        lines.append(
            f"To download now: {size_text(total)}; "
            f"{size_text(sum(item.disk for item in missing))} on disk when unpacked."
        )
    else:
        lines.append("Nothing to download.")
    return "\n".join(lines)


def source_option(given: Sequence[str] | None) -> tuple[str | None, Path | None]:
    """--source as (kind, path); UserError when the words do not fit."""
    if given is None:
        return None, None
    kind, *rest = given
    if kind not in fetch.SOURCES or len(rest) != (kind in ("tarball", "dir")):
        raise UserError("--source takes one of: apt, git, tarball FILE, dir FOLDER")
    return kind, Path(rest[0]) if rest else None


def check_machine() -> None:
    """UserError that names the programs that are missing, before anything is downloaded."""
    compilers = [os.environ.get("CXX") or "g++"]
    missing = [name for name in ("git", *compilers) if shutil.which(name.split()[0]) is None]
    if missing:
        raise UserError(
            f"missing on this machine: {', '.join(missing)}. On Debian and Ubuntu: "
            f"apt-get install {' '.join(missing)}"
        )


def check_packages() -> None:
    """UserError that names what this Python lacks to do without .venv."""
    needed = ["matplotlib", *([] if sys.version_info >= (3, 11) else ["tomli"])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"--no-venv: {sys.executable} lacks {', '.join(missing)}; install it there")


def main() -> int:
    """First stage in any Python, second stage in .venv's."""
    options = parser().parse_args()
    _, given = source_option(options.source)
    if given is not None and not given.exists():  # told before gigabytes are downloaded
        raise UserError(f"--source {' '.join(options.source)}: there is no {given.absolute()}")
    if not options.planned:
        print("Patching, rebuilding and loading PyTorch's CUDA linear algebra.\n")
        print(plan_text(items(options.torch, venv=not options.no_venv)), flush=True)
        if options.dry_run:
            print("\n" + steps_text(options.torch))
            return 0
        check_machine()
        if options.no_venv:
            check_packages()
        else:
            python = env.ensure_venv()
            command = [str(python), "-m", "aotools.quickstart", "--planned", *sys.argv[1:]]
            sys.stdout.flush()
            os.execv(command[0], command)
    from aotools import quickstart_run

    return quickstart_run.run(options)


def steps_text(torch: str) -> str:
    """What would be done after the downloads."""
    wheel = "your own torch" if torch == EXISTING else f"torch {torch}"
    lines = [
        f"Then, in {ROOT / 'build'}:",
        f"  1. apply the series patches/{BASE} to the source, without fuzz",
        f"  2. compile its linalg library against {wheel} (the wheel stays as it is)",
        "  3. load it beside the wheel's own and ask dladdr whose each of the 15 entries is",
        "  4. show which back end lu_factor takes, before and after",
        f"  5. draw the step from n = 511 to 512: {OUT / 'cliff.png'}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    run_cli(main)
