"""The README's table of eigh and eigvalsh, and the goals that its record says were missed.
``PARTS`` are generated parts for aotools.readme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aotools import readme

TOPIC = "eigh"
NO_RECORD = "*No record yet: `test/gpu/overrides/run_eigh.py` on a machine with a GPU makes it.*"
# The record's names of the columns. "choice": what the package takes by itself.
COLUMNS = {"stock": "stock", "choice": "with the package", "cupy": "CuPy"}
STEP = "step from 32 to 33"

Problem = tuple[str, str, int, int]


def _times(record: Mapping[str, Any]) -> dict[Problem, dict[str, float]]:
    """Milliseconds by problem and back end, in the record's order."""
    times: dict[Problem, dict[str, float]] = {}
    for point in record["points"]:
        problem = (point["op"], point["dtype"], point["batch"], point["n"])
        times.setdefault(problem, {})[point["backend"]] = point["ms"]
    return times


def _refused(record: Mapping[str, Any]) -> set[Problem]:
    """The problems that stock failed at."""
    found = set()
    for check in record["checks"]:
        params = check["params"]
        failed = check["name"] == "call" and check["result"] != "pass"
        if failed and params["route"] == "stock":
            batch, n = params["shape"][:2]
            found.add((params["op"], params["dtype"], batch, n))
    return found


def _title(problem: Problem) -> tuple[str, str]:
    op, dtype, batch, n = problem
    return f"`{op}` {dtype}", f"{batch} x {n}"


def times_table() -> str:
    """Milliseconds of stock, the package and CuPy at the reported shapes; the fastest in bold."""
    found = readme.load_record(TOPIC)
    if found is None:
        return NO_RECORD
    path, record = found
    refused = _refused(record)
    rows = []
    for problem, times in _times(record).items():
        shown = {name: times[name] for name in COLUMNS if name in times}
        best = min(shown.values(), default=0.0)
        cells = []
        for name in COLUMNS:
            text = readme.milliseconds(shown[name]) if name in shown else ""
            if name == "stock" and name not in shown and problem in refused:
                text = "error"
            cells.append(f"**{text}**" if shown.get(name) == best else text)
        rows.append((*_title(problem), *cells))
    head = ("milliseconds", "matrices x n", *COLUMNS.values())
    text = readme.table(head, rows, numbers=len(COLUMNS))
    return f"{text}\n\nBy the host's clock. {readme.caption(path, record['meta'])}"


def _missed(checks: list[Mapping[str, Any]]) -> Iterator[str]:
    for check in checks:
        params, value = check["params"], check["value"]
        if check["name"] == STEP and check["result"] != "pass":
            yield (
                f"- {STEP} at batch {params['batch']}, {params['dtype']}: a factor of {value}; "
                f"{check['reason']}"
            )
        if check["name"] != "goal" or check["result"] != "fail":
            continue
        batch, n = params["shape"][:2]
        what, size = _title((params["op"], params["dtype"], batch, n))
        ours, asked, cupy = value["choice"], value["asked"], value.get("cupy")
        if isinstance(asked, str):
            goal = f"{asked}, {readme.milliseconds(cupy)} ms ({ours / cupy - 1:.0%} more)"
        else:
            goal = f"{readme.milliseconds(asked)} ms"
            goal += f"; CuPy takes {readme.milliseconds(cupy)}" if cupy else ""
        yield f"- {what}, {size}: {readme.milliseconds(ours)} ms, the goal was {goal}"


def missed_goals() -> str:
    """A line for each goal that the newest record says was missed."""
    found = readme.load_record(TOPIC)
    if found is None:
        return NO_RECORD
    return "\n".join(_missed(found[1]["checks"])) or "No goal was missed."


PARTS: dict[str, Callable[[], str]] = {
    "eigh-goals": missed_goals,
    "eigh-table": times_table,
}
