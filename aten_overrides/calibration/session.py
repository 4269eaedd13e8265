"""A calibration: the tasks of a grid within a time budget, on a terminal with a bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from aten_overrides.calibration.grids import Grid
from aten_overrides.calibration.measuring import Bench, History, measure
from aten_overrides.calibration.state import State

LINES = 10  # where there is no terminal


class Progress:
    """How many tasks are done: one redrawn line on a terminal, elsewhere a line per tenth."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._told = -1
        self._width = 0

    def show(self, done: int, seconds: float, what: str) -> None:
        """Tell the state after ``seconds``; ``what`` is under way."""
        share = done / self._total
        if self._live:
            filled = int(24 * share)
            bar = "#" * filled + "." * (24 - filled)
            text = f"[{bar}] {done}/{self._total}, {seconds:.0f} s, {what}"
            self._stream.write("\r" + text[:99].ljust(self._width))
            self._width = len(text[:99])
        elif int(LINES * share) > self._told:
            self._told = int(LINES * share)
            self._stream.write(f"{done} of {self._total} problems, {seconds:.0f} s, next {what}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the line."""
        if self._live:
            self._stream.write("\n")
            self._stream.flush()


@dataclass(frozen=True)
class Outcome:
    """``done`` of ``total`` tasks have results; ``seconds`` of this run."""

    done: int
    total: int
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether nothing is left to measure."""
        return self.done == self.total


def run(
    bench: Bench,
    grid: Grid,
    state: State,
    budget: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    started: float | None = None,
    stream: TextIO | None = None,
) -> Outcome:
    """Measure what the state lacks, until all is done or ``budget`` seconds since ``started`` are
    over; the task under way is finished. Results of an earlier run count as done.
    """
    begun = clock() if started is None else started
    history = History()
    for task in grid.tasks:
        if task in state.results:
            history.add(state.results[task])
    progress = Progress(len(grid.tasks), stream)
    done = sum(task in state.results for task in grid.tasks)
    try:
        for task in grid.tasks:
            if task in state.results:
                continue
            if clock() - begun >= budget:
                break
            progress.show(done, clock() - begun, task.label)
            result = measure(bench, task, history)
            state.add(result)
            history.add(result)
            done += 1
    finally:
        progress.end()
    return Outcome(done, len(grid.tasks), clock() - begun)
