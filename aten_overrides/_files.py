"""Write generated files so that an interruption loses nothing, and compare them."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` by a file with this text; on any error the old file stays as it was."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def json_rows(values: Iterable[Any]) -> str:
    """The values in JSON, one on a line, so that two versions of a file can be compared."""
    return ",\n".join(json.dumps(value) for value in values)


def record_text(meta: Mapping[str, Any], **lists: Iterable[Mapping[str, Any]]) -> str:
    """A record: its ``meta``, then each list (``points``, ``checks``) with one row a line."""
    parts = [f'"meta": {json.dumps(dict(meta), indent=1)}']
    parts += [f'"{name}": [\n{json_rows(rows)}\n]' for name, rows in lists.items()]
    return "{" + ",\n".join(parts) + "}\n"


def table_text(head: Mapping[str, Any], points: Iterable[Mapping[str, Any]]) -> str:
    """A cost table: each entry of its head and each point on a line."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    return "\n".join(["{", *lines, '"points": [', json_rows(points), "]", "}", ""])


def compare(path: Path, text: str, remedy: str) -> int:
    """0 if the file has this text, else 1 after showing the difference and the command to run."""
    try:
        present = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be compared: {error}; make it: {remedy}") from error
    if present == text:
        print(f"{path} is up to date")
        return 0
    lines = difflib.unified_diff(
        present.splitlines(), text.splitlines(), str(path), "generated", lineterm="", n=1
    )
    for line, _ in zip(lines, range(40), strict=False):
        print(line, file=sys.stderr)
    print(f"{path} differs from what is generated; run: {remedy}", file=sys.stderr)
    return 1
