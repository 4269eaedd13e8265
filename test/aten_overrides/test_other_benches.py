"""The benches of calibrate for lu_solve and eigh on the CPU: what they call, check and refuse."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_gpu import Event, torch_without_gpu

from aten_overrides._errors import UserError
from aten_overrides._names import EIGH_BACKENDS, LU_SOLVE_BACKENDS, OPS
from aten_overrides._select import Native
from aten_overrides.calibration.measuring import Unusable
from aten_overrides.calibration.other_benches import EighBench, SolveBench
from aten_overrides.calibration.tasks import ITEM_BYTES, EighTask, SolveTask

LIMIT = 1 << 16
ROUTES = {name: i for i, name in enumerate(dict.fromkeys((*LU_SOLVE_BACKENDS, *EIGH_BACKENDS)))}
KINDS = {"float32": torch.float32, "float64": torch.float64,
         "complex64": torch.complex64, "complex128": torch.complex128}  # fmt: skip


class Library:
    """Counts what is called, and has eigh by torch in the memory that it is given."""

    def __init__(self, native: Native = Native.USABLE) -> None:
        self._native = native
        self.forced: tuple[str, str] | None = None
        self.counts: dict[tuple[int, int], int] = {}
        self.elsewhere, self.error, self.damage = False, "", ""

    def native(self) -> int:
        return int(self._native)

    def routes(self) -> dict[str, int]:
        return ROUTES

    def call(self, name: str, op: int, number: int) -> int:
        assert name == "count"
        return self.counts.get((op, number), 0)

    def force_route(self, op: str, route: str | None) -> None:
        self.forced = None if route is None else (op, route)

    def took(self, op: str) -> None:
        assert self.forced is not None and self.forced[0] == op
        if self.error:
            raise UserError(self.error)
        key = (OPS.index(op), ROUTES["stock" if self.elsewhere else self.forced[1]])
        self.counts[key] = self.counts.get(key, 0) + 1
        Event.now += 0.05

    def eigh(
        self, dtype: str, shape: tuple[int, int], a: int, values: int, infos: int, *, vectors: bool
    ) -> None:
        self.took("eigh" if vectors else "eigvalsh")
        batch, n = shape
        size = batch * n * n * ITEM_BYTES[dtype]
        raw = bytearray(ctypes.string_at(a, size))
        matrices = torch.frombuffer(raw, dtype=KINDS[dtype]).view(batch, n, n).mT
        found = torch.linalg.eigvalsh(matrices).contiguous()
        if self.damage == "order":
            found = found.flip(-1).contiguous()
        ctypes.memmove(values, found.data_ptr(), found.numel() * found.element_size())
        ctypes.memset(a, 255, size)
        ctypes.memset(infos, int(self.damage == "info"), batch * 4)


def made(kind: Any, library: Library, solve: Callable[..., Any] | None = None) -> Any:
    def lu_solve(*arguments: Any, **more: Any) -> Any:
        library.took("lu_solve")
        return (solve or torch.linalg.lu_solve)(*arguments, **more)

    names = ("Generator", "randn", "empty", "empty_like", "int32", "arange", "randint", "isfinite")
    proxy = torch_without_gpu(*names, *ITEM_BYTES, linalg=SimpleNamespace(lu_solve=lu_solve))
    return kind(proxy, library, LIMIT, device="cpu")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_lu_solve_solves_the_same_system_each_time(dtype: str, transposed: bool) -> None:
    seen = []

    def solve(lu: Any, pivots: Any, b: Any, *, adjoint: bool) -> Any:
        assert adjoint is transposed
        assert lu.mT.is_contiguous() and b.mT.is_contiguous()  # as lu_factor leaves them
        p, lower, upper = torch.lu_unpack(lu, pivots)
        a = p @ lower @ upper
        x = torch.linalg.lu_solve(lu, pivots, b, adjoint=adjoint)
        assert torch.allclose((a.mH if adjoint else a) @ x, b, atol=1e-4)
        seen.append((lu.clone(), b.clone(), bool((p != torch.eye(5, dtype=p.dtype)).any())))
        return x

    bench = made(SolveBench, Library(), solve)
    bench.prepare(SolveTask(dtype, transposed, 3, 5, 2))
    times = [bench.once(name) for name in ("batched_native", "stock", "batched_native")]
    assert times == pytest.approx([0.05] * 3)
    assert all(torch.equal(seen[0][0], lu) and torch.equal(seen[0][1], b) for lu, b, _ in seen)
    assert seen[0][2]  # rows are exchanged


@pytest.mark.parametrize("op", ["eigh", "eigvalsh"])
@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_eigh_gets_a_fresh_input_each_time(dtype: str, op: str) -> None:
    library = Library()
    bench = made(EighBench, library)
    bench.prepare(EighTask(op, dtype, 2, 6))
    assert bench.once("jacobi_batched_cusolver") == pytest.approx(0.05)
    assert bench.once("stock") == pytest.approx(0.05)
    assert library.forced is None
    number = OPS.index(op), ROUTES["jacobi_batched_cusolver"]
    assert library.counts[number] == 1 + 4  # the first call, then four copies in a sample


@pytest.mark.parametrize(("damage", "words"), [("order", "ascending"), ("info", "converge")])
def test_wrong_eigenvalues_are_refused(damage: str, words: str) -> None:
    library = Library()
    library.damage = damage
    bench = made(EighBench, library)
    bench.prepare(EighTask("eigh", "float64", 2, 6))
    with pytest.raises(Unusable, match=words):
        bench.once("stock")


def test_a_solution_that_is_not_finite_is_refused() -> None:
    bench = made(SolveBench, Library(), lambda lu, pivots, b, adjoint: b / 0)
    bench.prepare(SolveTask("float32", False, 2, 4, 1))
    with pytest.raises(Unusable, match="no finite solution"):
        bench.once("stock")


@pytest.mark.parametrize("kind", [SolveBench, EighBench])
def test_another_route_and_errors_are_told(kind: Any) -> None:
    library = Library()
    bench = made(kind, library)
    task = SolveTask("float32", False, 2, 4, 1) if kind is SolveBench else EighTask(
        "eigh", "float32", 2, 4)  # fmt: skip
    bench.prepare(task)
    library.elsewhere = True
    with pytest.raises(Unusable, match="another route"):
        bench.once("looped_cusolver")
    library.elsewhere, library.error = False, "cuSOLVER failed\nat length"
    with pytest.raises(Unusable, match=r"^cuSOLVER failed$"):
        bench.once("looped_cusolver")
    library.error = "CUDA out of memory"
    with pytest.raises(Unusable, match="too little free memory"):
        bench.once("looped_cusolver")
    assert library.forced is None


def test_what_cannot_take_a_problem_is_said() -> None:
    solve = made(SolveBench, Library(Native.NOT_BUILT))
    told = solve.backends(SolveTask("float32", False, 1, 4, 1))
    assert set(told) == set(LU_SOLVE_BACKENDS)
    assert told["batched_native"] == told["blocked_native"] == "not built"
    assert "several streams" in told["streamed_cusolver"] and told["looped_cusolver"] == ""
    told = solve.backends(SolveTask("float32", False, 8, 4, 1))
    assert told["streamed_cusolver"] == "" and "on streams" in told["looped_cusolver"]
    eigh = made(EighBench, Library())
    told = eigh.backends(EighTask("eigh", "float32", 1, 4))
    assert set(told) == set(EIGH_BACKENDS)
    assert [name for name, why in told.items() if why] == ["streamed_cusolver"]
