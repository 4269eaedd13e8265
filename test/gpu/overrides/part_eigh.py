"""eigh and eigvalsh by every route: right answers, limits, bad matrices, gradients, threads."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import common
import eigh_common as eig

from aotools.gputest.session import Session

SMALL = (1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 34, 48, 64, 65, 100, 128, 130)
LARGE = (256, 513, 1024)
TINY_BATCHES = (1, 16384, 16385, 65535, 65536, 2**19 + 1)


def routes(session: Session) -> None:
    """Residual, orthogonality and order by route and dtype; eigvalsh against eigh."""
    torch = session.torch
    library = common.enable(only=("eigh",))
    for dtype in session.options.get("dtypes", common.DTYPES):
        for route in eig.ROUTES:
            with session.check("eigh", route=route, dtype=dtype) as check:
                _route(torch, library, route, dtype, check)
    common.disable()


def _route(torch: Any, library: Any, route: str, dtype: str, check: Any) -> None:
    worst: dict[str, float] = {}
    shapes = [(3, n) for n in SMALL if route != eig.JACOBI or n <= eig.MOST_JACOBI_ROWS]
    if route != eig.JACOBI:
        large = LARGE if dtype in ("float32", "float64") else LARGE[:2]
        shapes += [(2, n) for n in large]
    for batch, n in shapes:
        a = eig.hermitian(torch, dtype, batch, n)
        for uplo in "LU" if n <= 130 else "L":
            # The other triangle must not be read.
            other = a.triu(1) if uplo == "L" else a.tril(-1)
            spoiled = a + other * 1000
            with common.forced(library, route, "eigh"):
                values, vectors = torch.linalg.eigh(spoiled, UPLO=uplo)
            with common.forced(library, route, "eigvalsh"):
                alone = torch.linalg.eigvalsh(spoiled, UPLO=uplo)
            error = max(
                eig.errors(torch, a, values, vectors), eig.value_error(torch, a, alone, values)
            )
            worst[f"{batch}x{n}{uplo}"] = round(error, 3)
            assert vectors.mT.is_contiguous() and values.dtype == a.real.dtype
    name = max(worst, key=lambda key: worst[key])
    check.value = {"worst": worst[name], "of": name, "shapes": len(worst)}
    check.ok = worst[name] < eig.LIMIT
    used = library.counts().get(("eigh", route), 0)
    check.ok = check.ok and used > 0
    check.vendor = route == "stock" and used > 0  # torch's own Jacobi loop for float32


def limits(session: Session) -> None:
    """Batches around the limits of the batched routines, empty ones, and small workspaces."""
    torch = session.torch
    library = common.enable(only=("eigh",))
    for route in (*eig.BATCHED, "choice"):
        for dtype, n in (("float32", 2), ("float64", 3), ("complex64", 2)):
            for batch in TINY_BATCHES:
                with session.check("batch", route=route, dtype=dtype, shape=(batch, n, n)) as check:
                    a = eig.hermitian(torch, dtype, batch, n)
                    with common.forced(library, route, "eigh"):
                        values, vectors = torch.linalg.eigh(a)
                    with common.forced(library, route, "eigvalsh"):
                        alone = torch.linalg.eigvalsh(a)
                    error = eig.errors(torch, a, values, vectors)
                    error = max(error, eig.value_error(torch, a, alone, values))
                    check.value, check.ok = round(error, 3), error < eig.LIMIT
                    del a, values, vectors, alone
    for shape in ((0, 3, 3), (2, 0, 4, 4), (3, 0, 0), (2, 1, 1), (5, 5)):
        with session.check("empty and single", shape=shape) as check:
            values, vectors = torch.linalg.eigh(torch.zeros(*shape, device="cuda"))
            check.ok = values.shape == shape[:-1] and vectors.shape == shape
            check.ok = check.ok and bool((values == 0).all())
    for route in eig.BATCHED:
        for dtype, batch, n in (("float32", 3001, 16), ("complex128", 200, 40)):
            with session.check("small workspace", route=route, shape=(batch, n, n)) as check:
                a = eig.hermitian(torch, dtype, batch, n)
                before = library.eigh_workspace()
                try:
                    library.eigh_workspace(4)
                    with common.forced(library, route, "eigh"):
                        values, vectors = torch.linalg.eigh(a)
                finally:
                    library.eigh_workspace(before)
                error = eig.errors(torch, a, values, vectors)
                check.value, check.ok = round(error, 3), error < eig.LIMIT
    common.disable()


def bad(session: Session) -> None:
    """NaN and inf: what each routine says by itself, that torch's call raises where stock's does,
    and that neighbours stay right. Repeated eigenvalues, zeros and scales.
    """
    torch = session.torch
    library = common.enable(only=("eigh",))
    for dtype, n in (("float32", 3), ("float32", 40), ("float64", 20), ("complex64", 100)):
        for kind, place in (("nan", (1, 1)), ("nan", (2, 0)), ("inf", (1, 1)), ("inf", (2, 0))):
            a = eig.hermitian(torch, dtype, 5, n)
            a[2, place[0], place[1]] = float(kind)
            with common.forced(library, "stock", "eigh"):
                stock = eig.outcome(partial(torch.linalg.eigh, a))
            for route in eig.ROUTES[:-1]:
                if route == eig.JACOBI and n > eig.MOST_JACOBI_ROWS:
                    continue
                params = {"dtype": dtype, "n": n, "kind": kind, "place": place, "route": route}
                with session.check("bad matrix", case="B43", **params) as check:
                    with common.forced(library, route, "eigh"):
                        values, vectors, infos = eig.direct(torch, library, a)
                        torch.cuda.synchronize()
                        ours = eig.outcome(partial(torch.linalg.eigh, a))
                    good = [0, 1, 3, 4]
                    error = eig.errors(torch, a[good], values[good], vectors[good])
                    check.value = {
                        "info": infos.tolist(),
                        "NaN values": bool(values[2].isnan().any()),
                        "neighbours": round(error, 3),
                        "ours": ours,
                        "stock": stock,
                    }
                    same = ours.partition(":")[0] == stock.partition(":")[0]
                    if not same and ours != "returns" and kind == "inf" and route == eig.JACOBI:
                        same = True
                        check.reason = "raises at every n; stock returns NaN at this one"
                    check.ok = error < eig.LIMIT and int(infos[good].abs().max()) == 0 and same
    with session.check("stock's answer to inf by n", case="B43") as check:
        check.value = {}
        for n in (1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 33):
            a = eig.hermitian(torch, "float64", 2, n)
            a[1, n - 1, 0] = float("inf")
            with common.forced(library, "stock", "eigh"):
                found = eig.outcome(partial(torch.linalg.eigh, a))
            check.value[str(n)] = found.partition(":")[0]
        check.ok = True
    with session.check("NaN in the triangle that is not read", case="B43") as check:
        a = eig.hermitian(torch, "float64", 3, 33)
        spoiled = a.clone()
        spoiled[:, 0, 1:] = float("nan")
        for route in eig.ROUTES[:-1]:
            with common.forced(library, route, "eigh"):
                values, vectors = torch.linalg.eigh(spoiled)
            assert eig.errors(torch, a, values, vectors) < eig.LIMIT, route
        check.ok = True
    for route in eig.ROUTES:
        with session.check("repeated, zero, scaled", case="B35", route=route) as check:
            check.value = _special(torch, library, route)
            check.ok = max(check.value.values()) < eig.LIMIT
    common.disable()


def _special(torch: Any, library: Any, route: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for dtype in ("float32", "complex128"):
        for n in (3, 32, 33, 64 if route == eig.JACOBI else 70):
            q, _ = torch.linalg.qr(common.matrices(torch, dtype, 4, n, n))
            two = torch.ones(n, device="cuda", dtype=q.dtype)
            two[: n // 2] = 2
            ones = torch.ones(4, n, n, device="cuda", dtype=q.dtype)
            general = eig.hermitian(torch, dtype, 4, n)
            kinds = {
                "repeated": (q * two) @ q.mH,
                "zero": torch.zeros_like(q),
                "identity": torch.eye(n, device="cuda", dtype=q.dtype).expand(4, n, n),
                "rank one": ones,
                "tiny": general * 1e-30,
                "huge": general * 1e15,
            }
            for kind, a in kinds.items():
                a = (a + a.mH) / 2
                with common.forced(library, route, "eigh"):
                    values, vectors = torch.linalg.eigh(a)
                key = f"{kind} {dtype}"
                error = round(eig.errors(torch, a, values, vectors), 3)
                found[key] = max(found.get(key, 0.0), error)
    return found


def uses(session: Session) -> None:
    """Gradients, threads with streams, allocations, equal bits, views and out=."""
    torch = session.torch
    library = common.enable(only=("eigh",))
    for route in eig.ROUTES:
        with session.check("gradient of exp(A) through eigh", route=route) as check:
            with common.forced(library, route, "eigh"):
                check.value = _gradient(torch)
            check.ok = check.value < 1e-10
        with session.check("gradient of eigvalsh", route=route) as check:
            a = eig.hermitian(torch, "float64", 2, 6).requires_grad_()
            with common.forced(library, route, "eigvalsh"):
                check.ok = torch.autograd.gradcheck(
                    lambda m: torch.linalg.eigvalsh((m + m.mH) / 2), (a,)
                )
        with session.check("threads with streams of their own", route=route) as check:
            with common.forced(library, route, "eigh"):
                check.value = _threads(torch)
            check.ok = check.value < eig.LIMIT
        with session.check("allocations", route=route) as check:
            counts = {}
            with common.forced(library, route, "eigh"):
                for batch in (2, 32):
                    a = eig.hermitian(torch, "float64", batch, 33)
                    torch.linalg.eigh(a)
                    counts[str(batch)] = common.allocations(torch, partial(torch.linalg.eigh, a))
            check.value = counts
            check.ok = route == "stock" or counts["2"] == counts["32"] <= 10
            check.vendor = route == "stock"
        with session.check("the same bits again", route=route) as check:
            a = eig.hermitian(torch, "float32", 9, 64 if route == eig.JACOBI else 100)
            with common.forced(library, route, "eigh"):
                first, second = torch.linalg.eigh(a), torch.linalg.eigh(a)
            check.ok = all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
            check.vendor = route != "streamed_cusolver"
    with session.check("streams return the loop's bits") as check:
        same = []
        for dtype, n in (("float32", 64), ("float64", 33), ("complex64", 200), ("float32", 600)):
            a = eig.hermitian(torch, dtype, 7, n)
            results = []
            for route in ("looped_cusolver", "streamed_cusolver"):
                with common.forced(library, route, "eigh"):
                    results.append(torch.linalg.eigh(a))
            same.append(all(torch.equal(x, y) for x, y in zip(*results, strict=True)))
        check.value, check.ok = same, all(same)
    with session.check("views, out= and batch dimensions") as check:
        a = eig.hermitian(torch, "float64", 12, 33)
        expected = torch.linalg.eigvalsh(a)
        wide = torch.zeros(12, 66, 40, dtype=a.dtype, device="cuda")[:, ::2, :33]
        wide.copy_(a)
        out = tuple(torch.empty(0, dtype=a.dtype, device="cuda") for _ in range(2))
        for route in eig.ROUTES:
            with common.forced(library, route, "eigh"):
                values, vectors = torch.linalg.eigh(wide.view_as(wide).mT)
                assert eig.errors(torch, a, values, vectors) < eig.LIMIT, route
                torch.linalg.eigh(a.unflatten(0, (3, 4)), out=out)
            assert out[0].shape == (3, 4, 33), route
            assert eig.value_error(torch, a, out[0].flatten(0, 1), expected) < eig.LIMIT, route
        check.ok = True
    common.disable()


def _gradient(torch: Any) -> float:
    a = eig.hermitian(torch, "float64", 3, 9) / 3
    weight = common.matrices(torch, "float64", 3, 9, 9)
    grads = []
    for through in (True, False):
        x = a.clone().requires_grad_()
        hermitian = (x + x.mH) / 2
        if through:
            w, v = torch.linalg.eigh(hermitian)
            result = (v * w.exp().unsqueeze(-2)) @ v.mH
        else:
            result = torch.linalg.matrix_exp(hermitian)
        (result * weight).sum().backward()
        grads.append(x.grad)
    return float(((grads[0] - grads[1]).norm() / grads[1].norm()).item())


def _threads(torch: Any) -> float:
    worst = [0.0, 0.0, 0.0]
    failures: list[str] = []

    def work(index: int) -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for turn in range(6):
                    n = (20, 33, 64)[(index + turn) % 3]
                    a = eig.hermitian(torch, "float32", 4 + index, n)
                    values, vectors = torch.linalg.eigh(a)
                    worst[index] = max(worst[index], eig.errors(torch, a, values, vectors))
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")

    running = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures, failures[0]
    return round(max(worst), 3)
