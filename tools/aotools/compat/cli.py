"""tools/compat: builds the package against several releases of torch and tries every feature."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from aotools import env
from aotools.compat import record
from aotools.compat.features import BROKEN, FEATURES, Verdict
from aotools.compat.trial import Trial
from aotools.env import ROOT, UserError, require_space, run_cli
from aotools.env_base import requirements
from aotools.gputest.suite_patchset import commit_of_checkout
from aotools.progress import size_text

VERSIONS = ("2.6.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
WORK = ROOT / "build/compat"


def parser() -> argparse.ArgumentParser:
    """The command line of tools/compat."""
    made = argparse.ArgumentParser(
        prog="tools/compat",
        description="Builds the package against stock wheels of several releases of torch, loads "
        "it, and tries every feature, without a GPU. Writes the record from which the README's "
        "table is made. About 4 minutes a release on two cores, besides the downloads.",
        epilog="One wheel at a time: each is removed after its turn unless it was there before, or "
        "with --keep. What was built stays in build/compat. Exit code: 0 when nothing is broken "
        "(a refusal with its reason is no breakage), 1 when something is, 2 when it could not run.",
    )
    made.add_argument(
        "--torch",
        nargs="+",
        metavar="VERSION",
        default=list(VERSIONS),
        help=f"which releases (default: {' '.join(VERSIONS)})",
    )
    made.add_argument("--keep", action="store_true", help="keep the wheels that are downloaded")
    made.add_argument("--jobs", type=int, default=0, help="compilers at once; default: all cores")
    made.add_argument("--out", type=Path, default=record.PATH, help="the record's file")
    made.add_argument("--dry-run", action="store_true", help="say what would be downloaded")
    return made


def plan_text(versions: Sequence[str], *, keep: bool) -> str:
    """What has to be downloaded, how much at once, and where; UserError: a version not pinned."""
    lines = []
    total, most, stay = 0.0, 0.0, 0.0
    for version in versions:
        needs = requirements(f"torch-{version}")
        if env.tree_ready(version):
            lines.append(f"torch {needs.expect:14} is there")
            continue
        lines.append(
            f"torch {needs.expect:14} {size_text(needs.download_bytes)} to download, "
            f"{size_text(needs.disk_bytes)} on disk"
        )
        total += needs.download_bytes
        most = max(most, needs.download_bytes + needs.disk_bytes)
        stay += needs.disk_bytes
    if not total:
        return "\n".join([*lines, "Nothing to download."])
    place = env.cache_dir() / "wheels"
    after = f"{size_text(stay)} stay there" if keep else "removed again, one after the other"
    lines.append(f"To download: {size_text(total)} in all, into {place}; {after}.")
    lines.append(f"Free space needed at one time: {size_text(stay + most if keep else most)}.")
    return "\n".join(lines)


def check_space(versions: Sequence[str], *, keep: bool) -> None:
    """UserError before the first download when the last one could not fit."""
    missing = [requirements(f"torch-{v}") for v in versions if not env.tree_ready(v)]
    if not missing:
        return
    most = max(needs.download_bytes + needs.disk_bytes for needs in missing)
    stay = sum(needs.disk_bytes for needs in missing) if keep else 0.0
    env.make_folder(env.cache_dir())
    require_space(env.cache_dir(), most + stay, "the wheels")


def tell(name: str, verdict: Verdict) -> None:
    """One verdict, one line."""
    reason = f": {verdict.reason}" if verdict.reason else ""
    print(f"   {name:15} {verdict.state}{reason}", flush=True)


def one(version: str, arguments: argparse.Namespace) -> bool:
    """Tries one release and files what came of it; whether nothing is broken."""
    before = env.tree_ready(version)
    print(f"== torch {version}", flush=True)
    tree = env.wheel_tree(version)
    try:
        trial = Trial(version, tree, WORK / f"torch-{version}", arguments.jobs)
        verdicts = trial.run(tell)
        about = {
            **trial.describe(),
            "python": env.python_name(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "commit": commit_of_checkout(None, {}),
            "command": f"tools/compat --torch {version}",
        }
        made = record.replace(record.load(arguments.out), version, about, verdicts)
        record.write(arguments.out, made)
    finally:
        if not before and not arguments.keep:
            shutil.rmtree(tree)
            print(f"   removed {tree}", flush=True)
    return all(verdict.state != BROKEN for verdict in verdicts.values())


def main() -> int:
    """Runs what was asked for; returns the exit code."""
    arguments = parser().parse_args()
    versions = list(dict.fromkeys(arguments.torch))
    print(plan_text(versions, keep=arguments.keep), flush=True)
    if arguments.dry_run:
        return 0
    record.load(arguments.out)  # a file that is no record is found out now, not hours later
    check_space(versions, keep=arguments.keep)
    good = True
    for version in versions:
        try:
            good = one(version, arguments) and good
        except UserError as error:  # a wheel that cannot be had: the others still get their turn
            print(f"error: torch {version}: {error}", file=sys.stderr, flush=True)
            good = False
    print(f"{arguments.out}: {len(FEATURES)} features a release. `tools/readme` makes the table.")
    return 0 if good else 1


if __name__ == "__main__":
    run_cli(main)
