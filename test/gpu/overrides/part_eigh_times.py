"""Times of eigh and eigvalsh: reported shapes against stock and CuPy, and a grid of all routes."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import common
import eigh_common as eig

from aotools.gputest.session import Session, Timing

# op, dtype, batch, n, most milliseconds that are asked for (None: no slower than CuPy)
REPORTED: tuple[tuple[str, str, int, int, float | None], ...] = (
    ("eigh", "float32", 500, 100, 8.0),
    ("eigh", "float64", 128, 32, 0.5),
    ("eigh", "float64", 128, 33, 0.5),
    ("eigh", "float32", 128, 32, None),
    ("eigh", "float32", 128, 33, None),
    ("eigh", "float32", 64, 256, 24.0),
    ("eigh", "float32", 8, 1024, 86.0),
    ("eigh", "float32", 262144, 2, None),
    ("eigh", "float64", 262144, 2, None),
    ("eigh", "float32", 512, 3, None),
    ("eigh", "float64", 512, 3, None),
    ("eigh", "float32", 5000, 16, None),
    ("eigvalsh", "float32", 5000, 16, None),
    ("eigh", "float64", 128, 64, None),
    ("eigh", "float64", 128, 128, None),
    ("eigvalsh", "float64", 128, 128, None),
    ("eigh", "complex64", 64, 100, None),
    ("eigh", "float64", 64, 2, None),
)
STEPS = ("float32", "float64")
STEP = 1.3  # the most that n = 33 may take over n = 32
LOOP_MOST = 600  # calls of one matrix each that are worth timing on the grid
REPORTED_LOOP_MOST = 64  # and at the reported shapes
WORKSPACES = (16, 128, 1024, 8192)  # MiB

# In the order of what matters most; batch by batch, so that a route that falls far behind is left
# out of larger problems.
BATCHES = (8, 1, 128, 32, 2, 512, 4096, 16384)
SIZES = (2, 4, 8, 16, 24, 32, 33, 48, 64, 100, 128, 192, 256, 384, 512, 768, 1024)
MOST_ELEMENTS = 2**25
FAR = 3.0  # a route so far behind is left out of what is harder for it
SLOW_MS = 250.0  # no route but the best is worth more at one point

LOOPS = ("looped_cusolver", "streamed_cusolver", "stock")


def operation(torch: Any, op: str, a: Any) -> Callable[[], Any]:
    """The call to time."""
    return partial(torch.linalg.eigh if op == "eigh" else torch.linalg.eigvalsh, a)


def _cupy(torch: Any, session: Session, op: str, a: Any) -> Timing:
    cupy: Any = importlib.import_module("cupy")  # on the GPU machine only

    matrices = cupy.from_dlpack(a)
    call = partial(cupy.linalg.eigh if op == "eigh" else cupy.linalg.eigvalsh, matrices)
    with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
        samples = [session.wall_clock(call)() for _ in range(8)]
    return common.timing(samples[2:])


def reported(session: Session) -> None:
    """Stock, every route, the choice and CuPy at reported shapes, by the host's clock; then the
    step at 32 and the workspace of XsyevBatched.
    """
    torch = session.torch
    library = common.enable(only=("eigh",))
    chosen: dict[tuple[str, str, int, int], float] = {}
    fastest: dict[tuple[str, str, int, int], float] = {}  # CuPy among them
    for op, dtype, batch, n, most in REPORTED:
        a = eig.hermitian(torch, dtype, batch, n)
        call = operation(torch, op, a)
        times: dict[str, float] = {}

        def keep(name: str, found: Timing, key: tuple[str, str, int, int]) -> None:
            op, dtype, batch, n = key
            session.point(op, dtype, (batch, n, n), found, backend=name, clock="host")

        key = (op, dtype, batch, n)
        for name in (*eig.ROUTES, "choice"):
            if (name in LOOPS[:2] and batch > REPORTED_LOOP_MOST) or (
                name == eig.JACOBI and n > eig.MOST_JACOBI_ROWS
            ):
                continue
            common.switch(torch, library, name != "stock")
            try:
                with common.forced(library, name, op):
                    found = _wall(session, call)
            except RuntimeError as error:  # torch's own fails at 262144 matrices
                with session.check(
                    "call", route=name, op=op, dtype=dtype, shape=(batch, n, n)
                ) as check:
                    check.ok, check.vendor = False, name == "stock"
                    check.reason = str(error).splitlines()[0][:200]
                continue
            times[name] = found.ms
            keep(name, found, key)
        common.switch(torch, library, True)
        try:
            found = _cupy(torch, session, op, a)
            times["cupy"] = found.ms
            keep("cupy", found, key)
        except Exception as error:
            with session.check("cupy", op=op, dtype=dtype, shape=(batch, n, n)) as check:
                check.skip, check.reason = True, f"{type(error).__name__}: {error}"[:200]
        chosen[key] = times.get("choice", float("inf"))
        fastest[key] = min(
            (times[name] for name in (*eig.ROUTES, "cupy") if name in times), default=float("inf")
        )
        with session.check("goal", op=op, dtype=dtype, shape=(batch, n, n)) as check:
            check.value = {name: round(ms, 3) for name, ms in times.items()}
            check.value["asked"] = most if most is not None else "CuPy's time"
            limit = most if most is not None else times.get("cupy", float("inf")) * 1.05
            check.ok = chosen[key] <= limit
            ours = min((times[name] for name in eig.ROUTES[:-1] if name in times), default=None)
            check.reason = "" if ours is None else f"the best of our routes takes {ours:.3f} ms"
    for dtype in STEPS:
        with session.check("step from 32 to 33", case="B110", dtype=dtype, batch=128) as check:
            below, above = (("eigh", dtype, 128, n) for n in (32, 33))
            ratio = chosen[above] / chosen[below]
            check.value, check.ok = round(ratio, 2), ratio <= STEP
            # Then it lies in cuSOLVER: no route, nor CuPy, is much faster at 33.
            check.vendor = chosen[above] <= 1.1 * fastest[above]
            lowest = fastest[above] / fastest[below]
            check.reason = f"{lowest:.2f} between the fastest of all routes and CuPy at each"
    _workspaces(session, library)
    common.disable()


def _wall(session: Session, call: Callable[[], Any]) -> Timing:
    clock = session.wall_clock(call)
    first = clock()
    if first > 1500:
        return common.timing([first], "the first call took over 1.5 s, so it is the only one")
    samples = [clock() for _ in range(2 if first > 50 else 7)]
    return common.timing(samples)


def _workspaces(session: Session, library: Any) -> None:
    torch = session.torch
    before = library.eigh_workspace()
    for dtype, batch, n in (
        ("float32", 5000, 16),
        ("float32", 262144, 2),
        ("float32", 500, 100),
        ("float64", 4096, 33),
    ):
        a = eig.hermitian(torch, dtype, batch, n)
        for route in eig.BATCHED:
            if route == eig.JACOBI and n > eig.MOST_JACOBI_ROWS:
                continue
            with session.check("workspace", route=route, dtype=dtype, shape=(batch, n)) as check:
                check.value = {}
                for mib in WORKSPACES:
                    library.eigh_workspace(mib)
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                    used = torch.cuda.memory_allocated()
                    with common.forced(library, route, "eigh"):
                        found = _wall(session, operation(torch, "eigh", a))
                    peak = (torch.cuda.max_memory_allocated() - used) / 2**20
                    check.value[str(mib)] = [round(found.ms, 3), round(peak, 1)]
                check.ok = True
        library.eigh_workspace(before)


def grid(session: Session) -> None:
    """All routes over batches and n; options: grids, each with op, dtype, seconds, and where they
    differ from the usual ones, batches, sizes and the n from which loops are timed.
    """
    library = common.enable(only=("eigh",))
    for options in session.options["grids"]:
        _grid(session, library, **options)
    common.disable()


def _grid(
    session: Session,
    library: Any,
    *,
    op: str,
    dtype: str,
    seconds: float,
    batches: Sequence[int] = BATCHES,
    sizes: Sequence[int] = SIZES,
    loops_from: int = 1,
) -> None:
    end = time.monotonic() + seconds
    behind: dict[tuple[str, int, int], float] = {}  # route, batch, n: time / best time
    problems = [(batch, n) for batch in batches for n in sizes if batch * n * n <= MOST_ELEMENTS]
    done = 0
    with session.check("grid", op=op, dtype=dtype, seconds=seconds) as check:
        for batch, n in problems:
            if time.monotonic() > end:
                break
            _point(session, library, behind, (op, dtype, batch, n), loops=n >= loops_from)
            done += 1
        check.value, check.ok = {"problems": done, "of": len(problems)}, done > 0
        check.reason = "" if done == len(problems) else "the seconds given to it were over"


def hopeless(behind: dict[tuple[str, int, int], float], route: str, batch: int, n: int) -> bool:
    """Whether the route was far behind where it should have had it easier: a loop at a smaller
    batch of the same n, Jacobi's method at a smaller n of the same batch.
    """
    for (name, known_batch, known_n), ratio in behind.items():
        if name == route and ratio > FAR:
            if route in LOOPS and known_n == n and known_batch <= batch and n > 32:
                return True
            if route in LOOPS[:2] and known_n == n and known_batch <= batch:
                return True
            if route.startswith("jacobi") and known_batch == batch and 32 < known_n <= n:
                return True
    return False


def _point(
    session: Session,
    library: Any,
    behind: dict[tuple[str, int, int], float],
    key: tuple[str, str, int, int],
    loops: bool,
) -> None:
    torch = session.torch
    op, dtype, batch, n = key
    a = eig.hermitian(torch, dtype, batch, n)
    call = operation(torch, op, a)
    best: float | None = None
    times: dict[str, float] = {}
    for route in eig.ROUTES:
        loop = route in LOOPS[:2]
        if route == eig.JACOBI and n > eig.MOST_JACOBI_ROWS:
            continue
        if not loops and (loop or (route == "stock" and n > 32)):
            continue
        if hopeless(behind, route, batch, n) or (route == "streamed_cusolver" and batch < 2):
            continue
        if loop and batch > LOOP_MOST:
            continue
        with common.forced(library, route, op):
            found = _brief(session, call, best)
        best = found.ms if best is None else min(best, found.ms)
        times[route] = found.ms
        session.point(op, dtype, (batch, n, n), found, backend=route, clock="stream")
    for route, ms in times.items():
        behind[route, batch, n] = ms / min(times.values())


def _brief(session: Session, call: Callable[[], Any], best: float | None) -> Timing:
    """A few samples after a warm-up; one if the call is slow or far behind."""
    clock = session.clock(call)
    first = clock()
    if first > SLOW_MS + 250 or (best is not None and first > FAR * best + 250):
        return common.timing([first], "one call: slow, or far from the best route")
    second = clock()
    if second > SLOW_MS or (best is not None and second > FAR * best):
        return common.timing([second], "one call: slow, or far from the best route")
    more = max(2, min(6, round(15 / max(second, 1e-3))))
    return common.timing([second, *(clock() for _ in range(more))])
