"""The choice for eigh and eigvalsh: by the thresholds compiled in, or by a user's rankings."""

from __future__ import annotations

from aten_overrides._names import DTYPES, EIGH_BACKENDS, EIGH_OPS, PREFERENCES
from aten_overrides._select.calls import Calls
from aten_overrides._select.facts import Facts, Problem, unpack
from aten_overrides._select.rankings import Rankings, handle_of


class EighCalls(Calls):
    """Questions about eigh and eigvalsh."""

    def eigh(
        self,
        op: str,
        dtype: str,
        problem: Problem,
        preference: str,
        facts: Facts,
        batched: bool = True,
        rankings: Rankings | None = None,
    ) -> str:
        """The back end that eigh or eigvalsh takes; ``batched``: cuSOLVER has XsyevBatched;
        ``rankings``: in place of those compiled in.
        """
        batch, _, n, _ = unpack(problem)
        chosen = self.call(
            "eigh",
            handle_of(rankings),
            DTYPES.index(dtype),
            batch,
            n,
            op == EIGH_OPS[0],
            PREFERENCES.index(preference),
            facts.lanes,
            batched,
            facts.stock,
            facts.capturing,
        )
        return EIGH_BACKENDS[chosen]

    def eigh_infeasible(
        self, backend: str, problem: Problem, facts: Facts, batched: bool = True
    ) -> str | None:
        """Why a back end cannot take a problem of eigh or eigvalsh, or None if it can."""
        batch, _, n, _ = unpack(problem)
        number = EIGH_BACKENDS.index(backend)
        given = (True, facts.lanes, batched, facts.stock, facts.capturing)
        return self._text("eigh_infeasible", number, batch, n, *given)

    def eigh_per_call(self, backend: str, batch: int, n: int) -> int:
        """How many matrices one call of a batched routine gets."""
        return int(self.call("eigh_per_call", EIGH_BACKENDS.index(backend), batch, n))

    def eigh_backend_names(self) -> tuple[str, ...]:
        """Names of eigh's back ends in the library's own order."""
        return self._names("eigh_backend_name")
