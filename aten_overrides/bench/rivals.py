"""Who computes a problem: torch as it is and with each preferred library, the overrides, each of
their back ends (cuBLAS, cuSOLVER, our kernels) called directly or forced, CuPy and JAX.
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

from aten_overrides import _runtime
from aten_overrides.bench.grids import Case
from aten_overrides.bench.report import rival_name
from aten_overrides.measure.clock import Call
from aten_overrides.measure.operations import Operation, Problems, chooses, operation, overridden
from aten_overrides.scan.backends import forcing, routes_of, routes_taken, stock


class NotHere(Exception):
    """A rival cannot compute a problem; the text says why."""


@dataclass(frozen=True)
class Rival:
    """``call`` makes the timed call of a problem, to be made within ``enter``. library: "stock",
    "overrides", "direct" (a back end on a copy of the matrices, without torch around it), "forced"
    (torch's operation with this back end), "cupy" or "jax". entry, route: what has to run for the
    numbers to count, empty for anything. compiled: for each problem anew, which takes a while.
    """

    library: str
    backend: str
    preference: str
    enter: Callable[[], AbstractContextManager[Any]]
    call: Callable[[Problems, Case], Call]
    entry: str = ""
    route: str = ""
    compiled: bool = False

    @property
    def name(self) -> str:
        """A short name, unique among the rivals of a problem."""
        return rival_name(self.library, self.backend, self.preference)


def _torch_call(problems: Problems, case: Case) -> Call:
    return problems.call(case.n)


def _of_torch(torch: Any, preferences: list[str]) -> list[Rival]:
    return [
        Rival("stock", "stock", name, partial(stock, torch, name), _torch_call)
        for name in preferences
    ]


def _direct_call(problems: Problems, case: Case) -> Call:
    """A copy of the matrices and the library's routine, on memory that is allocated once."""
    library = _runtime.loaded_library()
    assert library is not None
    torch, batch, n = problems.torch, case.batch, case.n
    matrices, _ = problems.input(n)
    work = torch.empty_like(matrices)
    infos = torch.empty(batch, dtype=torch.int32, device=work.device)
    if case.op == "lu_factor_ex":
        pivots = torch.empty(batch, n, dtype=torch.int32, device=work.device)
        lu = (case.dtype, (batch, n, n), True, work.data_ptr(), pivots.data_ptr(), infos.data_ptr())
        run = partial(library.lu_factor, *lu)
        kept: tuple[Any, ...] = (work, pivots, infos)
    else:
        values = torch.empty(batch, n, dtype=matrices.real.dtype, device=work.device)
        eigh = (case.dtype, (batch, n), work.data_ptr(), values.data_ptr(), infos.data_ptr())
        run = partial(library.eigh, *eigh)
        kept = (work, values, infos)

    def call() -> tuple[Any, ...]:
        work.copy_(matrices)
        run()
        return kept

    return call


DIRECT = ("lu_factor_ex", "eigh")  # operations that are one routine of the libraries


def _of_overrides(op: Operation, entry: str) -> list[Rival]:
    name = chooses(op)
    found = [Rival("overrides", "choice", "default", partial(forcing, name, None), _torch_call)]
    library, call = ("direct", _direct_call) if op.name in DIRECT else ("forced", _torch_call)
    found += [
        Rival(library, route, "default", partial(forcing, name, route), call, name, route)
        for route in routes_of(entry)
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
    """JAX has streams of its own: the call waits for torch's before, which flushes the cache, and
    for the result. Its inputs are copies, as aligned as an allocation is.
    """
    jax = importlib.import_module("jax")
    importlib.import_module("jax.dlpack")
    importlib.import_module("jax.scipy.linalg")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # without TF32, as torch
    torch = problems.torch
    copies = [one.clone() for one in problems.input(case.n) if one is not None]
    torch.cuda.synchronize()
    inputs: list[Any] = [jax.dlpack.from_dlpack(one) for one in copies]
    if case.op == "lu_factor_ex":
        compiled = jax.jit(jax.scipy.linalg.lu_factor)
    else:
        named = _CUPY[case.op]
        inputs += [None] * (2 - len(inputs))
        compiled = jax.jit(partial(named, jax.numpy.linalg))

    def call() -> Any:
        torch.cuda.synchronize()
        return jax.block_until_ready(compiled(*inputs))

    return call


def _importable(name: str) -> str:
    """Why a module cannot be used on the GPU, "" if it can."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        module = importlib.import_module(name)
        if name == "jax":
            module.devices("gpu")
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return f"{name} cannot be used: {said}"[:200]
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
        """The rivals for one problem, those first that matter most, as the time may end."""
        if self.device != "cuda":
            return [
                Rival("stock", "stock", "default", contextlib.nullcontext, _torch_call),
            ]
        preferences = ["default", "cusolver", *["magma"] * self.torch.cuda.has_magma]
        default, *preferred = _of_torch(self.torch, preferences)
        ours: list[Rival] = []
        entry = overridden(operation(case.op))
        if entry:
            try:
                ours = _of_overrides(operation(case.op), entry)
            except Exception as error:
                self.missing["overrides"] = " ".join(f"{type(error).__name__}: {error}".split())
        found = [default, *ours[:1], *preferred]
        if "cupy" in self._usable and case.op in _CUPY:
            found.append(Rival("cupy", "cupy", "default", contextlib.nullcontext, _cupy_call))
        found += ours[1:]
        if "jax" in self._usable and case.op in (*_CUPY, "lu_factor_ex"):
            made = Rival("jax", "jax", "default", contextlib.nullcontext, _jax_call, compiled=True)
            found.append(made)
        return found

    def versions(self) -> dict[str, str]:
        """The versions of the other libraries that take part."""
        modules = {name: importlib.import_module(name) for name in self._usable}
        return {name: str(module.__version__) for name, module in modules.items()}

    def answers(self) -> bool:
        """Whether the device still works in this process."""
        try:
            return float(self.torch.ones(8, device=self.device).sum()) == 8
        except Exception:
            return False


def check_route(rival: Rival, call: Call) -> None:
    """NotHere unless the forced route is what runs."""
    if not rival.route:
        return
    taken = routes_taken(call).get(rival.entry, "nothing")
    if taken != rival.route:
        raise NotHere(f"{rival.route} cannot take it: {taken} runs")
