"""A base that holds edits instead of patches: for a branch whose files change from day to day.

An edit says where in which file of ours goes in, by patterns for a function and for one line in it.
`compose` makes patches of the edits for the text that a checkout has (format: patches/README.md).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from aotools.env import ROOT, UserError
from aotools.patchset import base
from aotools.patchset.base import Base

SUFFIX = ".edits.toml"
_PLACES = ("before", "after")
_EDIT_KEYS = {"path", "within", "at", "place", "lines", "into", "all", "absent"}


@dataclass(frozen=True)
class Edit:
    """One place: `lines` go before or after the line, or `into` is what it becomes."""

    paths: tuple[str, ...]  # the first that the tree has
    within: re.Pattern[str] | None  # the first line of the function or class to look in
    at: re.Pattern[str]
    place: str
    lines: str
    into: str
    every: bool  # each line that matches, not one
    absent: str  # why the place may be missing; "": it may not

    def __str__(self) -> str:
        return f"{self.paths[0]}: {self.described}"

    @property
    def described(self) -> str:
        """Its place in words: the pattern, and that of the function it is in."""
        inside = f", in '{self.within.pattern}'" if self.within else ""
        return f"'{self.at.pattern}'{inside}"


@dataclass(frozen=True)
class Added:
    """A file that is put in whole."""

    path: str
    source: Path


@dataclass(frozen=True)
class EditPatch:
    """One patch to be: its commit message, and what it does."""

    name: str  # of the patch: "auxiliary-streams.patch"
    message: str
    edits: tuple[Edit, ...]
    added: tuple[Added, ...]
    upstream: tuple[Edit, ...]  # lines that say upstream has it

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]

    @property
    def paths(self) -> set[str]:
        """Every path that it may read."""
        places = {path for edit in (*self.edits, *self.upstream) for path in edit.paths}
        return places | {added.path for added in self.added}


@dataclass(frozen=True)
class Place:
    """A text of upstream's that places were looked up in; nothing of it is kept."""

    path: str  # as the edits name it
    source: str  # where it was read: a repository, or a wheel
    commit: str  # "" where the text was found without one
    date: str  # of the look-up, YYYY-MM-DD
    how: str  # "matched": by the tool, on the file; "read": by eye
    edits: int  # how many edits of the path have their place in it, each once
    sha256: str  # of the file, where its bytes were at hand
    note: str


@dataclass(frozen=True)
class EditBase:
    """A folder below patches/ that holds edits."""

    folder: Path
    url: str
    tried_on: str  # a base with patches, whose source every check composes on
    leaves: tuple[str, ...]  # patches of that base that this one has no part of, and why
    patches: tuple[EditPatch, ...]
    places: tuple[Place, ...]

    @property
    def name(self) -> str:
        """The folder's name: "main"."""
        return self.folder.name

    @property
    def paths(self) -> set[str]:
        """Every path that some edit may read."""
        return {path for patch in self.patches for path in patch.paths}

    def as_base(self) -> Base:
        """What tools for patches need to know of it: name and address."""
        return Base(
            folder=self.folder,
            version=self.name,
            tag=self.name,
            url=self.url,
            apt=None,
            tarball_sha256="",
            blobs={},
            extra=(),
            entries=(),
            package_only=(),
            wheels={},
            fmt={},
        )


def holds_edits(name: str, root: Path | None = None) -> bool:
    """Whether the base `name` is one of edits."""
    path = (root or ROOT / "patches") / name / "base.toml"
    return "/" not in name and path.is_file() and _toml(path).get("kind") == "edits"


def load(name: str, root: Path | None = None) -> EditBase:
    """Reads the base `name`; UserError, with the file and what is wrong, when it is malformed."""
    folder = (root or ROOT / "patches") / name
    table = _toml(folder / "base.toml")
    try:
        places = tuple(_place(one) for one in table.get("place", ()))
        made = EditBase(
            folder, table["url"], table["tried_on"], tuple(table.get("leaves", ())), (), places
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / 'base.toml'} is incomplete or malformed: {error}") from None
    names = base.Base.series(made.as_base())
    return replace(made, patches=tuple(_patch(folder, one) for one in names))


def _place(table: Mapping[str, Any]) -> Place:
    made = Place(
        table["path"],
        table["source"],
        table["commit"],
        table["date"],
        table["how"],
        table["edits"],
        table.get("sha256", ""),
        table.get("note", ""),
    )
    shapes = (
        ("commit", r"|[0-9a-f]{40}"),
        ("date", r"20\d\d-\d\d-\d\d"),
        ("how", "matched|read"),
        ("sha256", "[0-9a-f]{64}" if made.how == "matched" else "|[0-9a-f]{64}"),
    )
    for key, shape in shapes:
        if re.fullmatch(shape, getattr(made, key)) is None:
            raise ValueError(f"the place in {made.path} has {key} = {getattr(made, key)!r}")
    return made


def _toml(path: Path) -> dict[str, Any]:
    # Here, because the loader and tools/gpu-test run in a user's Python, which need not have tomli.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def _patch(folder: Path, name: str) -> EditPatch:
    path = folder / f"{name.removesuffix('.patch')}{SUFFIX}"
    table = _toml(path)
    try:
        added = tuple(_added(folder, one) for one in table.get("add", ()))
        edits = tuple(_edit(one) for one in table.get("edit", ()))
        upstream = tuple(_edit({**one, "place": "after", "lines": ""}) for one in table["upstream"])
        message = table["message"].strip("\n") + "\n"
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is incomplete or malformed: {error}") from None
    except (ValueError, re.error) as error:
        raise UserError(f"{path}: {error}") from None
    if not edits and not added:
        raise UserError(f"{path} changes nothing")
    return EditPatch(name, message, edits, added, upstream)


def _added(folder: Path, table: Mapping[str, Any]) -> Added:
    inner = table["from"]
    # The patches' own files lie beside them; those that other bases add too have one source.
    source = folder / inner if (folder / inner).is_file() else ROOT / inner
    if not source.is_file() or ".." in PurePosixPath(inner).parts:
        raise ValueError(f"there is no file {inner}, neither in {folder} nor in the checkout")
    return Added(table["path"], source)


def _edit(table: Mapping[str, Any]) -> Edit:
    unknown = set(table) - _EDIT_KEYS
    if unknown:
        raise ValueError(f"an edit has no {min(unknown)}; it has {', '.join(sorted(_EDIT_KEYS))}")
    paths = [table["path"]] if isinstance(table["path"], str) else table["path"]
    place, into = table.get("place", ""), table.get("into", "")
    if bool(place) == bool(into) or (place and place not in _PLACES):
        raise ValueError(
            f"the edit at {table['at']!r} needs either place, before or after, or into"
        )
    if place and "lines" not in table:
        raise ValueError(f"the edit at {table['at']!r} has no lines to put in")
    within = re.compile(table["within"]) if "within" in table else None
    return Edit(
        paths=tuple(paths),
        within=within,
        at=re.compile(table["at"]),
        place=place,
        lines=table.get("lines", ""),
        into=into,
        every=table.get("all", False),
        absent=table.get("absent", ""),
    )


# --- finding and changing -------------------------------------------------------------------------


def matches(edit: Edit, text: str) -> list[int]:
    """The numbers, from 0, of the lines that the edit means; with `within` those of each function
    whose first line matches.
    """
    lines = text.splitlines()
    if edit.within is None:
        return [number for number, line in enumerate(lines) if edit.at.search(line)]
    found = []
    for start, line in enumerate(lines):
        if edit.within.search(line):
            end = _end(lines, start)
            found += [n for n in range(start, end) if edit.at.search(lines[n])]
    return found


def _end(lines: list[str], start: int) -> int:
    """The line after the body: the next one that starts at the margin, save for directives and the
    rest of a list of parameters.
    """
    for number in range(start + 1, len(lines)):
        if lines[number][:1] not in ("", " ", "\t", "#", ")"):
            return number
    return len(lines)


def has_lines(edit: Edit, text: str, number: int) -> bool:
    """Whether what the edit puts in stands beside the line of this number, from 0, already."""
    if not edit.lines:
        return False
    lines = text.splitlines(keepends=True)
    wanted = edit.lines.splitlines(keepends=True)
    if edit.place == "after":
        return lines[number + 1 : number + 1 + len(wanted)] == wanted
    return lines[max(number - len(wanted), 0) : number] == wanted


def change(edit: Edit, text: str) -> tuple[str, str]:
    """The text after the edit, and what is wrong ("": nothing; the text is then as it was)."""
    found = matches(edit, text)
    if not found and edit.absent:
        return text, ""
    if not found or (len(found) > 1 and not edit.every):
        rows = ", ".join(str(number + 1) for number in found[:5])
        problem = f"{len(found)} lines match ({rows})" if found else "no line matches"
        return text, f"{edit}: {problem}"
    lines = text.splitlines(keepends=True)
    for number in reversed(found):
        if has_lines(edit, text, number):
            continue
        if edit.into:
            lines[number] = edit.at.sub(edit.into, lines[number])
        elif edit.place == "before":
            lines.insert(number, edit.lines)
        else:
            lines.insert(number + 1, edit.lines)
    return "".join(lines), ""
