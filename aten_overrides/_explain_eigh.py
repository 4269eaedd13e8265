"""Which back end a problem of eigh or eigvalsh takes, and why."""

from __future__ import annotations

from pathlib import Path

from aten_overrides import _select
from aten_overrides._errors import UserError
from aten_overrides._explain import Decision, Explanation, Question, Source
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
    meta = table.meta
    return Explanation(
        op=question.op,
        dtype=question.dtype,
        problem=problem,
        preference=question.preference,
        facts=question.facts,
        source=Source(
            table.gpu or "no GPU",
            str(meta.get("date", "never")),
            str(meta.get("torch", "none")),
            str(meta.get("record", "none")),
            str(table.path),
            NOTE if table.points else "nothing has been measured yet",
        ),
        chosen=chosen,
        measured=best is not None,
        candidates=candidates,
        thresholds=Decision(chosen, best, None if best is None else 1.0, ""),
        stock_rule=_stock(times["stock"], best),
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
    if reason is None and ms is None:
        return Candidate(backend, True, None, basis, "no time was measured near this size")
    return Candidate(backend, reason is None, ms, basis, reason or "")


def _stock(ms: float | None, best: float | None) -> Decision:
    return Decision("stock", ms, None if ms is None or best is None else ms / best, "")
