"""``aten-overrides info``: what is built, found and enabled, and what this torch holds."""

from __future__ import annotations

import argparse
import json

from aten_overrides import _info
from aten_overrides.cli import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the facts; 0 also when something is missing, which is said."""
    facts = _info.info()
    print(json.dumps(facts, indent=1) if options.json else _info.text(facts))
    return 0


COMMAND = Command("info", "what is built, found and enabled, and why not", add_arguments, run)
