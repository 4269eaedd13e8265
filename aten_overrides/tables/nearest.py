"""The table for a GPU: its own, else that of the nearest GPU that was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from aten_overrides._device import Gpu
from aten_overrides._errors import UserError
from aten_overrides.tables.table import CostTable, files, find, load

WITHOUT_GPU = "nvidia-h200"
COMMAND = "aten-overrides calibrate"


@dataclass(frozen=True)
class Used:
    """A table, and what is to be said about using it here (empty: it was measured on such a
    GPU, or there is none here).
    """

    table: CostTable
    note: str = ""


def distance(one: Gpu, other: Gpu) -> tuple[int, int, float]:
    """How unlike two GPUs are for LU factorization, in the order of importance.

    Another rate of double precision makes a table for float64 worthless; a step of the compute
    capability counts as much as twice the multiprocessors.
    """
    rate = int(one.fp64_ratio != other.fp64_ratio)
    steps = abs(one.capability[0] - other.capability[0])
    sizes = abs(math.log2(max(one.sm_count, 1) / max(other.sm_count, 1)))
    same = int(one.capability != other.capability)
    return rate, same, steps + sizes


def nearest(gpu: Gpu, tables: Iterable[CostTable]) -> CostTable:
    """The table of the nearest GPU; the first of equals."""
    return min(tables, key=lambda table: distance(gpu, table.gpu))


def named(name: str) -> Used:
    """The table that a user names."""
    return Used(load(find(name)))


def _readable() -> tuple[list[CostTable], list[str]]:
    tables, faults = [], []
    for path in files().values():
        try:
            tables.append(load(path))
        except UserError as error:  # a damaged file of the user's must not stop everything
            faults.append(str(error))
    return tables, faults


def for_gpu(gpu: Gpu | None) -> Used:
    """The table to use on ``gpu`` (None: no GPU here, then the H200's, the package's own)."""
    if gpu is None:
        return Used(load(find(WITHOUT_GPU)))
    tables, faults = _readable()
    if not tables:
        raise UserError(f"there is no cost table that can be read: {'; '.join(faults)}")
    own = [table for table in tables if table.gpu.name == gpu.name]
    chosen = own[-1] if own else nearest(gpu, tables)
    notes = [f"left out: {fault}" for fault in faults]
    if not own:
        notes.insert(
            0,
            f"not measured here: this is {_words(gpu)}; of {len(tables)} measured "
            f"GPU{'s' if len(tables) > 1 else ''} the nearest is {_words(chosen.gpu)}. "
            f"Measure: {COMMAND}",
        )
    return Used(chosen, "; ".join(notes))


def _words(gpu: Gpu) -> str:
    return (
        f"{gpu.name} (compute capability {gpu.compute_capability}, {gpu.sm_count} "
        f"multiprocessors, float64 at 1/{gpu.fp64_ratio} of float32)"
    )
