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
from aten_overrides.measure.operations import all_overridden, chooses, operation
from aten_overrides.scan.kernels import Trace
from aten_overrides.scan.search import Skipped
from aten_overrides.scan.target import Measured, Target

SAMPLES = 5
HOPELESS = 3.0  # times the best: its warm-up is enough
LONG_MS = 5.0  # of a call; the warm-up of a shorter one holds too much of the host's time


@dataclass(frozen=True)
class Alternative:
    """A way to run the same call: ``enter`` is a context in which the call takes it.

    entry, route: an operation of the overrides and the route it has to take then, empty for any.
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
    """The overrides for a block, with every call of ``op`` on one route (None: the choice among
    all, whatever library is preferred outside).
    """
    from aten_overrides import _runtime

    torch = _runtime.import_torch()
    entry = "eigh" if op == "eigvalsh" else op  # which a torch may keep unless it is named
    with _runtime.enabled() as status, _runtime.enabled((*status.ops, entry)):
        library = _runtime.loaded_library()
        assert library is not None
        before = torch._C._get_linalg_preferred_backend()
        torch._C._set_linalg_preferred_backend(torch._C._LinalgBackend.Default)
        library.force_route(op, route)
        try:
            yield
        finally:
            library.force_route(op, None)
            torch._C._set_linalg_preferred_backend(before)


def routes_of(entry: str) -> list[str]:
    """The routes that the overrides have for an entry. UserError if they cannot be loaded."""
    from aten_overrides import _backends, _runtime

    ops = {facts.name: facts.ops for facts in _backends.BACKENDS}
    with _runtime.enabled():
        library = _runtime.loaded_library()
        assert library is not None
        return [route for route in library.routes() if entry in ops.get(route, (entry,))]


def alternatives(target: Target, torch: Any) -> tuple[list[Alternative], str]:
    """Other ways to run a target, and the reason why some or all cannot be tried. Those of ours
    come first, as the time may end.
    """
    if target.path:
        return [], "no other back end is known of a callable"
    if target.device != "cuda":
        return [], "on the CPU there is one back end"
    magma = ["magma"] if torch.cuda.has_magma else []
    mine = "" if target.overrides else target.prefer or "default"
    names = [name for name in ("default", "cusolver", *magma) if name != mine]
    stocks = [Alternative(f"stock, {name}", partial(stock, torch, name)) for name in names]
    entries = all_overridden(operation(target.op))
    if not entries:
        return stocks, ""
    try:
        routes = {entry: routes_of(entry) for entry in entries}
    except UserError as error:
        return stocks, str(error)
    first = chooses(operation(target.op))
    ours = [Alternative("overrides", partial(forcing, first, None))]
    for entry, names in routes.items():
        name = first if entry == entries[0] else entry
        half = f"{entry}: " if len(entries) > 1 else ""
        ours += [
            Alternative(f"overrides, {half}{route}", partial(forcing, name, route), name, route)
            for route in names
            if route != "stock"
        ]
    return [*ours[:1], *stocks, *ours[1:]], ""


def routes_taken(call: Call) -> dict[str, str]:
    """The routes that the overrides take in one call, by entry."""
    from aten_overrides import _profile

    with _profile.profile() as profile:
        call()
    return {row.op: row.route for row in sorted(profile.rows(), key=lambda row: row.op)}


def chosen_backend(
    curve: Measured, target: Target, size: int, traces: dict[str, Trace | None]
) -> str:
    """What ran at a size. With the overrides their routes; else the preference that was set or
    whose kernels are the same, by ``traces`` ("" is the scanned call itself), and whether it ran
    once for the batch. "" if that cannot be told.
    """
    if target.overrides:
        taken = routes_taken(curve.call(size))
        return ", ".join(f"{entry}: {route}" for entry, route in taken.items())
    mine = traces.get("")
    if mine is None:
        return ""
    library = LIBRARIES.get(target.prefer, "")
    for name, trace in traces.items():
        if not library and trace is not None and _same_kernels(mine, trace):
            library = LIBRARIES.get(name.removeprefix("stock, "), "")
    half = traces.get("half")
    return ", ".join(part for part in (library, _repeated(mine, half)) if part)


LIBRARIES = {"cusolver": "cuSOLVER or cuBLAS", "magma": "MAGMA"}


def _same_kernels(mine: Trace, other: Trace) -> bool:
    same = {name for name, _, _ in mine.names} == {name for name, _, _ in other.names}
    return same and abs(other.launches - mine.launches) <= 0.05 * mine.launches


def _repeated(mine: Trace, half: Trace | None) -> str:
    """Whether half of the matrices need half of the kernels, or as many; "" if in between."""
    if half is None:
        return ""
    ratio = mine.launches / half.launches
    return "once per matrix" if ratio > 1.6 else "batched" if ratio < 1.25 else ""


def compare(
    curve: Measured, ways: list[Alternative], size: int, left: Callable[[], float]
) -> tuple[dict[str, float], str]:
    """Milliseconds at ``size`` by alternative, and the reason why some are missing. Where the time
    is short or an alternative hopeless, its warm-up is its only sample.
    """
    times: dict[str, float] = {}
    missing = []
    for way in ways:
        if left() <= 0:
            missing.append(f"{way.name}: no time left")
            continue
        try:
            with way.enter():
                if way.route and routes_taken(curve.call(size)).get(way.entry) != way.route:
                    continue  # it cannot take this problem
                first = curve.first(size) * 1e3
                hopeless = times and first > HOPELESS * min(times.values())
                long = first > LONG_MS and (hopeless or first * SAMPLES > left() * 1e3)
                samples = [curve.sample(size) for _ in range(0 if long else SAMPLES)]
                times[way.name] = statistics.median(samples) * 1e3 if samples else first
        except Exception as error:  # what another back end does ends no scan
            known = isinstance(error, (Skipped, UserError))
            said = " ".join(str(error).split())[:160]
            missing.append(f"{way.name}: {said if known else f'{type(error).__name__}: {said}'}")
    return times, "; ".join(missing)
