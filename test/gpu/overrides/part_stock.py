"""What is not ours stays as it was, and what installing does; see part_kinds for `case`, `owner`.

A failure of an operation that we do not touch is recorded as a vendor's: it is stock torch's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common

import aten_overrides
from aotools.gputest.session import Session
from aten_overrides import _runtime

TABLE_SIZES = (8, 128, 512, 1024)

# A process's first linalg call; argv[1]: which. Nothing may come on stderr.
FIRST = """
import sys, torch, common
common.enable()
eye = torch.eye(3, device="cuda").repeat(2, 1, 1)
calls = {
    "solve": lambda: torch.linalg.solve(eye, eye),
    "inv": lambda: torch.linalg.inv(eye),
    "lu_factor": lambda: torch.linalg.lu_factor(eye).LU,
    "cholesky": lambda: torch.linalg.cholesky(eye),
    "eigh": lambda: torch.linalg.eigh(eye).eigenvectors.abs(),
    "qr": lambda: torch.linalg.qr(eye).R.abs(),
}
found = calls[sys.argv[1]]()
assert torch.allclose(found, eye, atol=1e-6), found
torch.linalg.inv(eye)
assert torch.linalg.inv.__module__ and __import__("aten_overrides").is_enabled()
"""


def _identities(torch: Any) -> Any:
    return torch.eye(2, device="cuda").expand(524281, 2, 2)


def untouched(session: Session) -> None:
    """Operations of others on the inputs of the reports."""
    torch = session.torch
    linalg = torch.linalg

    def cholesky_expanded() -> bool:
        a = _identities(torch)
        return bool(torch.equal(linalg.cholesky(a), a.contiguous()))

    def cholesky_solve_large() -> bool:
        n = 12161
        b = torch.ones(1, n, 1, device="cuda")
        return bool(torch.equal(torch.cholesky_solve(b, torch.eye(n, device="cuda")[None]), b))

    def cholesky_solve_wide() -> bool:
        g = common.matrices(torch, "float32", 11, 100, 100)
        a = g @ g.mT + 100 * torch.eye(100, device="cuda")
        b = common.matrices(torch, "float32", 11, 100, 200)
        x = torch.cholesky_solve(b, linalg.cholesky(a))
        return common.solve_error(torch, a, x, b) < common.LIMIT

    def triangular_zero() -> bool:
        a = torch.triu(torch.ones(3, 3, device="cuda"))
        a[2, 2] = 0
        b = torch.ones(3, 1, device="cuda")
        return not bool(linalg.solve_triangular(a, b, upper=True).isfinite().all())

    def eigh_nan() -> bool:
        a = torch.full((3, 3), float("nan"), device="cuda")
        kinds = []
        for each in (a, a[None]):
            try:
                linalg.eigh(each)
                kinds.append("no error")
            except linalg.LinAlgError:
                kinds.append("LinAlgError")
        return kinds[0] == kinds[1]

    def lstsq_batched() -> bool:
        a = common.matrices(torch, "float32", 65537, 3, 3) + 6 * torch.eye(3, device="cuda")
        b = common.matrices(torch, "float32", 65537, 3, 1)
        return common.solve_error(torch, a, linalg.lstsq(a, b).solution, b) < 1000

    def tiny_exp() -> bool:
        a = common.matrices(torch, "float32", 100_000, 2, 2) * 0.1
        product = torch.matrix_exp(a) @ torch.matrix_exp(-a)
        return bool(torch.allclose(product, torch.eye(2, device="cuda"), atol=1e-4))

    cases: dict[str, tuple[str, Callable[[], bool]]] = {
        "cholesky of 524281 expanded matrices": ("B14", cholesky_expanded),
        "cholesky_solve, n = 12161": ("B15", cholesky_solve_large),
        "cholesky_solve with wide right-hand sides": ("B60", cholesky_solve_wide),
        "solve_triangular with a zero on the diagonal": ("B38", triangular_zero),
        "eigh of NaN, batched and not": ("B43", eigh_nan),
        "lstsq of 65537 matrices": ("B06", lstsq_batched),
        "matrix_exp of tiny matrices": ("B119", tiny_exp),
    }
    for name, (case, call) in cases.items():
        with session.check(name, case=case, owner="stock") as check:
            check.vendor = True
            check.ok = call()
            torch.cuda.synchronize()


def round_trip(session: Session) -> None:
    """Stock before, with nothing of ours for other operations, and bit for bit after disable()."""
    torch = session.torch
    linalg = torch.linalg
    a = common.matrices(torch, "float32", 8, 130, 130)
    b = common.matrices(torch, "float32", 8, 130, 2)

    def results() -> dict[str, Any]:
        lu, pivots, info = linalg.lu_factor_ex(a)
        return {
            "eigh": linalg.eigh(a + a.mT).eigenvectors,
            "qr": linalg.qr(a).R,
            "cholesky": linalg.cholesky(a @ a.mT + 500 * torch.eye(130, device="cuda")),
            "lu_factor": lu,
            "pivots": pivots,
            "info": info,
            "lu_solve": linalg.lu_solve(lu, pivots, b),
        }

    before = results()
    common.enable()
    meanwhile = results()
    twice = common.enable()  # idempotent
    names = twice.installed()
    status = _runtime.current_status()
    wanted = status.ops if status is not None else common.OPS
    common.disable()
    after = results()
    ours = {*names, "pivots", "info", *({"qr"} if "geqrf" in names else ())}
    with session.check("enable and disable", case="B91 B92", owner="ours") as check:
        changed = [name for name in before if not torch.equal(before[name], after[name])]
        others = [
            name
            for name in before
            if name not in ours and not torch.equal(before[name], meanwhile[name])
        ]
        check.value = {
            "differ after": changed,
            "others that differed meanwhile": others,
            "installed": list(names),
        }
        check.ok = not changed and not others and set(names) == set(wanted)
        check.ok = check.ok and not aten_overrides.is_enabled()


def preferences(session: Session) -> None:
    """Every name in turn, the getter, and a change from one thread while another solves."""
    import threading

    torch = session.torch
    common.enable()
    backends = torch.backends.cuda
    with session.check("preferred library", case="B93", owner="ours") as check:
        for name in ("default", "magma", "cusolver", "cublas"):
            backends.preferred_linalg_library(name)
            found = str(backends.preferred_linalg_library()).rpartition(".")[2].lower()
            assert found == name, (name, found)
        a = common.matrices(torch, "float32", 16, 200, 200)
        b = common.matrices(torch, "float32", 16, 200, 2)
        stop, errors = threading.Event(), []

        def work() -> None:
            try:
                while not stop.is_set():
                    x = torch.linalg.solve_ex(a, b).result
                    if not common.solve_error(torch, a, x, b) < common.LIMIT:
                        errors.append("wrong")
            except Exception as error:
                errors.append(str(error)[:200])

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for turn in range(400):
                backends.preferred_linalg_library(
                    ("default", "magma", "cusolver", "cublas")[turn % 4]
                )
        finally:
            stop.set()
            thread.join()
        backends.preferred_linalg_library("default")
        check.ok, check.reason = not errors, "; ".join(errors[:3])
    common.disable()


def routes_of_this_wheel(session: Session) -> None:
    """Which back end runs for each operation and size, as a table (a row per operation)."""
    torch = session.torch
    library = common.enable()
    for op in ("lu_factor_ex", "lu_solve", "solve_ex", "inv_ex"):
        with session.check("back ends", case="B94", op=op) as check:
            table = {}
            for batch in (1, 4, 64):
                for n in TABLE_SIZES:
                    a = common.matrices(torch, "float32", batch, n, n)
                    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
                    before = library.counts()
                    if op == "lu_solve":
                        torch.linalg.lu_solve(lu, pivots, a)
                    elif op == "solve_ex":
                        torch.linalg.solve_ex(a, a)
                    else:
                        getattr(torch.linalg, op)(a)
                    used = [
                        f"{key[0]} {key[1]}"
                        for key, count in library.counts().items()
                        if count != before.get(key, 0)
                    ]
                    table[f"{batch} x {n}"] = ", ".join(used)
            check.value, check.ok = table, all(table.values())
    common.disable()


def first_calls(session: Session) -> None:
    """The first call of a process is right, whichever it is, and prints nothing."""
    from concurrent.futures import ThreadPoolExecutor

    names = ("solve", "inv", "lu_factor", "cholesky", "eigh", "qr")
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda name: common.script(FIRST, name, timeout=90), names))
    for name, (bad, text) in zip(names, results, strict=True):
        with session.check("first call of a process", case="B68 B73", op=name) as check:
            check.ok, check.value = not bad and not text.strip(), bad
            check.reason = text.strip()[-300:]


def run(session: Session) -> None:
    """All of it."""
    common.enable()
    untouched(session)
    common.disable()
    round_trip(session)
    preferences(session)
    routes_of_this_wheel(session)
    first_calls(session)
