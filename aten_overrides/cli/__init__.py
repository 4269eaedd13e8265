"""The command line: ``aten-overrides`` and ``python -m aten_overrides``.

Every module of this package whose name has no leading underscore is one command: it defines
``COMMAND``, a :class:`Command`. To add a command, add a module; no list is to be edited. Modules
are imported to show the help, so they import torch, and whatever is slow, only when they run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aten_overrides import __version__
from aten_overrides._errors import UserError


@dataclass(frozen=True)
class Command:
    """One command. ``run`` returns the exit code; a UserError it raises is printed and means 2."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def commands() -> tuple[Command, ...]:
    """All commands, by name."""
    found: list[Command] = []
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            loaded = importlib.import_module(f"{__name__}.{module.name}")
            command = getattr(loaded, "COMMAND", None)
            if not isinstance(command, Command):
                raise TypeError(f"{loaded.__name__} defines no COMMAND")
            found.append(command)
    return tuple(sorted(found, key=lambda command: command.name))


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="aten-overrides",
        description="CUDA linear algebra in PyTorch without cliffs: what runs, why, how fast.",
    )
    top.add_argument("--version", action="version", version=f"aten-overrides {__version__}")
    subparsers = top.add_subparsers(required=True, metavar="COMMAND")
    for command in commands():
        sub = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.add_arguments(sub)
        sub.set_defaults(run_command=command.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; 2 for wrong usage and for errors of the user's."""
    options = parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run_command
    try:
        code = run(options)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"aten-overrides: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader went away, as `| head` does; nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
