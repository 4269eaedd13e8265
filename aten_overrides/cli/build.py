"""``aten-overrides build``: build the gpu library for the torch of this Python."""

from __future__ import annotations

import argparse
import sys
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
    parser.add_argument(
        "--architectures",
        metavar="LIST",
        help="GPUs of our kernels: 80,90 or native (the GPU at hand, the default), all or none",
    )
    parser.add_argument("--verbose", action="store_true", help="show what CMake and compiler say")


def run(options: argparse.Namespace) -> int:
    """Build and print the library's path."""
    from aten_overrides import _abi, _build, _gpu

    into = _gpu.PACKAGE_FOLDER if options.into_package else options.into
    library = _build.build(
        into, jobs=options.jobs, verbose=options.verbose, architectures=options.architectures
    )
    print(library)
    print(f"our LU kernels: {_abi.read_facts(library).native}", file=sys.stderr)
    return 0


COMMAND = Command("build", "build the gpu library for the torch at hand", add_arguments, run)
