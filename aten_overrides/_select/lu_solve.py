"""The choice for lu_solve: by the rankings compiled in, or by a user's own."""

from __future__ import annotations

from aten_overrides._names import DTYPES, LU_SOLVE_BACKENDS, PREFERENCES
from aten_overrides._select.calls import Calls
from aten_overrides._select.facts import Facts, unpack_facts
from aten_overrides._select.rankings import Rankings, handle_of


def _numbers(
    dtype: str,
    sizes: tuple[int, int, int],
    way: tuple[bool, bool],
    preference: str,
    facts: Facts,
    most_rows: int,
) -> tuple[int, ...]:
    """A question as the library's arguments; ``way``: transposed, regular."""
    asked = (*way, PREFERENCES.index(preference), *unpack_facts(facts), most_rows)
    return (DTYPES.index(dtype), *sizes, *asked)


class LuSolveCalls(Calls):
    """Questions about lu_solve."""

    def lu_solve(
        self,
        dtype: str,
        sizes: tuple[int, int, int],
        preference: str,
        facts: Facts,
        *,
        transposed: bool = False,
        regular: bool = True,
        most_rows: int = 8192,
        rankings: Rankings | None = None,
    ) -> str:
        """The back end that lu_solve takes for (batch, n, right-hand sides); ``regular``: factor
        item % (number of factors) serves item; ``most_rows``: up to which our kernels have room;
        ``rankings``: in place of those compiled in.
        """
        way = (transposed, regular)
        given = _numbers(dtype, sizes, way, preference, facts, most_rows)
        return LU_SOLVE_BACKENDS[self.call("lu_solve", handle_of(rankings), *given)]

    def lu_solve_rejected(
        self,
        backend: str,
        dtype: str,
        sizes: tuple[int, int, int],
        preference: str,
        facts: Facts,
        *,
        transposed: bool = False,
        regular: bool = True,
        most_rows: int = 8192,
        rankings: Rankings | None = None,
    ) -> str | None:
        """Why ``lu_solve`` leaves a back end out of account; None if it does not."""
        way = (transposed, regular)
        given = _numbers(dtype, sizes, way, preference, facts, most_rows)
        number = LU_SOLVE_BACKENDS.index(backend)
        return self._text("lu_solve_rejected", handle_of(rankings), number, *given)

    def lu_solve_backend_names(self) -> tuple[str, ...]:
        """Names of lu_solve's back ends in the library's own order."""
        return self._names("lu_solve_backend_name")
