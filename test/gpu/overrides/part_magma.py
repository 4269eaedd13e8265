"""Where the choice is MAGMA: matrices with a zero pivot, no memory for the copy, and what it costs.

A chooser takes MAGMA wherever it may be taken, also on a GPU on which the table never does. That
another route goes on after an error is tested without a GPU: test/aten_overrides/runtime.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import common

from aotools.gputest.session import Session
from aten_overrides import _select

STOCK, LOOP = 3, 1  # Choice.h's Backend
SHAPES = ((17, 33, 33), (9, 130, 130), (5, 513, 513), (9, 70, 40), (9, 40, 70), (300, 129, 129))
TIMED = ((64, 256, 256), (1024, 256, 256), (64, 512, 512), (64, 512, 256), (1024, 64, 32))
MOST = 1.10  # times MAGMA alone

# A process in which torch has no memory for a copy, while MAGMA allocates for itself.
NO_MEMORY = """
import sys, warnings, torch, common, part_magma
library = common.enable()
warnings.simplefilter("error")
a = common.matrices(torch, "float32", 64, 512, 512)
bad = a.clone()
bad[5, :, 2] = 0
with part_magma.choosing_magma(library):
    lu, pivots, info = torch.linalg.lu_factor_ex(a)  # creates what the first call creates
    outs = [torch.empty_like(lu), torch.empty_like(pivots), torch.empty_like(info)]
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**23) / total)
    before = library.counts().get(("lu_factor", "stock"), 0)
    torch.linalg.lu_factor_ex(a, out=outs)
    assert library.counts()[("lu_factor", "stock")] == before + 1
    found = [x.cpu() for x in outs]
    said = "nothing"
    try:
        torch.linalg.lu_factor_ex(bad, out=[x.clone() if x is not outs[0] else x for x in outs])
    except Warning as warning:
        said = str(warning)
torch.cuda.set_per_process_memory_fraction(1.0)
print("error", common.factor_error(torch, a, *(x.cuda() for x in found[:2])))
print("said", said)
"""

_CHOOSER = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    *[ctypes.c_int64] * 3,
    *[ctypes.c_int32] * 6,
    ctypes.POINTER(_select.Report),
)


def _choose(*given: Any) -> int:
    stock, capturing, report = given[8], given[9], given[11]
    report.contents.by_table = STOCK if stock and not capturing else LOOP
    return 0


@contextmanager
def choosing_magma(library: Any) -> Iterator[None]:
    """Replaces the table by a chooser that is for MAGMA; afterwards ATen's thresholds choose."""
    chooser = _CHOOSER(_choose)
    library.call("set_table", ctypes.cast(chooser, ctypes.c_void_p), None)
    try:
        yield
    finally:
        library.call("set_table", None, None)


def singular(session: Session, library: Any) -> None:
    """One matrix with a zero column among good ones: P L U = A for all of them, info, neighbours as
    MAGMA made them. `alone`: the residual of MAGMA's own factors of that matrix.
    """
    torch = session.torch
    for dtype in common.DTYPES:
        for shape in SHAPES:
            with session.check("MAGMA: zero pivot", case="B34", dtype=dtype, shape=shape) as check:
                clean = common.matrices(torch, dtype, *shape)
                a, bad = clean.clone(), shape[0] // 2
                a[bad, :, 2] = 0
                with common.forced(library, "stock"):
                    alone = torch.linalg.lu_factor_ex(a)
                    expected = torch.linalg.lu_factor_ex(clean)
                before = library.counts()
                lu, pivots, info = torch.linalg.lu_factor_ex(a)
                routes = common.used(library, before)
                others = [i for i in range(shape[0]) if i != bad]
                error = common.factor_error(torch, a, lu, pivots)
                check.value = {
                    "error": round(error, 3),
                    "info": int(info[bad]),
                    "alone": _alone(torch, a[bad], alone, bad),
                    "routes": sorted(routes),
                }
                check.ok = error < common.LIMIT and int(info[bad]) == 3 and "stock" in routes
                check.ok &= not bool(info[others].any())
                check.ok &= torch.equal(lu[others], expected[0][others])


def _alone(torch: Any, a: Any, found: Any, item: int) -> float | str:
    try:
        return round(
            common.factor_error(torch, a[None], found[0][item][None], found[1][item][None]), 3
        )
    except RuntimeError as error:  # pivots that are no rows
        return str(error)[:80]


def waits(session: Session, library: Any) -> None:
    """Sync debug mode, which does not see MAGMA's own waiting, does not see ours either."""
    torch = session.torch
    with session.check("MAGMA: sync debug mode", case="B106") as check:
        a = common.matrices(torch, "float32", 64, 300, 300)
        torch.linalg.lu_factor_ex(a)
        torch.cuda.set_sync_debug_mode("error")
        try:
            lu, pivots, _ = torch.linalg.lu_factor_ex(a)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        check.value = round(common.factor_error(torch, a, lu, pivots), 3)
        check.ok = check.value < common.LIMIT


def costs(session: Session) -> None:
    """The copy and the look at the infos, over MAGMA alone."""
    library = common.enable()
    if has_magma(session):
        with choosing_magma(library):
            cost(session, library)
    common.disable()


def cost(session: Session, library: Any) -> None:
    """The same, while the choice is MAGMA."""
    torch = session.torch
    for shape in TIMED:
        a = common.matrices(torch, "float32", *shape)
        call = partial(torch.linalg.lu_factor_ex, a)
        samples = common.in_turns(
            session,
            {"stock": call, "choice": call},
            lambda way: library.force_route("lu_factor", "stock" if way == "stock" else None),
            far=100,
        )
        library.force_route("lu_factor", None)
        for way, took in samples.items():
            session.point("lu_factor_ex", "float32", shape, common.timing(took), backend=way)
        with session.check("MAGMA: cost of the copy", shape=shape) as check:
            ratio = statistics.median(samples["choice"]) / statistics.median(samples["stock"])
            check.value, check.ok = round(ratio, 3), ratio <= MOST


def no_memory(session: Session) -> None:
    """Without memory for the copy the call goes as without us; a zero pivot is told."""
    with session.check("MAGMA: no memory for the copy", case="B70") as check:
        bad, text = common.script(NO_MEMORY, timeout=60)
        lines = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
        check.value, check.reason = lines, bad and f"{bad}: {text.strip()[-300:]}"
        check.ok = not bad and float(lines["error"]) < common.LIMIT
        check.ok = check.ok and "may be wrong" in lines["said"]


def has_magma(session: Session) -> bool:
    """Whether the wheel has it; a row says where it has not."""
    there = bool(session.torch.cuda.has_magma)
    if not there:
        with session.check("MAGMA") as check:
            check.skip, check.reason = True, "the wheel has none"
    return there


def run(session: Session) -> None:
    """All of it but the costs."""
    library = common.enable()
    there = has_magma(session)
    if there:
        with choosing_magma(library):
            singular(session, library)
            waits(session, library)
    common.disable()
    if there:
        no_memory(session)
