"""Kinds of fault of public reports that no other part is after; see part_kinds for `case`, `owner`.
reports.toml says which check or test covers which report.
"""

from __future__ import annotations

from typing import Any

import common

from aotools.gputest.session import Session

EDGES = (255, 256, 1024, 1025)
BATCHES = (3, 4)
ROWS = 10  # of the integer matrices


def low_integer_ranks(session: Session) -> None:
    """Integer matrices of low rank: whether a pivot is exactly zero depends on rounding, and info
    must be as the returned U is.
    """
    torch = session.torch
    row = torch.arange(1, ROWS + 1, device="cuda", dtype=torch.float64)
    a = row + torch.arange(ROWS, device="cuda", dtype=torch.float64).unsqueeze(-1)
    a[:, 3] *= 2
    a[:, 7] = 5
    for dtype in ("float32", "float64"):
        for batch in (1, 2, 100):
            with session.check(
                "info is as U is", case="B26", dtype=dtype, batch=batch, owner="vendor"
            ) as check:
                check.vendor = True
                lu, _, info = torch.linalg.lu_factor_ex(
                    a.to(getattr(torch, dtype)).repeat(batch, 1, 1)
                )
                zero = lu.diagonal(dim1=-2, dim2=-1) == 0
                first = torch.where(zero.any(-1), zero.int().argmax(-1) + 1, 0)
                check.value = {"info": int(info[0]), "first zero": int(first[0])}
                check.ok = torch.equal(first.int(), info)


def almost_singular(session: Session) -> None:
    """An inverse whose entries mean nothing still has a small residual, as has tensorinv."""
    torch = session.torch
    a = torch.tensor(
        [
            [3.0, -1.0, 2.0, 4.0],
            [1.0, 2.0, -3.0, 0.0],
            [4.0, 1.0, -1.0, 4.0],
            [2.0, -3.0, 1.0, -2.0],
        ],
        device="cuda",
    )
    a[3] = a[0] - 2 * a[1]  # so that rounding alone decides
    a[3, 3] += 1e-6
    with session.check("tensorinv of an almost singular matrix", case="B27", owner="ours") as check:
        inverse, info = torch.linalg.inv_ex(a)
        if int(info) == 0:
            tensor = torch.linalg.tensorinv(a.view(2, 2, 2, 2), ind=2).reshape(4, 4)
            eye = torch.eye(4, device="cuda")[None]
            errors = [common.solve_error(torch, a[None], x[None], eye) for x in (inverse, tensor)]
            check.value, check.ok = [round(each, 3) for each in errors], max(errors) < common.LIMIT
        else:
            check.value, check.ok = f"info {int(info)}", True


def raises_alike(session: Session) -> None:
    """solve of singular systems raises for every size and batch, and names the item; the _ex form
    marks it, read only after the work is done.
    """
    torch = session.torch
    linalg = torch.linalg
    small = torch.tensor([[0.0, 0.0], [0.0, 4.0]], device="cuda")
    large = torch.eye(3, device="cuda")
    large[:, 1] = 0
    for name, a in (("2 x 2", small), ("3 x 3", large)):
        with session.check("solve raises alike", case="B39", size=name, owner="ours") as check:
            n = a.shape[-1]
            good = torch.eye(n, device="cuda")
            for batch in (torch.stack([a]), torch.stack([good, a]), torch.stack([good] * 9 + [a])):
                b = torch.ones(*batch.shape[:-1], 1, device="cuda")
                with common.raises(linalg.LinAlgError, f"batch element {len(batch) - 1}"):
                    linalg.solve(batch, b)
                info = linalg.solve_ex(batch, b).info.tolist()
                assert info[-1] > 0 and not any(info[:-1]), info
            with common.raises(linalg.LinAlgError):
                linalg.solve(a, torch.ones(n, 1, device="cuda"))
            check.ok = True


def growth(session: Session, library: Any) -> None:
    """Without row exchanges and with a leading minor of 1e-4: L U = A up to the growth."""
    torch = session.torch
    for dtype in common.DTYPES:
        for route in ("choice", *common.lu_routes(library)):
            with session.check(
                "pivot=False with growth", case="B46", dtype=dtype, route=route
            ) as check:
                worst = 0.0
                for batch, n in ((1, 3), (4, 3), (3, 40)):
                    a = common.matrices(torch, dtype, batch, n, n)
                    a += 2 * n * torch.eye(n, dtype=a.dtype, device="cuda")
                    a[:, 0, 0] = 1e-4
                    with common.forced(library, route):
                        lu, pivots, _ = torch.linalg.lu_factor_ex(a, pivot=False)
                    factor = (lu.abs().amax((-2, -1)) / a.abs().amax((-2, -1))).amax()
                    error = common.factor_error(torch, a, lu, pivots)
                    worst = max(worst, error / max(1.0, float(factor)))
                check.value, check.ok = round(worst, 4), worst < common.LIMIT


def structured(torch: Any, batch: int, n: int) -> dict[str, Any]:
    """Matrices that are no random ones, by name; float64."""
    ones = torch.ones(batch, n, n, dtype=torch.float64, device="cuda")
    steps = torch.arange(n, dtype=torch.float64, device="cuda")
    random = common.matrices(torch, "float64", batch, n, n)
    scale = torch.logspace(0, -8, n, dtype=torch.float64, device="cuda")
    return {
        "graded rows": random * scale.unsqueeze(-1),
        "graded columns": random * scale,
        "graded both, upwards": random * scale.flip(0) * scale.flip(0).unsqueeze(-1),
        "cyclic shift": torch.diag_embed(ones[..., 0]).roll(1, -1),
        "upper triangular": random.triu() + 3 * torch.diag_embed(ones[..., 0]),
        "distances": (steps - steps.unsqueeze(-1)).abs().expand(batch, n, n) + ones,
    }


def edges(session: Session, library: Any) -> None:
    """Structured and graded matrices around the sizes at which kernels change."""
    torch = session.torch
    for dtype in ("float32", "float64"):
        for n in EDGES:
            for batch in BATCHES:
                with session.check(
                    "structured and graded", case="B99", dtype=dtype, n=n, batch=batch
                ) as check:
                    before, errors = library.counts(), {}
                    for name, a in structured(torch, batch, n).items():
                        a = a.to(getattr(torch, dtype))
                        lu, pivots, _ = torch.linalg.lu_factor_ex(a)
                        error = common.factor_error(torch, a, lu, pivots)
                        errors[name] = round(error, 3)
                    routes = sorted(common.used(library, before))
                    check.value = {"errors": errors, "routes": routes}
                    check.ok = max(errors.values()) < common.LIMIT
                    check.vendor = common.NATIVE not in routes


def backward(session: Session) -> None:
    """inv in a loss: right gradient, and no wait for the device in inv_ex and its backward."""
    torch = session.torch
    with session.check("inverse in a loss", case="B105", owner="ours") as check:
        a = common.matrices(torch, "float32", 32, 512, 512)
        a = (a + 40 * torch.eye(512, device="cuda")).requires_grad_()
        torch.linalg.inv_ex(a)
        torch.cuda.set_sync_debug_mode("error")
        try:
            inverse = torch.linalg.inv_ex(a).inverse
            inverse.diagonal(dim1=-2, dim2=-1).sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        exact = torch.linalg.inv(a.detach().double()).mT
        expected = -(exact @ exact)
        error = (a.grad.double() - expected).norm() / expected.norm()
        check.value = float(error)
        check.ok = check.value < 1e-4


def lstsq_of_vectors(session: Session) -> None:
    """The derivative of lstsq with vectors, which is none of ours, is as without us."""
    torch = session.torch
    with session.check("derivative of lstsq", case="B118", owner="stock") as check:
        said = []
        for ours in (True, False):
            (common.enable if ours else common.disable)()
            a = common.matrices(torch, "float64", 1, 5, 5)[0].requires_grad_()
            try:
                torch.linalg.lstsq(a, torch.ones(5, 1, dtype=a.dtype, device="cuda"))[
                    0
                ].sum().backward()
                said.append(a.grad)
            except RuntimeError as error:
                said.append(str(error).splitlines()[0])
        common.enable()
        both = all(isinstance(each, torch.Tensor) for each in said)
        check.ok = torch.allclose(said[0], said[1]) if both else said[0] == said[1]


def run(session: Session) -> None:
    """All of it."""
    library = common.enable()
    low_integer_ranks(session)
    almost_singular(session)
    raises_alike(session)
    growth(session, library)
    edges(session, library)
    backward(session)
    lstsq_of_vectors(session)
    common.disable()
