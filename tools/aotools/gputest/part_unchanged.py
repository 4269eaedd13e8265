"""Operations that the series must not touch: the wheel's own code, and the same bits, whatever is
loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from aotools.gputest.plan import DTYPES
from aotools.gputest.session import Check, Patched, Session

UNCHANGED = (
    "cholesky_inverse",
    "ldl_factor",
    "ldl_solve",
    "triangular_solve",
    "linalg_eig",
    "svd",
    "cholesky_solve_helper",
)
SHAPE = (3, 33, 33)


def cases(torch: Any, dtype: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of the unchanged operations on fixed inputs."""
    kind = getattr(torch, dtype)
    generator = torch.Generator("cuda").manual_seed(5)
    a = torch.randn(SHAPE, dtype=kind, device="cuda", generator=generator)
    b = torch.randn(SHAPE[0], SHAPE[1], 4, dtype=kind, device="cuda", generator=generator)
    hermitian = a + a.mH
    definite = a @ a.mH + 40 * torch.eye(SHAPE[1], dtype=kind, device="cuda")
    lower = torch.zeros_like(a).copy_(torch.linalg.cholesky(definite.cpu()))
    # The factors come from here, once: they are inputs, and the pivots' form depends on the
    # library.
    ld, pivots, _ = torch.linalg.ldl_factor_ex(hermitian.cpu(), hermitian=True)
    ld = torch.zeros_like(a).copy_(ld)
    pivots = torch.zeros(pivots.shape, dtype=pivots.dtype, device="cuda").copy_(pivots)
    yield "eig", lambda: torch.linalg.eig(a)
    yield "eigvals", lambda: torch.linalg.eigvals(a)
    yield "ldl_factor", lambda: torch.linalg.ldl_factor_ex(hermitian, hermitian=True)
    yield "ldl_solve", lambda: torch.linalg.ldl_solve(ld, pivots, b, hermitian=True)
    yield "cholesky_solve", lambda: torch.cholesky_solve(b, lower)
    yield "cholesky_inverse", lambda: torch.cholesky_inverse(lower)
    yield "svd", lambda: torch.linalg.svd(a)
    yield "svdvals", lambda: torch.linalg.svdvals(a)
    yield "solve_triangular", lambda: torch.linalg.solve_triangular(a.triu(), b, upper=True)


def flat(result: Any) -> tuple[Any, ...]:
    """A result's tensors."""
    return tuple(result) if isinstance(result, tuple) else (result,)


def same(torch: Any, one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether the tensors of two results are the same bits."""
    return all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def run(session: Session) -> None:
    """Results before loading (if `late`), after it, and after restore(), with the files that
    entries lie in.
    """
    torch = session.torch
    calls = {(op, dtype): call for dtype in DTYPES for op, call in cases(torch, dtype)}
    before: dict[tuple[str, str], tuple[Any, ...] | None] = {}
    again: dict[tuple[str, str], bool] = {}
    if session.options["late"]:
        for key, call in calls.items():
            before[key] = _result(call)
            second = _result(call)
            first = before[key]
            again[key] = first is not None and second is not None and same(torch, first, second)
    lib = session.patched
    _check_entries(session, lib, "after load", set(lib.loaded.facts["entries"]))
    loaded = {key: _result(call) for key, call in calls.items()}
    lib.loaded.restore()
    _check_entries(session, lib, "after restore", set())
    restored = {key: _result(call) for key, call in calls.items()}
    if not session.options["late"]:
        before = restored  # nothing ran before: what the wheel does is what it does after restore()
        again = dict.fromkeys(calls, True)
    for key in calls:
        with session.check(
            "unchanged: bits", op=key[0], dtype=key[1], late=session.options["late"]
        ) as check:
            _compare(torch, check, before[key], loaded[key], restored[key], again[key])


def _result(call: Callable[[], Any]) -> tuple[Any, ...] | None:
    try:
        return tuple(tensor.clone() for tensor in flat(call()))
    except RuntimeError:  # what the wheel refuses has to be refused by all
        return None


def _compare(
    torch: Any, check: Check, before: Any, loaded: Any, restored: Any, repeatable: bool
) -> None:
    states = [each is None for each in (before, loaded, restored)]
    if any(states):
        check.ok = all(states)
        check.value = {"raises": states}
        check.reason = (
            "the wheel raises, and so do the others" if check.ok else "raises only in some states"
        )
        return
    check.value = {"loaded": same(torch, before, loaded), "restored": same(torch, before, restored)}
    check.ok = all(check.value.values())
    if not check.ok and not repeatable:
        check.vendor = True
        check.reason = "the stock wheel's own result differs from call to call"


def _check_entries(session: Session, lib: Patched, when: str, ours: set[str]) -> None:
    with session.check("unchanged: entries", when=when) as check:
        entries = lib.loaded.entries()
        wrong = [f"{name} must stay the wheel's" for name in UNCHANGED if name in ours]
        for entry in entries:
            want = "ours" if entry.name in ours else "wheel"
            # The slot of the 15th may not be readable: then what was chosen has to do.
            if entry.chosen != want or entry.owner not in (want, "unknown"):
                wrong.append(f"{entry.name} is {entry.owner}'s, not {want}")
        check.value = {"ours": sorted(ours), "entries": len(entries)}
        check.ok, check.reason = not wrong, ", ".join(wrong)
