"""Does every route of every operation give right answers: the shortest check, first of all."""

from __future__ import annotations

from typing import Any

import common

from aotools.gputest.session import Session

LIMIT = 30.0  # in units of n eps
SHAPES = (
    (1, 3, 3),
    (2, 8, 8),
    (3, 33, 33),
    (5, 70, 70),
    (16, 128, 128),
    (4, 300, 300),
    (2, 513, 513),
)
RECTANGULAR = ((5, 40, 17), (3, 17, 40), (2, 300, 120))


def _factor(
    session: Session, library: Any, route: str, dtype: str, shape: tuple[int, int, int]
) -> None:
    torch = session.torch
    a = common.matrices(torch, dtype, *shape)
    with session.check("lu_factor_ex", route=route, dtype=dtype, shape=shape) as check:
        with common.forced(library, route):
            lu, pivots, info = torch.linalg.lu_factor_ex(a)
        error = common.factor_error(torch, a, lu, pivots)
        check.value = round(error, 3)
        column_major = lu.mT.is_contiguous()
        check.ok = error < LIMIT and int(info.abs().max()) == 0 and column_major
        check.ok = check.ok and pivots.dtype == torch.int32 and int(pivots.min()) >= 1


def _solve(session: Session, library: Any, route: str, dtype: str) -> None:
    torch = session.torch
    for batch, n, k in ((3, 5, 1), (4, 64, 3), (2, 200, 200), (9, 129, 8)):
        a = common.matrices(torch, dtype, batch, n, n)
        b = common.matrices(torch, dtype, batch, n, k)
        lu, pivots, _ = torch.linalg.lu_factor_ex(a)
        for adjoint in (False, True):
            for left in (True, False):
                with session.check(
                    "lu_solve",
                    route=route,
                    dtype=dtype,
                    shape=(batch, n, k),
                    adjoint=adjoint,
                    left=left,
                ) as check:
                    right = b if left else b.mT.contiguous()
                    with common.forced(library, route, "lu_solve"):
                        x = torch.linalg.lu_solve(lu, pivots, right, adjoint=adjoint, left=left)
                    matrix = a.mH if adjoint else a
                    if not left:
                        matrix, x, right = matrix.mT, x.mT, right.mT
                    error = common.solve_error(torch, matrix, x, right)
                    check.value, check.ok = round(error, 3), error < LIMIT
        with session.check(
            "lu_solve, one factor", route=route, dtype=dtype, shape=(batch, n, k)
        ) as check:
            with common.forced(library, route, "lu_solve"):
                x = torch.linalg.lu_solve(lu[:1], pivots[:1], b)
            error = common.solve_error(torch, a[:1].expand_as(a), x, b)
            check.value, check.ok = round(error, 3), error < LIMIT


def run(session: Session) -> None:
    """Checks all routes, then the operations made of them by the choice itself."""
    torch = session.torch
    library = common.enable()
    for dtype in common.DTYPES:
        for route in common.LU_ROUTES:
            for shape in SHAPES:
                _factor(session, library, route, dtype, shape)
            if route != "batched_cublas":
                for shape in RECTANGULAR:
                    _factor(session, library, route, dtype, shape)
        for route in ("stock", "batched_cublas", "looped_cusolver", "triangular_cublas"):
            _solve(session, library, route, dtype)
    for name in ("default", "cusolver", "cublas", "magma"):
        torch.backends.cuda.preferred_linalg_library(name)
        for dtype in common.DTYPES:
            for batch, n in ((1, 40), (3, 100), (12, 257), (64, 16)):
                a = common.matrices(torch, dtype, batch, n, n)
                b = common.matrices(torch, dtype, batch, n, 2)
                with session.check(
                    "solve, inv, det", preference=name, dtype=dtype, batch=batch, n=n
                ) as check:
                    x, info = torch.linalg.solve_ex(a, b)
                    inverse = torch.linalg.inv_ex(a).inverse
                    eye = torch.eye(n, dtype=a.dtype, device="cuda").expand_as(a)
                    errors = [
                        common.solve_error(torch, a, x, b),
                        common.solve_error(torch, a, inverse, eye),
                    ]
                    sign, logabs = torch.linalg.slogdet(a)
                    wide = torch.complex128 if a.is_complex() else torch.float64
                    oracle = torch.linalg.slogdet(a.cpu().to(wide))
                    same = torch.allclose(
                        logabs.cpu().double(), oracle.logabsdet, rtol=1e-4, atol=1e-3
                    )
                    same = same and torch.allclose(sign.cpu().to(wide), oracle.sign, atol=1e-3)
                    check.value = [round(error, 3) for error in errors]
                    check.ok = max(errors) < LIMIT and same and int(info.abs().max()) == 0
    torch.backends.cuda.preferred_linalg_library("default")
    with session.check("lu_factor without row exchanges") as check:
        worst = 0.0
        for dtype in common.DTYPES:
            for route in common.LU_ROUTES:
                a = common.matrices(torch, dtype, 6, 80, 80)
                a = a + 80 * torch.eye(80, dtype=a.dtype, device="cuda")
                with common.forced(library, route):
                    lu, pivots, _ = torch.linalg.lu_factor_ex(a, pivot=False)
                trivial = torch.arange(1, 81, dtype=torch.int32, device="cuda").expand(6, 80)
                assert torch.equal(pivots, trivial), route
                worst = max(worst, common.factor_error(torch, a, lu, pivots))
        check.value, check.ok = round(worst, 3), worst < LIMIT
