"""Callables that the tests scan; each returns its own seconds for the fake clock."""

from __future__ import annotations

from collections.abc import Callable


def smooth(n: int) -> float:
    return 1e-6 * float(n) ** 2


def cliff(n: int) -> float:
    return smooth(n) * (3.0 if n >= 128 else 1.0)


def small_cliff(n: int) -> float:
    return smooth(n) * (1.2 if n >= 128 else 1.0)


def prepared(n: int) -> Callable[[], float]:
    return lambda: cliff(n)


def memory(n: int) -> float:
    if n > 150:
        raise MemoryError("no room")
    return smooth(n)


def never(n: int) -> float:
    raise ValueError(f"{n} is not my size")


def _work(n: int) -> float:
    return float(n) ** 2


cliff.work = _work  # type: ignore[attr-defined]
not_callable = 7
