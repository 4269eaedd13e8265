"""LU of rectangular batches, and without row exchanges: stock, the choice and every back end."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import common

from aotools.gputest.session import LAZY_LOAD_MS, Session

# m x n, what matters most first: a grid that is cut short is a thinner one.
RECTANGULAR = (
    (512, 256),
    (256, 512),
    (513, 511),
    (1024, 64),
    (2048, 512),
    (512, 2048),
    (64, 32),
    (127, 129),
    (512, 128),
    (128, 512),
    (64, 1024),
    (1024, 512),
    (511, 513),
    (32, 128),
)
SQUARE = (64, 512, 256, 1024, 129)  # without row exchanges
BATCHES = (64, 4, 1024, 16, 256, 1)
MOST_BYTES = 2**30  # of the matrices of one point

STOCK, STOCK_CUSOLVER = "stock", "stock, cusolver"
CHOICE, CHOICE_CUSOLVER = "choice", "choice, cusolver"
FORCED = ("batched_native", "streamed_cusolver", "looped_cusolver", "batched_cublas")
OURS = (CHOICE, "batched_native")  # CHOICE_CUSOLVER answers to another wish
# One call per matrix, so the time of a batch tells that of another.
PER_MATRIX = (STOCK_CUSOLVER, "looped_cusolver")
FAR, SLOW_MS = 4.0, 40.0  # so far behind, and so slow: one sample, or none where it was foreseen
WORST, JITTER_MS = 1.10, 0.005
SEEN = 8  # matrices at either end of a batch whose factors are checked


@dataclass(frozen=True)
class Problem:
    """A point of the grid."""

    dtype: str
    m: int
    n: int
    batch: int
    pivot: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """As session.point has it."""
        return self.batch, self.m, self.n


@dataclass
class Found:
    """What a grid came to so far."""

    times: dict[Problem, dict[str, float]] = field(default_factory=dict)
    each: dict[tuple[str, int, int, bool], float] = field(default_factory=dict)  # ms a matrix
    left_out: int = 0
    worst: float = 0.0
    wrong: list[str] = field(default_factory=list)


def problems(dtype: str, batches: Sequence[int] = BATCHES) -> Iterator[Problem]:
    """All points of a dtype that fit; all shapes of a batch, then the next batch."""
    for batch in batches:
        for pivot, shapes in ((True, RECTANGULAR), (False, tuple((n, n) for n in SQUARE))):
            for m, n in shapes:
                if batch * m * n * common.item_bytes(dtype) <= MOST_BYTES:
                    yield Problem(dtype, m, n, batch, pivot)


def rivals(library: Any, problem: Problem) -> list[str]:
    """The ways of a point, ours first."""
    forced = [name for name in FORCED if name in common.lu_routes(library)]
    if problem.m != problem.n:
        forced.remove("batched_cublas")
    if problem.batch == 1:
        forced.remove("streamed_cusolver")
    return [CHOICE, STOCK, CHOICE_CUSOLVER, *forced, STOCK_CUSOLVER]


def take(torch: Any, library: Any, way: str) -> None:
    """Makes the next calls of lu_factor go a way."""
    ours = not way.startswith(STOCK)
    common.switch(torch, library, ours)
    torch.backends.cuda.preferred_linalg_library(
        "cusolver" if way in (STOCK_CUSOLVER, CHOICE_CUSOLVER) else "default"
    )
    library.force_route("lu_factor", way if way in FORCED else None)


def ends(torch: Any, batch: int) -> Any:
    """The first and last matrices of a batch."""
    if batch <= 2 * SEEN:
        return torch.arange(batch, device="cuda")
    first = torch.arange(SEEN, device="cuda")
    return torch.cat([first, first + (batch - SEEN)])


def faults(torch: Any, a: Any, found: tuple[Any, Any, Any], pivot: bool) -> tuple[float, str]:
    """The largest residual in n eps, and what is wrong in words. Without row exchanges the
    matrices are dominated by their diagonals, so that there is no growth.
    """
    lu, pivots, info = found
    m, n = (int(size) for size in a.shape[-2:])
    some = ends(torch, int(a.shape[0]))
    error = common.factor_error(torch, a[some], lu[some], pivots[some])
    said = []
    if not error < common.LIMIT:
        said.append(f"residual {error:.3g}")
    steps = torch.arange(1, min(m, n) + 1, dtype=torch.int32, device="cuda")
    if pivots.dtype != torch.int32 or tuple(pivots.shape) != (*a.shape[:-2], min(m, n)):
        said.append("pivots of another kind")
    elif not pivot and not bool((pivots == steps).all()):
        said.append("pivots that are not 1, 2, ...")
    elif not bool((pivots >= steps).all()) or int(pivots.max()) > m:
        said.append("pivots out of their range")
    if bool(info.any()):
        said.append("info not 0")
    if not lu.mT.is_contiguous():
        said.append("not column by column")
    return error, ", ".join(said)


def point(session: Session, library: Any, found: Found, problem: Problem) -> None:
    """Checks and times all ways of a point, in turns, and writes a point each."""
    torch = session.torch
    a = common.matrices(torch, problem.dtype, *problem.shape)
    if not problem.pivot:
        a += 2 * problem.n * torch.eye(problem.n, dtype=a.dtype, device="cuda")
    call = partial(torch.linalg.lu_factor_ex, a, pivot=problem.pivot)
    samples: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    near: list[str] = []
    best = math.inf
    for way in rivals(library, problem):
        key = (way, problem.m, problem.n, problem.pivot)
        foreseen = found.each.get(key, 0.0) * problem.batch
        if foreseen > max(SLOW_MS, 2 * FAR * best):
            found.left_out += 1
            continue
        take(torch, library, way)
        held: list[Any] = []
        try:
            first = session.clock(lambda held=held: held.append(call()))()  # type: ignore[misc]
            error, said = faults(torch, a, held.pop(), problem.pivot)
        except RuntimeError as raised:  # this way only; the others are timed
            found.wrong.append(f"{way} {problem.shape}: {type(raised).__name__}: {raised}"[:200])
            continue
        found.worst = max(found.worst, error)
        if said:
            found.wrong.append(f"{way} {problem.shape}: {said}")
        best = min(best, first)
        if first > max(SLOW_MS, FAR * best) + LAZY_LOAD_MS:
            samples[way], notes[way] = [first], "one call: slow, or far from the best route"
        else:
            near.append(way)
    if CHOICE not in near:
        take(torch, library, CHOICE)
        return
    samples |= common.in_turns(
        session, dict.fromkeys(near, call), partial(take, torch, library), far=FAR
    )
    take(torch, library, CHOICE)
    times = {way: statistics.median(took) for way, took in samples.items()}
    for way, took in samples.items():
        if way in PER_MATRIX:
            found.each[way, problem.m, problem.n, problem.pivot] = times[way] / problem.batch
        name, _, preference = way.partition(", ")
        session.point(
            "lu_factor_ex",
            problem.dtype,
            problem.shape,
            common.timing(took, notes.get(way, common.far_note(took))),
            backend=name,
            preference=preference or "default",
            library="stock" if name == STOCK else "overrides",
            pivot=problem.pivot,
        )
    found.times[problem] = times


def mean(ratios: Sequence[float]) -> float | None:
    """Geometric mean; None of nothing."""
    if not ratios:
        return None
    return round(math.exp(math.fsum(map(math.log, ratios)) / len(ratios)), 3)


def over(times: Sequence[Mapping[str, float]], of: Callable[[str], bool]) -> list[float]:
    """At each point, the best of some ways over the choice."""
    best = [
        (min((ms for way, ms in at.items() if of(way)), default=math.inf), at[CHOICE])
        for at in times
    ]
    return [theirs / ours for theirs, ours in best if theirs < math.inf]


def summary(session: Session, found: Found, dtype: str, asked: int) -> None:
    """A row for rectangular batches and one for pivot=False, and one for wrong results."""
    for pivot in (True, False):
        kept = {p: at for p, at in found.times.items() if p.pivot == pivot}
        times = list(kept.values())
        slow = []
        for problem, at in kept.items():
            best = min((way for way in at if way != CHOICE_CUSOLVER), key=lambda way: at[way])
            if at[CHOICE] > WORST * at[best] and at[CHOICE] - at[best] > JITTER_MS:
                slow.append((at[CHOICE] / at[best], f"{problem.shape} {best}"))
        kind = "rectangular" if pivot else "pivot=False"
        with session.check("choice", kind=kind, dtype=dtype) as check:
            stock = over(times, lambda way: way == STOCK)
            check.value = {
                "points": len(times),
                "over stock": mean(stock),
                "least": round(min(stock), 3) if stock else None,
                "over stock, cusolver": mean(over(times, lambda way: way == STOCK_CUSOLVER)),
                "over the best rival": mean(
                    over(times, lambda way: way not in (*OURS, CHOICE_CUSOLVER))
                ),
                "over 1.10 of the best": [f"{ratio:.2f} {where}" for ratio, where in slow],
            }
            check.ok = bool(times) and not slow and min(stock, default=0.0) > 0.95
            check.reason = f"worst {max(slow)[0]:.2f} at {max(slow)[1]}" if slow else ""
    with session.check("residual, pivots, info", dtype=dtype) as check:
        check.value = {
            "worst": round(found.worst, 3),
            "points": len(found.times),
            "of": asked,
            "loops foreseen to be slow and left out": found.left_out,
        }
        check.ok = not found.wrong and bool(found.times)
        ours = [line for line in found.wrong if not line.startswith(STOCK)]
        check.vendor = not ours and bool(found.times)
        check.reason = "; ".join((ours or found.wrong)[:4])[:500]


def run(session: Session) -> None:
    """The grid; options: grids, each with dtype and seconds."""
    library = common.enable()
    for given in session.options["grids"]:
        end = time.monotonic() + given["seconds"]
        found, asked = Found(), list(problems(given["dtype"]))
        for problem in asked:
            if time.monotonic() > end:
                break
            point(session, library, found, problem)
        summary(session, found, given["dtype"], len(asked))
    take(session.torch, library, CHOICE)
    common.disable()
