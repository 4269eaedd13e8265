"""Names of operations, dtypes, back ends and preferences.

The position of a name is its value in ``csrc/package/select/Choice.h``; new names are appended
only.
"""

from __future__ import annotations

from collections.abc import Sequence

from aten_overrides._errors import UserError

OPS = (
    "lu_factor",
    "lu_solve",
    "geqrf",
    "gels",
    "eigh",
    "eigvalsh",
    "orgqr",
    "ormqr",
    "cholesky",
    "cholesky_solve",
    "cholesky_inverse",
    "ldl_factor",
)
DTYPES = ("float32", "float64", "complex64", "complex128")
BACKENDS = ("batched_cublas", "looped_cusolver", "streamed_cusolver", "stock", "batched_native")
# Of csrc/linalg/EighBackend.h; eigvalsh is eigh without eigenvectors.
EIGH_OPS = ("eigh", "eigvalsh")
EIGH_BACKENDS = (
    "batched_cusolver",
    "jacobi_batched_cusolver",
    "looped_cusolver",
    "streamed_cusolver",
    "stock",
)
# Of csrc/package/select/LuSolveBackend.h.
LU_SOLVE_BACKENDS = (
    "batched_native",
    "blocked_native",
    "batched_cublas",
    "triangular_cublas",
    "looped_cusolver",
    "streamed_cusolver",
    "stock",
)
# Of csrc/package/select/LoopBackend.h, in the order of its Op, Backend and Rival.
LOOP_OPS = (
    "geqrf",
    "orgqr",
    "ormqr",
    "cholesky",
    "cholesky_solve",
    "cholesky_inverse",
    "ldl_factor",
)
LOOP_BACKENDS = ("looped_cusolver", "streamed_cusolver", "batched_cublas", "stock")
LOOP_RIVALS = ("loop", "batched_cublas", "batched_cusolver", "magma")
PREFERENCES = ("default", "cusolver", "magma", "cublas", "native")

# Operations that have no function of their own in a linalg library.
MADE_OF = {
    "lu": "lu_factor",
    "solve": "lu_factor and lu_solve",
    "inv": "lu_factor and lu_solve",
    "det": "lu_factor",
    "slogdet": "lu_factor",
    "logdet": "lu_factor",
    "qr": "geqrf and orgqr",
}

_DTYPE_ALIASES = {
    "float": "float32",
    "double": "float64",
    "cfloat": "complex64",
    "cdouble": "complex128",
}


def one_of(what: str, value: str, names: Sequence[str]) -> str:
    """Return ``value`` if it is among ``names``; else raise a UserError that lists them."""
    if value not in names:
        raise UserError(f"there is no {what} {value!r}; known are {', '.join(names)}")
    return value


def dtype_name(dtype: object) -> str:
    """Standard name of a dtype given as a name or as torch's object, e.g. ``torch.float32``."""
    name = str(dtype).removeprefix("torch.")
    return one_of("dtype", _DTYPE_ALIASES.get(name, name), DTYPES)


def short_name(op: str) -> str:
    """``torch.linalg.solve_ex`` -> ``solve``; of any operation, known or not."""
    return op.removeprefix("torch.").removeprefix("linalg.").removesuffix("_ex")


def op_name(op: str) -> str:
    """Standard name of an operation, also of ``lu_factor_ex`` and ``linalg.lu_factor``."""
    name = short_name(op)
    if name in MADE_OF:
        raise UserError(f"{name} has no back ends of its own: it is made of {MADE_OF[name]}")
    return one_of("operation", name, OPS)
