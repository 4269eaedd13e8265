"""The choice against every library route on a dense grid around n = 512."""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import common

from aotools.gputest.session import Session

FIRST, LAST = 480, 544
COARSE = (480, 511, 512, 513, 544)
BATCHES = (3, 5, 12, 100, 700)
PREFERENCES = ("default", "cusolver")
WORST, MEAN = 1.10, 1.02
# A route that takes so many times the best one's time at all coarse n of a batch is not timed at
# the other n of that batch. "cusolver" may not take stock, so stock rules out only itself.
HOPELESS = 1.6
FAR = 4.0  # one sample is enough of these


def _prime(n: int) -> bool:
    return n > 1 and all(n % divisor for divisor in range(2, math.isqrt(n) + 1))


def sizes() -> list[int]:
    """All n of the grid, so ordered that a part of it is a thinner grid: the coarse ones, primes,
    odd ones, the rest; each evenly spread.
    """
    rest = [n for n in range(FIRST, LAST + 1) if n not in COARSE]
    rank = {n: 0 if _prime(n) else 1 if n % 2 else 2 for n in rest}
    spread = {n: int(f"{n - FIRST:07b}"[::-1], 2) for n in rest}
    return [*COARSE, *sorted(rest, key=lambda n: (rank[n], spread[n]))]


@dataclass
class Grid:
    """What is known of a dtype so far."""

    ratios: dict[tuple[int, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    regrets: dict[str, list[tuple[float, int, int, str, str]]] = field(
        default_factory=lambda: {name: [] for name in PREFERENCES}
    )

    def hopeless(self, batch: int, route: str) -> bool:
        """Whether the route was far from the best one at every coarse n of the batch."""
        known = self.ratios[batch, route]
        return len(known) >= len(COARSE) and min(known[: len(COARSE)]) > HOPELESS

    def left_out(self) -> list[str]:
        """Routes that were not timed beyond the coarse n."""
        return [
            f"{route} at batch {batch}"
            for batch, route in self.ratios
            if self.hopeless(batch, route)
        ]


def measure(
    session: Session, library: Any, grid: Grid, dtype: str, batch: int, n: int
) -> dict[str, float]:
    """Milliseconds of lu_factor_ex by route, and of the choice under each preference where no
    route stands for it; writes a point each.
    """
    a = common.matrices(session.torch, dtype, batch, n, n)
    routes = [route for route in common.LU_ROUTES if not grid.hopeless(batch, route)]
    for preference in PREFERENCES:
        chosen = common.chosen(library, dtype, batch, n, preference)
        if chosen not in routes:
            routes.append(chosen)
    call = partial(session.torch.linalg.lu_factor_ex, a)
    samples = common.in_turns(
        session,
        dict.fromkeys(routes, call),
        lambda route: library.force_route("lu_factor", route),
        far=FAR,
    )
    library.force_route("lu_factor", None)
    for route, found in samples.items():
        timed = common.timing(found, common.far_note(found))
        session.point("lu_factor_ex", dtype, (batch, n, n), timed, backend=route)
    return {route: statistics.median(found) for route, found in samples.items()}


def judge(grid: Grid, library: Any, dtype: str, batch: int, n: int, ms: dict[str, float]) -> None:
    """Adds the regret of the choice at a point; the rivals are the libraries' routes alone."""
    rivals = {route: ms[route] for route in common.LU_ROUTES if route in ms}
    fastest = min(rivals.values())
    without_stock = min((rivals[route] for route in rivals if route != "stock"), default=fastest)
    for route, value in rivals.items():
        grid.ratios[batch, route].append(value / (fastest if route == "stock" else without_stock))
    for preference, rows in grid.regrets.items():
        usable = {
            route: value
            for route, value in rivals.items()
            if route != "stock" or preference == "default"
        }
        chosen = common.chosen(library, dtype, batch, n, preference)
        best = min(usable, key=lambda route: usable[route], default=chosen)
        rows.append((ms[chosen] / ms[best], batch, n, chosen, best))


def run(session: Session) -> None:
    """Regret per dtype and preference: the chosen route's time over the best one's. Ends after
    `seconds` for each dtype, and says at how many n it has been.
    """
    library = common.enable()
    for dtype in session.options["dtypes"]:
        deadline = time.monotonic() + float(session.options["seconds"])
        grid, done = Grid(), 0
        for n in sizes():
            if time.monotonic() > deadline:
                break
            for batch in BATCHES:
                judge(
                    grid,
                    library,
                    dtype,
                    batch,
                    n,
                    measure(session, library, grid, dtype, batch, n),
                )
            done += 1
        for preference, rows in grid.regrets.items():
            with session.check("regret", dtype=dtype, preference=preference) as check:
                worst = max(rows)
                mean = math.exp(sum(math.log(row[0]) for row in rows) / len(rows))
                over = sum(row[0] > WORST for row in rows)
                check.value = {
                    "worst": round(worst[0], 3),
                    "mean": round(mean, 4),
                    "over 1.10": over,
                    "points": len(rows),
                    "n": f"{done} of {LAST - FIRST + 1}",
                    "only at the coarse n": grid.left_out(),
                }
                check.ok = worst[0] <= WORST and mean <= MEAN
                check.reason = (
                    f"worst at batch {worst[1]}, n {worst[2]}: {worst[3]}, best {worst[4]}"
                )
    common.disable()
