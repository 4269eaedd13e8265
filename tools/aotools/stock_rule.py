"""How PyTorch 2.6.0 to 2.12 choose the back end of lu_factor on NVIDIA GPUs.

A restatement of `lu_factor` in aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp at v2.6.0,
for tables of before and after; a test compares its conditions with that source.
"""

from __future__ import annotations

# The conditions as the source writes them, for the test.
LOOPED = "if (m != n || (looped_correct && (batch_size == 1 || m >= 512)))"
NOT_MAGMA = "if (m == n && (batch_size == 1 || m <= 16 || (m <= 128 && batch_size <= 16)))"


def known_for(version: str) -> bool:
    """Whether this is the rule of torch `version` ("2.6.0"); 2.13 brought another."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return (2, 6) <= (major, minor) <= (2, 12)


def lu_factor(batch: int, m: int, n: int, preference: str, *, magma: bool) -> str:
    """The back end of stock `lu_factor`: "batched_cublas", "looped_cusolver" or "stock" (MAGMA).

    `preference` is "default" or "cusolver"; ValueError for another.
    """
    if preference not in ("default", "cusolver"):
        raise ValueError(f"no rule is known here for preference {preference!r}")
    square_enough = m == n and (batch == 1 or m <= 16 or (m <= 128 and batch <= 16))
    if preference == "default" and magma and not square_enough:
        return "stock"
    if m != n or batch == 1 or m >= 512:
        return "looped_cusolver"
    return "batched_cublas"
