"""Time the back ends of one problem in turn, with no more samples than they are worth."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aten_overrides.calibration.tasks import AnyTask, of_json

SAMPLE_MS = 25.0  # of each back end and problem
FEWEST, MOST = 3, 7  # samples
FAR_BEHIND = 2.0  # times the best: one sample is enough,
LONG_MS = 5.0  # if it takes so long
HOPELESS = 6.0  # times the best library back end at a smaller problem: not measured
LONGEST_MS = 400.0  # expected for one call: not measured
LOOPS = ("looped_cusolver", "streamed_cusolver")
OURS = ("batched_native", "blocked_native")  # always measured where they can run
# Fall further behind with n, whatever the batch.
BY_SIZE = ("batched_cublas", "jacobi_batched_cusolver")


class Unusable(Exception):
    """Why a back end gave no time for a problem."""


class Bench(Protocol):
    """Runs problems on a GPU: tasks of one operation."""

    def backends(self, task: Any) -> Mapping[str, str]:
        """Every back end: empty if it can take the task, else why not."""

    def prepare(self, task: Any) -> None:
        """Make the input; the next calls of ``once`` are for this task. Unusable if it cannot."""

    def once(self, backend: str) -> float:
        """Milliseconds of one call. Unusable with the reason if there is no time to be had."""


@dataclass(frozen=True)
class Timing:
    """Median, least and most milliseconds of some samples."""

    ms: float
    spread: tuple[float, float]
    samples: int


@dataclass(frozen=True)
class Result:
    """What was found out about a task: a time, or the reason why there is none, per back end."""

    task: AnyTask
    times: Mapping[str, Timing]
    left_out: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """As one line of the state file."""
        times = {
            name: {"ms": t.ms, "spread": list(t.spread), "samples": t.samples}
            for name, t in self.times.items()
        }
        return {**self.task.to_json(), "times": times, "left_out": dict(self.left_out)}

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Result:
        """From such a line. KeyError, TypeError or ValueError if it is not one."""
        times = {
            name: Timing(
                float(t["ms"]), (float(t["spread"][0]), float(t["spread"][1])), t["samples"]
            )
            for name, t in raw["times"].items()
        }
        return Result(of_json(raw), times, dict(raw["left_out"]))


class History:
    """Results so far, to tell what a larger problem need not be tried with."""

    def __init__(self) -> None:
        self._by_shape: dict[tuple[object, ...], list[Result]] = {}
        self._by_batch: dict[tuple[object, ...], list[Result]] = {}  # square ones

    def add(self, result: Result) -> None:
        """Remember a result."""
        self._by_shape.setdefault(result.task.over_batch[0], []).append(result)
        if result.task.over_size is not None:
            self._by_batch.setdefault(result.task.over_size[0], []).append(result)

    def _smaller(self, task: AnyTask, backend: str) -> tuple[Result | None, Result | None]:
        """The nearest results with a time of the back end: of a smaller batch at the same shape,
        and of a smaller n at the same batch.
        """
        shape, batch = task.over_batch
        fewer: list[tuple[int, Result]] = [
            (r.task.over_batch[1], r)
            for r in self._by_shape.get(shape, [])
            if r.task.over_batch[1] < batch and backend in r.times
        ]
        smaller: list[tuple[int, Result]] = []
        if task.over_size is not None:
            line, size = task.over_size
            for r in self._by_batch.get(line, []):
                there = r.task.over_size
                if there is not None and there[1] < size and backend in r.times:
                    smaller.append((there[1], r))
        nearest: list[Result | None] = [
            max(found, key=lambda pair: pair[0])[1] if found else None for found in (fewer, smaller)
        ]
        return nearest[0], nearest[1]

    @staticmethod
    def _behind(result: Result | None, backend: str) -> float:
        if result is None:
            return 0.0
        own = result.times[backend].ms
        rivals = [t.ms for name, t in result.times.items() if name not in OURS]
        return own / min(rivals)

    def hopeless(self, task: AnyTask, backend: str) -> str:
        """Why the back end need not be tried; empty if it should be. Our kernels always are.

        A loop over the matrices falls further behind with the batch, BY_SIZE with n; the others
        count as lost only where they were in both directions.
        """
        if backend in OURS:
            return ""
        batch, size = self._smaller(task, backend)
        behind_batch, behind_size = self._behind(batch, backend), self._behind(size, backend)
        if backend in LOOPS:
            behind = behind_batch
        else:
            behind = behind_size if backend in BY_SIZE else min(behind_batch, behind_size)
        if behind >= HOPELESS:
            return f"{behind:.0f} times behind the best library back end at a smaller problem"
        if backend in LOOPS and batch is not None:
            ms = batch.times[backend].ms * task.over_batch[1] / batch.task.over_batch[1]
            if ms > LONGEST_MS:
                return f"about {ms:.0f} ms expected from a smaller batch"
        return ""


def measure(bench: Bench, task: AnyTask, history: History) -> Result:
    """Time every back end that is worth it. Rounds are interleaved, so that a change of the clock
    rate meets all alike; the first call of each is a warm-up.
    """
    left_out = {name: why for name, why in bench.backends(task).items() if why}
    todo = [name for name in bench.backends(task) if name not in left_out]
    for name in list(todo):
        why = history.hopeless(task, name)
        if why:
            left_out[name] = why
            todo.remove(name)
    samples: dict[str, list[float]] = {}
    try:
        if todo:
            bench.prepare(task)
    except Unusable as error:
        left_out |= dict.fromkeys(todo, str(error))
        todo = []
    best = float("inf")
    for name in todo:
        try:
            bench.once(name)
            samples[name] = [bench.once(name)]
        except Unusable as error:
            left_out[name] = str(error)
            continue
        best = min(best, samples[name][0])
    wanted = {}
    for name, first in ((name, taken[0]) for name, taken in samples.items()):
        far = first > max(FAR_BEHIND * best, LONG_MS)
        wanted[name] = 1 if far else max(FEWEST, min(MOST, round(SAMPLE_MS / max(first, 1e-3))))
    for turn in range(1, max(wanted.values(), default=0)):
        for name in [name for name in samples if wanted[name] > turn]:
            try:
                samples[name].append(bench.once(name))
            except Unusable as error:
                left_out[name] = str(error)
                wanted[name] = 0
                del samples[name]
    times = {
        name: Timing(statistics.median(taken), (min(taken), max(taken)), len(taken))
        for name, taken in samples.items()
    }
    return Result(task, times, left_out)
