"""Checks for a user's machine: seconds, and without a GPU what can be said without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aten_overrides import _gpu, _runtime
from aten_overrides._names import DTYPES, EIGH_BACKENDS, LU_SOLVE_BACKENDS

LIMIT = 30.0  # backward error in units of n eps
SHAPES = ((1, 3, 3), (2, 8, 8), (5, 70, 70), (16, 128, 128), (4, 300, 300), (2, 513, 513))
SOLVE_ROUTES = LU_SOLVE_BACKENDS


@dataclass(frozen=True)
class Check:
    """``result`` is pass, fail or skip."""

    name: str
    result: str
    detail: str = ""


def _check(name: str, body: Callable[[], str | None]) -> Check:
    try:
        failure = body()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}".splitlines()[0]
    return Check(name, "fail", failure) if failure else Check(name, "pass")


def _entries(library: _gpu.Library) -> dict[str, int]:
    return {entry.name: entry.current_address for entry in library.entries()}


def _install_and_restore(library: _gpu.Library) -> str | None:
    before = _entries(library)
    own = str(library.path)
    with _runtime.enabled() as status:
        ours = {entry.name for entry in library.entries() if entry.current == own}
    wanted = [op for op in status.ops if op not in _gpu.NO_STUB]
    if ours != {_gpu.ENTRY_NAMES.get(op, op) for op in wanted}:
        return f"enabled, {', '.join(sorted(ours)) or 'nothing'} was ours"
    after = _entries(library)
    changed = [name for name, address in after.items() if address != before[name]]
    return f"not restored: {', '.join(changed)}" if changed else None


def _errors(torch: Any, a: Any, x: Any, b: Any) -> float:
    """Largest norm(A X - B) / (n eps norm(A) norm(X))."""
    wide = torch.complex128 if a.is_complex() else torch.float64
    norm = torch.linalg.matrix_norm
    rest = norm(a.to(wide) @ x.to(wide) - b.to(wide))
    error = rest / (norm(a.to(wide)) * norm(x.to(wide)))
    return float(error.max()) / (int(a.shape[-1]) * float(torch.finfo(a.dtype).eps))


def _solves(torch: Any, library: _gpu.Library, dtype: str) -> str | None:
    """Solve by every pair of routes, and compare with A itself."""
    generator = torch.Generator(device="cuda").manual_seed(7)
    worst = ("", 0.0)
    for batch, n, _ in SHAPES:
        kind = getattr(torch, dtype)
        a = torch.randn(batch, n, n, dtype=kind, device="cuda", generator=generator)
        b = torch.randn(batch, n, 3, dtype=kind, device="cuda", generator=generator)
        for factor in (None, "stock", "batched_cublas", "looped_cusolver", "streamed_cusolver"):
            for solve in (None, *SOLVE_ROUTES):
                library.force_route("lu_factor", factor)
                library.force_route("lu_solve", solve)
                error = _errors(torch, a, torch.linalg.solve_ex(a, b).result, b)
                if not error <= worst[1]:
                    worst = (f"{factor or 'choice'} and {solve or 'choice'}, {batch} x {n}", error)
    return f"{worst[0]}: error {worst[1]:.3g} n eps" if not worst[1] < LIMIT else None


def _eigenvalues(torch: Any, library: _gpu.Library, dtype: str) -> str | None:
    """eigh by every route: norm(A V - V W) / (n eps norm(A))."""
    generator = torch.Generator(device="cuda").manual_seed(7)
    kind = getattr(torch, dtype)
    worst = ("", 0.0)
    for batch, n in ((3, 8), (2, 40)):
        a = torch.randn(batch, n, n, dtype=kind, device="cuda", generator=generator)
        a = a + a.mH
        for route in (None, *EIGH_BACKENDS):
            library.force_route("eigh", route)
            values, vectors = torch.linalg.eigh(a)
            error = _errors(torch, a, vectors, vectors * values.unsqueeze(-2))
            if not error <= worst[1]:
                worst = (f"{route or 'choice'}, {batch} x {n}", error)
    return f"{worst[0]}: error {worst[1]:.3g} n eps" if not worst[1] < LIMIT else None


def selftest() -> list[Check]:
    """All checks. UserError if the overrides cannot be loaded at all. The state is left as it
    was.
    """
    torch = _runtime.import_torch()
    with _runtime.enabled():
        library = _runtime.loaded_library()
    assert library is not None
    checks = [_check("install and restore", lambda: _install_and_restore(library))]
    if not torch.cuda.is_available():
        return [*checks, Check("results", "skip", "torch sees no GPU")]
    with _runtime.enabled():
        try:
            for dtype in DTYPES:
                checks.append(_check(f"solve {dtype}", partial(_solves, torch, library, dtype)))
            for dtype in DTYPES if "eigh" in library.installed() else ():
                checks.append(_check(f"eigh {dtype}", partial(_eigenvalues, torch, library, dtype)))
        finally:
            library.force_route("eigh", None)
            library.force_route("lu_factor", None)
            library.force_route("lu_solve", None)
    return checks
