"""Which back end a problem takes, what each would cost and why: without torch and without a GPU."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from aten_overrides import _device, _select, _stock_rule
from aten_overrides._errors import UserError
from aten_overrides._names import (
    EIGH_OPS,
    LOOP_OPS,
    PREFERENCES,
    dtype_name,
    one_of,
    op_name,
    short_name,
)
from aten_overrides._select import Candidate, Facts, Native, Problem
from aten_overrides.tables import nearest
from aten_overrides.tables.nearest import Used
from aten_overrides.tables.table import CostTable


@dataclass(frozen=True)
class Source:
    """Where the predicted times come from. ``note``: that it is another GPU than the one here, if
    it is, and why its table is used.
    """

    gpu: str
    date: str
    torch: str
    record: str
    path: str
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """What a rule takes; ``ms`` is None if the table cannot tell.

    ``regret``: ms divided by the time of the table's choice, None if either is unknown.
    ``reason``: why the back end cannot run here, empty if it can.
    """

    backend: str
    ms: float | None
    regret: float | None
    reason: str


@dataclass(frozen=True)
class Explanation:
    """The answer for one problem; times in milliseconds, predicted by the table.

    by: what ``thresholds`` tells the choice of. nrhs, transposed: of lu_solve. asked: "solve" or
    "inv", of which this is the first half and ``then`` the second; else empty and None.
    """

    op: str
    dtype: str
    problem: Problem
    preference: str
    facts: Facts
    source: Source
    chosen: str
    measured: bool
    candidates: tuple[Candidate, ...]
    thresholds: Decision
    stock_rule: Decision
    rule: str = _stock_rule.RULE
    by: str = "ATen's thresholds"
    nrhs: int = 0
    transposed: bool = False
    asked: str = ""
    then: Explanation | None = None

    @property
    def ms(self) -> float | None:
        """Predicted time of the chosen back end."""
        return _candidate(self.candidates, self.chosen).ms

    @property
    def whole_ms(self) -> float | None:
        """Predicted time of both halves, or of the only one."""
        rest = 0.0 if self.then is None else self.then.ms
        return None if self.ms is None or rest is None else self.ms + rest


@dataclass(frozen=True)
class GridCell:
    """One cell of ``grid``: the back ends before (stock 2.6) and after (ATen's thresholds)."""

    batch: int
    n: int
    before: str
    after: str
    before_ms: float | None
    after_ms: float | None


def load_table(gpu: str | None = None) -> Used:
    """The table of ``gpu``, a name or .json file, or of ATEN_OVERRIDES_TABLE, or the one nearest to
    the GPU here.
    """
    named = gpu or os.environ.get("ATEN_OVERRIDES_TABLE", "").strip() or None
    return nearest.named(named) if named else nearest.for_gpu(_device.gpu())


def problem_of(shape: Sequence[int], pivot: bool = True) -> Problem:
    """The problem of an input of this shape: (..., m, n), the leading sizes being the batch."""
    sizes = tuple(shape)
    if len(sizes) < 2:
        raise UserError(f"a shape needs at least rows and columns (..., m, n), found {sizes}")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise UserError(f"a shape is made of integers not below 0, found {size!r} in {sizes}")
    return Problem(math.prod(sizes[:-2]), sizes[-2], sizes[-1], pivot)


def facts_of(lanes: int, stock: bool, capturing: bool, native: bool = False) -> Facts:
    """Checked facts. ``lanes``: streams usable at once, 0 or 1 for none."""
    if not 0 <= lanes <= 1024:
        raise UserError(f"lanes must be between 0 (no auxiliary streams) and 1024, found {lanes}")
    return Facts(lanes, stock, capturing, Native.USABLE if native else Native.NOT_BUILT)


def explain(
    op: str,
    shape: Sequence[int],
    dtype: object,
    gpu: str | None = None,
    *,
    prefer: str = "default",
    lanes: int = 4,
    stock: bool = True,
    capturing: bool = False,
    native: bool = True,
    pivot: bool = True,
    nrhs: int | None = None,
    adjoint: bool = False,
) -> Explanation:
    """Explain the choice for ``op`` on an input of ``shape`` and ``dtype``.

    ``gpu`` names a table ("h200") or a .json file; without it the table is that of the GPU here,
    or of the nearest that was measured. ``prefer`` is the preferred linalg library; ``lanes`` the
    streams usable at once; ``stock`` whether MAGMA, or the wheel's own function, may be used;
    ``native`` whether our own kernels are built; ``capturing`` whether the call is captured into a
    CUDA graph; ``pivot`` False for a factorization without row exchanges. Of lu_solve ``shape`` is
    that of the factors for every item, ``nrhs`` (1 if not given) the right-hand sides of each, and
    ``adjoint`` as torch has it. "solve" and "inv" are explained as the factorization, with the
    solution in ``then``. Needs neither torch nor a GPU. UserError says what was asked, what there
    is and what to do.
    """
    if 0 in shape:
        raise UserError(f"an input of shape {tuple(shape)} has no elements: no back end runs")
    from aten_overrides import _explain_solve

    name = short_name(op)
    if name not in _explain_solve.COMPOSED:
        name = op_name(op)
        if name not in (*EIGH_OPS, *LOOP_OPS, "lu_solve"):
            _lu_factor_only(op)
    _check_options(name, nrhs, adjoint, pivot)
    question = Question(
        name,
        dtype_name(dtype),
        one_of("preference", prefer, PREFERENCES),
        facts_of(lanes, stock, capturing, native),
    )
    if name in _explain_solve.COMPOSED:
        return _explain_solve.compose(name, question, problem_of(shape), gpu, nrhs)
    if name == "lu_solve":
        columns, table = 1 if nrhs is None else nrhs, _explain_solve.table_of(gpu)
        return _explain_solve.explain(question, problem_of(shape), columns, adjoint, table)
    if question.op in EIGH_OPS:
        from aten_overrides import _explain_eigh

        return _explain_eigh.explain(question, problem_of(shape), gpu)
    if question.op in LOOP_OPS:
        from aten_overrides import _explain_loops

        return _explain_loops.explain(question, problem_of(shape), gpu)
    return Explainer(gpu).explain(question, problem_of(shape, pivot))


def grid(
    op: str,
    dtype: object,
    batches: Sequence[int],
    sizes: Sequence[int],
    gpu: str | None = None,
    *,
    prefer: str = "default",
    lanes: int = 4,
    stock: bool = True,
    capturing: bool = False,
    native: bool = True,
    pivot: bool = True,
) -> tuple[GridCell, ...]:
    """Back ends before and after over square problems, batch by batch; see ``explain``."""
    question = Question(
        _lu_factor_only(op),
        dtype_name(dtype),
        one_of("preference", prefer, PREFERENCES),
        facts_of(lanes, stock, capturing, native),
    )
    explainer = Explainer(gpu)
    cells = []
    for batch in batches:
        for n in sizes:
            found = explainer.explain(question, problem_of((batch, n, n), pivot))
            before, after = found.stock_rule, found.thresholds
            cells.append(GridCell(batch, n, before.backend, after.backend, before.ms, after.ms))
    return tuple(cells)


@dataclass(frozen=True)
class Question:
    """What is asked, apart from the problem: checked names and facts."""

    op: str
    dtype: str
    preference: str
    facts: Facts


class Explainer:
    """A loaded table that answers any number of questions."""

    def __init__(self, gpu: str | None = None) -> None:
        used = load_table(gpu)
        self.table = used.table
        self.note = used.note
        self._costs = self.table.costs(_select.load())

    def explain(self, question: Question, problem: Problem) -> Explanation:
        """The choice for one problem."""
        if question.op not in self.table.ops():
            raise UserError(
                f"the table {self.table.path} has no measurements of {question.op}; it has "
                f"{', '.join(self.table.ops())}. Name another table with gpu"
            )
        choice = self._costs.choose(question.dtype, problem, question.preference, question.facts)
        best = _candidate(choice.candidates, choice.by_table).ms
        before = _stock_rule.lu_factor(problem, question.preference, question.facts)
        return Explanation(
            op=question.op,
            dtype=question.dtype,
            problem=problem,
            preference=question.preference,
            facts=question.facts,
            source=_source(self.table, self.note),
            chosen=choice.by_table,
            measured=choice.measured,
            candidates=choice.candidates,
            thresholds=_decision(_candidate(choice.candidates, choice.by_thresholds), best),
            stock_rule=_decision(_candidate(choice.candidates, before), best),
        )


def _lu_factor_only(op: str) -> str:
    name = op_name(op)
    if name != "lu_factor":
        raise UserError(
            f"there is no measured choice for {name} yet, only for lu_factor (and what is made of "
            "it: det), and for single problems of lu_solve, solve, inv, eigh, eigvalsh, "
            f"{', '.join(LOOP_OPS)}"
        )
    return name


class _Measured(Protocol):
    """What the tables of eigh, lu_solve and the loops have in common."""

    @property
    def gpu(self) -> str: ...
    @property
    def meta(self) -> Mapping[str, Any]: ...
    @property
    def points(self) -> Sequence[Any]: ...
    @property
    def path(self) -> Path: ...


def compiled_source(table: _Measured, note: str) -> Source:
    """Where the times of a choice come from that was fitted to ``table``; ``note``: how it came
    about.
    """
    meta = table.meta
    return Source(
        table.gpu or "no GPU",
        str(meta.get("date", "never")),
        str(meta.get("torch", "none")),
        str(meta.get("record", "none")),
        str(table.path),
        note if table.points else "nothing has been measured yet",
    )


def compiled_decision(backend: str, ms: float | None, best: float | None) -> Decision:
    """A back end with its predicted milliseconds, and how they stand to the ``best``."""
    return Decision(backend, ms, None if ms is None or best is None else ms / best, "")


def compiled_candidate(
    backend: str, reason: str | None, ms: float | None, basis: _select.Basis
) -> Candidate:
    """A back end of such a choice; ``reason``: why it cannot be taken, None if it can."""
    if reason is None and ms is None:
        return Candidate(backend, True, None, basis, "no time was measured near this size")
    return Candidate(backend, reason is None, ms, basis, reason or "")


def _check_options(name: str, nrhs: int | None, adjoint: bool, pivot: bool) -> None:
    if nrhs is not None and name not in ("lu_solve", "solve", "inv"):
        raise UserError(f"{name} has no right-hand sides; leave nrhs out")
    if adjoint and name != "lu_solve":
        raise UserError(f"adjoint is an option of lu_solve, not of {name}; leave it out")
    if not pivot and name != "lu_factor":
        raise UserError(f"pivot is an option of lu_factor, not of {name}; leave it out")


def _source(table: CostTable, note: str) -> Source:
    meta = table.meta
    names = (meta["date"], meta["torch"], meta["record"])
    return Source(table.gpu.name, *names, str(table.path), note)


def _candidate(candidates: Sequence[Candidate], backend: str) -> Candidate:
    return next(candidate for candidate in candidates if candidate.backend == backend)


def _decision(candidate: Candidate, best: float | None) -> Decision:
    regret = None if candidate.ms is None or best is None else candidate.ms / best
    reason = "" if candidate.allowed else candidate.reason
    return Decision(candidate.backend, candidate.ms, regret, reason)
