"""The route batched_native through torch.linalg: results, LAPACK's contract, graphs, allocations.

    python3 test/gpu/overrides/part_native.py FILE.json

writes the checks and needs a gpu library with the kernels for this GPU; run.py is not needed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tools"), str(HERE.parents[2])]

import common  # noqa: E402

import aten_overrides  # noqa: E402
from aotools.gputest.session import Rows, Session  # noqa: E402
from aten_overrides import _runtime  # noqa: E402
from aten_overrides._select import Native  # noqa: E402

ROUTE = "batched_native"
SMALL = (1, 2, 3, 7, 8, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 97, 127, 128, 129)
LARGE = (
    *(192, 255, 256, 257, 300, 511, 512, 513, 616, 1000),
    *(1023, 1024, 1025, 1536, 2047, 2048, 2049),
)
RECTANGULAR = (
    *((5, 33, 17), (5, 17, 33), (3, 200, 64), (3, 64, 200), (2, 1000, 300), (2, 300, 1000)),
    *((2, 5000, 40), (2, 40, 5000), (700, 64, 32), (700, 32, 64), (1, 1, 9), (4, 9, 1)),
)
MANY = ((70000, 8), (70000, 33), (66000, 40))  # above what a grid's second dimension holds
ALLOCATIONS = 6
GRAPHS = ((64, 16), (64, 64), (8, 128), (700, 128), (8, 512), (2, 1024))


def _enable() -> Any:
    aten_overrides.enable()
    library = _runtime.loaded_library()
    assert library is not None
    return library


def _diagonally_dominant(torch: Any, a: Any) -> Any:
    k = min(a.shape[-2:])
    a[:, range(k), range(k)] += 2.0 * max(a.shape[-2:])
    return a


def _ran(library: Any, call: Callable[[], Any]) -> tuple[Any, int]:
    before = library.counts().get(("lu_factor", ROUTE), 0)
    found = call()
    return found, library.counts().get(("lu_factor", ROUTE), 0) - before


def shapes(session: Session, library: Any) -> None:
    """Residuals over sizes, dtypes and batches; pivots against LAPACK's for small sizes."""
    torch = session.torch
    for dtype in common.DTYPES:
        worst: dict[str, float] = {}
        pivots_differ: list[list[int]] = []
        other_route = 0
        for n in SMALL + LARGE:
            for batch in (1, 3, 700) if n <= 128 else (1, 3):
                a = common.matrices(torch, dtype, batch, n, n)
                (lu, pivots, info), ran = _ran(library, partial(torch.linalg.lu_factor_ex, a))
                other_route += ran != 1
                error = common.factor_error(torch, a, lu, pivots)
                worst[f"{batch} x {n}"] = error if not bool(info.any()) else float("inf")
                if n <= 129 and batch == 3 and dtype in ("float64", "complex128"):
                    expected = torch.linalg.lu_factor_ex(a.cpu())
                    if not torch.equal(expected[1], pivots.cpu()):
                        pivots_differ.append([batch, n])
        with session.check("native residual", dtype=dtype) as check:
            place = max(worst, key=lambda key: worst[key])
            check.value = {"worst": worst[place], "at": place, "shapes": len(worst)}
            check.ok = worst[place] <= common.LIMIT and other_route == 0
            check.reason = f"{other_route} calls took another route" if other_route else ""
        if dtype in ("float64", "complex128"):
            with session.check("native pivots as LAPACK's", dtype=dtype) as check:
                check.value = pivots_differ
                check.ok = not pivots_differ


def kinds(session: Session, library: Any) -> None:
    """Rectangular, without pivoting, many matrices, views and empty inputs."""
    torch = session.torch
    for dtype in common.DTYPES:
        worst: dict[str, float] = {}
        for pivot in (True, False):
            for batch, m, n in (*RECTANGULAR, (3, 32, 32), (3, 90, 90), (3, 300, 300)):
                a = common.matrices(torch, dtype, batch, m, n)
                a = a if pivot else _diagonally_dominant(torch, a)
                lu, pivots, info = torch.linalg.lu_factor_ex(a, pivot=pivot)
                key = f"{batch} x {m} x {n}{'' if pivot else ' no pivoting'}"
                worst[key] = common.factor_error(torch, a, lu, pivots)
                k = torch.arange(1, min(m, n) + 1, device="cuda", dtype=torch.int32)
                if bool(info.any()) or not (pivot or bool((pivots == k).all())):
                    worst[key] = float("inf")
        with session.check("native rectangular and unpivoted", dtype=dtype) as check:
            place = max(worst, key=lambda key: worst[key])
            check.value = {"worst": worst[place], "at": place, "shapes": len(worst)}
            check.ok = worst[place] <= common.LIMIT
    for batch, n in MANY:
        a = common.matrices(torch, "float32", batch, n, n)
        with session.check("native many matrices", shape=[batch, n, n]) as check:
            lu, pivots, info = torch.linalg.lu_factor_ex(a)
            ends = torch.cat([torch.arange(300), torch.arange(batch - 300, batch)]).cuda()
            check.value = common.factor_error(torch, a[ends], lu[ends], pivots[ends])
            check.ok = check.value <= common.LIMIT and not bool(info.any())
    with session.check("native views and empty inputs") as check:
        a = common.matrices(torch, "float64", 6, 40, 40)
        views = (a.mT, a.reshape(2, 3, 40, 40), a[::2], a[:, ::2, ::2], a[0])
        errors = []
        for view in views:
            lu, pivots, _ = torch.linalg.lu_factor_ex(view)
            flat = [x.reshape(-1, *x.shape[-r:]) for x, r in ((view, 2), (lu, 2), (pivots, 1))]
            errors.append(common.factor_error(torch, *flat))
        for empty in ((0, 4, 4), (3, 0, 0), (3, 0, 5), (3, 5, 0)):
            lu, pivots, info = torch.linalg.lu_factor_ex(torch.empty(empty, device="cuda"))
            assert lu.shape == empty and not bool(info.any())
        check.value, check.ok = max(errors), max(errors) <= common.LIMIT


def contract(session: Session, library: Any) -> None:
    """Zero pivots, NaN, neighbours, equal bits run to run, and what is made of lu_factor."""
    torch = session.torch
    for dtype in common.DTYPES:
        for n in (5, 32, 64, 90, 200, 600):
            a = common.matrices(torch, dtype, 4, n, n)
            clean = torch.linalg.lu_factor_ex(a)
            bad = a.clone()
            bad[1, :, n // 2] = 0  # an exactly zero column stays zero
            bad[2, n // 3, n // 4] = float("nan")
            lu, _, info = torch.linalg.lu_factor_ex(bad)
            with session.check("native bad matrices", dtype=dtype, n=n) as check:
                told = [int(x) for x in info]
                same = all(torch.equal(lu[i], clean[0][i]) for i in (0, 3))
                check.value = {"info": told, "neighbours": same}
                check.ok = told[0] == told[3] == 0 and told[1] == n // 2 + 1 and same
                check.ok = check.ok and bool(torch.isnan(lu[2]).any())
                again = torch.linalg.lu_factor_ex(a)
                check.ok = check.ok and all(map(torch.equal, clean[:2], again[:2]))
    a = common.matrices(torch, "float64", 5, 130, 130)
    b = common.matrices(torch, "float64", 5, 130, 2)
    with session.check("native solve, inv, slogdet") as check:
        eye = torch.eye(130, device="cuda", dtype=torch.float64).expand_as(a)
        sign, logdet = torch.linalg.slogdet(a)
        expected = torch.linalg.slogdet(a.cpu())
        check.value = {
            "solve": common.solve_error(torch, a, torch.linalg.solve(a, b), b),
            "inv": common.solve_error(torch, a, torch.linalg.inv(a), eye),
            "logdet": float((logdet.cpu() - expected[1]).abs().max()),
        }
        check.ok = max(check.value["solve"], check.value["inv"]) <= common.LIMIT
        check.ok = (
            check.ok and check.value["logdet"] < 1e-9 and torch.equal(sign.cpu(), expected[0])
        )


def graphs(session: Session, library: Any) -> None:
    """Capture, replay on other data, no synchronisation, a stream of the user's."""
    torch = session.torch
    for dtype in ("float32", "complex128"):
        for batch, n in GRAPHS:
            a = common.matrices(torch, dtype, batch, n, n)
            other = common.matrices(torch, dtype, batch, n, n).flip(0) * 0.5
            eager = torch.linalg.lu_factor_ex(other)
            place = a.clone()
            with session.check("native capture", dtype=dtype, shape=[batch, n, n]) as check:
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    torch.linalg.lu_factor_ex(place)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=side):
                    captured, ran = _ran(library, partial(torch.linalg.lu_factor_ex, place))
                for _ in range(3):
                    place.copy_(other)
                    graph.replay()
                torch.cuda.synchronize()
                check.value = {"native": ran}
                check.ok = ran == 1 and all(map(torch.equal, captured, eager))
    with session.check("native without synchronisation") as check:
        counts = {}
        for n in (16, 64, 128, 600):
            a = common.matrices(torch, "float32", 8, n, n)
            torch.linalg.lu_factor_ex(a)
            counts[n] = common.synchronisations(torch, partial(torch.linalg.lu_factor_ex, a))
        check.value = {str(n): found for n, found in counts.items()}
        check.ok = all(not sum((found or {}).values()) for found in counts.values())


def allocations(session: Session, library: Any) -> None:
    """At most 6 allocator calls of one lu_factor_ex, whatever the batch."""
    torch = session.torch
    counts = {}
    for batch, n in ((1, 16), (1024, 32), (1, 64), (1024, 64), (1, 512), (256, 512), (1024, 128)):
        a = common.matrices(torch, "float32", batch, n, n)
        torch.linalg.lu_factor_ex(a)
        counts[f"{batch} x {n}"] = common.allocations(torch, partial(torch.linalg.lu_factor_ex, a))
    with session.check("native allocations") as check:
        check.value, check.ok = counts, max(counts.values()) <= ALLOCATIONS


def run(session: Session) -> None:
    """All checks under the preference "native", in strict mode."""
    torch = session.torch
    library = _enable()
    with session.check("native usable") as check:
        state = Native(library.native())
        check.value = {"state": state.name, "compiled for": library.native_architectures()}
        check.ok = state is Native.USABLE
    if state is not Native.USABLE:
        return
    aten_overrides.enable(strict=True)
    try:
        with common.preferring(torch, "native"):
            for part in (shapes, kinds, contract, graphs, allocations):
                with session.check("native part", part=part.__name__) as check:
                    started = time.monotonic()
                    part(session, library)
                    torch.cuda.synchronize()
                    check.value = {"seconds": round(time.monotonic() - started, 1)}
                    check.ok = True  # it ended; what it found has rows of its own
    finally:
        aten_overrides.disable()


def main(out: TextIO) -> None:
    """Runs the checks and writes a row for each."""
    run(Session(Rows(out), "overrides", {}, {}))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with place.open("w", encoding="utf-8") as rows:
        main(rows)
    found = [json.loads(line) for line in place.read_text().splitlines()]
    bad = [row for row in found if row.get("result") != "pass"]
    for row in [row for row in found if row["name"] in ("native part", "native residual")] + bad:
        print(row["result"], row["name"], row["params"], row["value"], row["reason"][:200])
    print(f"{len(found)} checks, {len(bad)} not passed")
    sys.exit(1 if bad else 0)
