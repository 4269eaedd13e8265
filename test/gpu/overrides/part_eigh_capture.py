"""Capture of eigh in a CUDA graph, and how often each route makes the host wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import common
import eigh_common as eig

from aotools.gputest.session import Session

# argv[1]: the route. A failed capture can leave a process without a usable GPU.
CAPTURE = """
import sys, torch, aten_overrides, common, eigh_common as eig
library = common.enable(only=("eigh",))
route = sys.argv[1]
for dtype, n in (("float32", 20), ("float64", 64), ("float32", 300)):
    a = eig.hermitian(torch, dtype, 6, n)
    work, values = a.mT.contiguous().mT, torch.empty(6, n, dtype=a.dtype, device="cuda")
    infos = torch.zeros(6, dtype=torch.int32, device="cuda")
    def call():
        library.eigh(dtype, (6, n), work.data_ptr(), values.data_ptr(), infos.data_ptr())
    with common.forced(library, route, "eigh"):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
    for seed in (1, 2):
        b = eig.hermitian(torch, dtype, 6 + seed, n)[:6]
        work.copy_(b)
        graph.replay()
        torch.cuda.synchronize()
        error = eig.errors(torch, b, values, work)
        assert error < eig.LIMIT, f"replay: error {error} in n eps, n = {n}"
    print("captured", dtype, n, flush=True)
"""

OPERATION = """
import torch, common, eigh_common as eig
common.enable(only=("eigh",))
a = eig.hermitian(torch, "float64", 6, 64)
torch.linalg.eigh(a)
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.linalg.eigh(a)
    print("captured")
except RuntimeError as error:
    print("refused:", str(error).splitlines()[0][:150])
values, vectors = torch.linalg.eigh(a)
assert eig.errors(torch, a, values, vectors) < eig.LIMIT
print("usable")
"""


def run(session: Session) -> None:
    """Every route in a capture by the library's own function, then torch's operation."""
    torch = session.torch
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda route: common.script(CAPTURE, route, timeout=60), eig.ROUTES))
    for route, (bad, text) in zip(eig.ROUTES, found, strict=True):
        with session.check("capture", case="B80", route=route) as check:
            check.value = text.count("captured")
            check.reason = bad and f"{bad}: {text.strip()[-300:]}"
            check.ok = not bad
            # The choice never takes the others in a capture.
            check.vendor = route != "batched_cusolver"
    with session.check("torch's operation in a capture", case="B80") as check:
        bad, text = common.script(OPERATION, timeout=60)
        check.value = text.strip()[-400:]
        check.ok = not bad and "usable" in text
    library = common.enable(only=("eigh",))
    for route in eig.ROUTES:
        with session.check("synchronisations", route=route) as check:
            counts = {}
            with common.forced(library, route, "eigh"):
                for n in (20, 64, 300):
                    a = eig.hermitian(torch, "float32", 4, n)
                    eig.direct(torch, library, a)
                    counts[str(n)] = common.synchronisations(
                        torch, partial(eig.direct, torch, library, a)
                    )
            check.value = counts
            check.ok = not any(counts.values())
            check.vendor = True
    common.disable()
