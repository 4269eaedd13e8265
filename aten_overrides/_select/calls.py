"""The functions of the select library through ctypes."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError
from aten_overrides._loops import RawLoop
from aten_overrides._names import BACKENDS

LIBRARY = "aten_overrides_select"


class _Candidate(ctypes.Structure):
    _fields_ = (
        ("ms", ctypes.c_double),
        ("reason", ctypes.c_char_p),
        ("allowed", ctypes.c_int32),
        ("basis", ctypes.c_int32),
    )


class Report(ctypes.Structure):
    _fields_ = (
        ("candidates", _Candidate * len(BACKENDS)),
        ("by_table", ctypes.c_int32),
        ("by_thresholds", ctypes.c_int32),
        ("measured", ctypes.c_int32),
    )


_I32, _I64 = ctypes.c_int32, ctypes.c_int64
_PROBLEM = (_I64, _I64, _I64, _I32)
_FACTS = (_I32, _I32, _I32, _I32)
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "table_new": (ctypes.c_void_p, (_I32,)),
    "table_free": (None, (ctypes.c_void_p,)),
    "table_add": (
        _I32,
        (ctypes.c_void_p, _I32, _I32, _I32, *_PROBLEM, ctypes.c_double, ctypes.c_char_p, _I32),
    ),
    "table_finish": (_I32, (ctypes.c_void_p,)),
    "table_predict": (
        _I32,
        (ctypes.c_void_p, _I32, _I32, _I32, *_PROBLEM, ctypes.POINTER(ctypes.c_double)),
    ),
    "lu_factor": (
        _I32,
        (ctypes.c_void_p, _I32, *_PROBLEM, _I32, *_FACTS, ctypes.POINTER(Report)),
    ),
    "lu_factor_by_thresholds": (_I32, (_I32, *_PROBLEM, _I32, *_FACTS)),
    "infeasible": (ctypes.c_char_p, (_I32, _I32, _I32, *_PROBLEM, *_FACTS)),
    "backend_name": (ctypes.c_char_p, (_I32,)),
    "rankings_new": (
        ctypes.c_void_p,
        (_I32, ctypes.POINTER(_I64), _I64, ctypes.c_char_p, _I32),
    ),
    "rankings_free": (None, (ctypes.c_void_p,)),
    "eigh": (_I32, (ctypes.c_void_p, _I32, _I64, _I64, *(_I32,) * 6)),
    "eigh_infeasible": (ctypes.c_char_p, (_I32, _I64, _I64, *(_I32,) * 5)),
    "eigh_per_call": (_I64, (_I32, _I64, _I64)),
    "eigh_backend_name": (ctypes.c_char_p, (_I32,)),
    "lu_solve": (_I32, (ctypes.c_void_p, _I32, _I64, _I64, _I64, *(_I32,) * 7, _I64)),
    "lu_solve_rejected": (
        ctypes.c_char_p,
        (ctypes.c_void_p, _I32, _I32, _I64, _I64, _I64, *(_I32,) * 7, _I64),
    ),
    "lu_solve_backend_name": (ctypes.c_char_p, (_I32,)),
    "loop_backend": (_I32, (ctypes.POINTER(RawLoop),)),
    "loop_infeasible": (ctypes.c_char_p, (ctypes.POINTER(RawLoop), _I32)),
    "loop_rival": (_I32, (ctypes.POINTER(RawLoop),)),
    "loop_measured": (_I32, (_I32,)),
    "loop_backend_name": (ctypes.c_char_p, (_I32,)),
}


class Calls:
    """A loaded library: its functions by name, as far as it has them."""

    def __init__(self, path: Path) -> None:
        self._functions: dict[str, Any] = {}
        try:
            self._dll = ctypes.CDLL(str(path))
        except OSError as error:
            raise UserError(
                f"the select library {path} cannot be loaded: {error}; remove the file to have it "
                "built again"
            ) from error
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._dll, f"{LIBRARY}_{name}", None)
            if function is not None:
                function.restype = result
                function.argtypes = list(arguments)
                self._functions[name] = function
        there = self._names("backend_name") if "backend_name" in self._functions else BACKENDS
        if there != BACKENDS:
            raise UserError(
                f"the select library {path} is of another version: it knows the back ends "
                f"{', '.join(there)}, and this package {', '.join(BACKENDS)}; remove the file to "
                "have it built again"
            )

    def call(self, name: str, *arguments: object) -> Any:
        """Call the library's function of this name."""
        return self._functions[name](*arguments)

    def _text(self, name: str, *arguments: object) -> str | None:
        """What a function that gives a text says, None if it gives none."""
        said = self.call(name, *arguments)
        return None if said is None else str(said.decode())

    def _names(self, function: str) -> tuple[str, ...]:
        """What the function says for 0, 1, ... up to the first number without a name."""
        names: list[str] = []
        while (name := self._text(function, len(names))) is not None:
            names.append(name)
        return tuple(names)
