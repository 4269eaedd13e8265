"""Checks and times lu_solve of the overrides on this GPU, into a record of its own.

    python3 test/gpu/overrides/run_lu_solve.py --out FOLDER --cache FOLDER [--budget SECONDS]

`--cache` holds the gpu library: `ATEN_OVERRIDES_CACHE=FOLDER python -m aten_overrides build`.
`python -m aten_overrides.tables.lu_solve.generate` makes the table of the record.
"""

from __future__ import annotations

import sys
from typing import Any

from topic_run import FOLDER, Topic, run

from aotools.gputest import overrides_library
from aotools.gputest.plan import Job

FEW, SOME = [1, 0], [3, 8, 64, 2]  # right-hand sides; 0: as many as rows
COARSE = [64, 512, 128, 256, 1024, 32, 16]
# dtype, operations, right-hand sides, sizes (None: all), seconds
PARTS: tuple[tuple[str, str, list[int], list[int] | None, float], ...] = (
    ("float32", "TN", FEW, None, 18),
    ("float64", "TN", FEW, None, 15),
    ("float32", "TN", SOME, None, 18),
    ("complex64", "NC", FEW, COARSE, 9),
    ("complex128", "NC", FEW, COARSE, 9),
    ("float64", "T", SOME, COARSE, 8),
    ("complex64", "N", SOME, COARSE, 5),
    ("complex128", "N", SOME, COARSE, 5),
)


def grids(scale: float) -> list[dict[str, Any]]:
    """Options of part_lu_solve.grid."""
    made = []
    for dtype, operations, columns, sizes, seconds in PARTS:
        given: dict[str, Any] = {"dtype": dtype, "operations": list(operations)}
        given |= {"columns": columns, "seconds": seconds * scale}
        made.append(given if sizes is None else {**given, "sizes": sizes})
    return made


def jobs(scale: float) -> list[Job]:
    """The checks, two at once, then goals and grid."""
    name = overrides_library.NAME
    seconds = sum(part[-1] for part in PARTS) * scale
    checks = [
        Job(
            "checks",
            title,
            name,
            "part_lu_solve:correct",
            20,
            120,
            {"dtypes": dtypes},
            timed=False,
            folder=FOLDER,
        )
        for title, dtypes in (
            ("float", ["float32"]),
            ("double", ["float64"]),
            ("complex", ["complex64"]),
            ("complex-double", ["complex128"]),
        )
    ]
    return [
        *checks,
        Job("goals", "all", name, "part_lu_solve_goals:goals", 30, 100, folder=FOLDER),
        Job(
            "grid",
            "all",
            name,
            "part_lu_solve:grid",
            seconds + 8,
            seconds + 40,
            {"grids": grids(scale)},
            folder=FOLDER,
        ),
    ]


TOPIC = Topic(
    "lu-solve",
    "run_lu_solve.py",
    __doc__.partition("\n")[0],
    jobs,
    parts="checks,goals,grid",
    shown=("goal", "step", "cusolver, many right-hand sides", "grid"),
    unsaid=("library",),
)

if __name__ == "__main__":
    sys.exit(run(TOPIC))
