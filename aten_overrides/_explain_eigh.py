"""Which back end a problem of eigh or eigvalsh takes, and why."""

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
from aten_overrides._names import EIGH_BACKENDS
from aten_overrides._select import Candidate, Problem
from aten_overrides.tables.eigh import predict as predicting
from aten_overrides.tables.eigh.table import EighTable, load

RULE = "torch's own function"
NOTE = "the thresholds were fitted to this table, whatever the GPU"


def explain(question: Question, problem: Problem, gpu: str | None = None) -> Explanation:
    """The choice for one problem, with cuSOLVER's XsyevBatched at hand. ``gpu``: a table's .json
    file; there is one GPU's table only. UserError for a problem that is not square.
    """
    if problem.m != problem.n:
        raise UserError(f"{question.op} takes square matrices, found {problem.m} x {problem.n}")
    table = load(Path(gpu)) if gpu is not None and gpu.endswith(".json") else load()
    library = _select.load()
    chosen = library.eigh(question.op, question.dtype, problem, question.preference, question.facts)
    candidates = tuple(
        _candidate(library, table, question, problem, backend) for backend in EIGH_BACKENDS
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
        rule=RULE,
    )


def _candidate(
    library: _select.Library,
    table: EighTable,
    question: Question,
    problem: Problem,
    backend: str,
) -> Candidate:
    reason = library.eigh_infeasible(backend, problem, question.facts)
    ms, basis = predicting.predict(
        table, question.op, question.dtype, problem.batch, problem.n, backend
    )
    return compiled_candidate(backend, reason, ms, basis)
