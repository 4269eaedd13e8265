"""Facts about each back end, as they were measured or follow from how it works."""

from __future__ import annotations

from dataclasses import dataclass

from aten_overrides._names import LOOP_OPS


@dataclass(frozen=True)
class BackendFacts:
    """``synchronises``: the host waits for the GPU; ``capturable``: in a CUDA graph, and when;
    ``deterministic``: the same bits for the same input; ``workspace``: what a call allocates.
    """

    name: str
    ops: tuple[str, ...]
    what: str
    synchronises: bool
    capturable: str
    deterministic: str
    workspace: str
    needs: str


# Measured on one H200 with torch 2.11.0 (cuBLAS 13.1.0.3, cuSOLVER 12.0.4.66), September 2026.
BACKENDS = (
    BackendFacts(
        name="batched_cublas",
        ops=("lu_factor", "lu_solve", "geqrf"),
        what="one cuBLAS call for up to 65535 matrices (getrfBatched, square only; getrsBatched; "
        "geqrfBatched)",
        synchronises=False,
        capturable="yes",
        deterministic="yes, measured",
        workspace="8 bytes per matrix",
        needs="nothing",
    ),
    BackendFacts(
        name="looped_cusolver",
        ops=("lu_factor", "lu_solve", "eigh", *LOOP_OPS),
        what="one cuSOLVER call per matrix on the current stream",
        synchronises=False,
        capturable="yes",
        deterministic="yes, measured",
        workspace="that of one matrix; lu_factor: and up to 9 bytes per matrix",
        needs="nothing",
    ),
    BackendFacts(
        name="streamed_cusolver",
        ops=("lu_factor", "lu_solve", "eigh", *LOOP_OPS),
        what="the same calls, dealt out to auxiliary streams with a cuSOLVER handle each",
        synchronises=False,
        capturable="once the streams exist: a call before the capture creates them",
        deterministic="the loop's bits, measured",
        workspace="that of one matrix per stream; about 100 MiB per handle, kept",
        needs="memory for the handles (ATEN_OVERRIDES_STREAMS)",
    ),
    BackendFacts(
        name="batched_native",
        ops=("lu_factor", "lu_solve"),
        what="our own kernels for the whole batch; products of large matrices by cuBLAS; lu_solve: "
        "one pass over the factors for a few right-hand sides",
        synchronises=False,
        capturable="yes",
        deterministic="yes, the same bits for the same batch and shape",
        workspace="one, at most 10 % of the input plus 1 MiB",
        needs="a gpu library built with nvcc for this GPU's architecture, and a driver of its CUDA",
    ),
    BackendFacts(
        name="blocked_native",
        ops=("lu_solve",),
        what="our own kernels for diagonal blocks of many right-hand sides, cuBLAS's products "
        "between them",
        synchronises=False,
        capturable="yes",
        deterministic="yes, the same bits for the same batch and shape",
        workspace="4 n bytes per factor",
        needs="a gpu library built with nvcc for this GPU's architecture, and a driver of its CUDA",
    ),
    BackendFacts(
        name="triangular_cublas",
        ops=("lu_solve",),
        what="row exchanges and two triangular solves by cuBLAS (trsm, trsmBatched)",
        synchronises=False,
        capturable="yes",
        deterministic="not measured",
        workspace="16 bytes per matrix and 4 n per factor, or a copy of the right-hand sides "
        "where our kernels are not built",
        needs="nothing",
    ),
    BackendFacts(
        name="batched_cusolver",
        ops=("eigh",),
        what="one XsyevBatched call for up to 16384 matrices",
        synchronises=False,
        capturable="torch's eigh is not: it looks at the error codes on the host",
        deterministic="not measured",
        workspace="up to 1 GiB, or what one matrix needs",
        needs="cuSOLVER 11.7.1 (CUDA 12.6 Update 2)",
    ),
    BackendFacts(
        name="jacobi_batched_cusolver",
        ops=("eigh",),
        what="one syevjBatched call (Jacobi's method) for many matrices of at most 64 rows",
        synchronises=False,
        capturable="not taken in a capture",
        deterministic="not measured",
        workspace="up to 1 GiB, or what one matrix needs",
        needs="nothing",
    ),
    BackendFacts(
        name="stock",
        ops=("lu_factor", "lu_solve", "eigh", *LOOP_OPS),
        what="the wheel's own function; MAGMA's batched LU up to torch 2.14, its own kernel since",
        synchronises=True,
        capturable="not where it is MAGMA",
        deterministic="not measured",
        workspace="the wheel's",
        needs="nothing",
    ),
)
