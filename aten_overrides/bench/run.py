"""Times all rivals of every case of a grid in the same rounds."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides.bench.grids import Case
from aten_overrides.bench.rivals import NotHere, Rival, Rivals, check_route
from aten_overrides.measure.clock import Call, Clock
from aten_overrides.measure.operations import Problems, operation, work

ROUNDS = 7
FEW_ROUNDS = 3
LONG = 0.06  # seconds of a call from which FEW_ROUNDS are enough
HOPELESS = 20.0  # times the best: its warm-up is its only sample
# What a case may take, in times of what is left for each: beyond it its next rivals are left out.
SHARE = 2.5
RESERVE = 0.2  # of the time, so that the last cases have some
COMPILED_SHARE = 1.1  # for rivals that are compiled for each problem
LIMIT_N = {"cuda": 8192, "cpu": 512}  # of the matrix product that stands for the arithmetic limit
LIMIT_BYTES = {"cuda": 2 << 30, "cpu": 64 << 20}  # of the copy that stands for the memory's
ITEM = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}


@dataclass(frozen=True)
class Limits:
    """What the machine can do at most, measured in the same run: bytes a second of a copy (read and
    written), and floating-point operations a second by real dtype of a matrix product.
    """

    bytes_per_second: float
    flops: dict[str, float]

    def seconds(self, case: Case) -> float:
        """The least time of a case: its nominal work at the product's speed, or its matrices read
        and its result written once, whichever is longer.
        """
        real = {"complex64": "float32", "complex128": "float64"}.get(case.dtype, case.dtype)
        op = operation(case.op)
        arithmetic = work(op, case.dtype, case.batch, case.n, case.nrhs)
        elements = (1 + op.written) * case.n * case.n + 2 * case.n * case.nrhs
        moved = case.batch * elements * ITEM[case.dtype]
        return max(arithmetic / self.flops[real], moved / self.bytes_per_second)


@dataclass
class Bench:
    """Rows of the record: points and skips; what was left out for want of time."""

    limits: Limits | None = None
    points: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[Case] = field(default_factory=list)


def measure_limits(torch: Any, clock: Clock, device: str, dtypes: set[str]) -> Limits:
    """The machine's limits for the real dtypes of ``dtypes``; TF32 stays off."""
    count = LIMIT_BYTES[device] // 4
    source = torch.ones(count, device=device)
    target = torch.empty_like(source)
    copy = _median(clock, partial(target.copy_, source))
    flops = {}
    n = LIMIT_N[device]
    for dtype in ("float32", "float64"):
        wide = {"float32": "complex64", "float64": "complex128"}[dtype]
        if not {dtype, wide} & dtypes:
            continue
        a = torch.randn(n, n, dtype=getattr(torch, dtype), device=device)
        flops[dtype] = 2.0 * n**3 / _median(clock, partial(torch.matmul, a, a))
        del a
    return Limits(8.0 * count / copy, flops)


def _median(clock: Clock, call: Call) -> float:
    estimate = clock.warm(call)
    return statistics.median(clock.seconds(call, estimate) for _ in range(5))


def bench(
    cases: list[Case],
    rivals: Rivals,
    clock: Clock,
    budget: float,
    tell: Callable[[int, Bench], None] = lambda number, result: None,
) -> Bench:
    """Time every case; what does not fit into ``budget`` seconds is named in ``left_out``, as is
    what follows a fault after which the device answers no more. ``tell`` is called after each case
    with its number.
    """
    end = time.monotonic() + budget
    result = Bench()
    result.limits = measure_limits(
        rivals.torch, clock, rivals.device, {case.dtype for case in cases}
    )
    for case in {case.op: case for case in cases}.values():
        rivals.of(case)  # loads the overrides, in nobody's time
    for number, case in enumerate(cases):
        now = time.monotonic()
        if now > end:
            result.left_out = cases[number:]
            break
        each = (1 - RESERVE) * (end - now) / (len(cases) - number)
        until = {
            compiled: min(end, now + share * each)
            for compiled, share in ((False, SHARE), (True, COMPILED_SHARE))
        }
        faults = _one_case(case, rivals, clock, result, until)
        tell(number, result)
        if faults and not rivals.answers():
            result.left_out = cases[number + 1 :]
            result.checks.append(_skip("device", vars(case), "it answers no more after this case"))
            break
    for name, reason in rivals.missing.items():
        result.checks.append(_skip("rival", {"rival": name}, reason))
    return result


def _skip(name: str, params: dict[str, Any], reason: str) -> dict[str, Any]:
    return {"name": name, "params": params, "result": "skip", "value": None, "reason": reason}


@dataclass(frozen=True)
class Failure:
    """Why a rival has no time; ``fault``: it failed rather than said that it cannot."""

    said: str
    fault: bool


def _failure(torch: Any, error: Exception) -> Failure:
    """What an exception says; it is not kept, as its frames hold matrices."""
    if isinstance(error, (NotHere, UserError)):
        return Failure(str(error), False)
    if "out of memory" in str(error).lower() and torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()  # what torch keeps for later calls is another library's memory
    return Failure(" ".join(f"{type(error).__name__}: {error}".split())[:200], True)


def _one_case(
    case: Case, rivals: Rivals, clock: Clock, result: Bench, until: Mapping[bool, float]
) -> int:
    """Time a case's rivals; how many of them failed other than by saying no. ``until``: when the
    time for its next rival ends, by whether that is compiled.
    """
    op = operation(case.op)
    problems = Problems(rivals.torch, op, case.dtype, case.batch, case.nrhs, rivals.device)
    ready: dict[str, tuple[Rival, Call, float]] = {}
    failed: dict[str, Failure] = {}
    for rival in rivals.of(case):
        params = {**vars(case), "rival": rival.name}
        if ready and time.monotonic() > until[rival.compiled]:
            result.checks.append(_skip("timed", params, "the time for this problem was spent"))
            continue
        try:
            with rival.enter():
                call = rival.call(problems, case)
                if rival.route:
                    check_route(rival, call)  # which warms up, too
                    estimate = clock.seconds(call, LONG)
                else:
                    estimate = clock.warm(call)
        except Exception as error:
            failed[rival.name] = _failure(rivals.torch, error)
            continue
        ready[rival.name] = (rival, call, estimate)

    def failing(name: str, error: Exception) -> None:
        failed[name] = _failure(rivals.torch, error)

    samples = _rounds(ready, failing, clock, random.Random(case.n), until[False])
    for name, failure in failed.items():
        result.checks.append(_skip("timed", {**vars(case), "rival": name}, failure.said))
    assert result.limits is not None
    for name, (rival, _, estimate) in ready.items():
        if name not in failed:
            values = samples[name] or [estimate]
            result.points.append(_point(case, rival, values, result.limits, not samples[name]))
    return sum(failure.fault for failure in failed.values())


def _rounds(
    ready: dict[str, tuple[Rival, Call, float]],
    failing: Callable[[str, Exception], None],
    clock: Clock,
    chosen: random.Random,
    until: float,
) -> dict[str, list[float]]:
    """Samples of the rivals that are not hopeless; one that raises is told to ``failing``. The time
    ends the rounds after the first.
    """
    samples: dict[str, list[float]] = {name: [] for name in ready}
    best = min((estimate for _, _, estimate in ready.values()), default=0.0)
    order = [name for name, (_, _, estimate) in ready.items() if estimate < HOPELESS * best]
    for number in range(ROUNDS):
        if number and time.monotonic() > until:
            break
        chosen.shuffle(order)
        for name in list(order):
            rival, call, estimate = ready[name]
            if number >= FEW_ROUNDS and estimate > LONG:
                continue
            try:
                with rival.enter():
                    samples[name].append(clock.seconds(call, estimate))
            except Exception as error:
                failing(name, error)
                order.remove(name)
    return samples


def _point(
    case: Case, rival: Rival, values: list[float], limits: Limits, once: bool
) -> dict[str, Any]:
    seconds = statistics.median(values)
    operations = work(operation(case.op), case.dtype, case.batch, case.n, case.nrhs)
    point = {
        "op": case.op,
        "dtype": case.dtype,
        "m": case.n,
        "n": case.n,
        "batch": case.batch,
        "nrhs": case.nrhs,
        "backend": rival.backend,
        "preference": rival.preference,
        "library": rival.library,
        "ms": float(f"{seconds * 1e3:.5g}"),
        "spread": [float(f"{value * 1e3:.5g}") for value in (min(values), max(values))],
        "repeats": len(values),
        "gflops": float(f"{operations / seconds * 1e-9:.4g}"),
        "limit_share": float(f"{limits.seconds(case) / seconds:.4g}"),
    }
    return {**point, "note": "one call: over 20 times the best one's"} if once else point
