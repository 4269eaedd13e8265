"""Which back end a problem of lu_solve takes, and why; and both halves of solve and inv."""

from __future__ import annotations

import dataclasses

from aten_overrides import _explain_own, _select
from aten_overrides._errors import UserError
from aten_overrides._explain import (
    Explainer,
    Explanation,
    Question,
    compiled_candidate,
    compiled_decision,
    compiled_source,
)
from aten_overrides._names import LU_SOLVE_BACKENDS
from aten_overrides._select import Candidate, Problem
from aten_overrides.tables.lu_solve import predict as predicting
from aten_overrides.tables.own import Used

RULE = "torch's own function"
RANKING = "the compiled ranking"
OWN_RANKING = "the ranking measured here"
COMPOSED = ("solve", "inv")  # of lu_factor and lu_solve


def explain(
    question: Question,
    problem: Problem,
    nrhs: int,
    transposed: bool,
    used: Used | None = None,
) -> Explanation:
    """The choice for one problem: ``problem`` is the factors' shape, its batch that of the
    right-hand sides, ``nrhs`` how many each has. UserError for factors that are not square.
    """
    if problem.m != problem.n:
        raise UserError(f"{question.op} takes square matrices, found {problem.m} x {problem.n}")
    if isinstance(nrhs, bool) or not isinstance(nrhs, int) or nrhs < 1:
        raise UserError(f"the right-hand sides must be an integer above 0, found {nrhs!r}")
    for size in (problem.batch, problem.n, nrhs):
        if size > 2**63 - 1:
            raise UserError(f"a size must be between 0 and 2^63 - 1, found {size}")
    used = used or _explain_own.table_for("lu_solve", None)
    library = _select.load()
    rankings, refused = _explain_own.rankings_of(used)
    sizes = (problem.batch, problem.n, nrhs)
    settings = (question.dtype, sizes, question.preference, question.facts)
    chosen = library.lu_solve(*settings, transposed=transposed, rankings=rankings)
    told, elsewhere = _explain_own.times_of(
        used,
        LU_SOLVE_BACKENDS,
        lambda table, backend: predicting.predict(
            table, question.dtype, transposed, sizes, backend
        ),
    )
    candidates = []
    for backend in LU_SOLVE_BACKENDS:
        reason = library.lu_solve_rejected(
            backend, *settings, transposed=transposed, rankings=rankings
        )
        candidates.append(compiled_candidate(backend, reason, *told[backend]))
    times = {candidate.backend: candidate.ms for candidate in candidates}
    ms, best = times[chosen], _best(candidates)
    return Explanation(
        op=question.op,
        dtype=question.dtype,
        problem=problem,
        preference=question.preference,
        facts=question.facts,
        source=compiled_source(used.table, _explain_own.note_of(used, refused, elsewhere)),
        chosen=chosen,
        measured=ms is not None,
        candidates=tuple(candidates),
        thresholds=compiled_decision(chosen, ms, best),
        stock_rule=compiled_decision("stock", times["stock"], best),
        rule=RULE,
        by=RANKING if rankings is None else OWN_RANKING,
        nrhs=nrhs,
        transposed=transposed,
    )


def compose(
    op: str, question: Question, problem: Problem, gpu: str | None, nrhs: int | None
) -> Explanation:
    """The factorization that ``op`` ("solve" or "inv") begins with, and in ``then`` its solution.

    A contiguous real A is factored as its transpose, and the transpose is what is solved with.
    """
    if problem.m != problem.n:
        raise UserError(f"{op} takes square matrices, found {problem.m} x {problem.n}")
    if op == "inv" and nrhs is not None:
        raise UserError("inv has as many right-hand sides as rows; leave their number out")
    first = Explainer(gpu).explain(dataclasses.replace(question, op="lu_factor"), problem)
    columns = problem.n if op == "inv" else 1 if nrhs is None else nrhs
    transposed = not question.dtype.startswith("complex")
    second = explain(
        dataclasses.replace(question, op="lu_solve"),
        problem,
        columns,
        transposed,
        table_of(None if gpu is not None and gpu.endswith(".json") else gpu),
    )
    return dataclasses.replace(first, asked=op, then=second)


def table_of(gpu: str | None) -> Used:
    """The table to predict and to choose by: see tables.own.named."""
    return _explain_own.table_for("lu_solve", gpu)


def _best(candidates: list[Candidate]) -> float | None:
    return min((c.ms for c in candidates if c.allowed and c.ms is not None), default=None)
