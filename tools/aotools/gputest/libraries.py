"""The folder of relinked libraries that a GPU run carries along.

<libs>/<name>/libtorch_cuda_linalg_patched.so   one of NAMES
<libs>/<name>/*.json                            build facts, by tools/patchset relink
<libs>/manifest.json                            where it all came from, by tools/gpu-test pack
<libs>/upstream/{test_linalg.py,test_linalg_patched.py}
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotools.env import ROOT, UserError

NAMES = ("patched-magma", "patched-nomagma", "unpatched-magma", "unpatched-nomagma")
DEFAULT = ROOT / "build" / "gpu-test"
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Library:
    """One relinked library."""

    name: str
    path: Path
    sha256: str
    facts: dict[str, Any]


def sha256(path: Path) -> str:
    """The file's sha256 in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def find(folder: Path) -> dict[str, Library]:
    """The libraries in `folder` by name; UserError for a folder in which one is ambiguous or
    unreadable.
    """
    found = {}
    for name in NAMES:
        files = sorted((folder / name).glob("*.so"))
        if not files:
            continue
        if len(files) > 1:
            raise UserError(
                f"{folder / name} holds {len(files)} libraries, one is needed: {files[0].name}, ..."
            )
        facts: dict[str, Any] = {}
        for path in sorted((folder / name).glob("*.json")):
            try:
                facts.update(json.loads(path.read_text(encoding="utf-8")))
            except (ValueError, OSError) as error:
                raise UserError(f"{path}: these build facts cannot be read ({error})") from None
        found[name] = Library(name, files[0], sha256(files[0]), facts)
    return found


def require(folder: Path, found: dict[str, Library], names: set[str]) -> None:
    """UserError that says how to get the libraries that are missing for the jobs asked for."""
    missing = sorted(names - found.keys())
    if missing:
        raise UserError(
            f"{folder} lacks {', '.join(missing)}. On a machine with a compiler and the wheel "
            "run `tools/gpu-test pack`, and carry the folder here (--libs names it)"
        )


def manifest(folder: Path) -> dict[str, Any]:
    """What tools/gpu-test pack noted, {} when there is no such file."""
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
