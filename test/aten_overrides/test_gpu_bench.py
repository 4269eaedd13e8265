"""The bench of calibrate on the CPU: what it hands to the library, checks and refuses."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from fake_gpu import Event, torch_without_gpu

from aten_overrides import _gpu, _runtime
from aten_overrides._errors import UserError
from aten_overrides._select import Native, Problem
from aten_overrides.calibration import gpu_bench
from aten_overrides.calibration.gpu_bench import GpuBench
from aten_overrides.calibration.measuring import Unusable
from aten_overrides.calibration.tasks import ITEM_BYTES, Task

LIMIT = 1 << 16
ROUTES = {"batched_cublas": 0, "looped_cusolver": 1, "streamed_cusolver": 2, "stock": 3,
          "batched_native": 4}  # fmt: skip


class Library:
    """Looks at the memory that it is given and overwrites it, as a factorization does."""

    def __init__(self, native: Native = Native.USABLE) -> None:
        self._native, self.forced, self.counts = native, "", dict.fromkeys(ROUTES.values(), 0)
        self.inputs: list[bytes] = []
        self.zero_pivot, self.elsewhere, self.error = False, False, ""

    def native(self) -> int:
        return int(self._native)

    def routes(self) -> dict[str, int]:
        return ROUTES

    def call(self, name: str, op: int, number: int) -> int:
        assert (name, op) == ("count", 0)
        return self.counts[number]

    def force_route(self, op: str, route: str | None) -> None:
        assert op == "lu_factor"
        self.forced = route or ""

    def lu_factor(
        self, dtype: str, shape: tuple[int, int, int], pivot: bool, *addresses: int
    ) -> None:
        if self.error:
            raise UserError(self.error)
        batch, m, n = shape
        size = batch * m * n * ITEM_BYTES[dtype]
        a, pivots, infos = addresses
        self.inputs.append(ctypes.string_at(a, size))
        ctypes.memset(a, 255, size)
        ctypes.memset(pivots, 1, batch * min(m, n) * 4)
        ctypes.memset(infos, int(self.zero_pivot), batch * 4)
        self.counts[ROUTES["stock" if self.elsewhere else self.forced]] += 1
        Event.now += 0.05


def bench_of(
    library: Library, monkeypatch: pytest.MonkeyPatch, stock: int = _gpu.STOCK_MAGMA
) -> GpuBench:
    names = ("Generator", "randn", "empty", "empty_like", "int32", *ITEM_BYTES)
    proxy = torch_without_gpu(*names)
    monkeypatch.setattr(_runtime, "stock_kind", lambda torch: stock)
    made: Any = library
    return GpuBench(proxy, made, 4, LIMIT, device="cpu")


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_each_call_sees_the_same_random_input(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    bench = bench_of(library, monkeypatch)
    bench.prepare(Task(dtype, Problem(3, 5, 4)))
    times = [bench.once(name) for name in ("batched_native", "stock", "batched_native")]
    assert times == pytest.approx([0.05] * 3)
    first, copies = library.inputs[0], gpu_bench.COPIES
    assert len(library.inputs) == 2 * (1 + copies) + copies
    assert first == library.inputs[1] == library.inputs[-copies]
    real = np.frombuffer(first, np.float32 if dtype in ("float32", "complex64") else np.float64)
    assert np.isfinite(real).all() and abs(real.mean()) < 1 and real.std() > 0.5
    assert len({*library.inputs[1 : 1 + copies]}) == copies  # other numbers in every copy
    assert library.forced == ""


def test_large_inputs_have_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    bench = bench_of(library, monkeypatch)
    bench.prepare(Task("float64", Problem(1, 90, 90)))
    bench.once("batched_native")
    assert len(library.inputs) == 2 and len(library.inputs[0]) == 90 * 90 * 8


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"zero_pivot": True}, "zero pivot in a random matrix"),
        ({"elsewhere": True}, "took another route"),
        ({"error": "lu_factor failed: strict\nmore"}, "lu_factor failed: strict$"),
        ({"error": "CUDA out of memory. Tried"}, "too little free memory"),
    ],
)
def test_no_time_is_given_for_a_call_that_went_wrong(
    fault: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library()
    vars(library).update(fault)
    bench = bench_of(library, monkeypatch)
    bench.prepare(Task("float32", Problem(2, 4, 4)))
    with pytest.raises(Unusable, match=words):
        bench.once("batched_cublas")
    assert library.forced == ""


def test_which_back_ends_can_take_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(library: Library, problem: Problem, stock: int) -> dict[str, str]:
        bench = bench_of(library, monkeypatch, stock)
        return dict(bench.backends(Task("float32", problem)))

    everything = told(Library(), Problem(64, 256, 256), _gpu.STOCK_MAGMA)
    assert set(everything.values()) == {""} and set(everything) == set(ROUTES)
    one = told(Library(), Problem(1, 9, 4), _gpu.STOCK_MAGMA)
    assert {name for name, why in one.items() if not why} == {
        "looped_cusolver", "stock", "batched_native"
    }  # fmt: skip
    small = told(Library(Native.NOT_BUILT), Problem(4, 8, 8), _gpu.STOCK_MAGMA)
    assert small["stock"] == "torch sends this to cuSOLVER or cuBLAS itself"
    assert small["batched_native"] == "not built"
    later = told(Library(), Problem(64, 256, 256), _gpu.STOCK_KERNEL)
    assert later["stock"] == "torch's own function is not MAGMA's"
