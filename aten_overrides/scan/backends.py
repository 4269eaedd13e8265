"""Which back end a call takes, and what the other ones would take at that size."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides.measure.clock import Call
from aten_overrides.measure.operations import operation, overridden
from aten_overrides.scan.kernels import Trace
from aten_overrides.scan.search import Skipped
from aten_overrides.scan.target import Measured, Target

SAMPLES = 5
HOPELESS = 3.0  # times the best: one sample is enough


@dataclass(frozen=True)
class Alternative:
    """A way to run the same call: ``enter`` is a context in which the call takes it.

    entry, route: the overrides' entry and the route it has to take then, empty for any.
    """

    name: str
    enter: Callable[[], AbstractContextManager[Any]]
    entry: str = ""
    route: str = ""


@dataclass(frozen=True)
class Side:
    """One side of a jump. ms: as scanned; times: milliseconds of each alternative by name; best:
    the fastest of all; reason: why nothing else was timed.
    """

    size: int
    chosen: str
    ms: float
    times: dict[str, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def best(self) -> tuple[str, float]:
        """Name and milliseconds of the fastest alternative, the scanned one included."""
        return min([("as scanned", self.ms), *self.times.items()], key=lambda pair: pair[1])

    def json(self) -> dict[str, Any]:
        """As JSON values."""
        name, ms = self.best
        return {
            "size": self.size,
            "chosen": self.chosen,
            "ms": round(self.ms, 5),
            "best": name,
            "factor_to_best": round(self.ms / ms, 3),
            "times_ms": {key: round(value, 5) for key, value in self.times.items()},
            "reason": self.reason,
        }


@contextlib.contextmanager
def stock(torch: Any, preference: str) -> Iterator[None]:
    """torch without the overrides and with this preferred library, for a block."""
    from aten_overrides import _runtime

    status = _runtime.current_status()
    before = torch._C._get_linalg_preferred_backend()
    if status is not None:
        _runtime.disable()
    torch.backends.cuda.preferred_linalg_library(preference)
    try:
        yield
    finally:
        if status is not None:
            _runtime.enable(status.ops, status.strict)
        torch._C._set_linalg_preferred_backend(before)


@contextlib.contextmanager
def forcing(op: str, route: str | None) -> Iterator[None]:
    """The overrides for a block, with every call of ``op`` on one route (None: the choice)."""
    from aten_overrides import _runtime

    with _runtime.enabled():
        library = _runtime.loaded_library()
        assert library is not None
        library.force_route(op, route)
        try:
            yield
        finally:
            library.force_route(op, None)


def routes_of(entry: str) -> list[str]:
    """The routes that the overrides have for an entry. UserError if they cannot be loaded."""
    from aten_overrides import _backends, _runtime

    ops = {facts.name: facts.ops for facts in _backends.BACKENDS}
    with _runtime.enabled():
        library = _runtime.loaded_library()
        assert library is not None
        return [route for route in library.routes() if entry in ops.get(route, (entry,))]


def alternatives(target: Target, torch: Any) -> tuple[list[Alternative], str]:
    """Other ways to run a target, and the reason why some or all cannot be tried."""
    if target.path:
        return [], "no other back end is known of a callable"
    if target.device != "cuda":
        return [], "on the CPU there is one back end"
    magma = ["magma"] if torch.cuda.has_magma else []
    names = ["default", "cusolver", *magma]
    found = [Alternative(f"stock, {name}", partial(stock, torch, name)) for name in names]
    entry = overridden(operation(target.op))
    if not entry:
        return found, ""
    try:
        routes = routes_of(entry)
    except UserError as error:
        return found, str(error)
    found.append(Alternative("overrides", partial(forcing, entry, None)))
    found += [
        Alternative(f"overrides, {route}", partial(forcing, entry, route), entry, route)
        for route in routes
    ]
    return found, ""


def routes_taken(call: Call) -> dict[str, str]:
    """The routes that the overrides take in one call, by entry."""
    from aten_overrides import _profile

    with _profile.profile() as profile:
        call()
    return {row.op: row.route for row in sorted(profile.rows(), key=lambda row: row.op)}


def chosen_backend(
    curve: Measured, target: Target, size: int, traces: dict[str, Trace | None]
) -> str:
    """What ran at a size. With the overrides their routes; else the preference whose kernels are
    the same, by ``traces`` ("" is the scanned call itself). "" if that cannot be told.
    """
    if target.overrides:
        taken = routes_taken(curve.call(size))
        return ", ".join(f"{entry}: {route}" for entry, route in taken.items())
    mine = traces.get("")
    if mine is None:
        return ""
    kernels = {name for name, _, _ in mine.names}
    for name, trace in traces.items():
        library = name.removeprefix("stock, ")
        if library in ("cusolver", "magma") and trace is not None:
            same = {other for other, _, _ in trace.names} == kernels
            if same and abs(trace.launches - mine.launches) <= 0.05 * mine.launches:
                return {"cusolver": "cuSOLVER or cuBLAS", "magma": "MAGMA"}[library]
    return ""


def compare(
    curve: Measured, ways: list[Alternative], size: int, left: Callable[[], float]
) -> tuple[dict[str, float], str]:
    """Milliseconds at ``size`` by alternative, and the reason why some are missing."""
    times: dict[str, float] = {}
    missing = []
    for way in ways:
        if left() <= 0:
            missing.append(f"{way.name}: no time left")
            continue
        try:
            with way.enter():
                first = curve.first(size) * 1e3
                if way.route and routes_taken(curve.call(size)).get(way.entry) != way.route:
                    continue  # it cannot take this problem
                hopeless = times and first > HOPELESS * min(times.values())
                samples = [curve.sample(size) for _ in range(1 if hopeless else SAMPLES)]
                times[way.name] = statistics.median(samples) * 1e3
        except (Skipped, UserError) as error:
            missing.append(f"{way.name}: {error}")
    return times, "; ".join(missing)
