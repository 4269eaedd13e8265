"""What a record says of lu_solve: patched against unpatched, and the regret of the choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aotools.gputest.record import Record, Row

PATCHED, UNPATCHED = "patched-magma", "unpatched-magma"
SLOWER_GOAL = 1.10  # patched over unpatched, at any point
REGRET_GOAL = 1.15  # over the best route timed in the same process
_LEAST_MS = 0.05  # below, the host's part of a call hides what the routes take

Key = tuple[str, int, int, int, str]


def _times(record: Record) -> dict[Key, dict[tuple[str, str, str], float]]:
    """Milliseconds by (library, backend, preference) at each (dtype, batch, n, nrhs, operation)."""
    found: dict[Key, dict[tuple[str, str, str], float]] = {}
    for row in record.points:
        # The suite of the overrides has a part of that name too.
        own = row.get("job", "").startswith("solve/") and row.get("library") in (PATCHED, UNPATCHED)
        if row["op"] == "lu_solve" and own:
            key = (row["dtype"], row["batch"], row["n"], row["nrhs"], row["operation"])
            how = (row["library"], row["backend"], row["preference"])
            found.setdefault(key, {})[how] = row["ms"]
    return found


def _compared(record: Record, preference: str) -> Iterator[tuple[Key, float, float]]:
    for key, times in _times(record).items():
        new = times.get((PATCHED, "choice", preference))
        old = times.get((UNPATCHED, "choice", preference))
        if new is not None and old is not None:
            yield key, new, old


def checks(record: Record) -> list[Row]:
    """For each preference: no point slower than unpatched, no choice far behind a route."""
    rows = []
    for preference in ("default", "cusolver"):
        compared = [
            (new / old, key) for key, new, old in _compared(record, preference) if new > _LEAST_MS
        ]
        if compared:
            rows.append(_row("solve: against unpatched", preference, compared, SLOWER_GOAL))
        regrets = []
        for key, times in _times(record).items():
            new = times.get((PATCHED, "choice", preference))
            routes = [
                ms
                for (library, backend, _), ms in times.items()
                if library == PATCHED
                and backend != "choice"
                and (backend != "stock" or preference == "default")
            ]
            if new is not None and routes and new > _LEAST_MS:
                regrets.append((new / min(routes), key))
        if regrets:
            rows.append(_row("solve: regret of the choice", preference, regrets, REGRET_GOAL))
    return rows


def _row(name: str, preference: str, found: list[tuple[float, Key]], goal: float) -> Row:
    worst, at = max(found)
    over = [f"{key}: {ratio:.2f}" for ratio, key in sorted(found, reverse=True) if ratio > goal]
    value: dict[str, Any] = {"worst": round(worst, 3), "at": list(at), "points": len(found)}
    return {
        "name": name,
        "params": {"preference": preference},
        "result": "fail" if over else "pass",
        "value": value,
        "reason": "; ".join(over)[:600],
    }


def table(record: Record) -> list[str]:
    """Lines: milliseconds unpatched and patched at each point, by preference."""
    shown: dict[Key, str] = {}
    for preference in ("default", "cusolver"):
        for key, new, old in _compared(record, preference):
            shown[key] = shown.get(key, "") + f"{old:12.4f} -> {new:8.4f} ({old / new:5.2f}x)"
    if not shown:
        return []
    title = "lu_solve: ms unpatched -> patched, without a preference and with cusolver"
    lines = ["", title]
    for (dtype, batch, n, nrhs, operation), text in shown.items():
        lines.append(f"{dtype:11}{batch:6} x {n:4}, {nrhs:4} {operation}{text}")
    return lines
