"""The command `tools/gpu-test`: one subcommand a suite.

Other suites add a line to SUITES: a module of this package with `add(parser)` and `run(arguments)
-> exit code`.
"""

from __future__ import annotations

import argparse
import importlib

from aotools.env import run_cli

SUITES = {
    "patchset": (
        "suite_patchset",
        "the relinked patch series against stock and unpatched libraries",
    ),
    "overrides": ("suite_overrides", "the overrides on a stock wheel against that wheel"),
    "pack": (
        "suite_pack",
        "make the folder that the others need on the GPU machine (no GPU needed)",
    ),
}


def parser() -> argparse.ArgumentParser:
    """The command line of all suites."""
    made = argparse.ArgumentParser(
        prog="tools/gpu-test", description="Measurements and checks on an NVIDIA GPU."
    )
    suites = made.add_subparsers(dest="suite", required=True, metavar="SUITE")
    for name, (module, text) in SUITES.items():
        sub = suites.add_parser(name, help=text, description=text)
        importlib.import_module(f"aotools.gputest.{module}").add(sub)
    return made


def main(argv: list[str] | None = None) -> int:
    """Runs the suite named on the command line and returns its exit code."""
    arguments = parser().parse_args(argv)
    module, _ = SUITES[arguments.suite]
    code: int = importlib.import_module(f"aotools.gputest.{module}").run(arguments)
    return code


if __name__ == "__main__":
    run_cli(main)
