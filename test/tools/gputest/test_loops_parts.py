"""part_loops and part_loops_times run to their end on the stand-in, and tell wrong answers."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import fake_overrides  # noqa: E402
from test_overrides_parts import Fixture, failures, names, parts, points  # noqa: E402, F401

from aten_overrides._names import LOOP_BACKENDS, LOOP_OPS  # noqa: E402

pytestmark = pytest.mark.wheel

# torch's function behind each operation, and where it lies.
FUNCTIONS = {
    "geqrf": ("", "geqrf"),
    "orgqr": ("linalg", "householder_product"),
    "ormqr": ("", "ormqr"),
    "cholesky": ("linalg", "cholesky_ex"),
    "cholesky_solve": ("", "cholesky_solve"),
    "cholesky_inverse": ("", "cholesky_inverse"),
    "ldl_factor": ("linalg", "ldl_factor_ex"),
}


@pytest.fixture
def ready(parts: Fixture, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: F811
    """The stand-in with the loops, on small problems."""
    monkeypatch.setattr(fake_overrides, "ROUTES", LOOP_BACKENDS)
    fake, library = parts.session.torch, parts.library
    library.choice = "stock"

    def counted(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            route = library.forced.get(op) or library.choice
            if fake.preferred == "cublas" and op == "geqrf":
                route = "batched_cublas"
            library.used[op, route] += 1
            return function(*args, **kwargs)

        return call

    for op, (where, name) in FUNCTIONS.items():
        holder = getattr(fake, where) if where else fake
        source = getattr(torch, where) if where else torch
        monkeypatch.setattr(holder, name, counted(op, getattr(source, name)), raising=False)
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(fake.cuda, "Stream", lambda: stream, raising=False)
    monkeypatch.setattr(fake.cuda, "default_stream", lambda: stream, raising=False)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    part = parts.part("part_loops")
    monkeypatch.setattr(part, "SHAPES", ((2, 5, 5), (3, 9, 9)))
    monkeypatch.setattr(part, "TALL", ((2, 9, 4),))
    monkeypatch.setattr(part, "WIDE", (2, 4, 6))
    monkeypatch.setattr(part, "MANY", 50)
    monkeypatch.setattr(part, "FEWER", {"ldl_factor": 3})
    return parts


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_routes_pass_and_see_faults(
    ready: Fixture, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ready.run("part_loops", "routes", dtypes=[dtype])
    assert not failures(rows)
    assert {row["params"]["op"] for row in rows} == set(LOOP_OPS)

    loops = ready.part("loops_common")
    by = loops.by

    def wrong(library: Any, op: str, route: str, call: Callable[[], Any]) -> Any:
        found = by(library, op, route, call)
        return tuple(x * 1.001 for x in found) if route == "streamed_cusolver" else found

    monkeypatch.setattr(loops, "by", wrong)
    bad = ready.run("part_loops", "routes", dtypes=[dtype])
    assert len(failures(bad)) == len(LOOP_OPS)


def test_an_error_is_seen_by_the_definition(ready: Fixture) -> None:
    """Without another route to compare with."""
    loops = ready.part("loops_common")
    for op in LOOP_OPS:
        for upper, left, adjoint in ((False, True, True), (True, False, False)):
            case = loops.Case(op, "complex128", 2, 8, 8, upper=upper, left=left, adjoint=adjoint)
            run = loops.make(ready.session.torch, case)
            right = run.call()
            assert run.error(right) < loops.LIMIT, case
            spoiled = tuple(x * (1 + 1e-9) if x.is_complex() else x for x in right)
            assert op == "ldl_factor" or run.error(spoiled) > loops.LIMIT, case


def test_the_other_checks_pass(ready: Fixture) -> None:
    rows = ready.run("part_loops", "shapes")
    assert not failures(rows)
    assert names(rows) == {"layouts", "empty and single", "many"}
    rows = ready.run("part_loops", "bad")
    assert not failures(rows)
    assert {row["params"]["kind"] for row in rows} == {"zero", "nan", "not definite"}


def test_uses_pass(ready: Fixture) -> None:
    rows = ready.run("part_loops", "uses")
    assert not failures(rows)
    assert {"side stream", "threads", "deterministic", "preferences", "gradients"} == names(rows)


def test_times_are_written(ready: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    part = ready.part("part_loops_times")
    monkeypatch.setattr(part, "SQUARE", ((2, 6, 6), (3, 8, 8)))
    monkeypatch.setattr(part, "TALL", ((2, 9, 4),))
    monkeypatch.setattr(part, "SLOWER", 0.0)
    rows = ready.run("part_loops_times", "compare", seconds=60)
    found = points(rows)
    assert {p["op"] for p in found} == set(part.MADE_OF)
    assert {p["backend"] for p in found} == {"stock", "choice"}
    assert not failures(rows)
