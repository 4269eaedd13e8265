"""Auxiliary streams against the loop on one stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from aotools.gputest.session import Check, Session, measure

BATCH = 64
POINTS = (("float32", 512), ("float32", 768), ("float32", 1024), ("float64", 768))
RUNS, SIDE_RUNS = 50, 20
GOAL = 2.3
GRAPH_SHAPES = ((64, 512), (16, 1024), (4, 1024))  # batch, n
FEW = (4, 1024)  # batch, n for which the choice is streams
OFF_SHAPES = (FEW, (64, 512), (2, 2048))
THREAD_SIZES = (640, 1024)


def equal(torch: Any, got: Any, want: Any) -> bool:
    """Whether two results of lu_factor_ex are the same bits."""
    return all(torch.equal(one, other) for one, other in zip(got, want, strict=True))


def speed(session: Session) -> None:
    """Loop and 4 and 8 lanes: time, and bits over many runs from two streams."""
    torch, lib = session.torch, session.patched
    lib.limits(8, 1024)
    side = torch.cuda.Stream()
    for dtype, n in POINTS:
        a = torch.randn(BATCH, n, n, dtype=getattr(torch, dtype), device="cuda")
        shape = (BATCH, n, n)

        def factor(a: Any = a) -> Any:
            return torch.linalg.lu_factor_ex(a)

        with lib.forced("looped_cusolver"):
            loop = measure(session.clock(factor))
            session.point("lu_factor_ex", dtype, shape, loop, backend="looped_cusolver")
            want = factor()
        for lanes in (4, 8):
            with lib.forced("streamed_cusolver", lanes):
                timing = measure(session.clock(factor))
                more = {"lanes": lanes}
                session.point(
                    "lu_factor_ex", dtype, shape, timing, backend="streamed_cusolver", **more
                )
                at = {"dtype": dtype, "n": n, "batch": BATCH, "lanes": lanes}
                with session.check("lanes: speed-up over the loop", **at) as check:
                    check.value = round(loop.ms / timing.ms, 2)
                    check.ok = check.value >= GOAL
                    check.reason = f"{loop.ms:.1f} ms -> {timing.ms:.1f} ms, goal {GOAL}"
                with session.check("lanes: bits equal to the loop's", **at, runs=RUNS) as check:
                    differing = sum(not equal(torch, factor(), want) for _ in range(RUNS))
                    check.ok, check.value = differing == 0, differing
                with session.check(
                    "lanes: bits equal from a side stream", **at, runs=SIDE_RUNS
                ) as check:
                    differing = 0
                    for _ in range(SIDE_RUNS):
                        side.wait_stream(torch.cuda.current_stream())
                        with torch.cuda.stream(side):
                            b = a * 1  # has to be complete before the lanes read it ...
                            got = factor(b)
                            b.zero_()  # ... and may be overwritten only after
                        torch.cuda.current_stream().wait_stream(side)
                        differing += not equal(torch, got, want)
                    check.ok, check.value = differing == 0, differing


def capture(torch: Any, fn: Callable[[], Any], mode: str = "global") -> tuple[Any, Any]:
    """Captures `fn` after a warm-up on a side stream; returns the graph and what `fn` returned."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fn()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        out = fn()
    return graph, out


def graphs(session: Session) -> None:
    """Capture in a CUDA graph and replay on new data, bits against the eager call."""
    lib = session.patched
    lib.limits(8, 1024)
    routes = [
        ("streamed_cusolver", 4),
        ("streamed_cusolver", 8),
        ("looped_cusolver", 0),
        ("batched_cublas", 0),
    ]
    routes += [("choice", 0)]
    for batch, n in GRAPH_SHAPES:
        for backend, lanes in routes:
            for preference in (
                ("default", "cusolver", "cublas") if backend == "choice" else ("default",)
            ):
                at = {
                    "batch": batch,
                    "n": n,
                    "backend": backend,
                    "lanes": lanes,
                    "preference": preference,
                }
                with session.check("lanes: graph replay equals the eager call", **at) as check:
                    session.prefer(preference)
                    # Under capture the default choice may take another route than outside: no
                    # MAGMA.
                    strict = backend != "choice" or preference != "default"
                    with lib.forced(backend, lanes):
                        _replay(session, batch, n, check, strict)
    session.prefer("default")


def _replay(session: Session, batch: int, n: int, check: Check, strict: bool) -> None:
    torch = session.torch
    a = torch.randn(batch, n, n, device="cuda")
    graph, out = capture(torch, lambda: torch.linalg.lu_factor_ex(a))
    worst = 0.0
    same = 0
    for _ in range(3):
        a.copy_(torch.randn_like(a))
        graph.replay()
        p, lower, upper = torch.lu_unpack(out[0], out[1])
        worst = max(worst, float((p @ lower @ upper - a).abs().max() / a.abs().max()))
        same += equal(torch, torch.linalg.lu_factor_ex(a), out)
    check.value = {"bit_equal_of_3": same, "residual": float(f"{worst:.3g}")}
    check.ok = worst < 1e-3 and (same == 3 or not strict)
    if same < 3:
        check.reason = "another route under capture than outside" if check.ok else "bits differ"


def limits(session: Session) -> None:
    """What the limits of lanes and memory do, and what handles take."""
    torch, lib = session.torch, session.patched
    session.prefer("cusolver")
    a = torch.randn(FEW[0], FEW[1], FEW[1], device="cuda")
    with lib.forced("looped_cusolver"):
        want = torch.linalg.lu_factor_ex(a)

    with session.check("lanes: memory limit 0 keeps one stream") as check:
        assert lib.limits(4, 0) == 0
        same = equal(torch, torch.linalg.lu_factor_ex(a), want)
        check.value = lib.created()
        check.ok = same and check.value == 0
    with session.check("lanes: lanes 1 keeps one stream") as check:
        assert lib.limits(1, 512) == 0
        same = equal(torch, torch.linalg.lu_factor_ex(a), want)
        check.value = lib.created()
        check.ok = same and check.value == 0
    with session.check("lanes: negative limits are refused") as check:
        check.value = [lib.limits(-1, 512), lib.limits(4, -1)]
        check.ok = check.value == [-1, -1]
    with session.check("lanes: the choice uses the default limits") as check:
        assert lib.limits(4, 512) == 0
        same = equal(torch, torch.linalg.lu_factor_ex(a), want)
        check.value = lib.created()
        check.ok = same and check.value == 3
    with session.check("lanes: memory limit 250 MiB allows two handles") as check:
        lib.release()
        assert lib.created() == 0 and lib.limits(8, 250) == 0
        same = equal(torch, torch.linalg.lu_factor_ex(a), want)
        check.value = lib.created()
        check.ok = same and check.value == 2
    lib.release()
    small = torch.randn(8, 32, 32, device="cuda")
    with lib.forced("looped_cusolver"):
        torch.linalg.lu_factor_ex(small)  # what it loads is not the handles'
    for lanes, limit in ((4, 512), (8, 1024)):
        with session.check("lanes: device memory of the handles, MiB", lanes=lanes) as check:
            lib.release()
            lib.limits(lanes, limit)
            torch.cuda.synchronize()
            before = torch.cuda.mem_get_info()[0]
            with lib.forced("streamed_cusolver", lanes):
                torch.linalg.lu_factor_ex(small)
            torch.cuda.synchronize()
            taken = (before - torch.cuda.mem_get_info()[0]) / 2**20
            check.value = {
                "handles": lib.created(),
                "mib": round(taken),
                "mib_each": round(taken / (lanes - 1)),
            }
            # SolverLanes counts 100 MiB for each
            check.ok = lib.created() == lanes - 1 and taken <= 110 * (lanes - 1)
    with session.check("lanes: release gives the memory back, MiB") as check:
        before = torch.cuda.mem_get_info()[0]
        lib.release()
        torch.cuda.synchronize()
        check.value = round((torch.cuda.mem_get_info()[0] - before) / 2**20)
        check.ok = lib.created() == 0 and check.value > 0


def off(session: Session) -> None:
    """With TORCH_LINALG_STREAMS=1 in the environment nothing is created, and results are the
    loop's.
    """
    torch, lib = session.torch, session.patched
    session.prefer("cusolver")
    for batch, n in OFF_SHAPES:
        with session.check(
            "lanes: TORCH_LINALG_STREAMS=1 keeps one stream", batch=batch, n=n
        ) as check:
            a = torch.randn(batch, n, n, device="cuda")
            got = torch.linalg.lu_factor_ex(a)
            p, lower, upper = torch.lu_unpack(got[0], got[1])
            error = float((p @ lower @ upper - a).abs().max() / a.abs().max())
            check.value = {"created": lib.created(), "residual": float(f"{error:.3g}")}
            check.ok = lib.created() == 0 and error < 1e-3
    with session.check("lanes: a forced streamed route is refused then") as check:
        try:
            with lib.forced("streamed_cusolver", 4):
                torch.linalg.lu_factor_ex(torch.randn(4, 64, 64, device="cuda"))
            check.ok, check.reason = False, "it ran"
        except RuntimeError as error:
            check.value = str(error).splitlines()[0][:200]
            check.ok = "turned off" in check.value


def _in_threads(*jobs: Callable[[], None]) -> None:
    """Runs the jobs at once, one thread each, and raises the first error."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(25)
        if thread.is_alive():
            raise TimeoutError("a thread did not come to its end within 25 s")
    if errors:
        raise errors[0]


def threads(session: Session) -> None:
    """Two threads that call at once, and one that captures while another calls."""
    torch, lib = session.torch, session.patched
    lib.limits(4, 2048)
    inputs = [torch.randn(8, n, n, device="cuda") for n in THREAD_SIZES]
    with lib.forced("looped_cusolver"):
        wants = [torch.linalg.lu_factor_ex(a) for a in inputs]
    torch.cuda.synchronize()
    differing = [0, 0]

    def caller(index: int, times: int, stream: Any = None) -> Callable[[], None]:
        def job() -> None:
            mine = stream or torch.cuda.Stream()
            with torch.cuda.stream(mine):
                for _ in range(times):
                    got = torch.linalg.lu_factor_ex(inputs[index])
                    mine.synchronize()
                    differing[index] += not equal(torch, got, wants[index])

        return job

    with lib.forced("streamed_cusolver", 4):
        with session.check("lanes: two threads at once, bits", runs=20) as check:
            _in_threads(caller(0, 20), caller(1, 20))
            check.value = {"differing": sum(differing), "created": lib.created()}
            check.ok = sum(differing) == 0 and 3 <= lib.created() <= 6
        for mode in ("thread_local", "global"):
            with session.check(
                "lanes: one thread captures while another calls", mode=mode
            ) as check:
                differing[:] = [0, 0]
                check.ok = _capture_beside(session, mode, inputs, wants, differing)
                check.value = {"differing": sum(differing)}


def _capture_beside(
    session: Session, mode: str, inputs: Any, wants: Any, differing: list[int]
) -> bool:
    """Thread 1 captures; thread 2 makes its first streamed calls, which create lanes, in the middle
    of it.
    """
    torch, lib = session.torch, session.patched
    lib.release()
    lib.limits(4, 4096)
    ready, capturing, called, captured = (threading.Event() for _ in range(4))
    replayed: list[bool] = []
    fresh = torch.randn_like(inputs[0])
    expected = torch.linalg.lu_factor_ex(fresh)
    torch.cuda.synchronize()

    def capturer() -> None:
        a = inputs[0].clone()
        side = torch.cuda.Stream()
        try:
            with torch.cuda.stream(side):
                torch.linalg.lu_factor_ex(a)  # creates this thread's lanes
                side.synchronize()
                assert ready.wait(20)
                # Not torch.cuda.graph(): that empties the cache, and the other thread would have to
                # allocate.
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin(capture_error_mode=mode)
                try:
                    capturing.set()
                    assert called.wait(20)
                    out = torch.linalg.lu_factor_ex(a)
                finally:
                    graph.capture_end()
                captured.set()
                a.copy_(fresh)
                graph.replay()
                side.synchronize()
                replayed.append(equal(torch, out, expected))
        finally:
            capturing.set()
            captured.set()

    def other() -> None:
        mine = torch.cuda.Stream()
        try:
            with torch.cuda.stream(mine):
                # This thread's cuBLAS and cuSOLVER handles and memory, but no lanes: one matrix is
                # no loop.
                room = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
                torch.linalg.inv_ex(inputs[1][:1])
                torch.linalg.eigh(inputs[1][0, :64, :64])
                mine.synchronize()
                del room
                ready.set()
                assert capturing.wait(20)
                got = torch.linalg.lu_factor_ex(inputs[1])
                called.set()
                assert captured.wait(20)
                mine.synchronize()
                differing[1] += not equal(torch, got, wants[1])
        finally:
            ready.set()
            called.set()

    _in_threads(capturer, other)
    return bool(replayed and replayed[0]) and differing == [0, 0]
