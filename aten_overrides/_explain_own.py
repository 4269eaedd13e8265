"""The choice for eigh or lu_solve by a user's own table, or by what is compiled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aten_overrides import _select
from aten_overrides._errors import UserError
from aten_overrides._select import Basis, Rankings
from aten_overrides.tables import own
from aten_overrides.tables.own import Used

Times = dict[str, tuple[float | None, Basis]]


def rankings_of(used: Used) -> tuple[Rankings | None, str]:
    """The rankings of a user's table, None for those compiled in; and why a table was refused,
    empty if it was not.
    """
    if not used.own:
        return None, ""
    try:
        return Rankings(_select.load(), used.op, own.numbers(used.op, used.table)), ""
    except ValueError as error:
        why = f"the rankings of {used.table.path} are refused ({error}), so what is compiled in "
        return None, f"{why}chooses; {used.remedy} makes the table again"


def times_of(
    used: Used,
    backends: Sequence[str],
    predict: Callable[[Any, str], tuple[float | None, Basis]],
) -> tuple[Times, str]:
    """Predicted milliseconds of each back end by the table or, where that has none at all for the
    problem, by the one compiled in; and a note that says so.
    """
    found = {name: predict(used.table, name) for name in backends}
    if not used.own or any(ms is not None for ms, _ in found.values()):
        return found, ""
    package = own.compiled(used.op)
    other = {name: predict(package.table, name) for name in backends}
    if all(ms is None for ms, _ in other.values()):
        return found, ""
    return other, f"times of this size are those of {package.table.gpu}: not measured here"


def note_of(used: Used, *more: str) -> str:
    """All that is to be said about the source."""
    return "; ".join(part for part in (used.source, *used.notes, *more) if part)


def table_for(op: str, gpu: str | None) -> Used:
    """The table to explain by. UserError if one that is named cannot be read."""
    used = own.named(op, gpu)
    if not used.table.points and used.own:
        raise UserError(f"{used.table.path} has no points; {used.remedy} makes it again")
    return used
