"""eigh and eigvalsh of the series: against float64 on the CPU, and in time against the unpatched
source.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aotools.gputest.part_lanes import capture
from aotools.gputest.part_unchanged import flat, same
from aotools.gputest.plan import DTYPES
from aotools.gputest.session import Session, measure

# dtype, batch, n
TIMED = (
    ("float64", 128, 33),
    ("float32", 64, 256),
    ("float32", 500, 100),
    ("float64", 128, 32),
    ("float32", 5000, 16),
)
SHAPES = ((1, 40), (2, 33), (40, 32), (40, 33), (5, 64), (5, 65), (4, 256), (17000, 3), (70000, 2))
GRAPH = (("float32", 16, 100), ("float64", 16, 40))
NOT_FINITE = ((40, 40), (5, 100))
LIMIT = 30  # n eps
BESIDE = 1  # the bad matrix


def hermitian(torch: Any, dtype: str, batch: int, n: int) -> Any:
    """Matrices with eigenvalues of the order of sqrt(n)."""
    kind = getattr(torch, dtype)
    generator = torch.Generator("cuda").manual_seed(11)
    a = torch.randn(batch, n, n, dtype=kind, device="cuda", generator=generator)
    return (a + a.mH) / 2


def times(session: Session) -> None:
    """Points of eigh and eigvalsh, by whatever the library chooses."""
    torch = session.torch
    assert session.patched.loaded
    for dtype, batch, n in TIMED:
        h = hermitian(torch, dtype, batch, n)
        for op in ("eigh", "eigvalsh"):
            timing = measure(session.clock(partial(getattr(torch.linalg, op), h)))
            session.point(op, dtype, (batch, n, n), timing)


def values(session: Session) -> None:
    """Errors against float64 on the CPU, of NaN, and of a captured call."""
    torch = session.torch
    assert session.patched.loaded
    for dtype in DTYPES:
        for batch, n in SHAPES:
            accuracy(session, dtype, batch, n)
        for batch, n in NOT_FINITE:
            not_finite(session, dtype, batch, n)
    for dtype, batch, n in GRAPH:
        with session.check(
            "eigh: graph replay equals the eager call", dtype=dtype, batch=batch, n=n
        ) as check:
            h = hermitian(torch, dtype, batch, n)
            call = partial(torch.linalg.eigvalsh, h)
            try:
                graph, out = capture(torch, call)
            except RuntimeError as error:
                check.skip, check.reason = True, f"it cannot be captured: {error}"[:300]
                continue
            h.add_(torch.eye(n, dtype=h.dtype, device="cuda"))
            graph.replay()
            torch.cuda.synchronize()
            check.ok = same(torch, flat(out), flat(call()))


def accuracy(session: Session, dtype: str, batch: int, n: int) -> None:
    """Values, residuals and orthogonality in n eps."""
    torch = session.torch
    h = hermitian(torch, dtype, batch, n)
    with session.check("eigh: error in n eps", dtype=dtype, batch=batch, n=n) as check:
        found, vectors = torch.linalg.eigh(h)
        alone = torch.linalg.eigvalsh(h)
        wide = torch.complex128 if h.is_complex() else torch.float64
        # The CPU's own batch of tens of thousands takes seconds: some of it is enough.
        some = slice(0, batch, max(1, batch // 500))
        exact = torch.linalg.eigvalsh(h[some].cpu().to(wide)).to(found.device)
        scale = float(h.abs().amax()) * max(n, 2) ** 0.5
        unit = torch.finfo(h.dtype).eps * n

        def worst(tensor: Any) -> float:
            return float(f"{float(tensor.abs().max()) / unit:.3g}")

        identity = torch.eye(n, dtype=h.dtype, device="cuda")
        check.value = {
            "values": worst((found[some].double() - exact) / scale),
            "eigvalsh": worst((alone[some].double() - exact) / scale),
            "residual": worst((h @ vectors - vectors * found.unsqueeze(-2)) / scale),
            "orthogonality": worst(vectors.mH @ vectors - identity),
        }
        # NaN compares as false, so it fails
        check.ok = all(value <= LIMIT for value in check.value.values())


def not_finite(session: Session, dtype: str, batch: int, n: int) -> None:
    """A NaN in one matrix is reported as that matrix's failure."""
    torch = session.torch
    h = hermitian(torch, dtype, batch, n)
    h[BESIDE, n - 1, 0] = float("nan")
    with session.check("eigh: NaN is reported", dtype=dtype, batch=batch, n=n) as check:
        try:
            torch.linalg.eigh(h)
        except RuntimeError as error:  # LinAlgError is one
            check.value = str(error).splitlines()[0][:200]
            check.ok = f"(Batch element {BESIDE})" in check.value
        else:
            check.ok, check.reason = False, "nothing was raised"
