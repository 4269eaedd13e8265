"""QR, Cholesky and LDL by every route: right answers, the loop's bits, infos, layouts, empty and
many matrices, streams and threads, deterministic mode, preferences.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import common
import loops_common as loops
from loops_common import Case

from aotools.gputest.session import Session

SHAPES = ((2, 5, 5), (3, 40, 40), (5, 64, 64), (4, 130, 130), (3, 300, 300))
TALL = ((3, 200, 70), (4, 600, 64))
WIDE = (3, 60, 90)
MANY = 65537
# Calls of these take the host long, or, of ldl_factor, make it wait: so many are looped over.
FEWER = {"geqrf": 8193, "ormqr": 2049, "ldl_factor": 300}


def cases(dtype: str) -> list[Case]:
    """Every operation in every shape and form."""
    found = []
    for op in loops.OPS:
        found += [Case(op, dtype, *shape) for shape in SHAPES]
        if op in ("geqrf", "orgqr", "ormqr"):
            found += [Case(op, dtype, *shape) for shape in TALL]
        if op == "geqrf":
            found.append(Case(op, dtype, *WIDE))
        if op == "ormqr":
            for left, adjoint, columns in ((True, True, 1), (False, False, 7), (False, True, 90)):
                found.append(
                    Case(op, dtype, 4, 90, 90, columns=columns, left=left, adjoint=adjoint)
                )
        if op.startswith("cholesky"):
            found.append(Case(op, dtype, 5, 90, 90, upper=True))
        if op == "cholesky_solve":
            found += [Case(op, dtype, 5, 90, 90, columns=columns) for columns in (1, 90)]
    return found


def routes(session: Session) -> None:
    """Streams against the loop bit by bit, both against the definition and against torch's bits
    where torch runs the same routine; geqrfBatched too.
    """
    torch = session.torch
    library = common.enable(only=loops.OPS)
    for dtype in session.options.get("dtypes", common.DTYPES):
        for op in loops.OPS:
            with session.check("routes", op=op, dtype=dtype) as check:
                _routes(torch, library, [c for c in cases(dtype) if c.op == op], check)
    common.disable()


def _routes(torch: Any, library: Any, wanted: list[Case], check: Any) -> None:
    bad: list[str] = []
    worst, op = 0.0, wanted[0].op
    before = library.counts()
    for case in wanted:
        run = loops.make(torch, case)
        name = f"{case.batch}x{case.m}x{case.n}"
        looped = loops.by(library, op, loops.LOOPED, run.call)
        streamed = loops.by(library, op, loops.STREAMED, run.call)
        stock = loops.by(library, op, loops.STOCK, run.call)
        chosen = run.call()
        worst = max(worst, run.error(looped))
        if not loops.same(torch, streamed, looped):
            bad.append(f"{name}: streams differ from the loop")
        if run.looped and not loops.same(torch, stock, looped):
            bad.append(f"{name}: the loop differs from torch's")
        if not (loops.same(torch, chosen, looped) or loops.same(torch, chosen, stock)):
            bad.append(f"{name}: the choice is neither the loop's nor torch's")
        for ours, torchs in zip(streamed, stock, strict=True):
            if ours.stride() != torchs.stride() or ours.dtype != torchs.dtype:
                bad.append(f"{name}: strides {ours.stride()}, torch's {torchs.stride()}")
        if op == "geqrf":
            batched = loops.by(library, op, loops.BATCHED, run.call)
            worst = max(worst, run.error(batched))
            if not run.looped and not loops.same(torch, batched, stock):
                bad.append(f"{name}: geqrfBatched differs from torch's")
    used = {
        route
        for (each, route), count in library.counts().items()
        if each == op and count > before.get((each, route), 0)
    }
    check.value = {"cases": len(wanted), "error": round(worst, 3), "used": sorted(used)}
    check.reason = "; ".join(bad)[:400]
    check.ok = not bad and worst < loops.LIMIT and {loops.LOOPED, loops.STREAMED} <= used


def shapes(session: Session) -> None:
    """Layouts, batch dimensions, empty and very many matrices."""
    torch = session.torch
    library = common.enable(only=loops.OPS)
    for op in loops.OPS:
        with session.check("layouts", op=op) as check:
            check.reason = "; ".join(_layouts(torch, library, op))[:400]
            check.ok = not check.reason
        for batch, n, columns in ((0, 5, 3), (4, 0, 3), (0, 0, 0), (4, 6, 0), (1, 7, 2)):
            if columns == 0 and op not in ("ormqr", "cholesky_solve"):
                continue
            case = Case(op, "float32", batch, n, n, columns=columns)
            with session.check("empty and single", **case.words, columns=columns) as check:
                run = loops.make(torch, case)
                ours = loops.by(library, op, loops.STREAMED, run.call)
                stock = loops.by(library, op, loops.STOCK, run.call)
                check.ok = all(x.shape == y.shape for x, y in zip(ours, stock, strict=True))
                check.ok = check.ok and run.error(ours) < loops.LIMIT
        case = Case(op, "float32", MANY, 3, 3, columns=1)
        with session.check("many", **case.words) as check:
            _many(torch, library, case, check)
    common.disable()


def _many(torch: Any, library: Any, case: Case, check: Any) -> None:
    op = case.op
    fewer = replace(case, batch=FEWER.get(op, case.batch))
    run = loops.make(torch, fewer)
    streamed = loops.by(library, op, loops.STREAMED, run.call)
    looped = loops.by(library, op, loops.LOOPED, run.call)
    error = run.error(streamed)
    check.value = {"error": round(error, 3), "looped over": fewer.batch}
    check.ok = loops.same(torch, streamed, looped) and error < loops.LIMIT
    if op in ("ormqr", "ldl_factor"):
        return  # torch loops as well
    run = loops.make(torch, case)
    try:
        stock = loops.by(library, op, loops.STOCK, run.call)
    except RuntimeError as failed:
        check.value["torch's own"] = str(failed).splitlines()[0][:150]
        return  # so does the choice, which leaves such small matrices to it
    choice = run.call()
    check.value["choice is torch's"] = loops.same(torch, choice, stock)
    check.ok = check.ok and run.error(choice) < loops.LIMIT


def _layouts(torch: Any, library: Any, op: str) -> list[str]:
    """What differs between streams and torch's own function, over expanded, transposed, sliced and
    higher-dimensional inputs.
    """
    bad = []
    base = loops.make(torch, Case(op, "float64", 6, 70, 70)).source
    views = {
        "transposed": base.mT,
        "expanded": base[:1].expand(6, 70, 70) if base.shape[-1] == 70 else base,
        "sliced": torch.cat([base, base], dim=-1)[..., : base.shape[-1]],
        "4d": base.reshape(2, 3, *base.shape[-2:]),
        "one": base[0],
    }
    for name, view in views.items():
        if op in ("ormqr", "cholesky_solve") and name == "transposed":
            view = base.mT.contiguous().mT
        call = _call_of(torch, op, view)
        looped = loops.by(library, op, loops.LOOPED, call)
        streamed = loops.by(library, op, loops.STREAMED, call)
        stock = loops.by(library, op, loops.STOCK, call)
        if not loops.same(torch, streamed, looped):
            bad.append(f"{name}: bits")
        for ours, torchs in zip(streamed, stock, strict=True):
            close = torch.allclose(ours, torchs, rtol=1e-9, atol=1e-9)
            if ours.stride() != torchs.stride() or not close:
                bad.append(f"{name}: not torch's result or strides")
    return bad


def _call_of(torch: Any, op: str, view: Any) -> Any:
    """torch's call with this tensor as the one that is changed."""
    batch = view.shape[:-2]
    if op == "geqrf":
        return lambda: tuple(torch.geqrf(view))
    if op == "orgqr":
        tau = torch.full((*batch, 70), 0.01, dtype=view.dtype, device=view.device)
        return lambda: (torch.linalg.householder_product(view, tau),)
    if op == "ormqr":
        a = common.matrices(torch, "float64", 1, 70, 70)[0].expand(*batch, 70, 70)
        tau = torch.full((*batch, 70), 0.01, dtype=view.dtype, device=view.device)
        return lambda: (torch.ormqr(a, tau, view),)
    if op == "cholesky":
        return lambda: tuple(torch.linalg.cholesky_ex(view))
    if op == "cholesky_solve":
        factor = torch.linalg.cholesky(loops.positive(torch, "float64", 1, 70)[0].cpu()).cuda()
        return lambda: (torch.cholesky_solve(view, factor.expand(*batch, 70, 70)),)
    if op == "cholesky_inverse":
        return lambda: (torch.cholesky_inverse(view),)
    return lambda: tuple(torch.linalg.ldl_factor_ex(view))


def bad(session: Session) -> None:
    """A bad matrix in a batch: infos as torch's, the neighbours' bits as without it."""
    torch = session.torch
    library = common.enable(only=loops.OPS)
    for op, kind in (
        *((op, "not definite") for op in ("cholesky",)),
        *((op, "zero") for op in ("ldl_factor", "cholesky", "geqrf")),
        *((op, "nan") for op in ("geqrf", "orgqr", "ormqr", "cholesky", "ldl_factor")),
    ):
        for dtype in ("float32", "complex128"):
            case = Case(op, dtype, 5, 100, 100)
            with session.check("bad matrix", kind=kind, **case.words) as check:
                _bad(torch, library, case, kind, check)
    common.disable()


def _bad(torch: Any, library: Any, case: Case, kind: str, check: Any) -> None:
    op = case.op
    run = loops.make(torch, case)
    good = loops.by(library, op, loops.LOOPED, run.call)
    if kind == "zero":
        run.source[2].zero_()
    elif kind == "nan":
        run.source[2, 7, 1] = float("nan")
    else:
        run.source[2, 40, 40] = -5.0
    streamed = loops.by(library, op, loops.STREAMED, run.call)
    stock = loops.by(library, op, loops.STOCK, run.call)
    others = [0, 1, 3, 4]
    neighbours = loops.same(
        torch, tuple(x[others] for x in streamed), tuple(x[others] for x in good)
    )
    infos = (True, "")
    if op in ("cholesky", "ldl_factor"):
        ours, torchs = streamed[-1].tolist(), stock[-1].tolist()
        infos = (ours == torchs, f"infos {ours}, torch's {torchs}")
    lost = kind == "nan" and bool(torch.isfinite(streamed[0][2]).all())
    check.value = {"neighbours": neighbours, "infos": infos[1], "finite result of a NaN": lost}
    check.ok = neighbours and infos[0]
    check.vendor = neighbours and kind == "nan"  # what its own routines say of a NaN
    check.reason = "" if check.ok else infos[1] or "a neighbour changed"


def uses(session: Session) -> None:
    """Side streams with work under way, threads, deterministic mode, preferences, gradients."""
    torch = session.torch
    library = common.enable(only=loops.OPS)
    for op in loops.OPS:
        case = Case(op, "float32", 9, 160, 160, columns=160)
        with session.check("side stream", **case.words) as check:
            run = loops.make(torch, case)
            expected = loops.by(library, op, loops.LOOPED, run.call)
            stream = torch.cuda.Stream()
            kept = run.source.clone()
            with torch.cuda.stream(stream), common.forced(library, loops.STREAMED, op):
                stream.wait_stream(torch.cuda.default_stream())
                run.source.zero_()
                torch.cuda._sleep(20_000_000)
                run.source.copy_(kept)  # after the sleep: a lane that does not wait sees zeros
                # Read at once after the call: a lane that is not joined has not written yet.
                found = tuple(result.clone() for result in run.call())
            torch.cuda.synchronize()
            check.ok = loops.same(torch, found, expected)
        with session.check("threads", **case.words) as check:
            check.ok = _threads(torch, library, case)
        with session.check("deterministic", **case.words) as check:
            check.ok, check.value = _deterministic(torch, library, case)
    with session.check("preferences") as check:
        check.value = _preferences(torch, library)
        check.ok = check.value == {
            "magma": ["stock"] * len(loops.OPS),
            "cublas": [loops.BATCHED],
        }
    with session.check("gradients") as check:
        check.value = {name: _gradient(torch, library, name) for name in ("qr", "cholesky")}
        check.ok = max(check.value.values()) < 1e-9
    common.disable()


def _threads(torch: Any, library: Any, case: Case) -> bool:
    run = loops.make(torch, case)
    expected = loops.by(library, case.op, loops.LOOPED, run.call)
    found: list[Any] = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                found.append(run.call())
        torch.cuda.synchronize()

    torch.cuda.synchronize()
    with common.forced(library, loops.STREAMED, case.op):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    torch.cuda.synchronize()
    return len(found) == 12 and all(loops.same(torch, each, expected) for each in found)


def _deterministic(torch: Any, library: Any, case: Case) -> tuple[bool, dict[str, int]]:
    """The same bits with streams and without, whatever is chosen."""
    run = loops.make(torch, case)
    lanes, memory = library.limits()
    kind = common.stock_kind(torch)
    before = library.counts()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        found = [run.call()]
        library.configure(strict=False, stock=kind, lanes=0, memory_mib=memory)
        found.append(run.call())
    finally:
        library.configure(strict=False, stock=kind, lanes=lanes, memory_mib=memory)
        torch.use_deterministic_algorithms(False)
    used = {
        route: count - before.get((op, route), 0)
        for (op, route), count in library.counts().items()
        if op == case.op and count > before.get((op, route), 0)
    }
    return loops.same(torch, *found), used


def _preferences(torch: Any, library: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"magma": [], "cublas": []}
    for op in loops.OPS:
        run = loops.make(torch, Case(op, "float32", 5, 300, 300))
        for preference in ("magma", "cublas"):
            if preference == "cublas" and op != "geqrf":
                continue
            before = library.counts()
            # MAGMA has no LDL of real symmetric matrices.
            with common.preferring(torch, preference), suppress(RuntimeError):
                run.call()
            found[preference] += [
                route
                for (each, route), count in library.counts().items()
                if each == op and count > before.get((each, route), 0)
            ]
    return found


def _gradient(torch: Any, library: Any, name: str) -> float:
    """The largest relative difference of a gradient by streams and by torch's own functions."""
    grads = []
    for route in (loops.STREAMED, loops.STOCK):
        a = loops.positive(torch, "float64", 4, 100).requires_grad_()
        with (
            common.forced(library, route, "geqrf"),
            common.forced(library, route, "orgqr"),
            common.forced(library, route, "cholesky"),
        ):
            if name == "qr":
                q, r = torch.linalg.qr(a)
                loss = (q.sin() + r.cos()).sum()
            else:
                loss = torch.linalg.cholesky(a).sin().sum()
            loss.backward()
        grads.append(a.grad)
    ours, torchs = grads
    return float(((ours - torchs).abs().max() / torchs.abs().max()).item())
