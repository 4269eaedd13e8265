"""The rivals' calls, with stand-ins for the gpu library, CuPy and JAX."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aten_overrides.bench import rivals  # noqa: E402
from aten_overrides.bench.grids import Case  # noqa: E402
from aten_overrides.bench.rivals import NotHere, Rivals, check_route  # noqa: E402
from aten_overrides.measure.operations import Problems, operation  # noqa: E402

ROUTES = ["batched_cublas", "stock", "batched_native"]


def problems(case: Case) -> Problems:
    return Problems(torch, operation(case.op), case.dtype, case.batch, case.nrhs, "cpu")


def memory(address: int, count: int, dtype: Any) -> Any:
    size = count * torch.empty(0, dtype=dtype).element_size()
    held = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(held, dtype=dtype)


class Library:
    """Factors in place, column by column, as the gpu library does."""

    def lu_factor(
        self, dtype: str, shape: tuple[int, int, int], pivot: bool, a: int, pivots: int, infos: int
    ) -> None:
        batch, m, n = shape
        kind = getattr(torch, dtype)
        columns = memory(a, batch * m * n, kind).view(batch, n, m).mT
        lu, found, info = torch.linalg.lu_factor_ex(columns)
        columns.copy_(lu)
        memory(pivots, batch * n, torch.int32).copy_(found.flatten())
        memory(infos, batch, torch.int32).copy_(info)

    def eigh(self, dtype: str, shape: tuple[int, int], a: int, values: int, infos: int) -> None:
        batch, n = shape
        kind = getattr(torch, dtype)
        columns = memory(a, batch * n * n, kind).view(batch, n, n).mT
        found, vectors = torch.linalg.eigh(columns)
        columns.copy_(vectors)
        memory(values, batch * n, found.dtype).copy_(found.flatten())
        memory(infos, batch, torch.int32).zero_()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aten_overrides._runtime.loaded_library", Library)
    monkeypatch.setattr(rivals, "routes_of", lambda entry: ROUTES)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_direct_calls_give_the_same_result_each_time(library: None, dtype: str) -> None:
    case = Case("lu_factor_ex", dtype, 3, 5, 0)
    made = problems(case)
    matrices = made.input(5)[0].clone()
    call = rivals._direct_call(made, case)
    for _ in range(2):
        work, pivots, infos = call()
        lu, found, _ = torch.linalg.lu_factor_ex(matrices.mT)
        assert torch.allclose(work.mT, lu) and torch.equal(pivots, found) and not infos.any()
    assert torch.equal(made.input(5)[0], matrices)  # its input is left as it was
    case = Case("eigh", dtype, 3, 5, 0)
    call = rivals._direct_call(problems(case), case)
    for _ in range(2):
        _, values, _ = call()
        assert torch.allclose(values, torch.linalg.eigvalsh(matrices.mT))


def test_who_takes_part(library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "_importable", lambda name: "" if name == "jax" else "no cupy")
    fake = SimpleNamespace(cuda=SimpleNamespace(has_magma=True))
    field = Rivals(fake, "cuda")
    assert field.missing == {"cupy": "no cupy"}
    lu = field.of(Case("lu_factor_ex", "float32", 4, 8, 0))
    assert [(one.library, one.name) for one in lu] == [
        ("stock", "stock, default"),
        ("overrides", "overrides"),
        ("stock", "stock, cusolver"),
        ("stock", "stock, magma"),
        ("direct", "batched_cublas"),
        ("direct", "batched_native"),
        ("jax", "jax"),
    ]
    assert [one.compiled for one in lu] == [False] * 6 + [True]
    assert lu[4].entry == "lu_factor" and lu[4].route == "batched_cublas"
    solve = field.of(Case("solve_ex", "float32", 4, 8, 1))
    assert {one.library for one in solve} == {"stock", "overrides", "forced", "jax"}
    names = [one.name for one in field.of(Case("lu_solve", "float32", 4, 8, 1))]
    assert "jax" not in names and "batched_cublas" in names

    def broken(entry: str) -> list[str]:
        raise RuntimeError("no such library")

    monkeypatch.setattr(rivals, "routes_of", broken)
    names = [one.name for one in field.of(Case("eigh", "float32", 4, 8, 0))]
    assert names == ["stock, default", "stock, cusolver", "stock, magma", "jax"]
    assert field.missing["overrides"] == "RuntimeError: no such library"


def test_a_forced_route_has_to_run(library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"lu_factor": "batched_cublas"}
    monkeypatch.setattr(rivals, "routes_taken", lambda call: taken)
    fake = SimpleNamespace(cuda=SimpleNamespace(has_magma=False))
    field = Rivals(fake, "cuda", others=False).of(Case("lu_factor_ex", "float32", 4, 8, 0))
    by_name = {one.name: one for one in field}
    check_route(by_name["batched_cublas"], lambda: None)
    check_route(by_name["overrides"], lambda: None)
    with pytest.raises(NotHere, match="batched_native cannot take it: batched_cublas runs"):
        check_route(by_name["batched_native"], lambda: None)


def test_other_libraries_get_the_same_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def wait(result: Any) -> Any:
        calls.append("wait")
        return result

    cuda = SimpleNamespace(synchronize=lambda: calls.append("synchronize"))
    monkeypatch.setattr(torch, "cuda", cuda)
    shared = SimpleNamespace(linalg=torch.linalg, from_dlpack=torch.from_dlpack)
    scipy = SimpleNamespace(linalg=SimpleNamespace(lu_factor=torch.linalg.lu_factor))
    jax = SimpleNamespace(
        dlpack=shared,
        numpy=shared,
        scipy=scipy,
        config=SimpleNamespace(update=lambda *setting: calls.append(str(setting))),
        jit=lambda function: function,
        block_until_ready=wait,
    )
    modules = {"cupy": shared, "jax": jax, "jax.dlpack": shared, "jax.scipy.linalg": scipy.linalg}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for op in ("solve_ex", "inv_ex", "slogdet", "eigvalsh", "lu_factor_ex"):
        case = Case(op, "float64", 2, 4, 3 if op == "solve_ex" else 0)
        made = problems(case)
        expected = made.call(4)()
        expected = expected if isinstance(expected, tuple) else (expected,)
        makers = [rivals._jax_call] + [rivals._cupy_call] * (op != "lu_factor_ex")
        for maker in makers:
            call = maker(made, case)
            calls.clear()
            found = call()
            found = found if isinstance(found, tuple) else (found,)
            assert torch.allclose(found[0], expected[0]), (op, maker)
            if maker is rivals._jax_call:
                assert calls == ["synchronize", "wait"]


def test_a_module_without_the_gpu_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def devices(kind: str) -> None:
        raise RuntimeError(f"no {kind}\nhere")

    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=devices))
    assert rivals._importable("jax") == "jax cannot be used: RuntimeError: no gpu here"
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__="14"))
    assert rivals._importable("cupy") == ""
    monkeypatch.setattr(rivals, "_importable", lambda name: "" if name == "cupy" else "none")
    with contextlib.suppress(KeyError):
        monkeypatch.delitem(sys.modules, "jax")
    assert Rivals(SimpleNamespace(), "cuda").versions() == {"cupy": "14"}
