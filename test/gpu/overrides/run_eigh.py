"""Checks and times eigh and eigvalsh of the overrides on this GPU, into a record of their own.

    python3 test/gpu/overrides/run_eigh.py --out FOLDER --cache FOLDER [--budget SECONDS]

`--cache` holds the gpu library: `ATEN_OVERRIDES_CACHE=FOLDER python -m aten_overrides build`.
"""

from __future__ import annotations

import sys
from typing import Any

from topic_run import FOLDER, Topic, run

from aotools.gputest import overrides_library
from aotools.gputest.plan import Job

# op, dtype, seconds, options of part_eigh_times.grid
Grids = tuple[tuple[str, str, float, dict[str, Any]], ...]
COARSE = {"batches": (8, 128, 1, 1024), "sizes": (2, 8, 16, 32, 33, 64, 128, 256, 512)}
GRIDS: Grids = (
    ("eigh", "float32", 24, {}),
    ("eigh", "float64", 24, {}),
    ("eigvalsh", "float32", 12, {}),
    ("eigvalsh", "float64", 12, {}),
    ("eigh", "complex64", 5, COARSE),
    ("eigh", "complex128", 5, COARSE),
)
# What a grid that was cut short lacks most: medium batches of large matrices, large ones of small.
MEDIUM = {"batches": (32, 16), "sizes": (192, 256, 384, 512, 128, 64, 33, 32), "loops_from": 192}
LARGER = {"batches": (32, 128), "sizes": (256, 384, 512, 33, 32), "loops_from": 1000}
MANY = {
    "batches": (512, 4096, 16384),
    "sizes": (2, 3, 8, 16, 32, 33, 48, 64),
    "loops_from": 1000,
}
REST: Grids = (
    ("eigh", "float64", 6, MEDIUM),
    ("eigvalsh", "float64", 2, LARGER),
    ("eigvalsh", "float32", 2, LARGER),
    ("eigh", "float32", 2.5, MANY),
    ("eigh", "float64", 2.5, MANY),
    ("eigvalsh", "float32", 1.5, MANY),
    ("eigvalsh", "float64", 1.5, MANY),
)
CHECKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("routes-real", "part_eigh:routes", {"dtypes": ["float32", "float64"]}),
    ("routes-complex", "part_eigh:routes", {"dtypes": ["complex64", "complex128"]}),
    ("limits", "part_eigh:limits", {}),
    ("bad", "part_eigh:bad", {}),
    ("uses", "part_eigh:uses", {}),
    ("capture", "part_eigh_capture:run", {}),
)


def jobs(scale: float) -> list[Job]:
    """The reported shapes, the grids, then the checks, several at once."""
    name = overrides_library.NAME
    made = [Job("times", "reported", name, "part_eigh_times:reported", 20, 60, folder=FOLDER)]
    for part, given in (("grid", GRIDS), ("rest", REST)):
        grids = [
            {"op": op, "dtype": dtype, "seconds": seconds * scale, **options}
            for op, dtype, seconds, options in given
        ]
        length = sum(seconds for _, _, seconds, _ in given) * scale
        made.append(
            Job(
                part,
                "all",
                name,
                "part_eigh_times:grid",
                length + 6,
                length + 30,
                {"grids": grids},
                folder=FOLDER,
            )
        )
    made += [
        Job("checks", title, name, function, 20, 90, options, timed=False, folder=FOLDER)
        for title, function, options in CHECKS
    ]
    return made


TOPIC = Topic(
    "eigh",
    "run_eigh.py",
    __doc__.partition("\n")[0],
    jobs,
    parts="times,grid,checks",
    parts_help="out of them and rest, what a short grid lacks (default: %(default)s)",
    shown=("goal", "step from 32 to 33", "workspace"),
    most=2000,
)

if __name__ == "__main__":
    sys.exit(run(TOPIC))
