"""Traces of torch.profiler, back ends of both sides, and the cause in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aten_overrides.measure.operations import OPERATIONS, Problems, work
from aten_overrides.scan import kernels, picture
from aten_overrides.scan.backends import Side, chosen_backend
from aten_overrides.scan.kernels import Bar, joined, read_trace, short_name, trace_of
from aten_overrides.scan.kinds import Finding
from aten_overrides.scan.report import report
from aten_overrides.scan.run import Explained, Scan
from aten_overrides.scan.search import Settings
from aten_overrides.scan.sides import cause
from aten_overrides.scan.target import Measured, Target
from aten_overrides.scan.verdict import outcome


def kernel(name: str, start: float, length: float, stream: int = 7) -> dict[str, Any]:
    event = {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": length, "tid": 7}
    return {**event, "args": {"stream": stream}}


def operator(name: str, start: float, length: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": start, "dur": length, "tid": 1}


def test_kernels_are_counted_by_name_and_stream() -> None:
    events = [
        kernel("void ns::getf2<float, 32>(float*, int)", 1000, 50),
        kernel("void ns::getf2<float, 64>(float*, int)", 1060, 40, stream=9),
        kernel("laswp(int)", 1200, 5),
        operator("aten::solve", 0, 2000),
        {"ph": "M", "name": "process_name"},
    ]
    trace = read_trace(events)
    assert trace is not None
    assert (trace.what, trace.launches, trace.span) == ("kernels", 3, 205)
    assert trace.names == (("getf2", 2, 90.0), ("laswp", 1, 5.0))
    assert {(bar.start, bar.lane) for bar in trace.bars} == {(0, 0), (60, 1), (200, 0)}
    assert trace_of(trace.json()) == trace


def test_operators_have_their_own_time() -> None:
    events = [
        operator("outer", 0, 100),
        operator("inner", 10, 30),
        operator("innermost", 20, 5),
        operator("next", 120, 10),
    ]
    trace = read_trace(events)
    assert trace is not None
    assert (trace.what, trace.launches, trace.span) == ("operators", 4, 130)
    totals = {name: total for name, _, total in trace.names}
    assert totals == {"outer": 70, "inner": 25, "innermost": 5, "next": 10}
    assert read_trace([]) is None


def test_many_bars_are_joined() -> None:
    bars = [Bar(10.0 * i, 9.0 if i % 3 else 1.0, "ab"[i % 3 > 0], i % 2) for i in range(10_000)]
    few = joined(bars)
    assert kernels.MOST_BARS * 0.9 < len(few) <= kernels.MOST_BARS
    half = kernels.MOST_BARS // 2
    assert few[:half] == tuple(bars[:half])
    assert {bar.name for bar in few[half:]} == {"b"}  # what runs longest
    assert sum(bar.length for bar in few) == pytest.approx(sum(bar.length for bar in bars))
    for lane in (0, 1):
        mine = [bar for bar in few if bar.lane == lane]
        ends = [bar.start + bar.length for bar in mine]
        assert all(end <= bar.start for end, bar in zip(ends, mine[1:], strict=False))
        assert max(ends) > 99_800 - 400
    assert set(joined(few)) == set(few)
    assert joined(bars[:5]) == tuple(bars[:5])


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::(anonymous namespace)::fill<float>(int)", "fill"),
        ("getrf_pivot", "getrf_pivot"),
        ("void magma::kernel(float const*)", "kernel"),
        ("<lambda>", "<lambda>"),
        ("Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


def trace(count: int, names: tuple[str, ...]) -> kernels.Trace:
    events = [
        kernel(name, (i * len(names) + j) * 100, 90)
        for i in range(count)
        for j, name in enumerate(names)
    ]
    made = read_trace(events)
    assert made is not None
    return made


def test_the_preference_with_the_same_kernels_is_named() -> None:
    target = Target(op="solve_ex")
    curve: Measured = None  # type: ignore[assignment]
    looped, batched = trace(64, ("getf2", "trsm")), trace(1, ("magma_getf2", "trsm"))
    traces: dict[str, kernels.Trace | None] = {"stock, cusolver": looped, "stock, magma": batched}
    assert chosen_backend(curve, target, 1, {"": looped, **traces}) == "cuSOLVER or cuBLAS"
    assert chosen_backend(curve, target, 1, {"": batched, **traces}) == "MAGMA"
    other = trace(3, ("getf2", "trsm"))  # the same kernels, but not one call a matrix
    assert chosen_backend(curve, target, 1, {"": other, **traces}) == ""
    assert chosen_backend(curve, target, 1, {"": None, **traces}) == ""


def test_half_of_the_matrices_tell_a_loop() -> None:
    target = Target(op="eigh", batch=64, prefer="cusolver")
    curve: Measured = None  # type: ignore[assignment]

    def said(whole: int, half: int) -> str:
        traces: dict[str, kernels.Trace | None] = {"": trace(whole, ("a", "b"))}
        return chosen_backend(curve, target, 1, {**traces, "half": trace(half, ("a", "b"))})

    assert said(64, 32) == "cuSOLVER or cuBLAS, once per matrix"
    assert said(9, 9) == "cuSOLVER or cuBLAS, batched"
    assert said(9, 6) == "cuSOLVER or cuBLAS"


def explained() -> Explained:
    finding = Finding("step", 512, 511, "slower", 4.4, 4.3, 4.5, 1.0, 10, 0.0123, 0.0548)
    sides = (
        Side(511, "cuSOLVER or cuBLAS", 12.3, {"stock, default": 6.2}),
        Side(512, "cuSOLVER or cuBLAS", 54.8, {"stock, default": 6.5, "overrides": 5.48}),
    )
    traces = (trace(1, ("getrf_batched",)), trace(64, ("getf2", "trsm")))
    return Explained(finding, sides, traces)


def test_the_cause_in_words() -> None:
    one = explained()
    assert cause(one.sides, one.traces) == (
        "1 kernels before, 128 from here on; most time in getrf_batched before, in getf2 after"
    )
    one.sides = (Side(511, "MAGMA", 1.0), Side(512, "cuSOLVER or cuBLAS", 2.0))
    assert cause(one.sides, one.traces).startswith(
        "another back end: MAGMA before, cuSOLVER or cuBLAS from here on;"
    )
    one.traces = (one.traces[1], one.traces[1])
    one.sides = (Side(511, "", 1.0), Side(512, "", 2.0))
    assert cause(one.sides, one.traces) == "most time in getf2 on both sides"
    one.sides = ()
    assert cause(one.sides, one.traces) == ""


def test_report_and_picture_of_both_sides(tmp_path: Path) -> None:
    one = explained()
    one.cause = cause(one.sides, one.traces)
    levels = {n: (n * 1e-5, n * 9e-6, n * 1.1e-5, 5) for n in range(500, 525)}
    meta = {"gpu": "NVIDIA TEST", "torch": "2.11.0", "date": "2026-11-30"}
    target = Target(op="solve_ex", batch=64, prefer="cusolver")
    scan = Scan(target, (500, 524, 1), Settings(), meta, "cuda", levels, None, {}, True, 1.0, [one])
    said = report(scan, outcome(scan, 1.12))
    assert (
        "n = 512: cuSOLVER or cuBLAS, 10.00x the best back end there (overrides, 5.48 ms)" in said
    )
    assert "n = 512: 128 kernels in 12.8 ms: 64 x getf2, 64 x trsm" in said
    assert picture.worst_traced(scan) is one
    picture.draw(scan, tmp_path / "scan.png", {"Source": "abc"})
    assert [entry.name for entry in tmp_path.iterdir()] == ["scan.png"]
    one.traces = ()
    assert picture.worst_traced(scan) is None


def test_every_operation_runs_and_its_input_fits() -> None:
    torch = pytest.importorskip("torch")
    for name, op in OPERATIONS.items():
        for dtype in ("float32", "complex128"):
            problems = Problems(torch, op, dtype, 3, 2, "cpu")
            for n in (5, 1, 8):
                result = problems.call(n)()
                values = result if isinstance(result, tuple) else (result,)
                tensors = [value for value in values if torch.is_tensor(value)]
                assert all(torch.isfinite(one).all() for one in tensors), (name, dtype, n)
                if name == "cholesky_ex":
                    assert int(result.info.abs().sum()) == 0
            assert work(op, dtype, 6, 8, 2) == 2 * work(op, dtype, 3, 8, 2) > 0
    solve = OPERATIONS["lu_solve"]
    call = Problems(torch, solve, "float64", 2, 3, "cpu").call(6)
    assert call().shape == (2, 6, 3)


def test_profile_of_a_call_on_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    a = torch.ones(3, 8, 8)
    found = kernels.profile_call(torch, lambda: torch.bmm(a, a), False)
    assert found is not None
    assert found.what == "operators" and "bmm" in [
        name.removeprefix("aten::") for name, _, _ in found.names
    ]
