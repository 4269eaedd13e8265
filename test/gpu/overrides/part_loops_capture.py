"""Capture of QR, Cholesky and LDL in a CUDA graph."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import common
import loops_common as loops

from aotools.gputest.session import Session

ROUTES = (loops.LOOPED, loops.STREAMED, "choice")
# argv[1]: the operation. A failed capture can leave a process without a usable GPU.
CAPTURE = """
import sys, torch, common, loops_common as loops, part_loops_capture
op = sys.argv[1]
library = common.enable(only=loops.OPS)
for route in part_loops_capture.ROUTES:
    for dtype, n in (("float32", 300), ("complex128", 100)):
        run = loops.make(torch, loops.Case(op, dtype, 8, n, n, columns=n))
        first, other = run.source.clone(), run.source.flip(0).clone()
        with common.forced(library, route, op):
            run.call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = run.call()
        for data in (other, first):
            run.source.copy_(data)
            graph.replay()
            torch.cuda.synchronize()
            got = tuple(x.clone() for x in found)
            loop = loops.by(library, op, loops.LOOPED, run.call)
            stock = loops.by(library, op, loops.STOCK, run.call)
            assert loops.same(torch, got, loop) or loops.same(torch, got, stock), (dtype, n)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(5):
            graph.replay()
        end.record()
        end.synchronize()
        print("replay", route, dtype, n, round(start.elapsed_time(end) / 5, 4), flush=True)
"""


def run(session: Session) -> None:
    """Every operation by the loop, by streams and by the choice, each operation in a process of its
    own: replayed on new data a graph gives the eager bits. Milliseconds of a replay.
    """
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda op: common.script(CAPTURE, op, timeout=70), loops.OPS))
    for op, (badly, text) in zip(loops.OPS, ended, strict=True):
        for route in ROUTES:
            with session.check("capture", op=op, route=route) as check:
                lines = [line.split() for line in text.splitlines() if line.startswith("replay ")]
                check.value = [line[2:] for line in lines if line[1] == route]
                check.ok = len(check.value) == 2
                check.reason = "" if check.ok else f"{badly}: {text.strip()[-250:]}"
                # sytrf waits for the GPU, and torch looks at the inverse's infos on the host.
                check.vendor = op in ("ldl_factor", "cholesky_inverse")
