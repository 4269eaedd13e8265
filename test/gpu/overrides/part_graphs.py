"""CUDA graphs: capture, replay on new data, and that stock's refusal is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common

from aotools.gputest.session import Session


def _operations(torch: Any, a: Any, b: Any) -> dict[str, Callable[[], Any]]:
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    return {
        "lu_factor_ex": lambda: torch.linalg.lu_factor_ex(a),
        "solve_ex": lambda: torch.linalg.solve_ex(a, b),
        "inv_ex": lambda: torch.linalg.inv_ex(a),
        "lu_solve": lambda: torch.linalg.lu_solve(lu, pivots, b),
    }


def run(session: Session) -> None:
    """Captures each operation, replays it on new data and compares with an eager call."""
    torch = session.torch
    library = common.enable()
    for shape in ((16, 128, 128), (64, 512, 512), (16, 1024, 1024), (2, 600, 600)):
        a = common.matrices(torch, "float32", *shape)
        b = common.matrices(torch, "float32", *shape[:2], 3)
        for preference in ("default", "cusolver"):
            torch.backends.cuda.preferred_linalg_library(preference)
            for name, call in _operations(torch, a, b).items():
                with session.check(
                    "capture and replay", op=name, shape=shape, preference=preference
                ) as check:
                    side = torch.cuda.Stream()
                    with torch.cuda.stream(side):
                        for _ in range(2):
                            call()
                    torch.cuda.synchronize()
                    graph = torch.cuda.CUDAGraph()
                    before = library.counts()
                    with torch.cuda.graph(graph, stream=side):
                        captured = call()
                    used = [
                        key for key, count in library.counts().items() if count != before.get(key)
                    ]
                    a.copy_(common.matrices(torch, "float32", *shape) * 1.5 + 0.25)
                    b.copy_(b * 0.5 + 1)
                    graph.replay()
                    torch.cuda.synchronize()
                    eager = call()
                    found = captured if isinstance(captured, torch.Tensor) else captured[0]
                    expected = eager if isinstance(eager, torch.Tensor) else eager[0]
                    if name == "lu_factor_ex":
                        error = common.factor_error(torch, a, found, captured[1])
                    elif name == "inv_ex":
                        eye = torch.eye(shape[1], device="cuda").expand_as(a)
                        error = common.solve_error(torch, a, found, eye)
                    elif name == "solve_ex":
                        error = common.solve_error(torch, a, found, b)
                    else:
                        error = float((found - expected).abs().max() / expected.abs().max()) * 1e3
                    check.value = round(error, 3)
                    check.ok = error < 30
                    check.reason = ", ".join(f"{op} by {route}" for op, route in used)
                    del graph
    torch.backends.cuda.preferred_linalg_library("default")
