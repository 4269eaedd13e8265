"""The choice for the operations that are loops of cuSOLVER calls."""

from __future__ import annotations

import ctypes

from aten_overrides._loops import LoopQuestion
from aten_overrides._names import LOOP_BACKENDS, LOOP_OPS, LOOP_RIVALS
from aten_overrides._select.calls import Calls


class LoopCalls(Calls):
    """Questions about the operations of LOOP_OPS."""

    def loop(self, question: LoopQuestion) -> str:
        """The back end that an operation of LOOP_OPS takes."""
        return LOOP_BACKENDS[self.call("loop_backend", ctypes.byref(question.raw()))]

    def loop_infeasible(self, backend: str, question: LoopQuestion) -> str | None:
        """Why a back end cannot take a problem of LOOP_OPS, or None if it can."""
        number = LOOP_BACKENDS.index(backend)
        return self._text("loop_infeasible", ctypes.byref(question.raw()), number)

    def loop_rival(self, question: LoopQuestion) -> str:
        """What torch's own function does with a problem: one of LOOP_RIVALS."""
        return LOOP_RIVALS[self.call("loop_rival", ctypes.byref(question.raw()))]

    def loop_measured(self, op: str) -> bool:
        """Whether an operation of LOOP_OPS leaves torch's own function anywhere."""
        return bool(self.call("loop_measured", LOOP_OPS.index(op)))

    def loop_backend_names(self) -> tuple[str, ...]:
        """Names of the back ends of LOOP_OPS in the library's own order."""
        return self._names("loop_backend_name")
