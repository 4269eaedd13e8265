"""What the rows of a record say together: goals that span jobs, and the table printed at the end of
a run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from aotools.gputest import summary_solve
from aotools.gputest.record import Record, Row

CLIFF_GOAL = 1.10  # 512 against 511
REGRET_GOAL = 1.10  # against the best library route
EIGH_GOAL = 1.10  # against the unpatched source
DEFAULT_LANES = 4
JUDGED = ("patched-magma", "patched-nomagma")
ROUTE_LIBRARY = "patched-magma"


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; NaN of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def unique(values: Iterable[Any]) -> list[Any]:
    """The different values in the order of their first appearance."""
    return list(dict.fromkeys(values))


def solve_points(record: Record) -> dict[tuple[str, str, str, int, int], float]:
    """Milliseconds of solve_ex by (library, preference, dtype, batch, n)."""
    return {
        (row["library"], row["preference"], row["dtype"], row["batch"], row["n"]): row["ms"]
        for row in record.points
        if row["op"] == "solve_ex" and row.get("job", "").startswith("cliff/")
    }


def _factor_points(record: Record) -> list[Row]:
    return [
        row
        for row in record.points
        if row["op"] == "lu_factor_ex" and row.get("job", "") == f"cliff/{ROUTE_LIBRARY}"
    ]


def allowed(row: Row, library: str, preference: str, lanes: int) -> bool:
    """Whether a forced route's point counts as one that the choice could have taken."""
    if row["backend"] == "choice" or row.get("lanes", 0) > lanes:
        return False
    if preference == "cublas":
        return bool(row["backend"] == "batched_cublas")
    return not (
        row["backend"] == "stock" and (preference == "cusolver" or library.endswith("nomagma"))
    )


def best_route(
    points: list[Row], library: str, preference: str, at: tuple[str, int, int], lanes: int
) -> tuple[str, float] | None:
    """The fastest allowed route at (dtype, batch, n) with its milliseconds; None when none was
    timed.
    """
    found = [
        (row["backend"], row["ms"])
        for row in points
        if (row["dtype"], row["batch"], row["n"]) == at and allowed(row, library, preference, lanes)
    ]
    return min(found, key=lambda pair: pair[1], default=None)


def cliff_checks(record: Record) -> list[Row]:
    """For each judged library, preference and dtype: the worst 512/511, beside what the routes
    allow.
    """
    solve = solve_points(record)
    factor = _factor_points(record)
    rows = []
    groups = unique(key[:3] for key in solve if key[0] in JUDGED)
    for library, preference, dtype in groups:
        worst: Row = {"ratio": 0.0}
        over = []
        for batch in unique(key[3] for key in solve if key[:3] == (library, preference, dtype)):
            low, high = (solve.get((library, preference, dtype, batch, n)) for n in (511, 512))
            if low is None or high is None:
                continue
            routes = [
                best_route(factor, library, preference, (dtype, batch, n), DEFAULT_LANES)
                for n in (511, 512)
            ]
            floor = routes[1][1] / routes[0][1] if routes[0] and routes[1] else 1.0
            ratio = high / low
            if ratio > CLIFF_GOAL * max(1.0, floor):
                over.append(f"batch {batch}: {ratio:.2f}, the routes allow {floor:.2f}")
            if ratio > worst["ratio"]:
                worst = {"ratio": round(ratio, 3), "batch": batch, "ms_511": low, "ms_512": high}
        if worst["ratio"]:
            params = {"library": library, "preference": preference, "dtype": dtype}
            rows.append(
                _row(
                    "cliff: solve_ex, worst 512 over 511", params, not over, worst, "; ".join(over)
                )
            )
    return rows


def regret_checks(record: Record) -> list[Row]:
    """lu_factor_ex by choice against the best route timed in the same process."""
    factor = _factor_points(record)
    rows = []
    choices = [row for row in factor if row["backend"] == "choice"]
    for preference, dtype in unique((row["preference"], row["dtype"]) for row in choices):
        regrets, over, eight = [], [], []
        for row in choices:
            if (row["preference"], row["dtype"]) != (preference, dtype):
                continue
            at = (dtype, row["batch"], row["n"])
            best = best_route(factor, ROUTE_LIBRARY, preference, at, DEFAULT_LANES)
            most = best_route(factor, ROUTE_LIBRARY, preference, at, 99)
            if best is None or most is None:
                continue
            regrets.append(row["ms"] / best[1])
            eight.append(row["ms"] / most[1])
            if regrets[-1] > REGRET_GOAL:
                over.append(
                    f"batch {row['batch']}, n {row['n']}: {regrets[-1]:.2f} "
                    f"against {best[0]} {best[1]:.2f} ms"
                )
        if regrets:
            value = {"mean": round(geometric_mean(regrets), 3), "worst": round(max(regrets), 3)}
            value |= {"worst_if_8_lanes_counted": round(max(eight), 3), "points": len(regrets)}
            params = {"library": ROUTE_LIBRARY, "preference": preference, "dtype": dtype}
            rows.append(
                _row(
                    "choice: regret against the best route",
                    params,
                    not over,
                    value,
                    "; ".join(over),
                )
            )
    return rows


def allocation_checks(record: Record) -> list[Row]:
    """Whether the allocator calls of a patched library grow with the batch (batch 1 is another
    path).
    """
    rows = []
    counted = [row for row in record.points if "allocations" in row]
    for library, op, backend in unique(
        (row["library"], row["op"], row["backend"]) for row in counted
    ):
        numbers = {
            row["batch"]: row["allocations"]
            for row in counted
            if (row["library"], row["op"], row["backend"]) == (library, op, backend)
        }
        many = {batch: number for batch, number in numbers.items() if batch > 1}
        if library in JUDGED and len(many) > 1:
            # The choice takes different routes at different batches; a loop must not count
            # matrices.
            routes_differ = backend == "choice" and op == "lu_factor_ex"
            grows = max(many.values()) > many[min(many)]
            ok = not grows or (routes_differ and max(many.values()) <= 12)
            params = {"library": library, "op": op, "backend": backend}
            name = "allocations: do not grow with the batch"
            rows.append(_row(name, params, ok, {str(k): v for k, v in numbers.items()}, ""))
    return rows


def eigh_checks(record: Record) -> list[Row]:
    """eigh and eigvalsh with the series against the unpatched source."""
    timed = {
        (row["op"], row["dtype"], row["batch"], row["n"], row["library"]): row["ms"]
        for row in record.points
        if row.get("job", "").startswith("eigh/")
    }
    rows = []
    for op, dtype, batch, n in unique(key[:4] for key in timed):
        ours, theirs = (
            timed.get((op, dtype, batch, n, f"{name}-nomagma")) for name in ("patched", "unpatched")
        )
        if ours is None or theirs is None:
            continue
        params = {"op": op, "dtype": dtype, "batch": batch, "n": n}
        value = {"ms": ours, "unpatched_ms": theirs, "times_as_fast": round(theirs / ours, 2)}
        name = "eigh: time against the unpatched source"
        rows.append(_row(name, params, ours <= EIGH_GOAL * theirs, value, ""))
    return rows


def checks(record: Record) -> list[Row]:
    """All checks that span jobs."""
    own = cliff_checks(record) + regret_checks(record) + allocation_checks(record)
    return own + eigh_checks(record) + summary_solve.checks(record)


def _row(name: str, params: Row, ok: bool, value: Any, reason: str) -> Row:
    return {
        "name": name,
        "params": params,
        "result": "pass" if ok else "fail",
        "value": value,
        "reason": reason,
    }


# --- the table ------------------------------------------------------------------------------------


def number(ms: float) -> str:
    """Milliseconds with three digits: 0.123, 1.23, 12.3, 123."""
    digits = max(0, 2 - math.floor(math.log10(ms))) if ms > 0 else 0
    return f"{ms:.{min(digits, 3)}f}"


def _cliff_table(record: Record) -> list[str]:
    solve = solve_points(record)
    if not solve:
        return []
    batches = sorted(unique(key[3] for key in solve))
    lines = [
        "",
        "solve_ex, one right-hand side: ms at n = 511 -> 512 (512/511), float32; "
        "worst 512/511 of all dtypes",
    ]
    lines.append(
        f"{'library':18} {'prefer':9}"
        + "".join(f"{f'batch {b}':>21}" for b in batches)
        + "   worst"
    )
    for library, preference in unique(key[:2] for key in solve):
        cells, ratios = "", []
        for dtype in unique(key[2] for key in solve if key[:2] == (library, preference)):
            for batch in batches:
                low, high = (solve.get((library, preference, dtype, batch, n)) for n in (511, 512))
                if low and high:
                    ratios.append(high / low)
                if dtype == "float32":
                    text = (
                        f"{number(low)} -> {number(high)} ({high / low:.2f})"
                        if low and high
                        else "-"
                    )
                    cells += f"{text:>21}"
        lines.append(f"{library:18} {preference:9}{cells}{max(ratios, default=math.nan):8.2f}")
    return lines


def _allocation_table(record: Record) -> list[str]:
    counted = [row for row in record.points if "allocations" in row]
    if not counted:
        return []
    lines = ["", "allocator calls of one call, by batch"]
    for op, backend in unique((row["op"], row["backend"]) for row in counted):
        parts = []
        for library in unique(row["library"] for row in counted):
            numbers = [
                f"{row['batch']}: {row['allocations']}"
                for row in counted
                if (row["op"], row["backend"], row["library"]) == (op, backend, library)
            ]
            if numbers:
                parts.append(f"{library} {', '.join(numbers)}")
        lines.append(f"  {op:20} {backend:18} {'; '.join(parts)}")
    return lines


def table(record: Record, most_failures: int = 25) -> str:
    """The short table that a run ends with: cliff, allocations, checks by name, failures with their
    reasons.
    """
    lines = _cliff_table(record) + _allocation_table(record) + summary_solve.table(record)
    lines += ["", f"{'check':46} {'pass':>5} {'fail':>5} {'vendor':>6} {'skip':>5}"]
    for name in unique(row["name"] for row in record.checks):
        counts = Counter(row["result"] for row in record.checks if row["name"] == name)
        lines.append(
            f"{name[:46]:46} {counts['pass']:5} {counts['fail']:5} "
            f"{counts['vendor']:6} {counts['skip']:5}"
        )
    failed = [row for row in record.checks if row["result"] == "fail"]
    if failed:
        lines += ["", "failed:"]
    for row in failed[:most_failures]:
        params = " ".join(f"{key}={value}" for key, value in row["params"].items())
        lines.append(f"  {row['name']} [{params}] {row['value']} {row['reason']}"[:300])
    if len(failed) > most_failures:
        lines.append(f"  ... and {len(failed) - most_failures} more, in the record")
    unfinished = [name for name, entry in record.jobs.items() if entry.get("state") != "done"]
    if unfinished:
        lines += ["", f"unfinished jobs: {', '.join(unfinished)}"]
    return "\n".join(lines)
