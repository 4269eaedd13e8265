"""Loads a relinked linalg library into a process with torch, and tells which library each entry's
function lies in.

    lib = loader.load("build/.../libtorch_cuda_linalg_patched.so")
    lib.table()                  # entry -> "ours" | "wheel" | the file's name
    lib.restore(); lib.install() # every entry to the wheel, and back
    lib.select(["lu_factor"])    # only some

A plain `ctypes.CDLL(path)` after `import torch` does too. This adds what a library carried to
another place needs: the wheel's own libraries are opened first, wherever torch lies, so that the
library's RUNPATH does not matter. It also refuses a torch that the library was not built for.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotools.env import UserError
from aotools.patchset.relink import ENTRIES, FACTS, SONAME
from aotools.patchset.wheel import LINALG_LIBRARY

_loaded: dict[Path, Library] = {}


@dataclass(frozen=True)
class Function:
    """One function: its address and the file it lies in, by dladdr."""

    address: int
    file: str


@dataclass(frozen=True)
class Entry:
    """One of the 15 linalg entries; `current` is what torch calls, None when it cannot be read."""

    name: str
    chosen: str  # "ours" or "wheel"
    current: Function | None
    ours: Function
    wheel: Function

    @property
    def owner(self) -> str:
        """Whose the current function is: "ours", "wheel", "unknown", or its file's name."""
        if self.current is None:
            return "unknown"
        if self.current.address == self.ours.address:
            return "ours"
        return (
            "wheel"
            if Path(self.current.file).name == LINALG_LIBRARY
            else Path(self.current.file).name
        )


class Library:
    """A loaded relinked library. It stays in the process; `restore` takes it out of use."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self.facts = facts
        self._handle = ctypes.CDLL(str(path))
        self._handle.aten_linalg_patched_report.restype = ctypes.c_char_p
        self._handle.aten_linalg_patched_select.argtypes = [ctypes.c_char_p]

    def entries(self) -> list[Entry]:
        """The state of all 15 entries now."""
        rows = json.loads(self._handle.aten_linalg_patched_report())

        def function(row: dict[str, str]) -> Function:
            return Function(int(row["address"], 16), row["file"])

        return [
            Entry(
                row["entry"],
                row["chosen"],
                function(row["current"]) if row["current"] else None,
                function(row["ours"]),
                function(row["wheel"]),
            )
            for row in rows
        ]

    def table(self) -> dict[str, str]:
        """Entry name to owner ("ours", "wheel", ...)."""
        return {entry.name: entry.owner for entry in self.entries()}

    def install(self) -> None:
        """Makes the entries that the library was built to change its own; takes other relinked
        libraries out.
        """
        self._others_out()
        self._handle.aten_linalg_patched_install()

    def restore(self) -> None:
        """Gives every entry back to whom it belonged before the library was loaded."""
        self._handle.aten_linalg_patched_restore()

    def select(self, names: Iterable[str]) -> None:
        """Makes exactly these entries the library's own; UserError for a name that is none."""
        wanted = list(dict.fromkeys(names))
        unknown = [name for name in wanted if name not in ENTRIES]
        if unknown:
            raise UserError(
                f"no linalg entry is called {', '.join(unknown)}. There are: {', '.join(ENTRIES)}"
            )
        self._others_out()
        self._handle.aten_linalg_patched_select(",".join(wanted).encode())

    def _others_out(self) -> None:
        for other in _loaded.values():
            if other is not self:
                other.restore()


def load(path: str | Path) -> Library:
    """Loads the library at `path` (or in the folder `path`) once, its entries installed.

    UserError: no library or build facts there, built for another torch, or the loader's own message
    when it cannot be loaded. A library loaded before is taken out of use first, so that "wheel"
    stays the wheel's own function.
    """
    place = Path(path).resolve()
    if place.is_dir():
        place = place / SONAME
    if place in _loaded:
        _loaded[place].install()
        return _loaded[place]
    facts = _read_facts(place)
    import torch

    built = (facts.get("torch"), facts.get("torch_git"))
    running = (str(torch.__version__), torch.version.git_version)
    if built != running:
        raise UserError(
            f"{place} was built for torch {built[0]} ({built[1]}), this is torch {running[0]} "
            f"({running[1]}). Build it for this one: "
            f"PYTHON={sys.executable} tools/patchset relink --wheel existing"
        )
    for other in _loaded.values():
        other.restore()
    _open_wheel(Path(torch.__file__).parent / "lib", facts.get("needed", ()))
    try:
        library = Library(place, facts)
    except OSError as error:
        raise UserError(
            f"{place} cannot be loaded: {error}. It needs: {facts.get('needs')}"
        ) from None
    _loaded[place] = library
    return library


def _read_facts(place: Path) -> dict[str, Any]:
    if not place.is_file():
        raise UserError(f"{place} is not there; tools/patchset relink builds it")
    try:
        facts = json.loads((place.parent / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{place.parent / FACTS}, the facts about the library, cannot be read: {error}"
        ) from None
    return dict(facts)


def _open_wheel(folder: Path, needed: Iterable[str]) -> None:
    """Opens the wheel's libraries from where torch lies; their RPATH brings the CUDA ones in."""
    for name in (LINALG_LIBRARY, *needed):
        own = folder / name
        if own.is_file():
            try:
                ctypes.CDLL(str(own))
            except OSError as error:
                raise UserError(f"the wheel's own {own} cannot be loaded: {error}") from None
