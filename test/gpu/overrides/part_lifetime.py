"""Concurrency and lifetime: small calls on side streams with churn, memory, errors, capture
beside work.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import common

import aten_overrides
from aotools.gputest.session import Session


def churn(session: Session) -> None:
    """Small calls on changing streams, each result checked on the GPU; memory must stay flat."""
    torch = session.torch
    common.enable()
    calls = int(session.options.get("calls", 100_000))
    with session.check("small calls on side streams", calls=calls) as check:
        streams = [torch.cuda.Stream() for _ in range(4)]
        source = common.matrices(torch, "float32", 64, 3, 3) + 4 * torch.eye(3, device="cuda")
        bad = torch.zeros((), dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        used = []
        for index in range(calls):
            with torch.cuda.stream(streams[index % 4]):
                a = source[index % 62 : index % 62 + 2] * 1.0
                x = torch.linalg.inv_ex(a).inverse
                bad += (~x.isfinite()).sum()
                del a
                if index % 7 == 0:
                    junk = torch.empty((index % 50) * 1000 + 1, device="cuda").fill_(float("nan"))
                    del junk
            if index in (calls // 4, calls - 1):
                torch.cuda.synchronize()
                used.append(torch.cuda.memory_allocated())
        check.value = {"not finite": int(bad), "bytes": used}
        check.ok = int(bad) == 0 and used[1] <= used[0]


def errors(session: Session) -> None:
    """Errors that are raised leak nothing, also with streams."""
    torch = session.torch
    library = common.enable()
    with session.check("10000 raised errors") as check:
        singular = torch.ones(3, 3, 3, device="cuda")
        large = torch.ones(4, 600, 600, device="cuda")
        used = []
        for turn in range(10_000):
            try:
                torch.linalg.inv(singular if turn % 50 else large)
            except torch.linalg.LinAlgError:
                pass
            else:
                raise AssertionError("not raised")
            if turn in (2000, 9999):
                gc.collect()
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                used.append(torch.cuda.mem_get_info()[0])
        check.value = {"free bytes": used, "handles": library.call("created_lanes", 0)}
        check.ok = used[0] - used[1] < 2**21
    with session.check("memory nearly full") as check:
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        filler = torch.empty(max(0, free - 150 * 2**20), dtype=torch.uint8, device="cuda")
        a = common.matrices(torch, "float32", 8, 700, 700)
        outcome = "right"
        factors = None
        try:
            factors = torch.linalg.lu_factor_ex(a)
        except torch.OutOfMemoryError:
            outcome = "out of memory"
        del filler
        torch.cuda.empty_cache()
        if factors is not None and not common.factor_error(torch, a, *factors[:2]) < 30:
            outcome = "wrong"
        lu, pivots, _ = torch.linalg.lu_factor_ex(a)
        check.value = outcome
        check.ok = outcome != "wrong" and common.factor_error(torch, a, lu, pivots) < 30


def capture_beside_work(session: Session) -> None:
    """One thread captures while another works."""
    torch = session.torch
    common.enable()
    with session.check("one thread captures, one works") as check:
        a = common.matrices(torch, "float32", 4, 600, 600)
        b = common.matrices(torch, "float32", 8, 520, 520)
        torch.linalg.lu_factor_ex(a)
        torch.cuda.synchronize()
        stop, failures = threading.Event(), []
        worst = [0.0]

        def work() -> None:
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    while not stop.is_set():
                        lu, pivots, _ = torch.linalg.lu_factor_ex(b)
                        worst[0] = max(worst[0], common.factor_error(torch, b, lu, pivots))
            except Exception as error:
                failures.append(str(error)[:200])

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(5):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                found = torch.linalg.lu_factor_ex(a)
            a.copy_(common.matrices(torch, "float32", 4, 600, 600) + 1)
            graph.replay()
            torch.cuda.synchronize()
            worst[0] = max(worst[0], common.factor_error(torch, a, found[0], found[1]))
        stop.set()
        thread.join()
        check.value, check.ok = round(worst[0], 3), worst[0] < 30 and not failures
        check.reason = "; ".join(failures)


def device_guard(session: Session) -> None:
    """Tensors on cuda:1 while the current device is 0."""
    torch = session.torch
    common.enable()
    with session.check("device guard") as check:
        if torch.cuda.device_count() < 2:
            check.skip, check.reason = True, "one GPU"
            return
        before = torch.cuda.memory_allocated(0)
        for route in ("default", "cusolver", "cublas"):
            torch.backends.cuda.preferred_linalg_library(route)
            a = torch.randn(5, 600, 600, device="cuda:1")
            b = torch.randn(5, 600, 2, device="cuda:1")
            x = torch.linalg.solve_ex(a, b).result
            assert x.device.index == 1 and torch.cuda.current_device() == 0
            assert common.solve_error(torch, a, x, b) < 30
        check.value = torch.cuda.memory_allocated(0) - before
        check.ok = check.value == 0


def run(session: Session) -> None:
    """All of it."""
    errors(session)
    capture_beside_work(session)
    device_guard(session)
    churn(session)
    aten_overrides.disable()


def compiled(session: Session) -> None:
    """torch.compile, default and max-autotune, then a call from a side stream (upstream 195731)."""
    torch = session.torch
    common.enable()

    def function(a: Any, b: Any) -> Any:
        return (
            torch.linalg.solve_ex(a, b)[0] * 2,
            torch.linalg.inv_ex(a)[0],
        )
        torch.linalg.lu_factor_ex(a)[0] + 1

    for mode in ("default", "max-autotune"):
        for shape in ((16, 128, 128), (64, 512, 512)):
            with session.check("torch.compile", mode=mode, shape=shape) as check:
                torch._dynamo.reset()
                compiled_function = torch.compile(function, mode=mode)
                worst = 0.0
                for turn in range(4):
                    stream = torch.cuda.Stream() if turn == 3 else torch.cuda.current_stream()
                    a = common.matrices(torch, "float32", *shape) + turn
                    b = common.matrices(torch, "float32", *shape[:2], 2)
                    torch.cuda.synchronize()
                    with torch.cuda.stream(stream):
                        x, _, _ = compiled_function(a, b)
                        torch.cuda.synchronize()
                        worst = max(worst, common.solve_error(torch, a, x / 2, b))
                check.value, check.ok = round(worst, 3), worst < 30
