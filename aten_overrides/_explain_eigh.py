"""Which back end a problem of eigh or eigvalsh takes, and why."""

from __future__ import annotations

from aten_overrides import _explain_own, _select
from aten_overrides._errors import UserError
from aten_overrides._explain import (
    Explanation,
    Question,
    compiled_candidate,
    compiled_decision,
    compiled_source,
)
from aten_overrides._names import EIGH_BACKENDS
from aten_overrides._select import Problem
from aten_overrides.tables.eigh import predict as predicting

RULE = "torch's own function"


def explain(question: Question, problem: Problem, gpu: str | None = None) -> Explanation:
    """The choice for one problem, with cuSOLVER's XsyevBatched at hand. ``gpu``: a table's .json
    file or a GPU's name; without it the user's own table for the GPU here, else what is compiled
    in. UserError for a problem that is not square.
    """
    if problem.m != problem.n:
        raise UserError(f"{question.op} takes square matrices, found {problem.m} x {problem.n}")
    used = _explain_own.table_for("eigh", gpu)
    library = _select.load()
    rankings, refused = _explain_own.rankings_of(used)
    chosen = library.eigh(
        question.op,
        question.dtype,
        problem,
        question.preference,
        question.facts,
        rankings=rankings,
    )
    told, elsewhere = _explain_own.times_of(
        used,
        EIGH_BACKENDS,
        lambda table, backend: predicting.predict(
            table, question.op, question.dtype, problem.batch, problem.n, backend
        ),
    )
    candidates = tuple(
        compiled_candidate(
            backend, library.eigh_infeasible(backend, problem, question.facts), *told[backend]
        )
        for backend in EIGH_BACKENDS
    )
    times = {candidate.backend: candidate.ms for candidate in candidates}
    best = times[chosen]
    return Explanation(
        op=question.op,
        dtype=question.dtype,
        problem=problem,
        preference=question.preference,
        facts=question.facts,
        source=compiled_source(used.table, _explain_own.note_of(used, refused, elsewhere)),
        chosen=chosen,
        measured=best is not None,
        candidates=candidates,
        thresholds=compiled_decision(chosen, best, best),
        stock_rule=compiled_decision("stock", times["stock"], best),
        rule=RULE,
    )
