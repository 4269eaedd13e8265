"""The folder with the overrides' libraries that a GPU run carries along: a cache of the package.

<libs>/overrides/gpu/<torch>/libaten_overrides_gpu.so and .json   by `aten-overrides build`
<libs>/overrides/libaten_overrides_select.so                      for a machine without a compiler
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from aotools.env import UserError
from aotools.gputest import libraries
from aotools.gputest.libraries import Library

NAME = "overrides"
GPU = "libaten_overrides_gpu.so"
SELECT = "libaten_overrides_select.so"
# Read by the scripts in test/gpu/overrides.
SELECT_VARIABLE = "ATEN_OVERRIDES_GPU_TEST_SELECT"
COMPILERS = ("c++", "g++", "clang++")


def find(cache: Path, torch: str) -> Library:
    """The gpu library in a cache for exactly this torch ("2.11.0+cu130"); UserError that says what
    is there and what to do.
    """
    found = []
    for path in sorted(cache.glob(f"gpu/*/{GPU}")):
        try:
            facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            version = str(facts["torch"]["version"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"the build facts of {path} cannot be read ({error})") from None
        if version == torch:
            return Library(NAME, path, libraries.sha256(path), facts)
        found.append(version)
    there = f"libraries for torch {', '.join(found)}" if found else "no library of the overrides"
    raise UserError(
        f"{cache} holds {there}, and torch {torch} is here. On a machine with a compiler "
        "and that wheel run `tools/gpu-test pack`, and carry the folder here (--libs names it)"
    )


def require_present(cache: Path) -> None:
    """UserError where a gpu library in the cache was made of other sources than the checkout's: its
    figures would stand beside a commit that they are not of.
    """
    from aten_overrides import _probe

    present = _probe.sources_digest()
    for path in sorted(cache.glob(f"gpu/*/{GPU}")):
        try:
            facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            built = str(facts["sources"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"the build facts of {path} cannot be read ({error})") from None
        if built != present:
            raise UserError(
                f"{path} was built from other sources ({built[:12]}) than this checkout's "
                f"({present[:12]}); build it again by `tools/gpu-test pack`"
            )


def environment(folder: Path) -> dict[str, str]:
    """What makes the package use the packed libraries: the gpu library always, and the select
    library where no compiler could make it.
    """
    made = {"ATEN_OVERRIDES_CACHE": str(folder / NAME)}
    select = folder / NAME / SELECT
    compiler = os.environ.get("CXX") or any(shutil.which(name) for name in COMPILERS)
    if select.is_file() and not compiler:
        made[SELECT_VARIABLE] = str(select)
    return made
