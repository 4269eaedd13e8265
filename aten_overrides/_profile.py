"""Which back end ran, how often and for how long."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from aten_overrides import _runtime
from aten_overrides._errors import UserError
from aten_overrides._gpu import Call

CAPACITY = 65536
_busy = threading.Lock()


@dataclass(frozen=True)
class Row:
    """All calls of one operation and dtype that took one route. ``ms``: their GPU time, None if
    none was measured; ``reasons``: why it was not the first choice, where it was not.
    """

    op: str
    dtype: str
    route: str
    calls: int
    ms: float | None
    reasons: tuple[str, ...]


@dataclass
class Profile:
    """Filled when the block ends. ``dropped`` calls came after the first 65536 and are not kept."""

    calls: list[Call] = field(default_factory=list)
    dropped: int = 0

    def rows(self) -> list[Row]:
        """Calls by operation, dtype and route, the longest first."""
        groups: dict[tuple[str, str, str], list[Call]] = {}
        for call in self.calls:
            groups.setdefault((call.op, call.dtype, call.route), []).append(call)
        rows = []
        for (op, dtype, route), calls in groups.items():
            times = [call.ms for call in calls if call.ms is not None]
            reasons = tuple(dict.fromkeys(call.reason for call in calls if call.reason))
            ms = sum(times) if times else None
            rows.append(Row(op, dtype, route, len(calls), ms, reasons))
        return sorted(rows, key=lambda row: -(row.ms or 0))

    def __str__(self) -> str:
        lines = [f"{'operation':16} {'dtype':10} {'back end':18} {'calls':>7} {'ms':>10}  reasons"]
        for row in self.rows():
            ms = "-" if row.ms is None else f"{row.ms:.3f}"
            lines.append(
                f"{row.op:16} {row.dtype:10} {row.route:18} {row.calls:7} {ms:>10}  "
                f"{'; '.join(row.reasons)}".rstrip()
            )
        if self.dropped:
            lines.append(f"{self.dropped} further calls were not kept")
        return "\n".join(lines)


@contextlib.contextmanager
def profile() -> Iterator[Profile]:
    """Keep every call of an overridden operation made in the block, by any thread, with its GPU
    time.

    Waits for the GPU once, at the end. UserError if the overrides are not enabled, or if another
    block is open.
    """
    library = _runtime.loaded_library()
    if library is None or not library.installed():
        raise UserError(
            "profile() sees the overrides' calls only: call aten_overrides.enable() first"
        )
    if not _busy.acquire(blocking=False):
        raise UserError("another profile() block is open; one at a time")
    try:
        result = Profile()
        library.call("profile_start", CAPACITY)
        try:
            yield result
        finally:
            library.call("profile_stop")
            result.calls, result.dropped = library.take_profile(CAPACITY)
    finally:
        _busy.release()
