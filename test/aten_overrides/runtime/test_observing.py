"""Counters, log, profile and strict mode. Without a GPU every call fails after it was observed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]

HEAD = """
import ctypes, json, sys
import torch, aten_overrides as ao
from aten_overrides import _runtime
caller = ctypes.CDLL(sys.argv[1])
def call(function, *arguments):
    text = ctypes.create_string_buffer(2000)
    function(*map(ctypes.c_long, arguments), text, 2000)
    return text.value.decode()
def lu_factor(batch, m, n, pivot=1):
    return call(caller.stub_caller_lu_factor, batch, m, n, pivot)
def lu_solve(batch, n, nrhs):
    return call(caller.stub_caller_lu_solve, batch, n, nrhs)
def counts():
    return {"/".join(key): number for key, number in _runtime.loaded_library().counts().items()}
"""


def test_counters_and_routes_by_preference(python: RunPython, stub_caller: Path) -> None:
    done = python(
        HEAD
        + """
lu_factor(2, 8, 8)
ao.enable()
out = {"start": counts(), "message": lu_factor(2, 8, 8)}
lu_factor(1, 512, 512); lu_factor(1, 512, 512)
lu_factor(0, 8, 8)
out["factor"] = counts()
for name in ("cublas", "cusolver", "magma"):
    ao.preferred_linalg_library(name)
    lu_factor(1, 512, 512); lu_solve(64, 512, 512); lu_solve(2, 100, 1)
    out[name] = counts()
ao.disable()
lu_factor(2, 8, 8)
out["disabled"] = counts() == out["magma"]
print(json.dumps(out))
""",
        str(stub_caller),
    )
    out = json.loads(done.stdout)
    assert out["start"] == {}
    assert "CUDA" in out["message"] or "NVIDIA" in out["message"]
    assert out["factor"] == {"lu_factor/batched_cublas": 1, "lu_factor/looped_cusolver": 2}
    assert out["cublas"] == {
        "lu_factor/batched_cublas": 2,
        "lu_factor/looped_cusolver": 2,
        "lu_solve/batched_cublas": 2,
    }
    assert out["cusolver"] == out["cublas"] | {
        "lu_factor/looped_cusolver": 3,
        "lu_solve/triangular_cublas": 2,  # not getrsBatched with many right-hand sides
    }
    assert out["magma"] == out["cusolver"] | {"lu_factor/stock": 1, "lu_solve/stock": 2}
    assert out["disabled"]


def test_every_call_is_logged_when_asked(python: RunPython, stub_caller: Path) -> None:
    code = HEAD + "ao.enable(); lu_factor(2, 8, 8); lu_solve(2, 8, 3)\n"
    code += "ao.disable(); lu_factor(2, 8, 8)"
    quiet = python(code, str(stub_caller))
    assert quiet.stderr == ""
    loud = python(code, str(stub_caller), ATEN_OVERRIDES_LOG="calls")
    assert loud.stderr.splitlines() == [
        "aten_overrides: lu_factor float32 2 x 8 x 8: batched_cublas",
        "aten_overrides: lu_solve float32 2 x 8 x 8, 3 rhs: triangular_cublas",
    ]


def test_a_user_s_own_logging_gets_the_lines(python: RunPython, stub_caller: Path) -> None:
    done = python(
        HEAD
        + """
import logging
logging.basicConfig(stream=sys.stdout, level=logging.INFO,
format="%(name)s|%(levelname)s|%(message)s")
ao.enable(); lu_factor(2, 8, 8)
""",
        str(stub_caller),
        ATEN_OVERRIDES_LOG="1",
    )
    assert done.stdout == "aten_overrides|INFO|lu_factor float32 2 x 8 x 8: batched_cublas\n"
    assert done.stderr == ""


def test_profile_keeps_calls_and_is_alone(python: RunPython, stub_caller: Path) -> None:
    done = python(
        HEAD
        + """
ao.enable()
lu_factor(2, 8, 8)
with ao.profile() as profile:
    lu_factor(2, 8, 8); lu_factor(3, 8, 8); lu_factor(1, 512, 512); lu_solve(2, 8, 3)
    try:
        ao.profile().__enter__()
    except ao.UserError as error:
        second = str(error)
lu_factor(2, 8, 8)
rows = [[row.op, row.route, row.calls, row.ms, row.reasons] for row in profile.rows()]
with ao.profile() as empty:
    pass
calls = [str(one) for one in profile.calls]
print(json.dumps([second, rows, calls, len(empty.calls), str(profile)]))
""",
        str(stub_caller),
    )
    second, rows, calls, empty, text = json.loads(done.stdout)
    assert second == "another profile() block is open; one at a time"
    assert sorted(row[:3] for row in rows) == [
        ["lu_factor", "batched_cublas", 2],
        ["lu_factor", "looped_cusolver", 1],
        ["lu_solve", "triangular_cublas", 1],
    ]
    assert all(row[3] is None for row in rows)  # no GPU, no time
    assert calls[1] == "lu_factor float32 3 x 8 x 8: batched_cublas"
    assert empty == 0
    assert text.splitlines()[0].split() == [
        "operation",
        "dtype",
        "back",
        "end",
        "calls",
        "ms",
        "reasons",
    ]


def test_threads_are_counted_and_logged_exactly(python: RunPython, stub_caller: Path) -> None:
    done = python(
        HEAD
        + """
import threading
ao.enable()
def work():
    for _ in range(50):
        lu_factor(2, 8, 8)
threads = [threading.Thread(target=work) for _ in range(4)]
with ao.profile() as profile:
    [thread.start() for thread in threads]; [thread.join() for thread in threads]
print(json.dumps([counts(), len(profile.calls), profile.dropped]))
""",
        str(stub_caller),
        ATEN_OVERRIDES_LOG="calls",
    )
    assert json.loads(done.stdout) == [{"lu_factor/batched_cublas": 200}, 200, 0]
    assert len(done.stderr.splitlines()) == 200
