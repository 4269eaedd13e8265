"""Correctness by kind of fault, after public reports: limits, offsets, bad matrices, views,
derivatives.

`owner` in a row's parameters says whose routine computes: ours (our own glue), vendor (cuBLAS,
cuSOLVER), stock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common

from aotools.gputest.session import Session

LIMIT = 30.0


def _scaled(torch: Any, batch: int, n: int, dtype: str = "float32") -> Any:
    """Well-conditioned matrices, item k scaled by k + 1, so that items in the wrong place show."""
    a = common.matrices(torch, dtype, batch, n, n) + 2 * n * torch.eye(
        n, dtype=getattr(torch, dtype), device="cuda"
    )
    factors = torch.arange(1, batch + 1, device="cuda", dtype=torch.float64)
    return a * factors.to(a.real.dtype).view(-1, 1, 1)


def limits(session: Session, library: Any) -> None:
    """Batches around 65535 and 2^19, by every route that takes batches whole."""
    torch = session.torch
    for batch in (65535, 65536, 65537, 131071, 2**19 + 1):
        for n in (3, 12):
            a = _scaled(torch, batch, n)
            b = common.matrices(torch, "float32", batch, n, 2)
            for route in ("choice", "batched_cublas", "stock"):
                with session.check(
                    "batch limit", batch=batch, n=n, route=route, owner="ours"
                ) as check:
                    for op in ("lu_factor", "lu_solve"):
                        library.force_route(op, None if route == "choice" else route)
                    x, info = torch.linalg.solve_ex(a, b)
                    error = common.solve_error(torch, a, x, b)
                    check.value, check.ok = round(error, 3), error < LIMIT and not bool(info.any())
                    if route == "stock":
                        check.vendor = True
            for op in ("lu_factor", "lu_solve"):
                library.force_route(op, None)
    a = _scaled(torch, 3, 1109)
    with session.check("many right-hand sides", owner="ours") as check:
        worst = 0.0
        for k in (1023, 1024, 1025, 1109):
            for preference in ("default", "cusolver", "cublas"):
                torch.backends.cuda.preferred_linalg_library(preference)
                b = common.matrices(torch, "float32", 3, 1109, k)
                worst = max(
                    worst, common.solve_error(torch, a, torch.linalg.solve_ex(a, b).result, b)
                )
        torch.backends.cuda.preferred_linalg_library("default")
        check.value, check.ok = round(worst, 3), worst < LIMIT


def offsets(session: Session, library: Any) -> None:
    """Items past byte 2^31 and element 2^31: the last ones as if alone."""
    torch = session.torch
    for batch, n, dtype in (
        (1_500_000, 20, "float32"),
        (700_000, 20, "float64"),
        (2200, 1000, "float32"),
    ):
        for route in ("choice", "batched_cublas", "streamed_cusolver"):
            if route == "streamed_cusolver" and batch > 10000:
                continue
            with session.check(
                "offsets past 2^31", batch=batch, n=n, dtype=dtype, route=route
            ) as check:
                a = common.matrices(torch, dtype, batch, n, n)
                library.force_route("lu_factor", None if route == "choice" else route)
                lu, pivots, _ = torch.linalg.lu_factor_ex(a)
                errors = [
                    common.factor_error(torch, a[part], lu[part], pivots[part])
                    for part in (slice(0, 100), slice(-100, None))
                ]
                check.value = [round(error, 3) for error in errors]
                check.ok = max(errors) < LIMIT
                del a, lu, pivots
                torch.cuda.empty_cache()
    library.force_route("lu_factor", None)


def bad_matrices(session: Session, library: Any) -> None:
    """NaN, inf, zero pivots, denormals, singular items, without harm to the neighbours."""
    torch = session.torch
    for route in ("choice", *common.LU_ROUTES):
        for batch, n in ((9, 5), (9, 40), (9, 300), (3, 520)):
            library.force_route("lu_factor", None if route == "choice" else route)
            clean = common.matrices(torch, "float32", batch, n, n)
            expected = torch.linalg.lu_factor_ex(clean)
            params = {"route": route, "batch": batch, "n": n, "owner": "vendor"}
            for kind in ("nan", "inf", "zero column", "zero", "denormal"):
                a = clean.clone()
                bad = batch // 2
                if kind == "nan":
                    a[bad, 1, 0] = float("nan")
                elif kind == "inf":
                    a[bad, 1, 1] = float("inf")
                elif kind == "zero column":
                    a[bad, :, 2] = 0
                elif kind == "zero":
                    a[bad] = 0
                else:
                    a[bad] *= 1e-42
                lu, pivots, info = torch.linalg.lu_factor_ex(a)
                others = [i for i in range(batch) if i != bad]
                with session.check(f"{kind}: neighbours unchanged", **params) as check:
                    same = torch.equal(lu[others], expected.LU[others])
                    check.ok = same and torch.equal(pivots[others], expected.pivots[others])
                    check.ok = check.ok and not bool(info[others].any())
                with session.check(f"{kind}: the item itself", **params) as check:
                    check.vendor = True
                    item, code = lu[bad], int(info[bad])
                    check.value = {"info": code, "finite": bool(item.isfinite().all())}
                    if kind in ("nan", "inf"):
                        check.ok = not check.value["finite"]
                    elif kind == "zero column":
                        check.ok = code == 3 and bool(item.isfinite().all())
                    elif kind == "zero":
                        check.ok = code == 1 and not bool(item.any())
                    else:
                        valid = bool((pivots[bad] >= 1).all()) and bool((pivots[bad] <= n).all())
                        check.ok = valid and bool(item.isfinite().all())
    library.force_route("lu_factor", None)
    with session.check("singular items in solve_ex, inv_ex, det", owner="ours") as check:
        a = common.matrices(torch, "float32", 1000, 3, 3)
        a[700] = 1
        x, info = torch.linalg.solve_ex(a, common.matrices(torch, "float32", 1000, 3, 1))
        marked = info.nonzero().flatten().tolist()
        inverse = torch.linalg.inv_ex(a).info.nonzero().flatten().tolist()
        det = torch.linalg.det(a)
        check.value = [marked, inverse, float(det[700])]
        check.ok = (
            marked == inverse == [700] and float(det[700]) == 0 and bool(x[:700].isfinite().all())
        )


def shapes_and_views(session: Session) -> None:
    """Zero sizes, views, out=, broadcasting, against the materialised copy."""
    torch = session.torch
    linalg = torch.linalg
    with session.check("zero sizes", owner="ours") as check:
        for shape in ((0, 3, 3), (4, 0, 0), (0, 5, 5), (2, 0, 3, 3)):
            a = torch.empty(shape, device="cuda")
            lu, pivots, info = linalg.lu_factor_ex(a)
            assert lu.shape == a.shape and info.shape == a.shape[:-2]
            assert linalg.inv_ex(a).inverse.shape == a.shape
            assert bool((linalg.det(a) == 1).all())
        assert linalg.lu_factor_ex(torch.empty(3, 0, 4, device="cuda")).LU.shape == (3, 0, 4)
        check.ok = True
    a = common.matrices(torch, "complex64", 6, 24, 24)
    real = common.matrices(torch, "float64", 6, 24, 24)
    views: dict[str, Callable[[], Any]] = {
        "transposed": lambda: real.mT,
        "expanded": lambda: real[:1].expand(6, 24, 24),
        "sliced": lambda: real[::2, ::2, 1::2],
        "conj": lambda: a.conj(),
        "adjoint": lambda: a.mH,
        "neg": lambda: a.conj().imag,
    }
    for name, make in views.items():
        with session.check("view equals its copy", view=name, owner="ours") as check:
            view = make()
            copy = view.clone().resolve_conj().resolve_neg().contiguous()
            before = copy.clone()
            b = torch.ones(*view.shape[:-1], 2, dtype=view.dtype, device="cuda")
            pairs = zip(linalg.lu_factor_ex(view), linalg.lu_factor_ex(copy), strict=True)
            check.ok = all(torch.equal(x, y) for x, y in pairs)
            check.ok = check.ok and torch.equal(
                linalg.solve_ex(view, b)[0], linalg.solve_ex(copy, b)[0]
            )
            check.ok = check.ok and torch.equal(view, before)  # the input is not written
    with session.check("out=", owner="ours") as check:
        expected = linalg.lu_factor_ex(real)
        for out in (
            torch.empty_like(real),
            torch.empty_like(real).mT,
            torch.empty(24, 24, 6, dtype=real.dtype, device="cuda").permute(2, 0, 1),
        ):
            pivots = torch.empty(6, 24, dtype=torch.int32, device="cuda")
            info = torch.empty(6, dtype=torch.int32, device="cuda")
            linalg.lu_factor_ex(real, out=(out, pivots, info))
            assert torch.equal(out, expected.LU) and torch.equal(pivots, expected.pivots)
            into = torch.empty_like(out)
            assert torch.equal(linalg.inv(real, out=into), linalg.inv(real))
        check.ok = True
    with session.check("broadcasting", owner="ours") as check:
        b = common.matrices(torch, "float64", 5, 24, 3)
        worst = 0.0
        for preference in ("default", "cusolver", "cublas"):
            torch.backends.cuda.preferred_linalg_library(preference)
            x = linalg.solve(real[:, None], b[None])
            worst = max(
                worst,
                common.solve_error(
                    torch, real[:, None].expand(6, 5, 24, 24), x, b.expand(6, 5, 24, 3)
                ),
            )
        torch.backends.cuda.preferred_linalg_library("default")
        check.value, check.ok = round(worst, 3), worst < LIMIT


def derivatives(session: Session) -> None:
    """gradcheck, gradgradcheck, vmap and the strides that fake tensors promise."""
    torch = session.torch
    linalg = torch.linalg
    for dtype in ("float64", "complex128"):
        a = common.matrices(torch, dtype, 2, 4, 4).requires_grad_()
        b = common.matrices(torch, dtype, 2, 4, 2).requires_grad_()
        functions: dict[str, Callable[..., Any]] = {
            "solve": lambda a, b: linalg.solve_ex(a, b)[0],
            "inv": lambda a, b: linalg.inv_ex(a)[0],
            "slogdet": lambda a, b: linalg.slogdet(a)[1],
            "lu_factor and lu_solve": lambda a, b: linalg.lu_solve(*linalg.lu_factor_ex(a)[:2], b),
        }
        for name, function in functions.items():
            with session.check(
                "gradcheck, gradgradcheck", function=name, dtype=dtype, owner="ours"
            ) as check:
                inputs = (a, b)
                check.ok = torch.autograd.gradcheck(function, inputs)
                check.ok = check.ok and torch.autograd.gradgradcheck(function, inputs)
    with session.check("vmap", owner="ours") as check:
        a = common.matrices(torch, "float64", 50, 8, 8)
        b = common.matrices(torch, "float64", 50, 8, 2)
        mapped = torch.vmap(torch.linalg.solve)(a, b)
        error = common.solve_error(torch, a, mapped, b)
        single = torch.vmap(torch.func.grad(lambda x: torch.linalg.slogdet(x)[1]))(a)
        expected = torch.linalg.inv(a).mT
        check.value = round(error, 3)
        check.ok = error < LIMIT and bool(torch.allclose(single, expected, rtol=1e-8, atol=1e-8))
    from torch._subclasses.fake_tensor import FakeTensorMode

    calls: dict[str, Callable[[Any], Any]] = {
        "lu_factor_ex": lambda x: linalg.lu_factor_ex(x),
        "inv_ex": lambda x: linalg.inv_ex(x),
        "solve_ex": lambda x: linalg.solve_ex(x, x),
        "lu": lambda x: linalg.lu(x),
        "slogdet": lambda x: linalg.slogdet(x),
    }
    for name, call in calls.items():
        for shape in ((3, 3), (1, 1), (4, 0, 0), (5, 7, 7), (2, 600, 600)):
            with session.check("fake tensors", op=name, shape=shape, owner="ours") as check:
                real = call(torch.randn(shape, device="cuda"))
                with FakeTensorMode():
                    fake = call(torch.empty(shape, device="cuda"))
                for x, y in zip(real, fake, strict=True):
                    assert (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)
                check.ok = True


def run(session: Session) -> None:
    """All kinds."""
    library = common.enable()
    limits(session, library)
    bad_matrices(session, library)
    shapes_and_views(session)
    derivatives(session)
    offsets(session, library)
