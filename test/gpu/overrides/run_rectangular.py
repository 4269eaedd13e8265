"""LU of rectangular batches and without row exchanges on this GPU, into a record of its own.

    python3 test/gpu/overrides/run_rectangular.py --out FOLDER --cache FOLDER [--budget SECONDS]

`--cache` holds the gpu library: `ATEN_OVERRIDES_CACHE=FOLDER python -m aten_overrides build`.
"""

from __future__ import annotations

import sys

from topic_run import FOLDER, Topic, run

from aotools.gputest import overrides_library
from aotools.gputest.plan import Job

# Two processes, so that a crash costs half. Seconds by dtype, 62 in all and some 8 to start.
PARTS: dict[str, dict[str, float]] = {
    "real": {"float32": 18, "float64": 15},
    "complex": {"complex64": 14, "complex128": 15},
}


def jobs(scale: float) -> list[Job]:
    """A job for the real dtypes and one for the complex ones."""
    made = []
    for title, given in PARTS.items():
        grids = [{"dtype": dtype, "seconds": each * scale} for dtype, each in given.items()]
        seconds = sum(given.values()) * scale
        made.append(
            Job(
                "grid",
                title,
                overrides_library.NAME,
                "part_rectangular:run",
                seconds + 5,
                seconds + 30,
                {"grids": grids},
                folder=FOLDER,
            )
        )
    return made


TOPIC = Topic(
    "lu-rectangular",
    "run_rectangular.py",
    __doc__.partition("\n")[0],
    jobs,
    parts="grid",
    shown=("choice", "residual, pivots, info"),
    unsaid=("library",),
)

if __name__ == "__main__":
    sys.exit(run(TOPIC))
