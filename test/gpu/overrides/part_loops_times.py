"""torch's operations of QR and Cholesky with the overrides and without, sampled in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import common
import loops_common as loops

from aotools.gputest.session import Session

# Operation of torch, and which of the overrides' it is made of.
MADE_OF = {
    "qr": "geqrf",
    "lstsq": "geqrf",
    "cholesky_ex": "cholesky",
    "cholesky_solve": "cholesky_solve",
    "cholesky_inverse": "cholesky_inverse",
}
SQUARE = tuple((batch, n, n) for n in (64, 128, 256, 512, 1024) for batch in (4, 16, 64, 256))
TALL = ((4, 2048, 256), (16, 1024, 128), (64, 600, 100), (16, 4096, 64), (64, 512, 300))
MOST_ELEMENTS = 1 << 25
LONG_MS = 400.0  # a call that took longer is not repeated
SLOWER = 0.9  # torch's time / ours below which a point fails, if it loses more than so many ms:
NOISE_MS = 0.02


def _call(torch: Any, op: str, dtype: str, shape: tuple[int, int, int]) -> Callable[[], Any]:
    batch, m, n = shape
    if op == "qr":
        a = common.matrices(torch, dtype, batch, m, n)
        return lambda: torch.linalg.qr(a)
    if op == "lstsq":
        a, b = (
            common.matrices(torch, dtype, batch, m, n),
            common.matrices(torch, dtype, batch, m, 2),
        )
        return lambda: torch.linalg.lstsq(a, b)
    a = loops.positive(torch, dtype, batch, n)
    if op == "cholesky_ex":
        return lambda: torch.linalg.cholesky_ex(a)
    factor = torch.linalg.cholesky(a)
    if op == "cholesky_inverse":
        return lambda: torch.cholesky_inverse(factor)
    b = common.matrices(torch, dtype, batch, n, 1)
    return lambda: torch.cholesky_solve(b, factor)


def compare(session: Session) -> None:
    """Every operation over batches and sizes, until the seconds given to it are over."""
    library = common.enable()
    seconds = float(session.options["seconds"])
    share = seconds / len(MADE_OF)
    for op in MADE_OF:
        end = time.monotonic() + share
        done, slower = 0, []
        gains: list[float] = []
        wanted = [
            (dtype, shape)
            for shape in (*SQUARE, *(TALL if op in ("qr", "lstsq") else ()))
            for dtype in ("float32", "float64", "complex64")
            if shape[0] * shape[1] * shape[2] <= MOST_ELEMENTS
        ]
        # One of each size first, so that what is cut off is a thinner grid.
        wanted = wanted[::3] + wanted[1::3] + wanted[2::3]
        with session.check("with and without", op=op) as check:
            for dtype, shape in wanted:
                if time.monotonic() > end:
                    break
                theirs, ours = _compare(session, library, op, dtype, shape)
                ratio = theirs / ours
                done += 1
                gains.append(ratio)
                if ratio < SLOWER and ours - theirs > NOISE_MS:
                    slower.append([dtype, *shape, round(ratio, 3)])
            mean = statistics.geometric_mean(gains) if gains else 0.0
            check.value = {"points": done, "of": len(wanted), "gain": round(mean, 3)}
            check.value |= {"slower": slower, "most": round(max(gains, default=0.0), 2)}
            check.ok = done > 0 and not slower
            check.reason = "" if done == len(wanted) else "the seconds given to it were over"
    common.disable()


def _compare(
    session: Session, library: Any, op: str, dtype: str, shape: tuple[int, int, int]
) -> tuple[float, float]:
    """torch's milliseconds and ours."""
    torch = session.torch
    call = _call(torch, op, dtype, shape)
    names = ("stock", "overrides")
    before = library.counts()

    def prepare(name: str) -> None:
        common.switch(torch, library, name == "overrides")

    clock = session.clock(call)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        prepare(name)
        clock()
    for name in names:
        prepare(name)
        samples[name].append(clock())
    if sum(map(sum, samples.values())) < LONG_MS / 4:
        samples = {name: [] for name in names}
        for _ in range(5):
            for name in names:
                prepare(name)
                clock()  # the first call after a switch takes the host 10 microseconds more
                samples[name].append(clock())
    prepare("overrides")
    entry = MADE_OF[op]
    route = [
        r for (o, r), n in library.counts().items() if o == entry and n > before.get((o, r), 0)
    ]
    for name in names:
        session.point(
            op,
            dtype,
            shape,
            common.timing(samples[name]),
            backend="stock" if name == "stock" else "choice",
            route="" if name == "stock" else ", ".join(route),
        )
    return statistics.median(samples["stock"]), statistics.median(samples["overrides"])
