"""Which back end an operation that is a loop of cuSOLVER calls takes, and why."""

from __future__ import annotations

from pathlib import Path

from aten_overrides import _select
from aten_overrides._errors import UserError
from aten_overrides._explain import (
    Explanation,
    Question,
    compiled_candidate,
    compiled_decision,
    compiled_source,
)
from aten_overrides._loops import LoopQuestion
from aten_overrides._names import LOOP_BACKENDS
from aten_overrides._select import Basis, Candidate, Problem
from aten_overrides.tables.loops import predict as predicting
from aten_overrides.tables.loops.table import LoopTable, load

NOTE = "the intervals were fitted to this table, whatever the GPU"
RULES = {
    "loop": "torch's own loop, one call after the other",
    "batched_cublas": "torch's own function: cuBLAS's batched routine",
    "batched_cusolver": "torch's own function: cuSOLVER's batched routine",
    "magma": "torch's own function: MAGMA's batched routine",
}
SOLVED_FOR = ("ormqr", "cholesky_solve")  # here for as many columns as the matrices have


def loop_question(question: Question, problem: Problem) -> LoopQuestion:
    """The question in the words of LoopChoice.h; UserError for a problem that must be square."""
    if question.op not in ("geqrf", "orgqr", "ormqr") and problem.m != problem.n:
        raise UserError(f"{question.op} takes square matrices, found {problem.m} x {problem.n}")
    return LoopQuestion(
        question.op,
        question.dtype,
        problem.batch,
        problem.m,
        problem.n,
        nrhs=problem.n if question.op in SOLVED_FOR else 0,
        preference=question.preference,
        lanes=question.facts.lanes,
        magma=question.facts.stock,
        capturing=question.facts.capturing,
    )


def explain(question: Question, problem: Problem, gpu: str | None = None) -> Explanation:
    """The choice for one problem. ``gpu``: a table's .json file; there is one GPU's table only."""
    asked = loop_question(question, problem)
    table = load(Path(gpu)) if gpu is not None and gpu.endswith(".json") else load()
    library = _select.load()
    rival = library.loop_rival(asked)
    chosen = library.loop(asked)
    candidates = tuple(
        _candidate(library, table, asked, rival, backend) for backend in LOOP_BACKENDS
    )
    times = {candidate.backend: candidate.ms for candidate in candidates}
    best = times[chosen]
    return Explanation(
        op=question.op,
        dtype=question.dtype,
        problem=problem,
        preference=question.preference,
        facts=question.facts,
        source=compiled_source(table, NOTE),
        chosen=chosen,
        measured=best is not None,
        candidates=candidates,
        thresholds=compiled_decision(chosen, best, best),
        stock_rule=compiled_decision("stock", times["stock"], best),
        rule=RULES[rival],
    )


def _candidate(
    library: _select.Library, table: LoopTable, asked: LoopQuestion, rival: str, backend: str
) -> Candidate:
    reason = library.loop_infeasible(backend, asked)
    ms = predicting.predict(table, asked, rival, backend)
    basis = Basis.NONE if ms is None else Basis.INTERPOLATED
    return compiled_candidate(backend, reason, ms, basis)
