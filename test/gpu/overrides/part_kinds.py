"""Launch limits, offsets past 2^31 bytes, views, out=, broadcasting, zero sizes.

A row's `case` names the public report that it is after, `owner` whose routine computes: ours (our
own glue), vendor (cuBLAS, cuSOLVER, MAGMA: a failure is recorded as a measured result), stock
(nothing of ours is in the way).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common

from aotools.gputest.session import Session

LIMIT_BATCHES = (65535, 65536, 65537, 131071, 2**19 + 1)
OFFSETS = (
    (1_500_000, 20, "float32"),
    (700_000, 20, "float64"),
    (2200, 1000, "float32"),
)
WIDE = 524281
SIDES = ((3, 1109, (1023, 1024, 1025, 1109)), (1, 1, (1109,)), (2, 3, (4096,)))


def scaled(torch: Any, batch: int, n: int, dtype: str = "float32") -> Any:
    """Well-conditioned matrices, item k scaled by k + 1, so that items in the wrong place show."""
    a = common.matrices(torch, dtype, batch, n, n) + 2 * n * torch.eye(
        n, dtype=getattr(torch, dtype), device="cuda"
    )
    factors = torch.arange(1, batch + 1, device="cuda", dtype=torch.float64)
    return a * factors.to(a.real.dtype).view(-1, 1, 1)


def limits(session: Session) -> None:
    """Batches around 65535 and 2^19, by every route that takes batches whole; wide right-hand
    sides. Stock last: its failures must not spoil the others.
    """
    library = common.enable()
    for route in ("choice", "batched_cublas"):
        batch_limits(session, library, route)
    wide_sides(session)
    very_wide_sides(session, library)
    batch_limits(session, library, "stock")
    common.disable()


def batch_limits(session: Session, library: Any, route: str) -> None:
    """solve_ex and inv_ex of many small matrices."""
    torch = session.torch
    for batch in LIMIT_BATCHES:
        for n in (3, 12):
            a = scaled(torch, batch, n)
            b = common.matrices(torch, "float32", batch, n, 2)
            with session.check(
                "batch limit", case="B03 B06", batch=batch, n=n, route=route, owner="ours"
            ) as check:
                check.vendor = route == "stock"
                with common.forced(library, route), common.forced(library, route, "lu_solve"):
                    # A first call that fails must not be followed by a wrong one.
                    for _ in range(2):
                        x, info = torch.linalg.solve_ex(a, b)
                    inverse = torch.linalg.inv_ex(a).inverse
                eye = torch.eye(n, device="cuda").expand_as(a)
                errors = [
                    common.solve_error(torch, a, x, b),
                    common.solve_error(torch, a, inverse, eye),
                ]
                check.value = [round(error, 3) for error in errors]
                check.ok = max(errors) < common.LIMIT and not bool(info.any())


def wide_sides(session: Session) -> None:
    """More right-hand sides than the 1024 that MAGMA takes."""
    torch = session.torch
    for dtype in ("float32", "float64"):
        for batch, n, sides in SIDES:
            a = scaled(torch, batch, n, dtype)
            with session.check(
                "many right-hand sides", case="B01 B02", dtype=dtype, batch=batch, n=n, owner="ours"
            ) as check:
                worst = 0.0
                for k in sides:
                    for preference in ("default", "cusolver", "cublas"):
                        b = common.matrices(torch, dtype, batch, n, k)
                        with common.preferring(torch, preference):
                            x = torch.linalg.solve_ex(a, b).result
                        worst = max(worst, common.solve_error(torch, a, x, b))
                check.value, check.ok = round(worst, 3), worst < common.LIMIT


def very_wide_sides(session: Session, library: Any) -> None:
    """More right-hand sides than the 524280 that cuBLAS's trsmBatched takes."""
    torch = session.torch
    for batch in (1, 2):
        a = scaled(torch, batch, 2)
        b = common.matrices(torch, "float32", batch, 2, WIDE)
        lu, pivots, _ = torch.linalg.lu_factor_ex(a)
        for route in ("choice", *reversed(common.SOLVE_ROUTES)):
            with session.check(
                "524281 right-hand sides", case="B12", batch=batch, route=route, owner="vendor"
            ) as check:
                check.vendor = True
                with common.forced(library, route, "lu_solve"):
                    x = torch.linalg.lu_solve(lu, pivots, b)
                error = common.solve_error(torch, a, x, b)
                check.value, check.ok = round(error, 3), error < common.LIMIT


def offsets(session: Session) -> None:
    """Items past byte 2^31: factors by the definition, and det as if alone."""
    torch = session.torch
    library = common.enable()
    for batch, n, dtype in OFFSETS:
        for route in ("choice", "batched_cublas", "streamed_cusolver"):
            if route == "streamed_cusolver" and batch > 10000:
                continue  # a call per matrix
            with session.check(
                "offsets past 2^31",
                case="B08",
                batch=batch,
                n=n,
                dtype=dtype,
                route=route,
                owner="ours",
            ) as check:
                a = common.matrices(torch, dtype, batch, n, n)
                with common.forced(library, route):
                    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
                    sign, logabs = torch.linalg.slogdet(a)
                    alone = torch.linalg.slogdet(a[-100:].clone())
                errors = [
                    common.factor_error(torch, a[part], lu[part], pivots[part])
                    for part in (slice(0, 100), slice(-100, None))
                ]
                check.value = [round(error, 3) for error in errors]
                check.ok = max(errors) < common.LIMIT
                check.ok = check.ok and torch.equal(sign[-100:], alone.sign)
                check.ok = check.ok and bool(
                    torch.allclose(logabs[-100:], alone.logabsdet, rtol=1e-4, atol=1e-3)
                )
                del a, lu, pivots, sign, logabs
                torch.cuda.empty_cache()
    common.disable()


def views(session: Session) -> None:
    """Zero sizes, views, out=, aliasing, broadcasting, against the materialised copy."""
    common.enable()
    zero_sizes(session)
    view_equals_copy(session)
    outs(session)
    broadcasting(session)
    common.disable()


def zero_sizes(session: Session) -> None:
    """Empty batches and 0 x 0 matrices, under every preference."""
    torch = session.torch
    linalg = torch.linalg
    for preference in ("default", "cusolver", "cublas", "magma"):
        with session.check(
            "zero sizes", case="B56 B57", preference=preference, owner="ours"
        ) as check:
            with common.preferring(torch, preference):
                for shape in ((0, 3, 3), (4, 0, 0), (0, 5, 5), (2, 0, 3, 3), (0, 0)):
                    a = torch.empty(shape, device="cuda")
                    lu, pivots, info = linalg.lu_factor_ex(a)
                    assert lu.shape == a.shape and info.shape == a.shape[:-2]
                    assert pivots.shape == a.shape[:-1]
                    assert linalg.inv_ex(a).inverse.shape == a.shape
                    assert bool((linalg.det(a) == 1).all())
                    assert bool((linalg.slogdet(a).logabsdet == 0).all())
                    wide = torch.empty(*shape[:-1], 3, device="cuda")
                    assert linalg.solve_ex(a, wide).result.shape == wide.shape
                    assert linalg.lu_solve(lu, pivots, wide).shape == wide.shape
                tall = torch.empty(3, 0, 4, device="cuda")
                assert linalg.lu_factor_ex(tall).LU.shape == (3, 0, 4)
            check.ok = True
    with session.check("an empty batch that broadcasts", case="B55", owner="ours") as check:
        a = common.matrices(torch, "complex128", 1, 5, 5)
        b = torch.empty(2, 0, 5, 5, dtype=torch.complex128, device="cuda")
        try:
            check.value = str(tuple(linalg.solve_ex(a, b).result.shape))
            check.ok = check.value == "(2, 0, 5, 5)"
        except RuntimeError as error:
            check.value = check.reason = str(error)[:200]
            check.ok = "internal" not in str(error).lower()


def view_equals_copy(session: Session) -> None:
    """Views are factored to the bits of their copy, and stay as they were. torch may factor the
    transpose for solve, inv and det, as the layout suggests, so there the last bits may differ.
    """
    torch = session.torch
    linalg = torch.linalg
    a = common.matrices(torch, "complex64", 6, 24, 24)
    double = common.matrices(torch, "complex128", 6, 24, 24)
    real = common.matrices(torch, "float64", 6, 24, 24)
    cases: dict[str, Callable[[], Any]] = {
        "transposed": lambda: real.mT,
        "expanded": lambda: real[:1].expand(6, 24, 24),
        "sliced": lambda: real[::2, ::2, 1::2],
        "conj": lambda: a.conj(),
        "adjoint": lambda: a.mH,
        "neg": lambda: a.conj().imag,
        "conj complex128": lambda: double.conj(),
        "neg complex128": lambda: double.conj().imag,
    }
    for name, make in cases.items():
        with session.check("view equals its copy", case="B49", view=name, owner="ours") as check:
            view = make()
            copy = view.clone().resolve_conj().resolve_neg().contiguous()
            before, n = copy.clone(), copy.shape[-1]
            b = torch.ones(*view.shape[:-1], 2, dtype=view.dtype, device="cuda")
            pairs = zip(linalg.lu_factor_ex(view), linalg.lu_factor_ex(copy), strict=True)
            check.ok = all(torch.equal(x, y) for x, y in pairs)
            errors = [
                common.solve_error(torch, copy, linalg.solve_ex(view, b)[0], b),
                common.solve_error(
                    torch,
                    copy,
                    linalg.inv_ex(view)[0],
                    torch.eye(n, dtype=view.dtype, device="cuda").expand_as(copy),
                ),
            ]
            check.value = [round(error, 3) for error in errors]
            check.ok = check.ok and max(errors) < common.LIMIT
            wide = torch.complex128 if copy.is_complex() else torch.float64
            close = linalg.det(view).to(wide), linalg.det(copy.to(wide))
            check.ok = check.ok and bool(torch.allclose(*close, rtol=1e-3))
            check.ok = check.ok and torch.equal(view, before)  # the input is not written


def outs(session: Session) -> None:
    """out= with every layout, of another kind, and the input itself."""
    torch = session.torch
    linalg = torch.linalg
    real = common.matrices(torch, "float64", 6, 24, 24)
    with session.check("out= of every layout", case="B52", owner="ours") as check:
        expected = linalg.lu_factor_ex(real)
        for out in (
            torch.empty_like(real),
            torch.empty_like(real).mT,
            torch.empty(24, 24, 6, dtype=real.dtype, device="cuda").permute(2, 0, 1),
            torch.empty(0, dtype=real.dtype, device="cuda"),
        ):
            pivots = torch.empty(6, 24, dtype=torch.int32, device="cuda")
            info = torch.empty(6, dtype=torch.int32, device="cuda")
            linalg.lu_factor_ex(real, out=(out, pivots, info))
            assert torch.equal(out, expected.LU) and torch.equal(pivots, expected.pivots)
            into = torch.empty_like(out)
            assert torch.equal(linalg.inv(real, out=into), linalg.inv(real))
        check.ok = True
    with session.check("out= of another kind, and the input", case="B53", owner="ours") as check:
        single = real.float()
        expected = linalg.inv(single)
        into = torch.empty(6, 24, 24, dtype=torch.complex64, device="cuda")
        with common.raises(RuntimeError, "dtype"):  # refused since 2.6; a copy before
            linalg.inv(single, out=into)
        itself = single.clone()
        linalg.inv(itself, out=itself)
        assert torch.equal(itself, expected)
        check.ok = True


def broadcasting(session: Session) -> None:
    """Batches of A and B that broadcast, and one A for many B."""
    torch = session.torch
    linalg = torch.linalg
    real = common.matrices(torch, "float64", 6, 24, 24)
    with session.check("broadcasting", owner="ours") as check:
        b = common.matrices(torch, "float64", 5, 24, 3)
        worst = 0.0
        for preference in ("default", "cusolver", "cublas"):
            with common.preferring(torch, preference):
                x = linalg.solve(real[:, None], b[None])
            pairs = real[:, None].expand(6, 5, 24, 24), x, b.expand(6, 5, 24, 3)
            worst = max(worst, common.solve_error(torch, *pairs))
        check.value, check.ok = round(worst, 3), worst < common.LIMIT
    with session.check("one A, many B: one factorisation", case="B59", owner="ours") as check:
        a = common.matrices(torch, "float32", 1, 256, 256)[0]
        b = common.matrices(torch, "float32", 1024, 256, 2)
        flat = b.transpose(0, 1).reshape(256, -1).contiguous()

        def wide() -> Any:
            return linalg.solve_ex(a, flat)

        many = common.quick(session, lambda: linalg.solve_ex(a, b))
        once = common.quick(session, wide)
        error = common.solve_error(torch, a.expand(1024, 256, 256), linalg.solve_ex(a, b)[0], b)
        check.value = {"ms": round(many.ms, 3), "as one wide system": round(once.ms, 3)}
        check.vendor = True  # torch decides to factor once; the solve after it is the wheel's rule
        check.ok = error < common.LIMIT and many.ms <= 2 * once.ms + 0.1
