"""Common parts of the GPU scripts of the overrides."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aten_overrides
from aotools.gputest.processes import descendants, kill
from aotools.gputest.session import LAZY_LOAD_MS, Session, Timing
from aten_overrides import _abi, _runtime, _select
from aten_overrides._errors import UserError
from aten_overrides._gpu import Library

DTYPES = ("float32", "float64", "complex64", "complex128")
LU_ROUTES = ("stock", "batched_cublas", "streamed_cusolver", "looped_cusolver")
NATIVE = "batched_native"
# Where NaN must reach the results: our kernels, and cuSOLVER's, to which we see.
ANSWERED_FOR = {NATIVE, "streamed_cusolver", "looped_cusolver"}
SOLVE_ROUTES = (
    "stock",
    "triangular_cublas",
    "batched_cublas",
    "looped_cusolver",
    "batched_native",
    "blocked_native",
)
EPS = {"float32": 2.0**-23, "complex64": 2.0**-23, "float64": 2.0**-52, "complex128": 2.0**-52}
OPS = _runtime.OPS  # whose functions are ours while the overrides are enabled
LIMIT = 30.0  # residuals, in units of n eps
SYNCHRONISING = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")
SELECT = "ATEN_OVERRIDES_GPU_TEST_SELECT"  # the select library for a machine without a compiler


def _use_packed_select() -> None:
    path = os.environ.get(SELECT)
    if path:
        packed = _select.Library(Path(path))
        setattr(_select, "load", lambda linalg=None: packed)  # noqa: B010 - it is a cached function


def enable(**settings: Any) -> Library:
    """Enables the overrides and returns the library. UserError where it chooses without the table:
    all that is measured here would be another choice.
    """
    _use_packed_select()
    status = aten_overrides.enable(**settings)
    if "table" not in status.table:
        raise UserError(f"the overrides choose by {status.table}: {'; '.join(status.notes)}")
    library = _runtime.loaded_library()
    assert library is not None
    return library


def disable() -> None:
    """Gives torch its own functions back."""
    aten_overrides.disable()


def switch(torch: Any, library: Library, ours: bool) -> None:
    """Installs the functions of enabled overrides, or gives the wheel's back, and nothing else: as
    cheap as it can be between two samples.
    """
    if ours:
        status = _runtime.current_status()
        library.install(_abi.wheel_linalg(torch), status.ops if status is not None else OPS)
    else:
        library.restore()


def stock_kind(torch: Any) -> int:
    """What the wheel's own lu_factor is, for Library.configure."""
    return _runtime.stock_kind(torch)


@contextmanager
def preferring(torch: Any, name: str) -> Iterator[None]:
    """Sets torch's preferred library for a block."""
    torch.backends.cuda.preferred_linalg_library(name)
    try:
        yield
    finally:
        torch.backends.cuda.preferred_linalg_library("default")


@contextmanager
def forced(library: Library, route: str, op: str = "lu_factor") -> Iterator[None]:
    """Makes every call of the operation take one route; "choice" leaves the choice."""
    library.force_route(op, None if route == "choice" else route)
    try:
        yield
    finally:
        library.force_route(op, None)


def lu_routes(library: Library) -> tuple[str, ...]:
    """The routes of lu_factor that can be forced here: ours among them if they can run."""
    usable = _select.Native(library.native()) is _select.Native.USABLE
    return (*LU_ROUTES, NATIVE) if usable else LU_ROUTES


def chosen(library: Library, dtype: str, batch: int, n: int, preference: str) -> str:
    """The route that lu_factor takes of itself for square matrices."""
    return library.lu_factor_route(
        dtype, batch, n, n, preference=preference, native=library.native()
    )


def used(library: Library, before: Mapping[tuple[str, str], int]) -> set[str]:
    """The routes of lu_factor taken since `before`, which library.counts() gave."""
    return {
        route
        for (op, route), count in library.counts().items()
        if op == "lu_factor" and count != before.get((op, route), 0)
    }


def matrices(torch: Any, dtype: str, batch: int, m: int, n: int) -> Any:
    """Random matrices, the same for the same arguments."""
    generator = torch.Generator(device="cuda").manual_seed(batch * 1000003 + m * 1009 + n)
    return torch.randn(batch, m, n, dtype=getattr(torch, dtype), device="cuda", generator=generator)


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}[dtype]


def _largest(errors: Any) -> float:
    largest = float(errors.max().item())
    return math.inf if math.isnan(largest) else largest  # so that max() and < see it


def factor_error(torch: Any, a: Any, lu: Any, pivots: Any) -> float:
    """Largest norm(P L U - A) / (n eps norm(A)) over the batch, products in a wider type."""
    dtype = str(a.dtype).removeprefix("torch.")
    wide = torch.complex128 if a.is_complex() else torch.float64
    p, lower, upper = torch.lu_unpack(lu, pivots)
    product = p.to(wide) @ (lower.to(wide) @ upper.to(wide))
    norm = torch.linalg.matrix_norm(a.to(wide))
    error = torch.linalg.matrix_norm(product - a.to(wide)) / norm
    return _largest(error) / (int(max(a.shape[-2:])) * EPS[dtype])


def solve_error(torch: Any, a: Any, x: Any, b: Any) -> float:
    """Largest norm(A X - B) / (n eps norm(A) norm(X)) over the batch, products in a wider type."""
    dtype = str(a.dtype).removeprefix("torch.")
    wide = torch.complex128 if a.is_complex() else torch.float64
    rest = torch.linalg.matrix_norm(a.to(wide) @ x.to(wide) - b.to(wide))
    scale = torch.linalg.matrix_norm(a.to(wide)) * torch.linalg.matrix_norm(x.to(wide))
    return _largest(rest / scale) / (int(a.shape[-1]) * EPS[dtype])


def timing(samples: list[float], note: str = "") -> Timing:
    """Median, least and most of samples in milliseconds."""
    return Timing(statistics.median(samples), (min(samples), max(samples)), len(samples), note)


def rounds_for(ms: float) -> int:
    """How many samples a call of `ms` milliseconds gets: 3 to 11, about 60 ms in all."""
    return max(3, min(11, round(60 / max(ms, 1e-3))))


def in_turns(
    session: Session,
    calls: Mapping[str, Callable[[], Any]],
    prepare: Callable[[str], None] = lambda name: None,
    far: float = 2.0,
) -> dict[str, list[float]]:
    """Milliseconds of several calls, sampled in turns, so that what changes with time hits all.

    Each has a warm-up. One that takes more than `far` times as long as the best keeps the one
    sample that shows it. `prepare(name)` runs before every sample and is not timed.
    """
    clocks = {name: session.clock(call) for name, call in calls.items()}

    def sample(name: str) -> float:
        prepare(name)
        return clocks[name]()

    warm = {name: sample(name) for name in calls}
    best = min(warm.values())
    slow = {name for name, ms in warm.items() if ms > far * best + LAZY_LOAD_MS}
    found = {name: [warm[name] if name in slow else sample(name)] for name in calls}
    best = min(samples[0] for samples in found.values())
    near = [name for name in calls if name not in slow and found[name][0] <= far * best]
    for _ in range(rounds_for(best) - 1):
        for name in near:
            found[name].append(sample(name))
    return found


def far_note(samples: list[float]) -> str:
    """Why a point has a single sample."""
    return "one sample: far from the best route" if len(samples) == 1 else ""


def quick(session: Session, call: Callable[[], Any], best: float | None = None) -> Timing:
    """A short timing on the stream's clock, after a warm-up; one sample if that shows over twice
    the best time.
    """
    once = session.clock(call)
    first = once()
    if best is not None and first > 2 * best + LAZY_LOAD_MS:
        return timing([first], "one call: more than twice the best route's time")
    first = once()
    if best is not None and first > 2 * best:
        return timing([first], "one call: more than twice the best route's time")
    return timing([first, *(once() for _ in range(rounds_for(first) - 1))])


def host_microseconds(
    torch: Any, call: Callable[[], Any], calls: int = 150, rounds: int = 9
) -> list[float]:
    """Microseconds that the host spends on a call, by rounds. So few calls fit into the launch
    queue, so the host never waits for the GPU.
    """
    for _ in range(100):
        call()
    rows = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(calls):
            call()
        rows.append((time.perf_counter() - started) / calls * 1e6)
    torch.cuda.synchronize()
    return rows


def allocations(torch: Any, call: Callable[[], Any]) -> int:
    """Calls of the caching allocator in one call of the operation."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    kept = call()
    after = torch.cuda.memory_stats()["allocation.all.allocated"]
    del kept
    return int(after - before)


def synchronisations(torch: Any, call: Callable[[], Any]) -> dict[str, int] | None:
    """How often one call makes the host wait for the device, by function of the CUDA runtime, as
    the profiler saw it. None where the profiler sees no runtime calls.

    Sync debug mode does not see those of MAGMA. What the profiler itself adds is subtracted.
    """
    activities = torch.profiler.ProfilerActivity

    def count(function: Callable[[], Any]) -> Counter[str]:
        with torch.profiler.profile(activities=[activities.CPU, activities.CUDA]) as profile:
            kept = function()
        del kept
        return Counter(str(event.name) for event in profile.events())

    torch.cuda.synchronize()
    count(lambda: torch.zeros(1, device="cuda") + 1)  # the first profile of a process is slow
    empty = count(lambda: torch.zeros(1, device="cuda") + 1)
    if not any(name.startswith("cudaLaunchKernel") for name in empty):
        return None
    found = count(call)
    found.subtract(empty)
    return {name: found[name] for name in SYNCHRONISING if found[name] > 0}


def script(
    code: str, *arguments: str, timeout: float, before: Sequence[str] = (), **environment: str
) -> tuple[str, str]:
    """Runs Python code in a process of its own, with this folder on its path; `before` is a
    command that starts it.

    Returns "" or how it ended badly ("timed out", "exit code 1", "signal 11"), and its output.
    """
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [*before, sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    ) as done:
        try:
            out, errors = done.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # `before` may have started more (a sanitizer its target), which would run on.
            kill([done.pid, *descendants(done.pid)])
            return "timed out", done.communicate()[0]
    code_words = f"signal {-done.returncode}" if done.returncode < 0 else ""
    if done.returncode > 0:
        code_words = f"exit code {done.returncode}"
    return code_words, out + errors


@contextmanager
def raises(kind: type[BaseException], words: str = "") -> Iterator[None]:
    """Asserts that the block raises an error of this kind whose message holds the words."""
    try:
        yield
    except kind as error:
        assert words.lower() in str(error).lower(), f"{type(error).__name__}: {error}"
        return
    raise AssertionError(f"{kind.__name__} was not raised")
