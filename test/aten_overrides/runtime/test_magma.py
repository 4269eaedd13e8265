"""Where MAGMA fails: the matrices as they were, another route, one warning, one line of the log.

A stand-in takes the place of the wheel's functions and fails as MAGMA does, on CPU tensors. What
comes after it fails for want of a GPU, but which route that was is counted.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheel

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]

HEAD = """
import ctypes, json, sys
import torch, aten_overrides as ao
from aten_overrides import _runtime, _select
stand_in = ctypes.CDLL(sys.argv[1])
GOOD, RAISES, NO_MEMORY, SINGULAR, OTHER = range(5)

def call(op, *sizes):
    text = ctypes.create_string_buffer(2000)
    getattr(stand_in, "magma_stand_in_" + op)(*map(ctypes.c_long, sizes), text, 2000)
    calls, state, message = text.value.decode().split("|", 2)
    return {"calls": int(calls), "state": state, "message": message}

def taken():
    now = _runtime.loaded_library().counts()
    new = {"/".join(key): now[key] - taken.before.get(key, 0) for key in now}
    taken.before = now
    return {key: number for key, number in new.items() if number}
taken.before = {}

# A table that is for MAGMA wherever it may be taken.
@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, *[ctypes.c_int64] * 3,
                  *[ctypes.c_int32] * 6, ctypes.POINTER(_select.Report))
def chooser(table, dtype, batch, m, n, pivot, preference, lanes, stock, capturing, native, report):
    report.contents.by_table = 3 if stock and not capturing else 1
    return 0

def enable(**given):
    status = ao.enable(**given)
    _runtime.loaded_library().call("set_table", ctypes.cast(chooser, ctypes.c_void_p), None)
    return status

call("lu_factor", 2, 3, 3)  # loads the wheel's library
stand_in.magma_stand_in_install()
torch.cuda.has_magma = True
"""


Outcome = Callable[..., tuple[Any, list[str], list[str]]]


@pytest.fixture
def outcome(python: RunPython, magma_stand_in: Path, cuda_stand_in: Path) -> Outcome:
    """What a process with both stand-ins prints as JSON, its warnings and its log. torch's own
    calls make Python's warnings of those, direct ones lines of standard error.
    """

    def run(code: str, **more: str) -> tuple[Any, list[str], list[str]]:
        more |= {"LD_PRELOAD": str(cuda_stand_in)}
        lines = (done := python(HEAD + code, str(magma_stand_in), **more)).stderr.splitlines()
        warned = [line.partition("Warning: ")[2] for line in lines if "Warning: linalg" in line]
        return json.loads(done.stdout), warned, [line for line in lines if "Warning: " not in line]

    return run


ONCE = """
enable()
stand_in.magma_stand_in_ends({ending})
found = call("lu_factor", 4, 40, 20)
first = taken()
again = call("lu_factor", 4, 40, 20)
print(json.dumps([found, first, again, taken()]))
"""


def test_a_good_call_is_left_alone(outcome: Outcome) -> None:
    (found, routes, again, later), warned, log = outcome(ONCE.format(ending="GOOD"))
    assert found == {"calls": 1, "state": "by the stand-in", "message": ""}
    assert again["calls"] == 2 and routes == later == {"lu_factor/stock": 1}
    assert not warned and not log


@pytest.mark.parametrize("ending", ["RAISES", "OTHER"])
def test_after_an_error_another_route_gets_the_matrices_as_they_were(
    outcome: Outcome, ending: str
) -> None:
    (found, routes, again, later), warned, log = outcome(ONCE.format(ending=ending))
    assert found["calls"] == 1 and found["state"] == "as before"
    assert found["message"].startswith("cusolver error"), found  # the other route's own: no GPU
    assert routes == {"lu_factor/stock": 1, "lu_factor/looped_cusolver": 1}
    said = "not torch's kind"
    if ending == "RAISES":
        said = "CUDA error: invalid configuration argument"
    assert len(warned) == 1
    assert f"linalg.lu_factor: MAGMA failed for 4 matrices 40 x 20 ({said});" in warned[0]
    assert "MAGMA is not chosen any more in this process" in warned[0]
    assert log == [
        "lu_factor float32 4 x 40 x 20: looped_cusolver instead of stock: MAGMA raised an error, "
        "which was shown as a warning"
    ]
    # A call that failed is not followed by one that passes with wrong numbers (upstream 21643).
    assert again["calls"] == 1 and later == {"lu_factor/looped_cusolver": 1}


def test_want_of_memory_does_not_retire_it(outcome: Outcome) -> None:
    (found, routes, again, later), warned, log = outcome(ONCE.format(ending="NO_MEMORY"))
    assert found["state"] == again["state"] == "as before" and again["calls"] == 2
    assert routes == later == {"lu_factor/stock": 1, "lu_factor/looped_cusolver": 1}
    assert len(warned) == 2 and not any("any more" in text for text in warned)
    assert len(log) == 1 and "MAGMA had too little memory" in log[0]  # told once


def test_matrices_with_a_zero_pivot_are_factored_again(outcome: Outcome) -> None:
    (found, routes, *_), warned, log = outcome(ONCE.format(ending="SINGULAR"))
    assert routes == {"lu_factor/stock": 1, "lu_factor/looped_cusolver": 1}
    assert found["message"].startswith("cusolver error"), found
    assert not warned and not log  # no fallback: strict mode accepts it


def test_a_device_that_stays_unusable_is_said_so(outcome: Outcome) -> None:
    (found, routes, *_), warned, _ = outcome(
        ONCE.format(ending="RAISES"), CUDA_STAND_IN_ERROR="700"
    )
    assert routes == {"lu_factor/stock": 1} and not warned
    assert (
        "(CUDA error: invalid configuration argument) and left the GPU unusable"
        in (found["message"])
    )
    assert "Start it again without MAGMA: " in found["message"]


def test_in_a_capture_it_is_not_tried(outcome: Outcome) -> None:
    (found, routes, *_), _, log = outcome(ONCE.format(ending="RAISES"), CUDA_STAND_IN_CAPTURES="1")
    assert found["calls"] == 0 and "lu_factor/stock" not in routes
    assert len(log) == 1 and "which a CUDA graph capture forbids" in log[0]


def test_enable_allows_it_again_and_strict_mode_raises(outcome: Outcome) -> None:
    code = """
enable()
stand_in.magma_stand_in_ends(RAISES)
call("lu_factor", 4, 40, 20)
enable(strict=True)
taken()
found = call("lu_factor", 4, 40, 20)
print(json.dumps([found, taken()]))
"""
    (found, routes), _, _ = outcome(code)
    assert found["calls"] == 2 and found["state"] == "as before"
    assert routes == {"lu_factor/stock": 1}
    assert found["message"].startswith(
        "aten_overrides, strict: lu_factor of 4 matrices 40 x 20 was to run on stock, which is not "
        "possible here (MAGMA raised an error"
    )


def test_what_is_not_magma_s_or_was_asked_for_is_as_without_us(outcome: Outcome) -> None:
    """A forced route, the preference for MAGMA, and shapes that stock gives to cuSOLVER."""
    code = """
enable()
stand_in.magma_stand_in_ends(RAISES)
library = _runtime.loaded_library()
out = {}
library.force_route("lu_factor", "stock"); out["forced"] = call("lu_factor", 4, 40, 20)
library.force_route("lu_factor", None)
out["small and square"] = call("lu_factor", 4, 40, 40)
ao.preferred_linalg_library("magma"); out["preferred"] = call("lu_factor", 4, 40, 20)
print(json.dumps([out, taken()]))
"""
    (found, routes), warned, _ = outcome(code)
    for name, one in found.items():
        assert one["state"] == "by the stand-in", name
        assert one["message"].startswith("CUDA error: invalid configuration argument"), name
    assert routes == {"lu_factor/stock": 3} and not warned


def test_shapes_that_magma_may_not_be_given_do_not_reach_it(outcome: Outcome) -> None:
    code = """
enable()
library = _runtime.loaded_library()
def route(batch, m, n):
    return library.lu_factor_route("float32", batch, m, n)
out = {str(shape): route(*shape) for shape in (
    (4, 40, 20), (65536, 40, 20), (2, 46340, 46341), (2, 46341, 46341), (2, 2**31, 1),
    (2, 1, 2**31 - 1), (2, 3, 2**30))}
stand_in.magma_stand_in_ends(RAISES)
empty = call("lu_factor", 0, 4, 4)
print(json.dumps([out, empty, taken()]))
"""
    (routes, empty, counts), _, _ = outcome(code)
    assert routes == {
        "(4, 40, 20)": "stock",
        "(65536, 40, 20)": "stock",  # in parts
        "(2, 46340, 46341)": "stock",
        "(2, 46341, 46341)": "looped_cusolver",
        "(2, 2147483648, 1)": "looped_cusolver",
        "(2, 1, 2147483647)": "stock",
        "(2, 3, 1073741824)": "looped_cusolver",
    }
    assert empty == {"calls": 0, "state": "as before", "message": ""} and not counts


def test_lu_solve_goes_on_by_another_route(outcome: Outcome) -> None:
    """Without our kernels, where factors are shared in a pattern that few back ends take."""
    code = """
enable()
stand_in.magma_stand_in_ends(RAISES)
found = call("lu_solve", 513, 64); first = taken()
again = call("lu_solve", 513, 64); later = taken()
small = call("lu_solve", 300, 64)
print(json.dumps([found, first, again, later, small, taken()]))
"""
    (found, routes, again, later, small, left), warned, log = outcome(code)
    assert found["state"] == "as before" and found["calls"] == 1
    assert routes == {"lu_solve/stock": 1, "lu_solve/batched_cublas": 1}
    assert len(warned) == 1
    assert "linalg.lu_solve: MAGMA failed for 36 matrices 513 x 64 (" in warned[0]
    assert len(log) == 1 and "instead of stock: MAGMA raised an error" in log[0]
    assert again["calls"] == 1 and later == {"lu_solve/batched_cublas": 1}
    # Not one of those that go to MAGMA: stock's error, and stock it stays.
    assert small["calls"] == 2 and small["message"].startswith("CUDA error: invalid")
    assert left == {"lu_solve/stock": 1}
