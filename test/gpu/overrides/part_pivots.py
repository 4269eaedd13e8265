"""lu_solve with pivots that are no row numbers, a process for each route (upstream 189669, 70292).

Nobody checks pivots on a GPU, since that would make the host wait. What is measured: whether the
memory around the result changes (`guards`), and whether the process survives.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import common

from aotools.gputest.session import Session

# argv[1]: route. Prints a JSON line for each kind of pivots, the most absurd last.
SCRIPT = """
import json, sys, torch, common
route = sys.argv[1]
library = common.enable()
if route != "choice":
    library.force_route("lu_solve", route)

def one(name, pivots, left=True):
    n, batch, room = 3, 2, 4096
    # The result lies in the middle of memory that must stay as it is.
    buffer = torch.full((2 * room + batch * n * n,), 7.0, device="cuda")
    into = buffer[room : room + batch * n * n].view(batch, n, n).mT
    lu = torch.full((batch, n, n), -1.0, device="cuda")
    b = torch.ones(batch, n, n, device="cuda")
    pivots = torch.tensor(pivots, dtype=torch.int32, device="cuda")
    try:
        torch.linalg.lu_solve(lu, pivots, b, left=left, out=into)
        torch.cuda.synchronize()
        around = torch.cat([buffer[:room], buffer[room + batch * n * n :]])
        guards = bool((around == 7).all())
        words = "unchanged" if guards else "changed"
    except RuntimeError as error:
        words = "raised " + str(error).splitlines()[0][:120]
    print(json.dumps({"kind": name, "guards": words}), flush=True)

one("right", [[1, 2, 3], [3, 3, 3]])
one("n + 1", [[4, 3, 3], [1, 2, 4]])
one("zero and beyond", [[0, 7, 7], [4, 3, 6]])
one("negative", [[-1, -3, -2], [-1, -1, -1]])
one("absurd", [[2147480000] * 3] * 2, left=False)
"""

KINDS = ("right", "n + 1", "zero and beyond", "negative", "absurd")


def rows_of(text: str) -> dict[str, str]:
    """What the script found, by kind of pivots."""
    found = {}
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and "kind" in row:
            found[str(row["kind"])] = str(row["guards"])
    return found


def judge(session: Session, route: str, bad: str, text: str) -> None:
    """A row for each kind of pivots."""
    found = rows_of(text)
    for kind in KINDS:
        # The kernel that unpacks pivots for two triangular solves is the wheel's own.
        owner = "stock" if route == "stock" else "vendor"
        with session.check(
            "pivots that are no rows", case="B21 B22", route=route, pivots=kind, owner=owner
        ) as check:
            check.vendor = kind != "right"
            check.value = found.get(kind, "the process ended")
            check.ok = check.value == "unchanged"
            check.reason = "" if kind in found else f"{bad}: {text.strip()[-200:]}"


def run(session: Session) -> None:
    """All routes at once, since each has a process of its own."""
    routes = ("choice", *common.SOLVE_ROUTES)

    def one(route: str) -> tuple[str, str]:
        return common.script(SCRIPT, route, timeout=90)

    with ThreadPoolExecutor(len(routes)) as pool:
        results: list[Any] = list(pool.map(one, routes))
    for route, (bad, text) in zip(routes, results, strict=True):
        judge(session, route, bad, text)
    with session.check("the CPU names wrong pivots", case="B22", owner="stock") as check:
        torch = session.torch
        with common.raises(RuntimeError, "pivots"):
            lu, pivots = torch.ones(2, 3, 3), torch.tensor([[0, 7, 7], [4, 3, 6]])
            torch.linalg.lu_solve(lu, pivots.int(), torch.ones(2, 3, 1))
        check.ok = True
