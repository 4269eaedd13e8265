"""Enable and disable the overrides in this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides import _abi, _gpu, _log, _preference
from aten_overrides._errors import UserError
from aten_overrides._names import LOOP_OPS

OPS = tuple(_gpu.ENTRY_BITS)
OPS_MEASURED = ("lu_factor", "lu_solve", "eigh")  # what calibrate measures
# Left to torch from this release on, unless they are named: it has a batched route of its own.
LEFT_SINCE = {"eigh": (2, 12)}
MAX_LANES = 16


@dataclass(frozen=True)
class Status:
    """What enable() did. ``ops`` go through the measured choice by ``table``; ``notes`` say what
    does not hold here and why.
    """

    ops: tuple[str, ...]
    strict: bool
    torch: str
    library: Path
    table: str
    preference: str
    lanes: int
    notes: tuple[str, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()  # of lu_solve and eigh: where theirs come from

    def __str__(self) -> str:
        mode = ", strict" if self.strict else ""
        text = f"{', '.join(self.ops)} overridden in {self.torch}"
        text += f", {self.lanes} streams{mode}, by {self.table}"
        return "\n".join((text, *(f"note: {note}" for note in self.notes)))


class _State:
    lock = threading.RLock()
    library: _gpu.Library | None = None
    facts: _abi.BuildFacts | None = None
    tables: list[object] = []  # what the library may read is never freed  # noqa: RUF012
    table_name = ""
    table_note = ""
    table_of: str | None = None  # the setting that the table belongs to
    rankings: tuple[object, ...] = ()  # the files behind the rankings that the library has
    choices: tuple[tuple[str, str], ...] = ()
    choice_notes: tuple[str, ...] = ()
    status: Status | None = None


def import_torch() -> Any:
    """torch. UserError that says why it cannot be imported."""
    try:
        import torch
    except Exception as error:
        raise UserError(
            f"torch cannot be imported by {sys.executable} ({error}); install a CUDA build of "
            f"torch >= 2.6"
        ) from error
    return torch


def loaded_library() -> _gpu.Library | None:
    """The gpu library if this process has loaded it."""
    return _State.library


def default_ops(release: tuple[int, int], measured: Iterable[str] = ()) -> tuple[str, ...]:
    """The operations that enable() overrides in a torch release unless they are named.

    ``measured``: those of LOOP_OPS for which anything was measured ahead of torch's own function;
    the others stay torch's.
    """
    left = {op for op, since in LEFT_SINCE.items() if release >= since}
    left |= set(LOOP_OPS) - set(measured)
    return tuple(op for op in OPS if op not in left)


def measured_loops(library: _gpu.Library) -> tuple[str, ...]:
    """The operations of LOOP_OPS that the library takes from torch somewhere."""
    return tuple(op for op in LOOP_OPS if library.loop_measured(op))


def _ops_of(only: str | Iterable[str] | None) -> tuple[str, ...]:
    if only is None:
        return OPS
    asked = (only,) if isinstance(only, str) else tuple(only)
    unknown = [name for name in asked if name not in OPS]
    if unknown or not asked:
        raise UserError(
            f"only={', '.join(map(str, unknown)) or 'nothing'}: the operations that can be "
            f"overridden "
            f"are {', '.join(OPS)}"
        )
    return tuple(op for op in OPS if op in asked)


def streams_from_environment() -> tuple[int, int]:
    """(streams per call, MiB for all handles) of ATEN_OVERRIDES_STREAMS=STREAMS[:MIB]; -1: not
    set.
    """
    text = os.environ.get("ATEN_OVERRIDES_STREAMS", "").strip()
    if not text:
        return -1, -1
    lanes, _, memory = text.partition(":")
    if not lanes.isdecimal() or int(lanes) > MAX_LANES or (memory and not memory.isdecimal()):
        raise UserError(
            f"ATEN_OVERRIDES_STREAMS={text}: expected STREAMS or STREAMS:MIB with at most "
            f"{MAX_LANES} "
            "streams, the current one included; 0 turns auxiliary streams off"
        )
    return int(lanes), int(memory) if memory else -1


def stock_kind(torch: Any) -> int:
    """What the wheel's own lu_factor is; see aten_overrides_gpu_stock in csrc/package/gpu/Api.h."""
    if _abi.torch_build(torch).release >= (2, 15):
        return _gpu.STOCK_KERNEL
    return _gpu.STOCK_MAGMA if torch.cuda.has_magma else _gpu.STOCK_LIBRARY


def _load(torch: Any) -> _gpu.Library:
    if _State.library is not None:
        return _State.library
    build = _abi.torch_build(torch)
    if build.cuda is None:
        raise UserError(
            f"{build} cannot run the overrides: they are for NVIDIA GPUs. Install a CUDA build of "
            f"torch >= "
            "2.6; import, explain and info work with this one"
        )
    if build.release < (2, 6):
        raise UserError(f"{build} is too old for the overrides: install torch >= 2.6")
    path, _State.facts = _gpu.find_library(build)
    _State.library = _gpu.Library(path)
    return _State.library


def _set_table(library: _gpu.Library, notes: list[str]) -> None:
    """Give the library the measured table, once per setting; without one it uses ATen's
    thresholds.
    """
    from aten_overrides import _device, _select
    from aten_overrides.tables import nearest

    setting = os.environ.get("ATEN_OVERRIDES_TABLE", "").strip()
    if _State.table_of != setting or not _State.table_name:
        used = nearest.named(setting) if setting else nearest.for_gpu(_device.gpu())
        costs = used.table
        _State.table_note = used.note
        try:
            select = _select.load()
        except UserError as error:
            if setting:
                raise
            notes.append(f"ATen's thresholds choose instead of the measured table: {error}")
            library.call("set_table", None, None)
            _State.table_name = "ATen's thresholds"
            return
        filled = costs.costs(select)
        chooser = ctypes.cast(select._dll.aten_overrides_select_lu_factor, ctypes.c_void_p)
        _State.tables.append((select, filled))
        library.call("set_table", chooser, filled._handle)
        _State.table_name = f"the table of {costs.gpu.name} ({costs.path.name})"
        _State.table_of = setting
    if _State.table_note:
        notes.append(f"the table: {_State.table_note}")


def _changed(path: Path) -> int:
    """When a file was changed, 0 if it has gone meanwhile."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _set_rankings(library: _gpu.Library, torch: Any, notes: list[str]) -> None:
    """Give the library the rankings of lu_solve and eigh that were measured on this GPU, where
    there are any; else those compiled in hold. A file that is wrong is told of and left out.
    """
    from aten_overrides import _device
    from aten_overrides.tables import own

    files = [path for op in own.OPS for path in sorted(own.folder(op).glob("*.json"))]
    key = tuple((path, _changed(path)) for path in files)
    if _State.rankings != key or not _State.choices:
        gpu = _device.gpu()
        told: list[str] = []
        choices = []
        for op in own.OPS:
            used = own.for_gpu(op, gpu)
            told += used.notes
            try:
                library.set_rankings(op, own.numbers(op, used.table) if used.own else None)
                choices.append((op, used.source))
            except (UserError, ValueError, ArithmeticError, LookupError) as error:
                told.append(f"{used.table.path} is not used: {error}; {used.remedy} makes it again")
                library.set_rankings(op, None)
                choices.append((op, own.compiled(op).source))
            if note := own.versions_note(used, str(torch.__version__)):
                told.append(note)
        _State.rankings, _State.choices, _State.choice_notes = key, tuple(choices), tuple(told)
    notes += _State.choice_notes


def _install(
    library: _gpu.Library,
    linalg: Path | None,
    ops: tuple[str, ...],
    named: bool,
    notes: list[str],
) -> tuple[str, ...]:
    """Install the operations and return them. One that this torch has no replaceable function for
    is left out with a note, unless it was ``named``.
    """
    try:
        library.install(linalg, ops)
        return ops
    except UserError as error:
        left = tuple(op for op in ops if op not in _gpu.NO_STUB)
        if named or left == ops:
            raise
        library.install(linalg, left)
        notes.append(str(error))
        return left


def enable(only: str | Iterable[str] | None = None, strict: bool = False) -> Status:
    """Send lu_factor, lu_solve, eigh and the loops of cuSOLVER calls (_names.LOOP_OPS) on CUDA
    tensors, and all that is made of them, through the measured choice of back ends.
    Idempotent; a later call changes the settings.

    ``only``: names of the operations to override; the others are given back. Without it torch 2.12
    and later keep their own eigh, and every torch a loop that nothing was measured ahead of.
    ``strict``: raise
    where a call could not take its first choice. Settings apply to the whole process. UserError,
    with torch left as it was, if there is no gpu library for exactly this torch.
    """
    ops = _ops_of(only)
    lanes, memory = streams_from_environment()
    level = _log.level_from_environment()
    _preference.from_environment()
    torch = import_torch()
    with _State.lock:
        first = _State.status is None
        library = _load(torch)
        if only is None:
            ops = default_ops(_abi.torch_build(torch).release, measured_loops(library))
        linalg = _abi.wheel_linalg(torch)
        # Before all that takes time: other threads may be about to make their first call.
        library.guard(linalg)
        notes: list[str] = []
        try:
            _set_table(library, notes)
            _set_rankings(library, torch, notes)
            library.configure(
                strict=strict, stock=stock_kind(torch), lanes=lanes, memory_mib=memory
            )
            ops = _install(library, linalg, ops, only is not None, notes)
            try:
                _preference.register(torch)
            except UserError as error:
                notes.append(str(error))
            if first:
                _preference.apply_environment(torch, library)
            _log.start(library, level)
        except BaseException:
            if first:
                disable()
            raise
        _State.status = Status(
            ops=ops,
            strict=strict,
            torch=str(_abi.torch_build(torch)),
            library=library.path,
            table=_State.table_name,
            preference=str(_preference.preferred_linalg_library()),
            lanes=library.limits()[0],
            notes=tuple(notes),
            choices=_State.choices,
        )
        return _State.status


def disable() -> None:
    """Give torch its own functions back, exactly those that were there, and forget the settings.

    An entry that someone else has replaced meanwhile is left alone, which is logged.
    """
    with _State.lock:
        library = _State.library
        if library is None:
            return
        changed = library.restore()
        if changed:
            _log.LOGGER.warning("not ours any more, left as found: %s", ", ".join(changed))
        _preference.unregister(import_torch())
        library.configure(strict=False, stock=_gpu.STOCK_LIBRARY)
        _log.stop()
        _State.status = None


def is_enabled() -> bool:
    """Whether a call of an overridable operation would go through us now."""
    return _State.library is not None and bool(_State.library.installed())


@contextlib.contextmanager
def enabled(only: str | Iterable[str] | None = None, strict: bool = False) -> Iterator[Status]:
    """enable() for a block; afterwards the state is what it was before."""
    with _State.lock:
        before = _State.status
    status = enable(only, strict)
    try:
        yield status
    finally:
        if before is None:
            disable()
        else:
            enable(before.ops, before.strict)


def current_status() -> Status | None:
    """The result of the last enable(), None while disabled."""
    return _State.status


def current_facts() -> _abi.BuildFacts | None:
    """Build facts of the loaded library."""
    return _State.facts
