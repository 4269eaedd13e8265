"""Lifetime: small calls on side streams with churn, streams in order, memory, raised errors,
devices.
"""

from __future__ import annotations

import gc
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import common

from aotools.gputest.session import Session

RAISED = 10_000
ROOM = 150 * 2**20  # bytes left free where memory is "nearly full"
FLAT = 2**21
ORDER_N = 260

# The pool holds almost all memory when the first linalg call comes; argv[1]: the wish.
FULL_POOL = """
import sys, torch, common
torch.ones(1, device="cuda")
free = torch.cuda.mem_get_info()[0]
blocks = [torch.empty(max(1, free - 250 * 2**20), dtype=torch.uint8, device="cuda")]
del blocks
library = common.enable()
torch.backends.cuda.preferred_linalg_library(sys.argv[1])
eye = torch.eye(4, device="cuda").repeat(3, 1, 1)
try:
    found = torch.linalg.inv(eye)
    print("worked" if torch.equal(found, eye) else "WRONG")
except RuntimeError as error:
    torch.cuda.empty_cache()
    assert torch.equal(torch.linalg.inv(eye), eye)
    print("worked after empty_cache:", str(error).splitlines()[0][:150])
"""

# Results of a few calls as a checksum, to be the same with other processes beside.
SAME = """
import hashlib, torch, common
common.enable()
digest = hashlib.sha256()
for batch, n in ((3, 700), (64, 24), (5, 300), (2, 1024)):
    a = common.matrices(torch, "float32", batch, n, n)
    for tensor in torch.linalg.lu_factor_ex(a):
        digest.update(tensor.cpu().numpy().tobytes())
print(digest.hexdigest())
"""


def churn(session: Session) -> None:
    """Small calls on changing streams with allocator churn, each result checked on the GPU; memory
    must stay flat. Ends at `calls` or after `seconds`, and says how many calls there were.
    """
    torch = session.torch
    library = common.enable()
    wanted = int(session.options.get("calls", 1_000_000))
    deadline = time.monotonic() + float(session.options.get("seconds", 160))
    with session.check("small calls on side streams", case="B61", asked=wanted) as check:
        streams = [torch.cuda.Stream() for _ in range(4)]
        source = common.matrices(torch, "float32", 64, 3, 3) + 4 * torch.eye(3, device="cuda")
        sources = [source[start : start + 2] for start in range(62)]
        # A NaN in any result stays in the sum of its stream; one kernel a call less than isnan.
        sums = [torch.zeros((), device="cuda") for _ in streams]
        torch.cuda.synchronize()
        used, index = [], 0
        while index < wanted and time.monotonic() < deadline:
            for _ in range(1000):
                with torch.cuda.stream(streams[index % 4]):
                    a = sources[index % 62] * 1.0
                    sums[index % 4] += torch.linalg.inv_ex(a).inverse.sum()
                    del a
                    if index % 7 == 0:
                        size = (index % 50) * 1000 + 1
                        torch.empty(size, device="cuda").fill_(float("nan"))
                index += 1
            if index % 20_000 == 0:
                torch.cuda.synchronize()
                used.append(torch.cuda.memory_reserved())
        torch.cuda.synchronize()
        bad = sum(not math.isfinite(float(total)) for total in sums)
        flat = len(used) < 2 or max(used[len(used) // 2 :]) <= max(used[: len(used) // 2 + 1])
        check.value = {
            "calls": index,
            "NaN": bad,
            "reserved bytes": [used[0], used[-1]] if used else [],
            "handles": int(library.call("created_lanes", 0)),
        }
        check.ok = bad == 0 and flat and index > 0
        check.reason = "" if index >= wanted else "time was up before all calls were made"
    common.disable()


def order(session: Session) -> None:
    """Inputs made on another stream, with wait_stream, and memory that is used again at once."""
    torch = session.torch
    library = common.enable()
    for route in ("choice", *common.LU_ROUTES):
        with session.check("streams in order", case="B63", route=route) as check:
            producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
            worst = 0.0
            with common.forced(library, route):
                for turn in range(20):
                    with torch.cuda.stream(producer):
                        torch.cuda._sleep(2_000_000)
                        a = common.matrices(torch, "float32", 4, ORDER_N, ORDER_N) + turn
                    consumer.wait_stream(producer)
                    with torch.cuda.stream(consumer):
                        lu, pivots, _ = torch.linalg.lu_factor_ex(a)
                        copy = a.clone()
                    producer.wait_stream(consumer)
                    with torch.cuda.stream(producer):
                        a.fill_(float("nan"))  # what the consumer was given is used again
                    torch.cuda.synchronize()
                    worst = max(worst, common.factor_error(torch, copy, lu, pivots))
            check.value, check.ok = round(worst, 3), worst < common.LIMIT
    common.disable()


def errors(session: Session) -> None:
    """Errors that are raised leak nothing, and calls with memory nearly full end well."""
    torch = session.torch
    library = common.enable()
    with session.check("raised errors leak nothing", case="B72", raised=RAISED) as check:
        singular = torch.ones(3, 3, 3, device="cuda")
        large = torch.ones(4, 600, 600, device="cuda")
        used, handles = [], []
        for turn in range(RAISED):
            with common.raises(torch.linalg.LinAlgError):
                torch.linalg.inv(singular if turn % 50 else large)
            if turn in (RAISED // 5, RAISED - 1):
                gc.collect()
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                used.append(int(torch.cuda.mem_get_info()[0]))
                handles.append(int(library.call("created_lanes", 0)))
        check.value = {"free bytes": used, "handles": handles}
        check.ok = used[0] - used[-1] < FLAT and handles[0] == handles[-1]
    full(session)
    for preference in ("default", "cusolver"):
        with session.check("the pool holds all memory", case="B70", preference=preference) as check:
            torch.cuda.empty_cache()
            bad, text = common.script(FULL_POOL, preference, timeout=90)
            check.value = text.strip()[-300:]
            check.ok = not bad and "worked" in text and "WRONG" not in text
            check.reason = bad
    common.disable()


def full(session: Session) -> None:
    """150 MiB are free: results are right or out of memory is raised, and memory comes back."""
    torch = session.torch
    library = common.enable()
    for route in ("choice", "streamed_cusolver", "batched_cublas"):
        with session.check("memory nearly full", case="B69", route=route) as check:
            library.release_lanes()
            torch.cuda.empty_cache()
            a = common.matrices(torch, "float32", 8, 700, 700)
            free = int(torch.cuda.mem_get_info()[0])
            filler = torch.empty(max(1, free - ROOM), dtype=torch.uint8, device="cuda")
            outcome, factors = "right", None
            with common.forced(library, route):
                try:
                    factors = torch.linalg.lu_factor_ex(a)
                except torch.OutOfMemoryError:
                    outcome = "out of memory"
                handles = int(library.call("created_lanes", 0))
                del filler
                torch.cuda.empty_cache()
                if factors is not None:
                    error = common.factor_error(torch, a, *factors[:2])
                    outcome = outcome if error < common.LIMIT else "wrong"
                lu, pivots, _ = torch.linalg.lu_factor_ex(a)
            check.value = {"outcome": outcome, "handles": handles}
            check.ok = outcome != "wrong"
            check.ok = check.ok and common.factor_error(torch, a, lu, pivots) < common.LIMIT


def device_guard(session: Session) -> None:
    """Tensors on cuda:1 while the current device is 0."""
    torch = session.torch
    common.enable()
    with session.check("device guard", case="B67") as check:
        if torch.cuda.device_count() < 2:
            check.skip, check.reason = True, "one GPU"
        else:
            before = torch.cuda.memory_allocated(0)
            for preference in ("default", "cusolver", "cublas"):
                with common.preferring(torch, preference):
                    a = torch.randn(5, 600, 600, device="cuda:1")
                    b = torch.randn(5, 600, 2, device="cuda:1")
                    x = torch.linalg.solve_ex(a, b).result
                    assert x.device.index == 1 and torch.cuda.current_device() == 0
                    assert common.solve_error(torch, a, x, b) < common.LIMIT
                    assert torch.linalg.det(a).device.index == 1
            check.value = torch.cuda.memory_allocated(0) - before
            check.ok = check.value == 0
    common.disable()


def beside(session: Session) -> None:
    """Four processes at once on one GPU get the bits of one alone."""
    with session.check("four processes at once", case="B75") as check:

        def one(_: Any) -> tuple[str, str]:
            return common.script(SAME, timeout=120)

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(one, range(4)))
        alone = one(None)
        check.value = len({text.strip() for _, text in [*results, alone]})
        check.ok = check.value == 1 and not any(bad for bad, _ in [*results, alone])
        check.reason = "; ".join(f"{bad}: {text[-150:]}" for bad, text in results if bad)


def run(session: Session) -> None:
    """What needs the GPU's memory for itself."""
    order(session)
    device_guard(session)
    errors(session)
