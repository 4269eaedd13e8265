"""Derivatives, vmap, fake tensors, half precision; see part_kinds for `case` and `owner`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common

from aotools.gputest.session import Session

FAKE_SHAPES = ((3, 3), (1, 1), (4, 0, 0), (5, 7, 7), (2, 600, 600))


def checks(session: Session) -> None:
    """gradcheck and gradgradcheck, lu_solve in its four forms."""
    torch = session.torch
    linalg = torch.linalg
    for dtype in ("float64", "complex128"):
        a = common.matrices(torch, dtype, 2, 4, 4).requires_grad_()
        b = common.matrices(torch, dtype, 2, 4, 2).requires_grad_()
        functions: dict[str, Callable[..., Any]] = {
            "solve": lambda a, b: linalg.solve_ex(a, b)[0],
            "inv": lambda a, b: linalg.inv_ex(a)[0],
            "slogdet": lambda a, b: linalg.slogdet(a)[1],
            "lu_solve": lambda a, b: linalg.lu_solve(*linalg.lu_factor_ex(a)[:2], b),
            "lu_solve adjoint": lambda a, b: linalg.lu_solve(
                *linalg.lu_factor_ex(a)[:2], b, adjoint=True
            ),
            "lu_solve from the right": lambda a, b: linalg.lu_solve(
                *linalg.lu_factor_ex(a)[:2], b.mT, left=False
            ),
            "lu_solve adjoint from the right": lambda a, b: linalg.lu_solve(
                *linalg.lu_factor_ex(a)[:2], b.mT, left=False, adjoint=True
            ),
        }
        for name, function in functions.items():
            with session.check(
                "gradcheck, gradgradcheck", case="B89", function=name, dtype=dtype, owner="ours"
            ) as check:
                check.ok = torch.autograd.gradcheck(function, (a, b))
                check.ok = check.ok and torch.autograd.gradgradcheck(function, (a, b))
    with session.check("det of singular matrices: gradient", case="B88", owner="stock") as check:
        a = common.matrices(torch, "float64", 3, 6, 6)
        a[1, :, 0] = a[1, :, 1]
        oracle = torch.stack([_cofactors(torch, each) for each in a.cpu()])
        scale = oracle.abs().amax((-2, -1))
        gradients = {}
        for who in ("stock", "overrides"):
            (common.enable if who == "overrides" else common.disable)()
            x = a.clone().requires_grad_()
            torch.linalg.det(x).sum().backward()
            gradients[who] = ((x.grad.cpu() - oracle).abs().amax((-2, -1)) / scale).tolist()
        check.value = gradients
        check.ok = max(gradients["overrides"]) < 1e-6
        # torch's formula multiplies by the determinant: no fault of ours where stock has it too.
        check.vendor = not max(gradients["stock"]) < 1e-6


def _cofactors(torch: Any, a: Any) -> Any:
    n = a.shape[-1]
    out = torch.empty_like(a)
    for i in range(n):
        for j in range(n):
            rows = [r for r in range(n) if r != i]
            columns = [c for c in range(n) if c != j]
            out[i, j] = (-1) ** (i + j) * torch.linalg.det(a[rows][:, columns])
    return out


def forward_twice(session: Session) -> None:
    """Second derivatives through forward mode: torch's own are wrong for some (upstream 192540);
    ours must be the same.
    """
    torch = session.torch
    linalg = torch.linalg
    a = common.matrices(torch, "float64", 1, 4, 4)[0]
    b = common.matrices(torch, "float64", 1, 4, 2)[0]
    functions: dict[str, Callable[[Any], Any]] = {
        "det": linalg.det,
        "slogdet": lambda x: linalg.slogdet(x)[1],
        "solve": lambda x: linalg.solve(x, b).sum(),
        "inv": lambda x: linalg.inv(x).sum(),
    }
    for name, function in functions.items():
        with session.check("forward twice as stock", case="B87", function=name) as check:
            second = torch.func.jacfwd(torch.func.jacfwd(function))
            common.enable()
            ours = second(a)
            common.disable()
            stock = second(a)
            check.value = float((ours - stock).abs().max())
            check.ok = bool(torch.allclose(ours, stock, rtol=1e-9, atol=1e-9, equal_nan=True))


def mapped(session: Session) -> None:
    """vmap makes one call of a batch, with right shapes."""
    torch = session.torch
    library = common.enable()
    with session.check("vmap", case="B82", owner="ours") as check:
        a = common.matrices(torch, "float64", 50, 8, 8)
        b = common.matrices(torch, "float64", 50, 8, 2)
        before = sum(library.counts().values())
        found = torch.vmap(torch.linalg.solve)(a, b)
        calls = sum(library.counts().values()) - before
        error = common.solve_error(torch, a, found, b)
        shared = torch.vmap(torch.linalg.solve, in_dims=(0, None))(a, b[0])
        single = torch.vmap(torch.func.grad(lambda x: torch.linalg.slogdet(x)[1]))(a)
        expected = torch.linalg.inv(a).mT
        check.value = {"error": round(error, 3), "calls of ours": calls}
        check.ok = error < common.LIMIT and 1 <= calls <= 2 and shared.shape == (50, 8, 2)
        check.ok = check.ok and bool(torch.allclose(single, expected, rtol=1e-8, atol=1e-8))


def fake(session: Session) -> None:
    """Shapes, strides and dtypes that fake tensors promise."""
    torch = session.torch
    linalg = torch.linalg
    from torch._subclasses.fake_tensor import FakeTensorMode

    calls: dict[str, Callable[[Any], Any]] = {
        "lu_factor_ex": linalg.lu_factor_ex,
        "inv_ex": linalg.inv_ex,
        "solve_ex": lambda x: linalg.solve_ex(x, x),
        "lu": linalg.lu,
        "slogdet": linalg.slogdet,
        "lu_solve": lambda x: (linalg.lu_solve(*linalg.lu_factor_ex(x)[:2], x),),
        "lu_solve from the right": lambda x: (
            linalg.lu_solve(*linalg.lu_factor_ex(x)[:2], x, left=False),
        ),
    }
    for name, call in calls.items():
        for shape in FAKE_SHAPES:
            with session.check("fake tensors", case="B81", op=name, shape=shape) as check:
                source = torch.randn(shape, device="cuda")
                real = call(source)
                with FakeTensorMode():
                    promised = call(torch.empty(shape, device="cuda"))
                common.disable()
                stock = call(source)
                common.enable()

                def described(tensors: Any) -> list[tuple[Any, ...]]:
                    return [(tuple(x.shape), x.stride(), x.dtype) for x in tensors]

                check.ok = described(real) == described(stock)
                agrees = described(real) == described(promised)
                check.reason = "" if agrees else "the fake tensors of this torch differ from stock"
                check.value = "as stock and as promised" if agrees else "as stock"


def half(session: Session) -> None:
    """float16 and bfloat16 are refused as without us; autocast leaves float32 alone."""
    torch = session.torch
    linalg = torch.linalg
    with session.check("half precision", case="B95", owner="stock") as check:
        messages: dict[bool, list[str]] = {}
        for ours in (True, False):
            (common.enable if ours else common.disable)()
            said = messages.setdefault(ours, [])
            for dtype in (torch.float16, torch.bfloat16):
                a = torch.eye(3, device="cuda", dtype=dtype)
                for call in (linalg.inv, linalg.lu_factor, lambda x: linalg.solve(x, x)):
                    try:
                        call(a)
                        said.append("no error")
                    except RuntimeError as error:
                        said.append(str(error))
        common.enable()
        with torch.autocast("cuda"):
            single = linalg.inv(torch.eye(3, device="cuda"))
        check.value = messages[True][0][:80]
        check.ok = messages[True] == messages[False] and single.dtype == torch.float32


def run(session: Session) -> None:
    """All of it."""
    common.enable()
    checks(session)
    mapped(session)
    fake(session)
    half(session)
    forward_twice(session)
    common.disable()
