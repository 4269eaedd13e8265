"""``aten-overrides run script.py``: run a program with the overrides enabled."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from aten_overrides._errors import UserError
from aten_overrides.cli import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--only", action="append", metavar="OP", help="override this operation alone"
    )
    parser.add_argument("--strict", action="store_true", help="raise instead of falling back")
    parser.add_argument("--profile", action="store_true", help="print what ran at the end")
    parser.add_argument("-m", dest="module", action="store_true", help="PROGRAM names a module")
    parser.add_argument("program", metavar="PROGRAM", help="a script, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's arguments")


def _execute(options: argparse.Namespace) -> None:
    """As Python itself would run it: sys.argv, sys.path[0] and __main__ are the program's."""
    if options.module:
        sys.argv = [options.program, *options.arguments]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        return
    sys.argv = [options.program, *options.arguments]
    sys.path.insert(0, str(Path(options.program).resolve().parent))
    runpy.run_path(options.program, run_name="__main__")


def run(options: argparse.Namespace) -> int:
    """Enable the overrides and run the program; its SystemExit and exceptions go through."""
    import aten_overrides

    if not options.module and not Path(options.program).is_file():
        raise UserError(f"there is no script {options.program}; with -m a module is run")
    aten_overrides.enable(only=options.only, strict=options.strict)
    if not options.profile:
        _execute(options)
        return 0
    profile = aten_overrides.Profile()
    try:
        with aten_overrides.profile() as profile:
            _execute(options)
    finally:  # also when the program exits by itself
        sys.stdout.flush()
        print(profile, file=sys.stderr)
    return 0


COMMAND = Command("run", "run a program with the overrides enabled", add_arguments, run)
