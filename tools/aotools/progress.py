"""Progress on a terminal as one redrawn line, elsewhere as plain lines."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO


def size_text(count: float) -> str:
    """`count` bytes as people write them: 812 MB, 2.7 GB (powers of ten)."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            value = count / scale
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{count:.0f} B"


def seconds_text(seconds: float) -> str:
    """`seconds` as people write them: 0.4 s, 12 s, 3 min 5 s."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


class Bar:
    """A bar over `total` units: redrawn in place on a terminal, elsewhere a first and a last line.

    Use as a context manager. `update` takes the amount done so far; `measure` may be given
    instead, a function that a thread of the bar's own asks for that amount once a second.
    """

    def __init__(
        self,
        label: str,
        total: float,
        *,
        measure: Callable[[], float] | None = None,
        show: Callable[[float], str] = size_text,
        stream: TextIO | None = None,
    ) -> None:
        self.label = label
        self.total = total
        self._show = show
        self._measure = measure
        self._stream = stream or sys.stderr  # stdout is for results
        self._live = self._stream.isatty()
        self._done = 0.0
        self._width = 0
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Bar:
        self._started = time.monotonic()
        if not self._live:
            self._stream.write(f"{self.label} ...\n")
            self._stream.flush()
        elif self._measure is not None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        took = seconds_text(time.monotonic() - self._started)
        self._line(f"{self.label}: {'done' if kind is None else 'stopped'} after {took}", last=True)

    def update(self, done: float) -> None:
        """Shows that `done` of the total is reached."""
        self._done = min(done, self.total)
        if self._live:
            self._draw()

    def _watch(self) -> None:
        assert self._measure is not None
        while not self._stop.wait(1.0):
            self.update(self._measure())

    def _draw(self) -> None:
        share = self._done / self.total if self.total > 0 else 1.0
        filled = int(24 * share)
        self._line(
            f"{self.label} [{'#' * filled}{'.' * (24 - filled)}] "
            f"{self._show(self._done)} of {self._show(self.total)}"
        )

    def _line(self, text: str, *, last: bool = False) -> None:
        if self._live:
            text = text[: max(20, shutil.get_terminal_size().columns - 1)]
            self._stream.write("\r" + text.ljust(self._width) + ("\n" if last else ""))
            self._width = 0 if last else len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()


@contextmanager
def step(title: str, stream: TextIO | None = None) -> Iterator[None]:
    """Prints `title` before the block, and how long it took after it (also when it raises)."""
    out = stream or sys.stdout
    started = time.monotonic()
    print(f"== {title}", file=out, flush=True)
    try:
        yield
    finally:
        print(f"   {seconds_text(time.monotonic() - started)}", file=out, flush=True)
