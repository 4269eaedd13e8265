"""lu_solve, solve, inv, eigh and eigvalsh as programs use them: derivatives, vmap, torch.compile,
capture, fake tensors, views, out=, zero sizes. What of it is checked elsewhere (part_derivatives,
part_graphs, part_kinds, part_eigh) is not repeated. See part_kinds for `case` and `owner`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import common
import eigh_common as eig

from aotools.gputest.session import Session

N = 24
FAKE_SHAPES = ((3, 3), (1, 1), (4, 0, 0), (0, 3, 3), (5, 7, 7), (2, 40, 40))
COMPILED = ((3, 40), (16, 128))

# By the route that the choice takes in a capture, whose handles were made before.
CAPTURE = """
import torch, common, eigh_common as eig
library = common.enable()
for dtype, n in (("float32", 20), ("float64", 64), ("complex64", 40)):
    a = eig.hermitian(torch, dtype, 6, n)
    work, values = a.mT.contiguous().mT, torch.empty(6, n, dtype=a.real.dtype, device="cuda")
    infos = torch.zeros(6, dtype=torch.int32, device="cuda")
    library.force_route("eigvalsh", "batched_cusolver")
    def call():
        library.eigh(dtype, (6, n), work.data_ptr(), values.data_ptr(), infos.data_ptr(),
                     vectors=False)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for seed in (1, 2):
        b = eig.hermitian(torch, dtype, 6 + seed, n)[:6]
        work.copy_(b)
        graph.replay()
        torch.cuda.synchronize()
        error = eig.value_error(torch, b, values, torch.linalg.eigvalsh(b))
        assert error < eig.LIMIT, f"replay: error {error} in n eps, n = {n}"
    print("captured", dtype, n, flush=True)
"""


def _exponential(torch: Any, a: Any) -> Any:
    """exp(A) of Hermitian A: a function of eigenvectors without their free phases."""
    w, v = torch.linalg.eigh((a + a.mH) / 2)
    return (v * w.exp().unsqueeze(-2)) @ v.mH


def derivatives(session: Session) -> None:
    """gradcheck and gradgradcheck of the checking forms, of shared factors and of eigh."""
    torch = session.torch
    linalg = torch.linalg
    functions: dict[str, Callable[..., Any]] = {
        "solve": linalg.solve,
        "solve from the right": lambda a, b: linalg.solve(a, b.mT, left=False),
        "solve, vectors": lambda a, b: linalg.solve(a, b[..., 0]),
        "solve, one A": lambda a, b: linalg.solve(a[0], b),
        "inv": lambda a, b: linalg.inv(a),
        "lu_solve, one factor": lambda a, b: linalg.lu_solve(*linalg.lu_factor(a[0]), b),
        "eigh": lambda a, b: _exponential(torch, a),
        "eigvalsh": lambda a, b: linalg.eigvalsh((a + a.mH) / 2),
    }
    for dtype in ("float64", "complex128"):
        a = common.matrices(torch, dtype, 2, 4, 4).requires_grad_()
        b = common.matrices(torch, dtype, 2, 4, 2).requires_grad_()
        for name, function in functions.items():
            with session.check(
                "both derivatives", case="B89", function=name, dtype=dtype, owner="ours"
            ) as check:
                check.ok = torch.autograd.gradcheck(function, (a, b), nondet_tol=1e-12)
                check.ok &= torch.autograd.gradgradcheck(function, (a, b), nondet_tol=1e-12)


def mapped(session: Session, library: Any) -> None:
    """vmap makes one call of each operation, whatever is mapped over."""
    torch = session.torch
    linalg = torch.linalg
    a = common.matrices(torch, "float64", 50, 8, 8)
    b = common.matrices(torch, "float64", 50, 8, 2)
    h = eig.hermitian(torch, "float64", 50, 8)
    factors = linalg.lu_factor_ex(a)[:2]
    one = tuple(each[0] for each in factors)
    eye = torch.eye(8, dtype=a.dtype, device="cuda").expand_as(a)

    def solved(x: Any, matrices: Any = a, right: Any = b) -> float:
        return common.solve_error(torch, matrices, x, right)

    wide = {"in_dims": (None, None, 0)}
    cases: dict[str, tuple[Callable[[], Any], Callable[[Any], float]]] = {
        "lu_solve": (lambda: torch.vmap(linalg.lu_solve)(*factors, b), solved),
        "lu_solve, one factor": (
            lambda: torch.vmap(linalg.lu_solve, **wide)(*one, b),
            lambda x: solved(x, a[:1].expand_as(a)),
        ),
        "lu_solve, one B": (
            lambda: torch.vmap(linalg.lu_solve, in_dims=(0, 0, None))(*factors, b[0]),
            lambda x: solved(x, a, b[:1].expand_as(b)),
        ),
        "inv": (lambda: torch.vmap(linalg.inv)(a), lambda x: solved(x, a, eye)),
        "eigh": (lambda: torch.vmap(linalg.eigh)(h), lambda x: eig.errors(torch, h, *x)),
        "eigvalsh": (
            lambda: torch.vmap(linalg.eigvalsh)(h),
            lambda x: eig.value_error(torch, h, x, linalg.eigvalsh(h)),
        ),
        "gradient of eigvalsh": (
            lambda: torch.vmap(torch.func.grad(lambda m: linalg.eigvalsh(m).sum()))(h),
            lambda x: float((x - eye).abs().max()) / 1e-12,  # of the trace
        ),
    }
    for name, (call, error_of) in cases.items():
        with session.check("vmap of each", case="B82", function=name, owner="ours") as check:
            before = sum(library.counts().values())
            found = call()
            calls = sum(library.counts().values()) - before
            error = error_of(found)
            check.value = {"error": round(error, 3), "calls of ours": calls}
            check.ok = error < common.LIMIT and 1 <= calls <= 2


def captured(session: Session, library: Any) -> None:
    """lu_solve in its forms and with shared factors: captured, and replayed on new data."""
    torch = session.torch
    a = common.matrices(torch, "float32", 6, 90, 90)
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    forms: dict[str, tuple[tuple[Any, Any], dict[str, bool]]] = {
        "adjoint": ((lu, pivots), {"adjoint": True}),
        "from the right": ((lu, pivots), {"left": False}),
        "adjoint from the right": ((lu, pivots), {"left": False, "adjoint": True}),
        "one factor": ((lu[:1], pivots[:1]), {}),
    }
    for name, (factors, given) in forms.items():
        with session.check("capture of lu_solve", form=name, case="B78", owner="ours") as check:
            b = common.matrices(torch, "float32", 6, 90, 3)
            b = b if given.get("left", True) else b.mT.contiguous()
            call = partial(torch.linalg.lu_solve, *factors, b, **given)
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                x = call()
            b.copy_(b * 0.5 + 1)
            graph.replay()
            torch.cuda.synchronize()
            matrix = a.mH if given.get("adjoint") else a
            matrix = matrix if name != "one factor" else matrix[:1].expand_as(a)
            if not given.get("left", True):
                matrix, x, b = matrix.mT, x.mT, b.mT
            check.value = round(common.solve_error(torch, matrix, x, b), 3)
            check.ok = check.value < common.LIMIT
            del graph
    with session.check("capture of eigvalsh", case="B80", owner="ours") as check:
        bad, text = common.script(CAPTURE, timeout=60)
        check.value, check.ok = text.count("captured"), not bad and text.count("captured") == 3
        check.reason = bad and f"{bad}: {text.strip()[-300:]}"


def promised(session: Session) -> None:
    """Shapes, strides and dtypes: those of stock, and whether fake tensors promise them."""
    torch = session.torch
    linalg = torch.linalg
    from torch._subclasses.fake_tensor import FakeTensorMode

    def factors(x: Any) -> Any:
        return linalg.lu_factor_ex(x)[:2]

    calls: dict[str, Callable[[Any], Any]] = {
        "eigh": linalg.eigh,
        "eigvalsh": lambda x: (linalg.eigvalsh(x),),
        "solve": lambda x: (linalg.solve_ex(x, x.sum(-1))[0],),
        "solve from the right": lambda x: (linalg.solve_ex(x, x, left=False)[0],),
        "lu_solve adjoint": lambda x: (linalg.lu_solve(*factors(x), x, adjoint=True),),
        "lu_solve adjoint from the right": lambda x: (
            linalg.lu_solve(*factors(x), x, adjoint=True, left=False),
        ),
        "inv of the transpose": lambda x: (linalg.inv_ex(x.mT)[0],),
    }

    def described(tensors: Any) -> list[tuple[Any, ...]]:
        return [(tuple(x.shape), x.stride(), x.dtype, x.is_conj()) for x in tensors]

    for name, call in calls.items():
        for shape in FAKE_SHAPES:
            with session.check("as promised", case="B81", op=name, shape=shape) as check:
                n, made = shape[-1], torch.randn(shape, device="cuda")
                source = made + made.mT + 2 * n * torch.eye(n, device="cuda")
                real = described(call(source))
                with FakeTensorMode():
                    fake = described(call(torch.empty(shape, device="cuda")))
                common.disable()
                try:
                    stock = described(call(source))
                finally:
                    common.enable()
                check.ok = real == stock
                check.value = "as stock and as promised" if real == fake else "as stock"
                check.reason = "" if real == fake else "stock's fake tensors promise another thing"


def _views(torch: Any, dtype: str, batch: int, columns: int) -> dict[str, Any]:
    """Views of matrices, by name; real ones for "neg"."""
    a = common.matrices(torch, dtype, batch, N, columns)
    made = {
        "transposed": common.matrices(torch, dtype, batch, columns, N).mT,
        "expanded": a[:1].expand_as(a),
        "sliced": common.matrices(torch, dtype, 2 * batch, N, 2 * columns)[::2, :, 1::2],
    }
    if a.is_complex():
        made |= {"conj": a.conj(), "neg": a.conj().imag}
    return made


def _plain(view: Any) -> Any:
    return view.clone().resolve_conj().resolve_neg().contiguous()


def views(session: Session) -> None:
    """Views are dealt with as their copies, and stay as they were."""
    torch = session.torch
    linalg = torch.linalg
    for dtype in ("float64", "complex64"):
        for name, b in _views(torch, dtype, 6, 3).items():
            with session.check("lu_solve of a view", case="B49", view=name, dtype=dtype) as check:
                a = common.matrices(torch, str(b.dtype).removeprefix("torch."), 6, N, N)
                before, (lu, pivots, _) = _plain(b), linalg.lu_factor_ex(a)
                worst = common.solve_error(torch, a, linalg.lu_solve(lu, pivots, b), before)
                if a.is_complex():
                    x = linalg.lu_solve(lu.conj(), pivots, b)
                    worst = max(worst, common.solve_error(torch, _plain(a.conj()), x, before))
                check.value, check.ok = round(worst, 3), worst < common.LIMIT
                check.ok &= torch.equal(_plain(b), before)
        for name, view in _views(torch, dtype, 6, N).items():
            with session.check("eigh of a view", case="B49", view=name, dtype=dtype) as check:
                before = _plain(view)  # UPLO: the lower triangle is read
                lower = before.tril(-1)
                full = lower + lower.mH + torch.diag_embed(before.diagonal(dim1=-2, dim2=-1).real)
                values, vectors = linalg.eigh(view)
                worst = eig.errors(torch, full, values, vectors)
                alone = linalg.eigvalsh(view)
                worst = max(worst, eig.value_error(torch, full, alone, values))
                check.value, check.ok = round(worst, 3), worst < eig.LIMIT
                check.ok &= torch.equal(_plain(view), before)


def outs(session: Session) -> None:
    """out= of every layout, the right-hand side itself, and another kind of number."""
    torch = session.torch
    linalg = torch.linalg
    a = common.matrices(torch, "float64", 6, N, N)
    b = common.matrices(torch, "float64", 6, N, 3)
    h = eig.hermitian(torch, "float64", 6, N)
    factors = linalg.lu_factor_ex(a)[:2]
    calls: dict[str, tuple[Callable[..., Any], Any]] = {
        "lu_solve": (partial(linalg.lu_solve, *factors, b), b),
        "solve": (partial(linalg.solve, a, b), b),
        "inv": (partial(linalg.inv, a), a),
        "eigvalsh": (partial(linalg.eigvalsh, h), h[..., 0]),
    }
    for name, (call, like) in calls.items():
        with session.check("out= of each", case="B52 B53", op=name, owner="ours") as check:
            expected = call()
            last = like.dim() - 1
            turned = torch.empty(like.transpose(0, last).shape, dtype=a.dtype, device="cuda")
            for out in (
                torch.empty_like(like, memory_format=torch.contiguous_format),
                turned.transpose(0, last),
                torch.empty(0, dtype=a.dtype, device="cuda"),
            ):
                call(out=out)
                assert torch.allclose(out, expected, rtol=1e-9), out.stride()
            with common.raises(RuntimeError):
                call(out=torch.empty(like.shape, dtype=torch.int64, device="cuda"))
            check.ok = True
    with session.check("out= is the right-hand side", case="B53", owner="ours") as check:
        worst = 0.0
        for call in (partial(linalg.lu_solve, *factors), partial(linalg.solve, a)):
            itself = b.clone()
            call(itself, out=itself)
            worst = max(worst, common.solve_error(torch, a, itself, b))
        check.value, check.ok = round(worst, 3), worst < common.LIMIT


def zero_sizes(session: Session) -> None:
    """No matrices, no rows, no right-hand sides: results of the right shape."""
    torch = session.torch
    linalg = torch.linalg
    for preference in ("default", "cusolver", "cublas"):
        with (
            session.check("zero sizes of each", case="B56", preference=preference) as check,
            common.preferring(torch, preference),
        ):
            for batch, n, k in ((0, 3, 2), (4, 0, 2), (4, 3, 0), (0, 0, 0)):
                a = torch.eye(n, device="cuda").expand(batch, n, n)
                b = torch.ones(batch, n, k, device="cuda")
                lu, pivots, _ = linalg.lu_factor_ex(a)
                for found in (
                    linalg.lu_solve(lu, pivots, b),
                    linalg.lu_solve(lu, pivots, b, adjoint=True),
                    linalg.lu_solve(lu, pivots, b.mT, left=False).mT,
                    linalg.solve(a, b),
                ):
                    assert found.shape == b.shape, (batch, n, k)
                assert linalg.inv(a).shape == a.shape
                values, vectors = linalg.eigh(a)
                assert values.shape == linalg.eigvalsh(a).shape == a.shape[:-1]
                assert vectors.shape == a.shape
            check.ok = True


def run(session: Session) -> None:
    """All of it but `compiled`."""
    library = common.enable()
    derivatives(session)
    mapped(session, library)
    captured(session, library)
    promised(session)
    views(session)
    outs(session)
    zero_sizes(session)
    common.disable()


def compiled(session: Session) -> None:
    """torch.compile of lu_solve, the checking forms, eigh and eigvalsh, and of their gradient."""
    torch = session.torch
    library = common.enable()

    def function(a: Any, b: Any, h: Any) -> Any:
        lu, pivots = torch.linalg.lu_factor(a)
        w, v = torch.linalg.eigh(h)
        return (
            torch.linalg.lu_solve(lu, pivots, b, adjoint=True) * 2,
            torch.linalg.solve(a, b) * 2,
            torch.linalg.inv(a) * 2,
            (w * 2, v * 2),
            torch.linalg.eigvalsh(h) * 2,
        )

    for batch, n in COMPILED:
        with session.check("torch.compile of each", case="B80", batch=batch, n=n) as check:
            torch._dynamo.reset()
            made = torch.compile(function)
            worst, before = 0.0, sum(library.counts().values())
            for turn in range(2):
                a = common.matrices(torch, "float64", batch, n, n) + turn
                b = common.matrices(torch, "float64", batch, n, 2)
                h = eig.hermitian(torch, "float64", batch, n) + turn
                eye = torch.eye(n, dtype=a.dtype, device="cuda").expand_as(a)
                x, y, inverse, (w, v), alone = made(a, b, h)
                worst = max(
                    worst,
                    common.solve_error(torch, a.mT, x / 2, b),
                    common.solve_error(torch, a, y / 2, b),
                    common.solve_error(torch, a, inverse / 2, eye),
                    eig.errors(torch, h, w / 2, v / 2),
                    eig.value_error(torch, h, alone / 2, w / 2),
                )
            ours = sum(library.counts().values()) - before
            check.value = {"worst": round(worst, 3), "calls of ours": ours}
            check.ok = worst < common.LIMIT and ours > 0
    with session.check("torch.compile of a gradient", case="B87") as check:
        torch._dynamo.reset()
        made = torch.compile(lambda a, b: torch.linalg.solve(a, b).sum())
        b = common.matrices(torch, "float64", 3, 9, 2)
        gradients = []
        for call in (made, lambda a, b: torch.linalg.solve(a, b).sum()):
            a = common.matrices(torch, "float64", 3, 9, 9).requires_grad_()
            call(a, b).backward()
            gradients.append(a.grad)
        check.value = float(((gradients[0] - gradients[1]).norm() / gradients[1].norm()).item())
        check.ok = check.value < 1e-9
    common.disable()
