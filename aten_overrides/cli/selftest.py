"""``aten-overrides selftest``: does it load, install, compute and restore here."""

from __future__ import annotations

import argparse

from aten_overrides.cli import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print every check; 0 if none failed, 1 otherwise."""
    import json

    from aten_overrides import _selftest

    checks = _selftest.selftest()
    if options.json:
        print(json.dumps([vars(check) for check in checks], indent=1))
    else:
        for check in checks:
            print(f"{check.result:5} {check.name}{f': {check.detail}' if check.detail else ''}")
    return 1 if any(check.result == "fail" for check in checks) else 0


COMMAND = Command("selftest", "check that it loads, computes and restores here", add_arguments, run)
