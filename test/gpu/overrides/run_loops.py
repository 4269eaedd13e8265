"""Checks and times QR, Cholesky and LDL of the overrides on this GPU, into a record of its own.

    python3 test/gpu/overrides/run_loops.py --out FOLDER --cache FOLDER [--budget SECONDS]

`--cache` holds the gpu library: `ATEN_OVERRIDES_CACHE=FOLDER python -m aten_overrides build`.
The times that the choice is made of are those of test/gpu/lanes.
"""

from __future__ import annotations

import sys
from typing import Any

from topic_run import FOLDER, Topic, run

from aotools.gputest import overrides_library
from aotools.gputest.plan import Job

CHECKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("routes-real", "part_loops:routes", {"dtypes": ["float32", "float64"]}),
    ("routes-complex", "part_loops:routes", {"dtypes": ["complex64", "complex128"]}),
    ("shapes", "part_loops:shapes", {}),
    ("bad", "part_loops:bad", {}),
    ("uses", "part_loops:uses", {}),
    ("capture", "part_loops_capture:run", {}),
)
SECONDS = 20.0


def jobs(scale: float) -> list[Job]:
    """The checks, several at once, then the times."""
    name = overrides_library.NAME
    seconds = SECONDS * scale
    checks = [
        Job("checks", title, name, function, 20, 90, options, timed=False, folder=FOLDER)
        for title, function, options in CHECKS
    ]
    return [
        *checks,
        Job(
            "times",
            "all",
            name,
            "part_loops_times:compare",
            seconds + 6,
            seconds + 30,
            {"seconds": seconds},
            folder=FOLDER,
        ),
    ]


TOPIC = Topic(
    "loops",
    "run_loops.py",
    __doc__.partition("\n")[0],
    jobs,
    parts="checks,times",
    shown=("with and without",),
    unsaid=("library",),
    most=1200,
)

if __name__ == "__main__":
    sys.exit(run(TOPIC))
