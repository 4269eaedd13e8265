"""Who computes a problem: torch as it is and with each preferred library, the overrides with each
back end forced (which are cuBLAS and cuSOLVER called directly), CuPy and JAX.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides.bench.grids import Case
from aten_overrides.measure.clock import Call
from aten_overrides.measure.operations import Problems, operation, overridden
from aten_overrides.scan.backends import forcing, routes_of, routes_taken, stock


class NotHere(Exception):
    """A rival cannot compute a problem; the text says why."""


@dataclass(frozen=True)
class Rival:
    """``call`` makes the timed call of a problem, to be made within ``enter``. entry, route: what
    has to run for the numbers to count, empty for anything.
    """

    library: str
    backend: str
    preference: str
    enter: Callable[[], AbstractContextManager[Any]]
    call: Callable[[Problems, Case], Call]
    entry: str = ""
    route: str = ""

    @property
    def name(self) -> str:
        """A short name, unique among the rivals of a problem."""
        if self.library == "stock":
            return f"stock, {self.preference}"
        return self.library if self.backend == "choice" else f"{self.library}, {self.backend}"


def _torch_call(problems: Problems, case: Case) -> Call:
    return problems.call(case.n)


def _of_torch(torch: Any, preferences: tuple[str, ...]) -> list[Rival]:
    return [
        Rival("stock", "stock", name, partial(stock, torch, name), _torch_call)
        for name in preferences
    ]


def _of_overrides(entry: str) -> list[Rival]:
    routes = routes_of(entry)
    found = [Rival("overrides", "choice", "default", partial(forcing, entry, None), _torch_call)]
    found += [
        Rival("direct", route, "default", partial(forcing, entry, route), _torch_call, entry, route)
        for route in routes
        if route != "stock"
    ]
    return found


_CUPY = {
    "solve_ex": lambda linalg, a, b: linalg.solve(a, b),
    "inv_ex": lambda linalg, a, b: linalg.inv(a),
    "slogdet": lambda linalg, a, b: linalg.slogdet(a),
    "det": lambda linalg, a, b: linalg.det(a),
    "eigh": lambda linalg, a, b: linalg.eigh(a),
    "eigvalsh": lambda linalg, a, b: linalg.eigvalsh(a),
    "cholesky_ex": lambda linalg, a, b: linalg.cholesky(a),
    "qr": lambda linalg, a, b: linalg.qr(a),
    "svdvals": lambda linalg, a, b: linalg.svd(a, compute_uv=False),
    "matmul": lambda linalg, a, b: a @ a,
}


def _cupy_call(problems: Problems, case: Case) -> Call:
    cupy = importlib.import_module("cupy")
    a, b = problems.input(case.n)
    matrix = cupy.from_dlpack(a.detach())
    right = cupy.from_dlpack(b.detach()) if b is not None else None
    return partial(_CUPY[case.op], cupy.linalg, matrix, right)


def _jax_call(problems: Problems, case: Case) -> Call:
    jax = importlib.import_module("jax")
    importlib.import_module("jax.dlpack")
    importlib.import_module("jax.scipy.linalg")
    jax.config.update("jax_enable_x64", True)
    a, b = problems.input(case.n)
    matrix = jax.dlpack.from_dlpack(a.contiguous())
    right = jax.dlpack.from_dlpack(b.contiguous()) if b is not None else None
    if case.op == "lu_factor_ex":
        compiled = jax.jit(jax.scipy.linalg.lu_factor)
        return lambda: jax.block_until_ready(compiled(matrix))
    compiled = jax.jit(partial(_CUPY[case.op], jax.numpy.linalg))
    return lambda: jax.block_until_ready(compiled(matrix, right))


def _importable(name: str) -> str:
    """Why a module cannot be imported, "" if it can."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        importlib.import_module(name)
    except Exception as error:
        return f"{name} cannot be imported: {type(error).__name__}: {error}"[:200]
    return ""


@dataclass
class Rivals:
    """All rivals of a device, and why others are missing."""

    torch: Any
    device: str
    others: bool = True  # CuPy and JAX too

    def __post_init__(self) -> None:
        self.missing: dict[str, str] = {}
        self._usable: list[str] = []
        for name in ("cupy", "jax") if self.others and self.device == "cuda" else ():
            reason = _importable(name)
            if reason:
                self.missing[name] = reason
            else:
                self._usable.append(name)

    def of(self, case: Case) -> list[Rival]:
        """The rivals for one problem."""
        if self.device != "cuda":
            return [
                Rival("stock", "stock", "default", contextlib.nullcontext, _torch_call),
            ]
        magma = ("magma",) if self.torch.cuda.has_magma else ()
        found = _of_torch(self.torch, ("default", "cusolver", *magma))
        entry = overridden(operation(case.op))
        if entry:
            try:
                found += _of_overrides(entry)
            except UserError as error:
                self.missing["overrides"] = str(error)
        if "cupy" in self._usable and case.op in _CUPY:
            found.append(Rival("cupy", "cupy", "default", contextlib.nullcontext, _cupy_call))
        if "jax" in self._usable and case.op in (*_CUPY, "lu_factor_ex"):
            found.append(Rival("jax", "jax", "default", contextlib.nullcontext, _jax_call))
        return found


def check_route(rival: Rival, call: Call) -> None:
    """NotHere unless the forced route is what runs."""
    if not rival.route:
        return
    taken = routes_taken(call).get(rival.entry, "nothing")
    if taken != rival.route:
        raise NotHere(f"{rival.route} cannot take it: {taken} runs")
