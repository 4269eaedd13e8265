"""What is scanned: an operation of torch.linalg or any callable, as a curve over sizes."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides.measure.clock import Call, Clock, clock_for
from aten_overrides.measure.operations import Operation, Problems, operation, work
from aten_overrides.scan.search import Skipped


@dataclass(frozen=True)
class Target:
    """One thing to scan. Exactly one of ``op`` and ``path`` ("package.module:function") is set.

    dtype, batch, nrhs: of an operation; device: "cuda" or "cpu"; prefer: preferred library, empty
    to leave it alone; overrides: with aten_overrides enabled.
    """

    op: str = ""
    path: str = ""
    dtype: str = "float32"
    batch: int = 1
    nrhs: int = 1
    device: str = "cuda"
    prefer: str = ""
    overrides: bool = False

    def __str__(self) -> str:
        if self.path:
            return self.path
        matrices = f"{self.batch} matrices" if self.batch > 1 else "one matrix"
        rhs = f", {self.nrhs} right-hand sides" if self.nrhs > 1 else ""
        parts = [f"{self.op} {self.dtype}, {matrices} of n x n{rhs}"]
        parts += [f"on the {'GPU' if self.device == 'cuda' else 'CPU'}"]
        parts += [f"preference {self.prefer}"] * bool(self.prefer)
        parts += ["with the overrides"] * self.overrides
        return ", ".join(parts)


def load_callable(path: str) -> Callable[[int], Any]:
    """The function at "package.module:function", the working folder included in the search."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise UserError(f"--callable {path}: expected package.module:function")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise UserError(
            f"--callable {path}: {module_name} cannot be imported "
            f"({type(error).__name__}: {error}); the working folder {Path.cwd()} is searched too"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise UserError(f"--callable {path}: {module_name} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        raise UserError(f"--callable {path}: this is {type(found).__name__}, not a function")
    function: Callable[[int], Any] = found
    return function


def _is_out_of_memory(error: Exception) -> bool:
    name = type(error).__name__
    return isinstance(error, MemoryError) or "OutOfMemory" in name or "out of memory" in str(error)


class Measured:
    """The curve of a target: ``prepare(n)`` returns the call to time, its input ready."""

    def __init__(
        self,
        torch: Any | None,
        prepare: Callable[[int], Call],
        clock: Clock | None,
        work_of: Callable[[int], float] | None,
    ) -> None:
        self.torch = torch
        self.work = work_of
        self._prepare = prepare
        self._clock = clock
        self._estimates: dict[int, float] = {}

    @property
    def clock(self) -> Clock:
        """The clock; where none was asked for, it is CUDA's if the callable has used the GPU."""
        if self._clock is None:
            torch = sys.modules.get("torch")
            cuda = torch is not None and bool(torch.cuda.is_initialized())
            self.torch = torch if torch is not None else self.torch
            self._clock = clock_for(torch, cuda)
        return self._clock

    @contextlib.contextmanager
    def _skips(self) -> Any:
        try:
            yield
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            if not _is_out_of_memory(error):
                raise Skipped(f"{type(error).__name__}: {said}") from error
            if self.torch is not None and self.torch.cuda.is_initialized():
                self.torch.cuda.empty_cache()
            raise Skipped(f"out of memory: {said}") from error

    def call(self, size: int) -> Call:
        """The call at a size. Skipped if it cannot be prepared."""
        with self._skips():
            return self._prepare(size)

    def first(self, size: int) -> float:
        """Warm up, and return about how many seconds a sample takes."""
        with self._skips():
            call = self._prepare(size)
            if self._clock is None:
                call()  # decides the clock
            took = self.clock.warm(call)
            self._estimates[size] = took
            return took

    def sample(self, size: int) -> float:
        """Seconds of one call."""
        with self._skips():
            return self.clock.seconds(self._prepare(size), self._estimates.get(size, 0.0))

    def time(self, size: int, samples: int) -> list[float]:
        """So many samples after a warm-up."""
        self.first(size)
        return [self.sample(size) for _ in range(samples)]


def measured(target: Target, torch: Any | None, clock: str = "auto") -> Measured:
    """The curve of a target. ``clock``: auto, cuda or wall."""
    chosen = None if clock == "auto" else clock_for(torch, clock == "cuda")
    if target.path:
        return _of_callable(target, torch, chosen)
    op = operation(target.op)
    return _of_operation(target, op, torch, chosen or clock_for(torch, target.device == "cuda"))


def _of_operation(target: Target, op: Operation, torch: Any, clock: Clock) -> Measured:
    problems = Problems(torch, op, target.dtype, target.batch, target.nrhs, target.device)
    return Measured(
        torch,
        problems.call,
        clock,
        lambda n: work(op, target.dtype, target.batch, n, target.nrhs),
    )


def _of_callable(target: Target, torch: Any | None, clock: Clock | None) -> Measured:
    """function(n) may return a callable: then that one is timed, and function(n) prepares it."""
    function = load_callable(target.path)
    returns_call: list[bool] = []

    def prepare(n: int) -> Call:
        if not returns_call:
            returns_call.append(callable(function(n)))
        if not returns_call[0]:
            return lambda: function(n)
        call: Call = function(n)
        return call

    return Measured(torch, prepare, clock, getattr(function, "work", None))
