"""Whether every route of lu_factor is right: residuals, pivots, info, bad matrices, sizes at the
limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aotools.gputest.part_cliff import residual
from aotools.gputest.plan import DTYPES
from aotools.gputest.session import Check, Session

SQUARE = (1, 2, 3, 4, 5, 31, 32, 33, 511, 512, 513)
RECTANGULAR = ((5, 3), (3, 5), (96, 160), (160, 96), (520, 500), (500, 520))
UNPIVOTED = ((5, 5), (33, 33), (513, 513), (96, 160))
BAD_SIZES = (3, 33, 130, 513)
LARGE_BATCHES = (65535, 65536)  # the limit of a vendor's batched call, and one over it
BATCH = 3
LIMIT = 8.0  # of ||PLU - A|| / (||A|| max(m, n) eps)


@dataclass(frozen=True)
class Route:
    """A back end that is forced, or the library's choice under a preference."""

    backend: str
    preference: str = "default"
    lanes: int = 0

    @property
    def params(self) -> dict[str, Any]:
        """The route in a check's params."""
        return {"backend": self.backend, "preference": self.preference, "lanes": self.lanes}

    def takes(self, m: int, n: int) -> bool:
        """Whether the shape is one that the route has a routine for."""
        return self.backend != "batched_cublas" or m == n


# What may call MAGMA last: should it hang on a NaN, the others' rows are written.
ROUTES = (
    Route("choice", "cusolver"),
    Route("choice", "cublas"),
    Route("choice", "native"),  # as the default in a library without the kernels
    Route("batched_cublas"),
    Route("looped_cusolver"),
    Route("streamed_cusolver", lanes=4),
    Route("choice"),
    Route("stock"),
)


@dataclass
class Findings:
    """What several cases of one check found."""

    worst: float = 0.0
    where: str = ""
    wrong: list[str] = field(default_factory=list)
    vendor: list[str] = field(default_factory=list)
    cases: int = 0

    def residual(self, ratio: float, case: str) -> None:
        """Notes a residual, in units of max(m, n) eps; over the limit or NaN it is wrong."""
        if not ratio <= LIMIT:
            self.wrong.append(f"{case}: residual {ratio:.3g}")
        if not ratio <= self.worst:
            self.worst, self.where = ratio, case

    def put(self, check: Check, route: Route) -> None:
        """Fills in the check; what the wheel's own function does wrong is the vendor's."""
        check.value = {"cases": self.cases}
        if self.where:
            check.value |= {"worst_residual": float(f"{self.worst:.3g}"), "at": self.where}
        check.ok = not self.wrong and not self.vendor
        check.vendor = not self.wrong or route.backend == "stock"
        check.reason = "; ".join(self.wrong + self.vendor)[:600]


def run(session: Session) -> None:
    """All checks, a row for each kind, route and dtype."""
    lib = session.patched
    lib.limits(4, 512)
    for route in ROUTES:
        session.prefer(route.preference)
        with lib.forced(route.backend, route.lanes):
            for dtype in DTYPES:
                _row(session, "routes: residual, pivots, info", route, dtype, _regular)
                _row(session, "routes: singular matrices", route, dtype, _singular)
                _row(session, "routes: NaN and inf", route, dtype, _not_finite)
            for dtype in ("float32", "complex128"):
                _row(session, "routes: without pivoting", route, dtype, _unpivoted)
                _row(session, "routes: batches at the vendors' limit", route, dtype, _large)
            _row(session, "routes: empty", route, "float32", _empty)
    session.prefer("default")


Kind = Callable[[Session, Route, str, Findings], Iterator[None]]


def _row(session: Session, name: str, route: Route, dtype: str, kind: Kind) -> None:
    """One check: `kind` yields before each of its cases; one that raises is noted and ends the
    check.
    """
    with session.check(name, dtype=dtype, **route.params) as check:
        found = Findings()
        try:
            for _ in kind(session, route, dtype, found):
                found.cases += 1
        except RuntimeError as error:
            found.wrong.append(f"case {found.cases} raised {str(error).splitlines()[0]}")
        found.put(check, route)
        if not found.cases:
            check.skip, check.reason = True, "nothing of this kind goes by this route"


def _matrices(session: Session, dtype: str, shape: tuple[int, ...]) -> Any:
    torch = session.torch
    return torch.randn(*shape, dtype=getattr(torch, dtype), device="cuda")


def _dominant(session: Session, dtype: str, shape: tuple[int, ...]) -> Any:
    """Well conditioned in every leading block, so that pivoting is not needed."""
    a = _matrices(session, dtype, shape)
    return a + 2 * max(shape[-2:]) * session.torch.eye(*shape[-2:], dtype=a.dtype, device="cuda")


def residuals(torch: Any, a: Any, lu: Any, pivots: Any) -> Any:
    """||PLU - A|| / (||A|| max(m, n) eps of A's type) of each matrix, in double precision."""
    double = torch.complex128 if a.is_complex() else torch.float64
    p, lower, upper = torch.lu_unpack(lu.to(double), pivots)
    error = torch.linalg.matrix_norm(p @ lower @ upper - a.to(double))
    unit = max(a.shape[-2:]) * torch.finfo(a.dtype).eps
    return error / (torch.linalg.matrix_norm(a.to(double)) * unit)


def _verify(session: Session, a: Any, result: Any, case: str, found: Findings) -> None:
    """Residual of every matrix, pivots in their range and never above the diagonal, info zero."""
    torch = session.torch
    lu, pivots, info = result
    found.residual(float(residuals(torch, a, lu, pivots).max()), case)
    _verify_pivots(session, a, pivots, case, found)
    if int(info.abs().max()) != 0:
        found.wrong.append(f"{case}: info {info.flatten().tolist()[:4]}")


def _verify_pivots(session: Session, a: Any, pivots: Any, case: str, found: Findings) -> None:
    torch = session.torch
    m, n = a.shape[-2:]
    row = torch.arange(1, min(m, n) + 1, dtype=torch.int32, device="cuda")
    if pivots.dtype != torch.int32 or not bool(((pivots >= row) & (pivots <= m)).all()):
        found.wrong.append(f"{case}: pivots out of their range or not int32")


def _regular(session: Session, route: Route, dtype: str, found: Findings) -> Iterator[None]:
    for m, n in (*((n, n) for n in SQUARE), *RECTANGULAR):
        if route.takes(m, n):
            yield
            a = _matrices(session, dtype, (BATCH, m, n))
            _verify(session, a, session.torch.linalg.lu_factor_ex(a), f"{m} x {n}", found)


def _unpivoted(session: Session, route: Route, dtype: str, found: Findings) -> Iterator[None]:
    torch = session.torch
    for m, n in UNPIVOTED:
        if route.takes(m, n):
            yield
            a = _dominant(session, dtype, (BATCH, m, n))
            result = torch.linalg.lu_factor_ex(a, pivot=False)
            _verify(session, a, result, f"{m} x {n}", found)
            row = torch.arange(1, min(m, n) + 1, dtype=torch.int32, device="cuda")
            if not bool((result[1] == row).all()):
                found.wrong.append(f"{m} x {n}: rows were exchanged")


def _neighbours(torch: Any, got: Any, want: Any, bad: int) -> bool:
    """Whether all matrices but `bad` have the same bits in both results."""
    rest = [index for index in range(BATCH) if index != bad]
    return all(torch.equal(x[rest], y[rest]) for x, y in zip(got, want, strict=True))


def _singular(session: Session, route: Route, dtype: str, found: Findings) -> Iterator[None]:
    torch = session.torch
    for n in BAD_SIZES:
        yield
        a = _dominant(session, dtype, (BATCH, n, n))
        want = torch.linalg.lu_factor_ex(a)
        a[0, :, n // 2] = 0
        got = torch.linalg.lu_factor_ex(a)
        if not _neighbours(torch, got, want, 0):
            found.wrong.append(f"n {n}: another matrix of the batch changed")
        _verify_pivots(session, a, got[1], f"n {n}", found)
        if int(got[2][0]) != n // 2 + 1:
            found.vendor.append(
                f"n {n}: info {int(got[2][0])}, the first zero pivot is {n // 2 + 1}"
            )
        # elimination goes on past a zero pivot
        ratio = float(residuals(torch, a[:1], got[0][:1], got[1][:1]).max())
        if ratio <= LIMIT:
            found.residual(ratio, f"n {n}")
        else:
            found.vendor.append(f"n {n}: residual of the singular matrix {ratio:.3g}")


def _not_finite(session: Session, route: Route, dtype: str, found: Findings) -> Iterator[None]:
    torch = session.torch
    for n in BAD_SIZES:
        a = _dominant(session, dtype, (BATCH, n, n))
        want = torch.linalg.lu_factor_ex(a)
        for value in (float("nan"), float("inf")):
            yield
            case = f"n {n} {value}"
            bad = a.clone()
            bad[1, n - 1, 0] = value
            got = torch.linalg.lu_factor_ex(bad)
            if not _neighbours(torch, got, want, 1):
                found.wrong.append(f"{case}: another matrix of the batch changed")
            if bool(
                torch.isfinite(torch.view_as_real(got[0][1]) if a.is_complex() else got[0][1]).all()
            ):
                found.vendor.append(f"{case}: the factors are finite")
            row = torch.arange(1, n + 1, dtype=torch.int32, device="cuda")
            if not bool(((got[1][1] >= row) & (got[1][1] <= n)).all()):
                found.vendor.append(f"{case}: pivots of that matrix out of range")


def _large(session: Session, route: Route, dtype: str, found: Findings) -> Iterator[None]:
    if route.backend in ("looped_cusolver", "streamed_cusolver"):
        return  # as many calls as matrices, and nothing that the limit touches
    for batch in LARGE_BATCHES:
        yield
        a = _dominant(session, dtype, (batch, 3, 3))
        _verify(session, a, session.torch.linalg.lu_factor_ex(a), f"batch {batch}", found)
        # and the solve after it, which has a limit of its own
        b = _matrices(session, dtype, (batch, 3, 1))
        x, info = session.torch.linalg.solve_ex(a, b)
        double = session.torch.complex128 if a.is_complex() else session.torch.float64
        error = residual(session.torch, *(each.to(double) for each in (a, x, b)))
        if not error < 50 * session.torch.finfo(a.dtype).eps or int(info.abs().max()):
            found.wrong.append(f"batch {batch}: solve_ex is off by {error:.3g}")


def _empty(session: Session, route: Route, dtype: str, found: Findings) -> Iterator[None]:
    for shape in ((0, 4, 4), (3, 0, 0), (2, 0, 3), (2, 3, 0)):
        yield
        a = _matrices(session, dtype, shape)
        lu, pivots, info = session.torch.linalg.lu_factor_ex(a)
        if (
            lu.shape != a.shape
            or pivots.shape != (shape[0], min(shape[1:]))
            or int(info.abs().sum()) != 0
        ):
            found.wrong.append(f"{shape}: {tuple(lu.shape)}, pivots {tuple(pivots.shape)}")
