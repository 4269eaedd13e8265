"""``aten-overrides build``: build the gpu library for the torch of this Python."""

from __future__ import annotations

import argparse
from pathlib import Path

from aten_overrides.cli import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--into", type=Path, metavar="FOLDER", help="default: the user's cache")
    where.add_argument(
        "--into-package", action="store_true", help="into the installed package, for all users"
    )
    parser.add_argument("--jobs", type=int, default=0, help="compilers at once; default: all cores")
    parser.add_argument("--verbose", action="store_true", help="show what CMake and compiler say")


def run(options: argparse.Namespace) -> int:
    """Build and print the library's path."""
    from aten_overrides import _build, _gpu

    into = _gpu.PACKAGE_FOLDER if options.into_package else options.into
    print(_build.build(into, jobs=options.jobs, verbose=options.verbose))
    return 0


COMMAND = Command("build", "build the gpu library for the torch at hand", add_arguments, run)
