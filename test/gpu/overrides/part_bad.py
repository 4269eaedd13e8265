"""NaN, inf, zero pivots, denormals, singular items, info; see part_kinds for `case` and `owner`."""

from __future__ import annotations

from typing import Any

import common

from aotools.gputest.session import Session

KINDS = ("nan", "inf", "zero column", "zero", "denormal")
SHAPES = ((9, 5), (9, 40), (9, 300), (3, 520))
NAN_SHAPES = ((1, 3), (2, 3), (100, 3), (2, 70), (2, 600))
PLAIN_SHAPES = ((1, 4), (3, 40), (2, 300))
SIDES = (1, 3, 1025)
ILL = 490
ENDLESS = (1536, 1537, 4096)

# argv[1]: n. inv of a matrix of NaN; ends with what came out.
ALL_NAN = """
import sys, torch, common
common.enable()
a = torch.full((int(sys.argv[1]),) * 2, float("nan"), device="cuda")
inverse, info = torch.linalg.inv_ex(a)
pair = torch.linalg.inv_ex(torch.stack([a, torch.eye(a.shape[0], device="cuda")]))
print("info", int(info), pair.info.tolist(), "finite", bool(inverse.isfinite().any()),
      bool(pair.inverse[0].isfinite().any()), bool(pair.inverse[1].isfinite().all()))
"""


def spoil(a: Any, kind: str, item: int) -> None:
    """Makes one matrix of the batch bad."""
    if kind == "nan":
        a[item, 1, 0] = float("nan")
    elif kind == "inf":
        a[item, 1, 1] = float("inf")
    elif kind == "zero column":
        a[item, :, 2] = 0
    elif kind == "zero":
        a[item] = 0
    else:
        a[item] *= 1e-42


def _item_is_right(kind: str, item: Any, pivots: Any, info: int, n: int) -> bool:
    finite = bool(item.isfinite().all())
    if kind in ("nan", "inf"):
        return not finite
    if kind == "zero column":
        return info == 3 and finite
    if kind == "zero":
        return info == 1 and not bool(item.any())
    return finite and bool((pivots >= 1).all()) and bool((pivots <= n).all())


def items(session: Session, library: Any) -> None:
    """A bad matrix among good ones, by every route."""
    torch = session.torch
    for route in ("choice", *common.lu_routes(library)):
        for batch, n in SHAPES:
            clean = common.matrices(torch, "float32", batch, n, n)
            with common.forced(library, route):
                expected = torch.linalg.lu_factor_ex(clean)
                for kind in KINDS:
                    a, bad, before = clean.clone(), batch // 2, library.counts()
                    spoil(a, kind, bad)
                    lu, pivots, info = torch.linalg.lu_factor_ex(a)
                    others = [i for i in range(batch) if i != bad]
                    owner = "ours" if route == common.NATIVE else "vendor"
                    params = {"route": route, "batch": batch, "n": n, "owner": owner}
                    with session.check(f"{kind}: neighbours unchanged", **params) as check:
                        check.ok = torch.equal(lu[others], expected.LU[others])
                        check.ok &= torch.equal(pivots[others], expected.pivots[others])
                        check.ok &= not bool(info[others].any())
                    with session.check(f"{kind}: the item itself", **params) as check:
                        check.vendor = not common.used(library, before) <= {common.NATIVE}
                        code = int(info[bad])
                        check.value = {"info": code, "finite": bool(lu[bad].isfinite().all())}
                        check.ok = _item_is_right(kind, lu[bad], pivots[bad], code, n)


def nan_reaches_results(session: Session, library: Any) -> None:
    """A NaN anywhere in the matrix reaches slogdet, inv and solve, by every route that we drive."""
    torch = session.torch
    for route in ("choice", *common.lu_routes(library)):
        for batch, n in NAN_SHAPES:
            with session.check(
                "NaN reaches the results", case="B29", route=route, batch=batch, n=n, owner="vendor"
            ) as check:
                lost, before = [], library.counts()
                with common.forced(library, route):
                    for row, column in (
                        (0, 0),
                        (1, 0),
                        (0, 1),
                        (1, 1),
                        (2, 0),
                        (2, 1),
                        (0, 2),
                        (1, 2),
                        (2, 2),
                    ):
                        a = common.matrices(torch, "float32", batch, n, n)
                        a[-1, row, column] = float("nan")
                        results = {
                            "slogdet": torch.linalg.slogdet(a).logabsdet[-1],
                            "inv_ex": torch.linalg.inv_ex(a).inverse[-1],
                            "solve_ex": torch.linalg.solve_ex(a, a).result[-1],
                        }
                        lost += [
                            f"{name} at {row}, {column}"
                            for name, found in results.items()
                            if bool(found.isfinite().all())
                        ]
                ran = common.used(library, before)
                check.vendor = not ran <= common.ANSWERED_FOR
                check.value = {"lost": len(lost), "routes": sorted(ran)}
                check.ok, check.reason = not lost, "; ".join(lost[:4])


def singular(session: Session) -> None:
    """Singular matrices: info, what raises, and what is equal for every batch size."""
    torch = session.torch
    linalg = torch.linalg
    with session.check(
        "singular items in solve_ex, inv_ex, det", case="B37", owner="ours"
    ) as check:
        a = common.matrices(torch, "float32", 1000, 3, 3)
        a[700] = 1
        x, info = linalg.solve_ex(a, common.matrices(torch, "float32", 1000, 3, 1))
        marked = info.nonzero().flatten().tolist()
        inverse = linalg.inv_ex(a).info.nonzero().flatten().tolist()
        det = float(linalg.det(a)[700])
        check.value = [marked, inverse, det]
        check.ok = marked == inverse == [700] and det == 0 and bool(x[:700].isfinite().all())
    for batch in (1, 2, 3, 5, 100):
        with session.check("inv raises and names the item", case="B23", batch=batch) as check:
            a = torch.eye(3, device="cuda").repeat(batch, 1, 1)
            a[0, 2, 2] = 0
            with common.raises(linalg.LinAlgError, "batch element 0"):
                linalg.inv(a)
            check.value = linalg.inv_ex(a).info.tolist()[:5]
            check.ok = check.value == [3, 0, 0, 0, 0][:batch] and S5(torch)
    with session.check("1 x 1 zero", case="B40", owner="ours") as check:
        for shape in ((1, 1), (7, 1, 1)):
            zero = torch.zeros(shape, device="cuda")
            with common.raises(linalg.LinAlgError):
                linalg.inv(zero)
            assert bool((linalg.inv_ex(zero).info == 1).all())
        check.ok = True
    for preference in ("default", "cusolver", "cublas", "magma"):
        for batch in (1, 5):
            with (
                session.check(
                    "rank 1, 2 x 2", case="B24", preference=preference, batch=batch, owner="vendor"
                ) as check,
                common.preferring(torch, preference),
            ):
                a = torch.tensor([[1.0, 1.0], [3.0, 3.0]], device="cuda")
                inverse, info = linalg.inv_ex((a @ a).repeat(batch, 1, 1))
                check.value = {"info": info.tolist(), "largest": float(inverse.abs().max())}
                check.vendor = True
                check.ok = bool((info > 0).all()) or not check.value["largest"] < 1e5
    with session.check("logdet of an exactly singular matrix", case="B28", owner="vendor") as check:
        row = torch.tensor([[2.0, 1.0, 3.0]], device="cuda")
        a = torch.cat([row, torch.tensor([[1.0, 4.0, 2.0]], device="cuda"), 3 * row])
        found = [
            float(linalg.slogdet(each).logabsdet.flatten()[0]) for each in (a, a.repeat(100, 1, 1))
        ]
        zero_in_u = [
            bool((linalg.lu_factor_ex(each).LU.diagonal(dim1=-2, dim2=-1) == 0).any())
            for each in (a, a.repeat(100, 1, 1))
        ]
        check.value = [str(value) for value in found]
        check.vendor = True
        check.ok = all(
            (value == float("-inf")) == zero for value, zero in zip(found, zero_in_u, strict=True)
        )
    with session.check("equal elements: det 0, info 2", case="B33 B35", owner="vendor") as check:
        check.vendor = True
        for dtype in common.DTYPES:
            a = torch.full((3, 3, 3), 3.0, dtype=getattr(torch, dtype), device="cuda")
            lu, pivots, info = linalg.lu_factor_ex(a)
            assert bool(lu.isfinite().all()) and info.tolist() == [2, 2, 2], (dtype, info.tolist())
            assert bool((linalg.det(a) == 0).all()), dtype
            assert bool((pivots >= torch.arange(1, 4, device="cuda")).all()), dtype
        check.ok = True
    low_rank(session)


def S5(torch: Any) -> bool:
    """An unrelated operation works afterwards."""
    torch.cuda.synchronize()
    return bool(torch.ones(3, device="cuda").sum() == 3)


def low_rank(session: Session) -> None:
    """Rank 1 for n = 2 .. 33 and rectangular: P L U = A holds for singular matrices too."""
    torch = session.torch
    library = common.enable()
    for route in ("choice", *common.lu_routes(library)):
        with session.check("rank 1: P L U = A", case="B34", route=route, owner="vendor") as check:
            worst = 0.0
            shapes = [(n, n) for n in range(2, 34)] + [(3, 7), (7, 3)]
            with common.forced(library, route):
                for m, n in shapes:
                    if m != n and route == "batched_cublas":
                        continue
                    a = common.matrices(torch, "float32", 5, m, 1) @ common.matrices(
                        torch, "float32", 5, 1, n
                    )
                    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
                    worst = max(worst, common.factor_error(torch, a, lu, pivots))
            check.vendor = True
            check.value, check.ok = round(worst, 3), worst < common.LIMIT


def exchanges(session: Session, library: Any) -> None:
    """Without row exchanges, transposed solves, small batches, signs, ill-conditioned matrices."""
    torch = session.torch
    linalg = torch.linalg
    for dtype in common.DTYPES:
        for route in ("choice", *common.lu_routes(library)):
            with session.check(
                "pivot=False, then lu_solve", case="B45", dtype=dtype, route=route
            ) as check:
                worst = 0.0
                with common.forced(library, route):
                    for batch, n in PLAIN_SHAPES:
                        g = common.matrices(torch, dtype, batch, n, n)
                        a = g @ g.mH + n * torch.eye(n, dtype=g.dtype, device="cuda")
                        b = common.matrices(torch, dtype, batch, n, 2)
                        lu, pivots, _ = linalg.lu_factor_ex(a, pivot=False)
                        assert torch.equal(
                            pivots,
                            torch.arange(1, n + 1, dtype=torch.int32, device="cuda").expand(
                                batch, n
                            ),
                        )
                        worst = max(
                            worst, common.solve_error(torch, a, linalg.lu_solve(lu, pivots, b), b)
                        )
                check.value, check.ok = round(worst, 3), worst < common.LIMIT
        for route in ("choice", *common.SOLVE_ROUTES):
            with session.check(
                "lu_solve: four forms", case="B47", dtype=dtype, route=route
            ) as check:
                worst = 0.0
                for batch in (1, 2, 65):
                    a = common.matrices(torch, dtype, batch, 40, 40)
                    lu, pivots, _ = linalg.lu_factor_ex(a)
                    for k in SIDES:
                        b = common.matrices(torch, dtype, batch, 40, k)
                        for adjoint in (False, True):
                            with common.forced(library, route, "lu_solve"):
                                x = linalg.lu_solve(lu, pivots, b, adjoint=adjoint)
                                y = linalg.lu_solve(
                                    lu, pivots, b.mT.contiguous(), adjoint=adjoint, left=False
                                )
                            matrix = a.mH if adjoint else a
                            worst = max(
                                worst,
                                common.solve_error(torch, matrix, x, b),
                                common.solve_error(torch, matrix.mT, y.mT, b),
                            )
                check.value, check.ok = round(worst, 3), worst < common.LIMIT
    for preference in ("default", "cusolver", "cublas", "magma"):
        with (
            session.check("inv, batch 1 to 8", case="B51", preference=preference) as check,
            common.preferring(torch, preference),
        ):
            errors = []
            for batch in range(1, 9):
                a = common.matrices(torch, "float32", batch, 3, 3)
                eye = torch.eye(3, device="cuda").expand_as(a)
                errors.append(common.solve_error(torch, a, linalg.inv(a), eye))
            check.value, check.ok = round(max(errors), 3), max(errors) < common.LIMIT
    with session.check("signs of determinants", case="B86", owner="ours") as check:
        a = common.matrices(torch, "float64", 50, 7, 7)
        moved = linalg.lu_factor_ex(a).pivots.cpu() != torch.arange(1, 8)
        parity = 1 - 2 * (moved.sum(-1) % 2)
        sign = linalg.slogdet(a).sign.cpu()
        oracle = torch.stack([linalg.slogdet(each).sign for each in a.cpu()])
        diagonal = linalg.lu_factor_ex(a).LU.diagonal(dim1=-2, dim2=-1).cpu().sign().prod(-1)
        check.ok = torch.equal(sign, oracle) and torch.equal(parity * diagonal, sign)
    for batch in (1, 2):
        with session.check("ill-conditioned complex64", case="B84", batch=batch) as check:
            q, _ = linalg.qr(common.matrices(torch, "complex128", batch, ILL, ILL))
            scale = torch.logspace(0, -6, ILL, dtype=torch.float64, device="cuda")
            a = ((q * scale) @ q.flip(-1).mH).to(torch.complex64)
            b = common.matrices(torch, "complex64", batch, ILL, 2)
            x = linalg.solve_ex(a, b).result
            error = common.solve_error(torch, a, x, b)
            check.value, check.ok = round(error, 3), error < common.LIMIT


def endless(session: Session) -> None:
    """inv of a matrix of NaN must end (upstream 134334: n >= 1537 never did)."""
    for n in ENDLESS:
        with session.check("a matrix of NaN ends", case="B30", n=n, owner="vendor") as check:
            bad, text = common.script(ALL_NAN, str(n), timeout=60)
            words = text.split()
            check.vendor = bad == "timed out"
            check.value = text.strip()[-200:]
            check.ok = not bad and "finite" in words and words[-3:] == ["False", "False", "True"]
            check.reason = bad


def run(session: Session) -> None:
    """All of it but `endless`."""
    library = common.enable()
    items(session, library)
    nan_reaches_results(session, library)
    singular(session)
    exchanges(session, library)
    common.disable()
