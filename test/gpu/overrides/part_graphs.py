"""CUDA graphs: device synchronisations, capture, replay on new data, and what stock does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import common

from aotools.gputest.session import Session

SHAPES = ((16, 128, 128), (64, 512, 512))
MORE_SHAPES = ((16, 1024, 1024), (2, 600, 600))


def operations(torch: Any, a: Any, b: Any) -> dict[str, Callable[[], Any]]:
    """The operations without a check on the host, on tensors that stay where they are."""
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    return {
        "lu_factor_ex": lambda: torch.linalg.lu_factor_ex(a),
        "solve_ex": lambda: torch.linalg.solve_ex(a, b),
        "inv_ex": lambda: torch.linalg.inv_ex(a),
        "lu_solve": lambda: torch.linalg.lu_solve(lu, pivots, b),
    }


def systems(torch: Any, shape: tuple[int, int, int]) -> tuple[Any, Any]:
    """Matrices and three right-hand sides each."""
    return common.matrices(torch, "float32", *shape), common.matrices(
        torch, "float32", *shape[:2], 3
    )


def _error(torch: Any, name: str, a: Any, b: Any, found: Any, eager: Any) -> float:
    if name == "lu_factor_ex":
        return common.factor_error(torch, a, found[0], found[1])
    if name == "inv_ex":
        eye = torch.eye(a.shape[-1], device="cuda").expand_as(a)
        return common.solve_error(torch, a, found[0], eye)
    if name == "solve_ex":
        return common.solve_error(torch, a, found[0], b)
    # The factors are those of the matrices before: against an eager call, in units of eps.
    rest = (found - eager).abs().max() / eager.abs().max()
    return float(rest) / (int(a.shape[-1]) * common.EPS["float32"])


def _capture(torch: Any, call: Callable[[], Any]) -> tuple[Any, Any]:
    """The graph of one call and the tensors that it writes."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        captured = call()
    return graph, captured


def run(session: Session) -> None:
    """Captures each operation, replays it on new data and checks the result."""
    torch = session.torch
    library = common.enable()
    for shape in (*SHAPES, *MORE_SHAPES):
        for preference in ("default", "cusolver"):
            a, b = systems(torch, shape)
            with common.preferring(torch, preference):
                for name, call in operations(torch, a, b).items():
                    with session.check(
                        "capture and replay", op=name, shape=shape, preference=preference
                    ) as check:
                        before = library.counts()
                        graph, captured = _capture(torch, call)
                        used = [
                            key
                            for key, count in library.counts().items()
                            if count != before.get(key)
                        ]
                        a.copy_(common.matrices(torch, "float32", *shape) * 1.5 + 0.25)
                        b.copy_(b * 0.5 + 1)
                        graph.replay()
                        torch.cuda.synchronize()
                        error = _error(torch, name, a, b, captured, call())
                        check.value, check.ok = round(error, 3), error < common.LIMIT
                        check.reason = ", ".join(f"{op} by {route}" for op, route in used)
                        del graph, captured
    with session.check(
        "capture of the checking form is refused and leaves the stream usable"
    ) as check:
        a, b = systems(torch, SHAPES[0])
        refused = ""
        try:
            _capture(torch, lambda: torch.linalg.solve(a, b))
        except RuntimeError as error:
            refused = type(error).__name__
        torch.cuda.synchronize()
        x = torch.linalg.solve_ex(a, b).result
        check.value = refused
        check.ok = bool(refused) and common.solve_error(torch, a, x, b) < common.LIMIT
    common.disable()


def syncs(session: Session) -> None:
    """Device synchronisations of a call, stock's and ours, and the overrides under sync debug
    mode.
    """
    torch = session.torch
    for shape in (*SHAPES, (1, 512, 512)):
        a, b = systems(torch, shape)
        for name in ("lu_factor_ex", "solve_ex", "inv_ex", "lu_solve"):
            with session.check("device synchronisations", op=name, shape=shape) as check:
                counts = {}
                for who in ("stock", "overrides"):
                    if who == "overrides":
                        common.enable()
                    call = operations(torch, a, b)[name]
                    call()
                    counts[who] = common.synchronisations(torch, call)
                    if who == "overrides":
                        torch.cuda.set_sync_debug_mode("error")
                        try:
                            call()
                        finally:
                            torch.cuda.set_sync_debug_mode("default")
                            common.disable()
                check.value = counts
                check.skip = None in counts.values()
                check.reason = "the profiler sees no calls of the runtime" if check.skip else ""
                check.ok = counts["overrides"] == {}


def stock(session: Session) -> None:
    """Whether stock can capture the same; a refusal is stock's and is recorded as such."""
    torch = session.torch
    for shape in SHAPES:
        a, b = systems(torch, shape)
        for name, call in operations(torch, a, b).items():
            with session.check("stock: capture", op=name, shape=shape, owner="stock") as check:
                check.vendor = True
                graph, captured = _capture(torch, call)
                graph.replay()
                torch.cuda.synchronize()
                check.ok = True
                del graph, captured


def beside_work(session: Session) -> None:
    """One thread captures while another works."""
    torch = session.torch
    common.enable()
    with session.check("one thread captures, one works") as check:
        a = common.matrices(torch, "float32", 4, 600, 600)
        b = common.matrices(torch, "float32", 8, 520, 520)
        torch.linalg.lu_factor_ex(a)
        torch.cuda.synchronize()
        stop, failures = threading.Event(), []
        worst, calls = [0.0], [0]

        def work() -> None:
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    while not stop.is_set():
                        lu, pivots, _ = torch.linalg.lu_factor_ex(b)
                        worst[0] = max(worst[0], common.factor_error(torch, b, lu, pivots))
                        calls[0] += 1
            except Exception as error:
                failures.append(f"{type(error).__name__}: {error}"[:200])

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for turn in range(5):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    found = torch.linalg.lu_factor_ex(a)
                a.copy_(common.matrices(torch, "float32", 4, 600, 600) + turn)
                graph.replay()
                torch.cuda.synchronize()
                worst[0] = max(worst[0], common.factor_error(torch, a, found[0], found[1]))
        finally:
            stop.set()
            thread.join()
        check.value = {"worst": round(worst[0], 3), "calls beside": calls[0]}
        check.ok = worst[0] < common.LIMIT and not failures and calls[0] > 0
        check.reason = "; ".join(failures)
    common.disable()


def compiled(session: Session) -> None:
    """torch.compile, default and max-autotune, then a replay from a side stream (upstream
    195731).
    """
    torch = session.torch
    library = common.enable()

    def function(a: Any, b: Any) -> Any:
        return (
            torch.linalg.solve_ex(a, b)[0] * 2,
            torch.linalg.inv_ex(a)[0] + 1,
            torch.linalg.lu_factor_ex(a)[0] + 1,
        )

    with session.check("torch.compile works here at all") as check:
        doubled = torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device="cuda"))
        check.ok = bool((doubled == 3).all())
    for mode in ("default", "max-autotune"):
        for shape in SHAPES:
            with session.check("torch.compile", mode=mode, shape=shape) as check:
                torch._dynamo.reset()
                compiled_function = torch.compile(function, mode=mode)
                eye = torch.eye(shape[-1], device="cuda").expand(shape)
                worst, before = 0.0, sum(library.counts().values())
                for turn in range(4):
                    stream = torch.cuda.Stream() if turn == 3 else torch.cuda.current_stream()
                    a, b = systems(torch, shape)
                    a += turn
                    torch.cuda.synchronize()
                    with torch.cuda.stream(stream):
                        x, inverse, lu = compiled_function(a, b)
                        torch.cuda.synchronize()
                        pivots = torch.linalg.lu_factor_ex(a)[1]
                        worst = max(
                            worst,
                            common.solve_error(torch, a, x / 2, b),
                            common.solve_error(torch, a, inverse - 1, eye),
                            common.factor_error(torch, a, lu - 1, pivots),
                        )
                ours = sum(library.counts().values()) - before
                # Adding 1 and taking it away costs bits of small elements.
                check.value = {"worst": round(worst, 3), "calls of ours": ours}
                check.ok = worst < 10 * common.LIMIT and ours > 0
    common.disable()
