"""Look at sizes side by side: kernels, back end, and what the other back ends take there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aten_overrides.scan.backends import Side, alternatives, chosen_backend, compare
from aten_overrides.scan.kernels import Trace, profile_call
from aten_overrides.scan.search import Skipped
from aten_overrides.scan.target import Measured, Target, measured

LONGEST_TRACED = 0.5  # seconds of a call; the trace of a longer one takes too long to read


@dataclass(frozen=True)
class Look:
    """One size: back ends and times, and the trace of one call (None: there is none)."""

    side: Side
    trace: Trace | None


@contextlib.contextmanager
def surroundings(target: Target) -> Iterator[None]:
    """The overrides and the preference that a target asks for."""
    with contextlib.ExitStack() as stack:
        if target.overrides:
            from aten_overrides import _runtime

            stack.enter_context(_runtime.enabled())
        if target.prefer:
            from aten_overrides import _preference

            stack.enter_context(_preference.preferred_linalg_library(target.prefer))
        yield


def look(
    curve: Measured, target: Target, seconds: Mapping[int, float], left: Callable[[], float]
) -> list[Look]:
    """Look at some sizes, ``seconds`` of a call by size, within ``surroundings``. What comes first
    at each size matters most, as the time may end: the call's trace, then other back ends' times.
    """
    torch = curve.torch
    if torch is None:
        reason = "torch is not in use, so nothing is traced"
        return [Look(Side(size, "", s * 1e3, {}, reason), None) for size, s in seconds.items()]
    cuda = curve.clock.name == "cuda"
    traces = {size: _traced(curve, torch, size, s, cuda, left) for size, s in seconds.items()}
    ways, reason = alternatives(target, torch)
    looks = []
    for size, taken in seconds.items():
        trace, said = traces[size]
        times, missing = compare(curve, ways, size, left)
        chosen = ""
        try:
            others = _others(curve, target, torch, size, taken, left) if trace and cuda else {}
            chosen = chosen_backend(curve, target, size, {"": trace, **others})
        except Exception as error:  # as in compare
            said = said or f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        whole = "; ".join(part for part in (reason, missing, said) if part)
        looks.append(Look(Side(size, chosen, taken * 1e3, times, whole), trace))
    return looks


def _traced(
    curve: Measured,
    torch: Any,
    size: int,
    seconds: float,
    cuda: bool,
    left: Callable[[], float],
) -> tuple[Trace | None, str]:
    """The trace of a call, or None and why there is none. A profiler that fails ends no scan."""
    if seconds > LONGEST_TRACED:
        return None, f"not traced: a call takes {seconds:.1f} s"
    if left() <= 0:
        return None, "not traced: no time left"
    try:
        curve.first(size)
        return profile_call(torch, curve.call(size), cuda), ""
    except Skipped as error:
        return None, f"not traced: {error}"
    except Exception as error:
        return None, f"not traced: {type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _others(
    curve: Measured,
    target: Target,
    torch: Any,
    size: int,
    seconds: float,
    left: Callable[[], float],
) -> dict[str, Trace | None]:
    """What tells the back end of stock torch: traces with other preferences, by the name of the
    way, and with half of the matrices as "half".
    """
    found: dict[str, Trace | None] = {}
    if target.overrides or not target.op:
        return found
    if target.batch > 1 and left() > 0:
        part = measured(replace(target, batch=target.batch // 2), torch, curve.clock.name)
        found["half"] = _traced(part, torch, size, seconds, True, left)[0]
    for way in alternatives(target, torch)[0] if target.prefer in ("", "default") else []:
        if way.name in ("stock, cusolver", "stock, magma") and left() > 0:
            with way.enter():
                found[way.name] = _traced(curve, torch, size, seconds, True, left)[0]
    return found


def cause(sides: Sequence[Side], traces: Sequence[Trace | None]) -> str:
    """What differs between two sides, in words; "" if nothing is known."""
    if len(sides) != 2:
        return ""
    below, at = sides
    words = []
    if below.chosen != at.chosen and below.chosen and at.chosen:
        words.append(f"another back end: {below.chosen} before, {at.chosen} from here on")
    first, second = traces
    if first is not None and second is not None:
        what = first.what
        if not 1 / 1.5 < second.launches / first.launches < 1.5:
            words.append(f"{first.launches} {what} before, {second.launches} from here on")
        if first.names[0][0] != second.names[0][0]:
            words.append(f"most time in {first.names[0][0]} before, in {second.names[0][0]} after")
        elif not words:
            words.append(f"most time in {first.names[0][0]} on both sides")
    return "; ".join(words)
