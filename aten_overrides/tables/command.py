"""What the generators of tables and headers share: their command line."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aten_overrides._errors import UserError
from aten_overrides._files import compare, write_atomically


def run(
    module: str,
    about: str | None,
    arguments: Sequence[str] | None,
    add: Callable[[argparse.ArgumentParser], object],
    texts: Callable[[argparse.Namespace], Mapping[Path, str]],
) -> int:
    """Writes the files of a generator (``--write``), or compares them (``--check``).

    ``add`` adds its own options, ``texts`` makes the content of each file from them. 0 done or
    same, 1 a file differs, 2 an error. ``arguments``: default, those of the process.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    add(parser)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", action="store_true", help="write what is generated")
    how.add_argument("--check", action="store_true", help="exit with 1 if it differs")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    try:
        made = texts(options)
        if options.check:
            same = [word for word in given if word != "--check"]
            remedy = shlex.join(["python", "-m", module, *same, "--write"])
            return max(compare(path, text, remedy) for path, text in made.items())
        for path, text in made.items():
            write_atomically(path, text)
            print(f"wrote {path}")
        return 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def add_table(parser: argparse.ArgumentParser, folder: Path, header: Path, more: str = "") -> None:
    """The options of a header's generator: which table below ``folder``, and which header."""
    parser.add_argument(
        "--table",
        default="nvidia-h200.json",
        help=f"cost table: a file, or the name of one in {folder} (default: %(default)s){more}",
    )
    parser.add_argument("--output", type=Path, default=header, help="header (default: ATen's)")


def named(table: str, folder: Path) -> Path:
    """The file that ``--table`` means."""
    path = Path(table)
    return folder / path if path.name == table else path


def add_records(parser: argparse.ArgumentParser, table: Path, header: Path) -> None:
    """The options of a generator that makes a table of records and a header of the table."""
    parser.add_argument(
        "--record",
        type=Path,
        action="append",
        default=[],
        help="timing record to make the table of; given several times: of the same machine, the "
        "times of a later one replace those of the ones before",
    )
    parser.add_argument("--table", type=Path, default=table, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=header, help="header (default: %(default)s)")
