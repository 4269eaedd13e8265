"""What runs inside a job's child process: rows out, the library in, timing."""

from __future__ import annotations

import ctypes
import json
import math
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from aotools.patchset import loader

FIRST_CALL_LIMIT_MS = 3000.0  # a first call over this is the only one
LAZY_LOAD_MS = 250.0  # what a first call into a routine may cost on top: measured up to 240 ms


class Rows:
    """Writes rows as JSON lines, each at once, so that a crash loses nothing that was measured."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, row: Mapping[str, Any]) -> None:
        """Writes one row."""
        self._out.write(json.dumps(row, allow_nan=False) + "\n")
        self._out.flush()


def without_nan(value: Any) -> Any:
    """The value with NaN and inf as text: JSON has no numbers for them."""
    if isinstance(value, dict):
        return {key: without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass
class Check:
    """A check being made: the block sets `ok`, `value` and `reason`; `vendor` makes a failure a
    vendor's.
    """

    ok: bool | None = None
    value: Any = None
    reason: str = ""
    vendor: bool = False
    skip: bool = False


class Patched:
    """A relinked library that was loaded beside the wheel's, and its C API for routes and lanes."""

    def __init__(self, path: Path) -> None:
        self.loaded = loader.load(path)
        self._library = ctypes.CDLL(str(self.loaded.path))  # the same handle

    @property
    def has_routes(self) -> bool:
        """Whether routes can be forced: only libraries that hold the series."""
        return hasattr(self._library, "aten_linalg_patched_route")

    def route(self, name: str, lanes: int = 0) -> None:
        """Forces a route of lu_factor; "choice" lets the library choose again."""
        code = self._library.aten_linalg_patched_route(name.encode(), ctypes.c_int(lanes))
        if code != 0:
            raise ValueError(f"route {name} with {lanes} lanes was refused: {code}")

    @contextmanager
    def forced(self, name: str, lanes: int = 0) -> Iterator[None]:
        """Forces a route for the block."""
        self.route(name, lanes)
        try:
            yield
        finally:
            self.route("choice")

    @contextmanager
    def solve_forced(self, name: str, lanes: int = 0) -> Iterator[None]:
        """Forces a route of lu_solve for the block."""

        def route(name: str) -> None:
            code = self._library.aten_linalg_patched_solve_route(name.encode(), ctypes.c_int(lanes))
            if code != 0:
                raise ValueError(f"lu_solve by {name} with {lanes} lanes was refused: {code}")

        route(name)
        try:
            yield
        finally:
            route("choice")

    def limits(self, lanes: int, memory_mib: int) -> int:
        """Limits of auxiliary streams; returns 0, or -1 for a negative value."""
        code: int = self._library.aten_linalg_patched_lanes(
            ctypes.c_int(lanes), ctypes.c_int64(memory_mib)
        )
        return code

    @property
    def has_loops(self) -> bool:
        """Whether the library holds the other loops: auxiliary-streams-loops or later."""
        return hasattr(self._library, "aten_linalg_patched_loops_always")

    def loops_always(self, always: bool) -> None:
        """Whether the other loops use auxiliary streams whatever the thresholds say."""
        self._library.aten_linalg_patched_loops_always(ctypes.c_int(always))

    def loop_on(self, loop: int, n: int, batch: int) -> bool:
        """Whether the thresholds turn on a loop, counted in the order of LoopThresholds.h."""
        answer: int = self._library.aten_linalg_patched_loop_on(
            ctypes.c_int(loop), ctypes.c_int64(n), ctypes.c_int64(batch)
        )
        if answer < 0:
            raise ValueError(f"LoopThresholds.h has no row {loop}")
        return bool(answer)

    def created(self, device: int = 0) -> int:
        """Auxiliary streams with a handle that exist."""
        count: int = self._library.aten_linalg_patched_created_lanes(ctypes.c_int(device))
        return count

    def release(self) -> None:
        """Destroys those of this thread and of finished threads."""
        self._library.aten_linalg_patched_release_lanes()


@dataclass(frozen=True)
class Timing:
    """Milliseconds: median, [least, most], number of samples; `note` says why there are few."""

    ms: float
    spread: tuple[float, float]
    repeats: int
    note: str = ""


def repeats_for(ms: float) -> int:
    """How many samples a call of `ms` milliseconds gets: about 150 ms in all, 2 to 15."""
    if ms > 100:
        return 2
    return max(3, min(15, round(150 / max(ms, 1e-3))))


def measure(once: Callable[[], float], best: float | None = None) -> Timing:
    """Times a call. `once` runs it and returns milliseconds; `best` is a rival's time, if known.

    The first sample is a warm-up, unless it is over 3 s or shows that the call takes more than
    twice as long as `best`, lazy loading allowed for: then it stands alone.
    """
    first = once()
    if first > FIRST_CALL_LIMIT_MS:
        return Timing(
            first, (first, first), 1, "the first call took over 3 s, so it is the only one"
        )
    if best is not None and first - LAZY_LOAD_MS > 2 * best:
        return Timing(first, (first, first), 1, "one call: more than twice the best route's time")
    samples = [once()]
    samples += [once() for _ in range(repeats_for(samples[0]) - 1)]
    return Timing(statistics.median(samples), (min(samples), max(samples)), len(samples))


class Session:
    """A job's surroundings."""

    def __init__(
        self,
        rows: Rows,
        library: str,
        paths: Mapping[str, Path],
        options: Mapping[str, Any],
        timeout: float = math.inf,
    ) -> None:
        import torch

        self.torch: Any = torch
        self.rows = rows
        self.library = library
        self.options = options
        self.paths = paths
        self.timeout = timeout  # seconds until the job is ended
        self._patched: Patched | None = None

    @property
    def patched(self) -> Patched:
        """The job's library, loaded at the first use."""
        if self._patched is None:
            self._patched = Patched(self.paths[self.library])
        return self._patched

    def prefer(self, name: str) -> None:
        """Sets torch's preferred linalg library, "cublas" and "native" among them."""
        backend = self.torch._C._LinalgBackend
        values = {"default": 0, "cusolver": 1, "magma": 2, "cublas": 3, "native": 4}
        self.torch._C._set_linalg_preferred_backend(backend(values[name]))

    def clock(self, fn: Callable[[], Any]) -> Callable[[], float]:
        """A function that runs `fn` once and returns what it took on the current stream, in
        milliseconds.
        """
        cuda = self.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)

        def once() -> float:
            start.record()
            kept = fn()
            end.record()
            end.synchronize()
            del kept
            return float(start.elapsed_time(end))

        return once

    def wall_clock(self, fn: Callable[[], Any]) -> Callable[[], float]:
        """The same by the host's clock, the device idle before and after."""

        def once() -> float:
            self.torch.cuda.synchronize()
            start = time.perf_counter()
            kept = fn()
            self.torch.cuda.synchronize()
            took = (time.perf_counter() - start) * 1e3
            del kept
            return took

        return once

    def point(
        self, op: str, dtype: str, shape: tuple[int, int, int], timing: Timing, **more: Any
    ) -> None:
        """Writes a timed point; `shape` is (batch, m, n)."""
        batch, m, n = shape
        row: dict[str, Any] = {"op": op, "dtype": dtype, "m": m, "n": n, "batch": batch, "nrhs": 0}
        row |= {"backend": "choice", "preference": "default", "library": self.library}
        row |= {"ms": round(timing.ms, 4), "spread": [round(value, 4) for value in timing.spread]}
        row["repeats"] = timing.repeats
        if timing.note:
            row["note"] = timing.note
        self.rows.write(row | more)

    @contextmanager
    def check(self, name: str, **params: Any) -> Iterator[Check]:
        """Writes a check row after the block, also when it raises (then as a failure)."""
        made = Check()
        try:
            yield made
        except Exception as error:
            made.ok = False
            where = traceback.extract_tb(error.__traceback__)[-1]
            made.reason = (
                f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"[
                    :600
                ]
            )
        if made.skip:
            result = "skip"
        elif made.ok:
            result = "pass"
        else:
            result = "vendor" if made.vendor else "fail"
        value = without_nan(made.value)
        params = {"library": self.library, **params}
        row = {
            "name": name,
            "params": params,
            "result": result,
            "value": value,
            "reason": made.reason,
        }
        self.rows.write(row)
