"""Which files of aten_overrides/csrc/linalg are for ATen, and which are the package's."""

from __future__ import annotations

import re
from pathlib import Path

from aotools.env import ROOT
from aotools.patchset.base import Base

OWN_SOURCES = ROOT / "aten_overrides/csrc/linalg"
SOURCE_SUFFIXES = (".h", ".cuh", ".cpp", ".cu")
_UNITS = (".cpp", ".cu")
_INCLUDE = re.compile(r"^#include <ATen/native/cuda/linalg/([^>]+)>", re.M)


def for_aten(base: Base, own: Path = OWN_SOURCES) -> set[str]:
    """Names below `own` of the sources that are for ATen.

    Not for ATen is what base.toml names in package_only, what is compiled with such a file, and a
    header that only such sources include; in a folder of its own also one that none includes.
    """
    includes = {
        path.relative_to(own).as_posix(): set(_INCLUDE.findall(path.read_text(encoding="utf-8")))
        for path in own.rglob("*")
        if path.is_file() and path.suffix in SOURCE_SUFFIXES
    }

    def reached(name: str) -> set[str]:
        found, waiting = {name}, [name]
        while waiting:
            for other in includes.get(waiting.pop(), set()) - found:
                found.add(other)
                waiting.append(other)
        return found

    listed = {name for name in includes if base.is_package_only(name)}
    units = {name: reached(name) for name in includes if name.endswith(_UNITS)}
    packaged = {name for name, seen in units.items() if seen & listed}
    theirs = set().union(*(units[name] for name in packaged))
    ours = set().union(*(seen for name, seen in units.items() if name not in packaged))
    return {
        name
        for name in set(includes) - listed - packaged
        if name in ours or ("/" not in name and name not in theirs)
    }
