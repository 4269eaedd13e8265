"""The kernels of one call, from torch.profiler's trace; on the CPU its operators."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides.measure.clock import Call

MOST_BARS = 600  # of a stored trace; see joined


@dataclass(frozen=True)
class Bar:
    """Start after the first kernel's and length, in microseconds; name; stream or thread."""

    start: float
    length: float
    name: str
    lane: int


@dataclass(frozen=True)
class Trace:
    """One call: how many kernels ran, which, and when.

    names: (name, count, total microseconds), the longest first; bars: the time axis, see joined;
    span: microseconds from the first start to the last end; what: "kernels" or "operators".
    """

    what: str
    launches: int
    span: float
    names: tuple[tuple[str, int, float], ...]
    bars: tuple[Bar, ...]

    def json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "what": self.what,
            "launches": self.launches,
            "span_us": round(self.span, 2),
            "names": [[name, count, round(total, 2)] for name, count, total in self.names],
            "bars": [
                [round(bar.start, 2), round(bar.length, 2), bar.name, bar.lane] for bar in self.bars
            ],
        }


def trace_of(data: dict[str, Any]) -> Trace:
    """The trace that ``json`` has written."""
    return Trace(
        data["what"],
        data["launches"],
        data["span_us"],
        tuple((name, count, total) for name, count, total in data["names"]),
        tuple(Bar(*bar) for bar in data["bars"]),
    )


def short_name(name: str) -> str:
    """A kernel's name without return type, namespaces, template and call arguments."""
    plain = name.replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", plain, maxsplit=1)[0].strip()
    if head.startswith(("Memcpy", "Memset")):
        return head
    return head.split()[-1].split("::")[-1] if head else name[:60]


def _own_parts(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of each thread cut into the parts in which they run no other one."""
    parts: list[dict[str, Any]] = []
    ordered = sorted(events, key=lambda event: (event["tid"], event["ts"], -event["dur"]))
    open_events: list[dict[str, Any]] = []
    reached = 0.0

    def close(until: float) -> None:
        nonlocal reached
        while open_events:
            top = open_events[-1]
            end = min(top["ts"] + top["dur"], until)
            if end > reached:
                parts.append({**top, "ts": reached, "dur": end - reached})
                reached = end
            if top["ts"] + top["dur"] > until:
                return
            open_events.pop()

    for event in ordered:
        if open_events and open_events[0]["tid"] != event["tid"]:
            close(float("inf"))
        close(event["ts"])
        reached = event["ts"]
        open_events.append(event)
    close(float("inf"))
    return parts


def joined(bars: Iterable[Bar], most: int = MOST_BARS) -> tuple[Bar, ...]:
    """At most ``most`` bars. Where there are more, the first half stays as it was; of those after,
    each lane's within a slot of time become one: named after what ran longest in it, as long as all
    together.
    """
    ordered = sorted(bars, key=lambda bar: (bar.start, bar.lane))
    if len(ordered) <= most:
        return tuple(ordered)
    head, rest = ordered[: most // 2], ordered[most // 2 :]
    start, end = rest[0].start, max(bar.start for bar in rest)
    count = max(1, (most - len(head)) // len({bar.lane for bar in rest}))
    width = (end - start) / count or 1.0
    slots: dict[tuple[int, int], list[Bar]] = {}
    for bar in rest:
        slot = min(count - 1, int((bar.start - start) / width))
        slots.setdefault((slot, bar.lane), []).append(bar)
    return tuple(head + [_as_one(inside) for _, inside in sorted(slots.items())])


def _as_one(bars: Sequence[Bar]) -> Bar:
    lengths: Counter[str] = Counter()
    for bar in bars:
        lengths[bar.name] += bar.length  # type: ignore[assignment]
    ((longest, _),) = lengths.most_common(1)
    return Bar(bars[0].start, float(sum(lengths.values())), longest, bars[0].lane)


def read_trace(events: Sequence[dict[str, Any]]) -> Trace | None:
    """The trace in the events of a Chrome trace; None if nothing ran."""
    timed = [event for event in events if event.get("ph") == "X" and "dur" in event]
    kernels = [event for event in timed if event.get("cat") in ("kernel", "gpu_memcpy")]
    kernels += [event for event in timed if event.get("cat") == "gpu_memset"]
    what = "kernels" if kernels else "operators"
    calls = len(kernels)
    if not kernels:
        operators = [event for event in timed if event.get("cat") == "cpu_op"]
        calls, kernels = len(operators), _own_parts(operators)
    if not kernels:
        return None
    start = min(event["ts"] for event in kernels)
    lanes = {
        lane: number for number, lane in enumerate(sorted({_lane(event) for event in kernels}))
    }
    bars = [
        Bar(event["ts"] - start, event["dur"], short_name(event["name"]), lanes[_lane(event)])
        for event in kernels
    ]
    counts = Counter(bar.name for bar in bars)
    totals: Counter[str] = Counter()
    for bar in bars:
        totals[bar.name] += bar.length  # type: ignore[assignment]
    names = tuple((name, counts[name], float(total)) for name, total in totals.most_common())
    span = max(bar.start + bar.length for bar in bars)
    return Trace(what, calls, span, names, joined(bars))


def _lane(event: dict[str, Any]) -> int:
    lane = event.get("args", {}).get("stream", event.get("tid", 0))
    return int(lane) if isinstance(lane, (int, float)) else 0


def profile_call(torch: Any, call: Call, cuda: bool) -> Trace | None:
    """Run a call, warmed up before, under torch.profiler. On the CPU twice, as operators are slow
    at the profiler's start; the shorter trace counts.
    """
    traces = [_profiled(torch, call, cuda) for _ in range(1 if cuda else 2)]
    return min((trace for trace in traces if trace), key=lambda trace: trace.span, default=None)


def _profiled(torch: Any, call: Call, cuda: bool) -> Trace | None:
    profiler = torch.profiler
    activities = [profiler.ProfilerActivity.CPU]
    if cuda:
        activities.append(profiler.ProfilerActivity.CUDA)
        torch.cuda.synchronize()
    with profiler.profile(activities=activities) as profile:
        kept = call()
        if cuda:
            torch.cuda.synchronize()
    del kept
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        text = path.read_text(encoding="utf-8", errors="replace")
    return read_trace(json.loads(text)["traceEvents"])
