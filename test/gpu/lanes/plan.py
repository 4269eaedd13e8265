"""What is measured, in which order and for how long: no torch, no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from library import DTYPES

SIZES = (256, 64, 1024, 512, 128)
SIZES_OF = {"gesvdj": (32, 64, 256, 128, 512, 1024)}  # up to 32 the batched routine takes it
BATCHES = (4, 16, 64, 256)
LANES = (2, 4, 8)
ITEM_BYTES = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
MOST_BYTES = 1 << 30  # of the matrices of a batch
# Seconds of each routine, the most useful first; what one leaves is the next one's.
SECONDS = {
    "geqrf": 17.0,
    "orgqr": 13.0,
    "ormqr": 16.0,
    "potrf": 14.0,
    "potrs": 17.0,
    "sytrf": 13.0,
    "gesvdj": 8.0,
    "gesvd": 7.0,
    "geev": 6.0,
}
SQUARE = 0  # as many right-hand sides as rows
RIGHT_SIDES = {"ormqr": (SQUARE, 1), "potrs": (1, 32, SQUARE)}
# What a run of all leaves out for want of time: sizes beside those where torch changes its way, and
# complex types.
REST_SECONDS = {"geqrf": 28.0, "potrs": 16.0}
REST_SIZES = {
    "geqrf": (128, 512, 192, 96, 384, 64, 256, 1024, 48, 32),
    "potrs": (256, 64, 1024, 512, 128),
}
REST_CALL_MS = 100.0
LOOP_MS = 60.0  # a loop that would take longer is not run
CALL_MS = 400.0  # likewise any other call, and the first loop at a new n
GROWTH = 2.7  # the power of n by which the time of a first loop is guessed


@dataclass(frozen=True)
class Point:
    """``batch`` matrices n x n with ``nrhs`` right-hand sides (0: the routine has none)."""

    op: str
    dtype: str
    n: int
    batch: int
    nrhs: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the matrices."""
        return self.batch * self.n * self.n * ITEM_BYTES[self.dtype]


def points(op: str) -> Iterator[Point]:
    """The points of a routine: real types first, small batches before large ones."""
    for dtypes in (DTYPES[:2], DTYPES[2:]):
        for sides in RIGHT_SIDES.get(op, (None,)):
            for n in SIZES_OF.get(op, SIZES):
                for dtype in dtypes:
                    for batch in BATCHES:
                        nrhs = 0 if sides is None else sides or n
                        point = Point(op, dtype, n, batch, nrhs)
                        if point.bytes <= MOST_BYTES:
                            yield point


def rest(op: str) -> Iterator[Point]:
    """The points of a routine that a run of all leaves out: see REST_SECONDS."""
    for dtypes in (DTYPES[:2], DTYPES[2:]):
        for n in REST_SIZES[op]:
            if dtypes == DTYPES[:2] and (op == "potrs" or n in (64, 256, 1024)):
                continue
            for dtype in dtypes:
                for sides in RIGHT_SIDES.get(op, (None,)):
                    for batch in BATCHES:
                        nrhs = 0 if sides is None else sides or n
                        point = Point(op, dtype, n, batch, nrhs)
                        if point.bytes <= MOST_BYTES:
                            yield point


@dataclass
class Guesses:
    """Milliseconds that a route is about to take, from those of smaller problems."""

    call_ms: float = CALL_MS
    known: dict[tuple[str, str, int, int, str], tuple[int, float]] = field(default_factory=dict)

    def note(self, point: Point, times: Mapping[str, float]) -> None:
        """Remember the times of a point's routes."""
        for route, ms in times.items():
            self.known[self._key(point, point.n, route)] = (point.batch, ms)

    def guess(self, point: Point, route: str) -> float:
        """Time by the last batch of the same n, else by a smaller n; 0: nothing is known."""
        same = self.known.get(self._key(point, point.n, route))
        if same is not None:
            return same[1] * point.batch / same[0]
        found = 0.0
        for n in sorted({n for _, _, _, n, _ in self.known}):
            smaller = self.known.get(self._key(point, n, route))
            if smaller is not None and n < point.n:
                batch, ms = smaller
                found = ms * point.batch / batch * (point.n / n) ** GROWTH
        return found

    def allowed(self, point: Point, route: str) -> bool:
        """Whether a route is run at a point."""
        looped = route == "looped" or route.startswith("streamed")
        new = self._key(point, point.n, route) not in self.known
        limit = self.call_ms if new or not looped else LOOP_MS
        return self.guess(point, "looped" if looped else route) <= limit

    @staticmethod
    def _key(point: Point, n: int, route: str) -> tuple[str, str, int, int, str]:
        sides = SQUARE if point.nrhs == point.n else point.nrhs
        return (point.op, point.dtype, sides, n, route)


def rounds_for(ms: float) -> int:
    """How often routes that together take ``ms`` are run after the first time."""
    if ms > 200:
        return 1
    return max(2, min(7, round(80 / max(ms, 1e-3))))


def describe() -> str:
    """The plan in words."""
    lines = [f"{'routine':8} {'points':>6} {'seconds':>8}"]
    for op, seconds in SECONDS.items():
        lines.append(f"{op:8} {len(list(points(op))):6} {seconds:8.0f}")
    lines.append(f"{'all':8} {'':6} {sum(SECONDS.values()):8.0f}")
    return "\n".join(lines)
