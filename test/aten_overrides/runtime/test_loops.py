"""QR, Cholesky and LDL on stock wheels without a GPU: which function is behind each entry, that a
call reaches ours, and the choice in the library.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from wheel_process import build_cache, run

from aotools import env
from aten_overrides._names import LOOP_OPS

pytestmark = pytest.mark.wheel

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]

HEAD = """
import ctypes, json, os, random, sys, torch, aten_overrides
from aten_overrides import _gpu, _runtime, _select
from aten_overrides._errors import UserError
from aten_overrides._loops import LoopQuestion
from aten_overrides._names import DTYPES, LOOP_OPS
def files():
    return {entry.name: os.path.basename(entry.current) for entry in library.entries()}
def counts():
    return {f"{op} {route}": n for (op, route), n in library.counts().items() if op in LOOP_OPS}
def solve():
    try:
        torch.ops.aten._cholesky_solve_helper.default._op_dk(
            torch._C.DispatchKey.CUDA, torch.eye(70).repeat(2, 1, 1), torch.eye(70).repeat(2, 1, 1),
            False)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""
"""

ENTRIES = (
    HEAD
    + """
status = aten_overrides.enable(only=LOOP_OPS)
library = _runtime.loaded_library()
out = {"ops": status.ops, "enabled": files(), "installed": library.installed()}
library.force_route("cholesky_solve", "stock")  # the choice would ask the driver for a capture
out["solve"] = [solve(), counts().get("cholesky_solve stock", 0)]
aten_overrides.enable(only="orgqr")
out["only"] = files()
out["solve without"] = [solve(), counts().get("cholesky_solve stock", 0)]
aten_overrides.enable(only="cholesky_solve")
out["back"] = library.installed()
library.force_route("cholesky_solve", "looped_cusolver")
out["looped"] = [solve(), counts().get("cholesky_solve looped_cusolver", 0)]
aten_overrides.disable()
out["restored"] = [files(), library.installed()]
out["solve after"] = [solve(), sum(counts().values())]
random.seed(5)
select = _select.load()
wrong = []
for _ in range(3000):
    n = int(2 ** random.uniform(0, 12))
    asked = LoopQuestion(
        random.choice(LOOP_OPS), random.choice(DTYPES), int(2 ** random.uniform(0, 10)),
        n if random.random() < 0.7 else 2 * n, n, int(2 ** random.uniform(0, 11)),
        hermitian=random.random() < 0.5, preference=random.choice(("default", "cusolver", "cublas",
        "magma", "native")), lanes=random.choice((0, 2, 4)), magma=random.random() < 0.5,
        capturing=random.random() < 0.3, deterministic=random.random() < 0.3)
    if library.loop_route(asked) != select.loop(asked):
        wrong.append(str(asked))
out["wrong"] = wrong[:3]
out["measured"] = [op for op in LOOP_OPS if library.loop_measured(op) != select.loop_measured(op)]
print(json.dumps(out))
"""
)


@pytest.mark.parametrize("version", ["2.6.0", "2.11.0"])
def test_entries_are_ours_and_given_back(version: str) -> None:
    tree = env.wheel_tree(version, download=False)
    done = run(tree, build_cache(tree, version), ENTRIES)
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert set(out["ops"]) == set(out["installed"]) == set(LOOP_OPS)
    ours = {name for name, file in out["enabled"].items() if file == "libaten_overrides_gpu.so"}
    assert ours == set(LOOP_OPS) - {"cholesky_solve"}
    only = {name for name, file in out["only"].items() if file == "libaten_overrides_gpu.so"}
    assert only == {"orgqr"}
    error, count = out["solve"]
    assert "CUDA" in error or "NVIDIA" in error
    assert count == 1  # ours was called, and called the wheel's
    assert out["solve without"] == [error, 1]  # the wheel's again
    assert out["back"] == ["cholesky_solve"]
    assert out["looped"][1] == 1 and out["looped"][0]
    assert set(out["restored"][0].values()) == {"libtorch_cuda_linalg.so"}
    assert out["restored"][1] == []
    assert out["solve after"] == [error, 2]
    assert out["wrong"] == [] and out["measured"] == []


def test_calls_reach_our_functions(python: RunPython, stub_caller: Path) -> None:
    """They fail for want of a driver, in our route: the control is the same call without it."""
    done = python(
        HEAD
        + """
caller = ctypes.CDLL(sys.argv[1])
def call(name, n=70):
    text = ctypes.create_string_buffer(2000)
    code = caller.stub_caller_loop(name.encode(), ctypes.c_long(3), ctypes.c_long(n), text, 2000)
    assert code == 0
    return text.value.decode()
stubs = [op for op in LOOP_OPS if op not in _gpu.NO_STUB]
out = {"without": [call(op) for op in stubs]}
aten_overrides.enable(only=LOOP_OPS)
library = _runtime.loaded_library()
out["before"] = counts()
for op in stubs:
    for route in ("looped_cusolver", "streamed_cusolver", "stock", "batched_cublas"):
        library.force_route(op, route)
        out[f"{op} {route}"] = call(op)
    library.force_route(op, None)
out["counts"] = counts()
empty = call("geqrf", 0)
out["empty"] = counts() == out["counts"]
print(json.dumps(out))
""",
        str(stub_caller),
    )
    out = json.loads(done.stdout)
    assert out.pop("before") == {} and out.pop("empty")
    counted = out.pop("counts")
    assert all("NVIDIA" in text or "CUDA" in text for text in out.pop("without"))
    for name, text in out.items():
        assert "NVIDIA" in text or "CUDA" in text, name
    for op in LOOP_OPS:
        if op == "cholesky_solve":
            continue
        assert counted[f"{op} looped_cusolver"] >= 1
        # Streams fail before the call is counted, when the device is asked for.
        assert sum(number for name, number in counted.items() if name.startswith(f"{op} ")) == 3
    assert counted["geqrf batched_cublas"] == 1
    assert "orgqr batched_cublas" not in counted


def test_an_entry_that_torch_lacks_is_left_out_unless_it_is_named(python: RunPython) -> None:
    done = python(
        HEAD
        + """
install = _gpu.Library.install
def refusing(self, linalg, ops):
    if "cholesky_solve" in ops:
        raise UserError("torch has no function for cholesky_solve that could be replaced")
    install(self, linalg, ops)
_gpu.Library.install = refusing
status = aten_overrides.enable()
out = {"ops": status.ops, "notes": status.notes}
try:
    aten_overrides.enable(only="cholesky_solve")
except UserError as error:
    out["named"] = str(error)
print(json.dumps(out))
"""
    )
    out = json.loads(done.stdout)
    assert "cholesky" in out["ops"] and "cholesky_solve" not in out["ops"]
    assert any("cholesky_solve" in note for note in out["notes"])
    assert "could be replaced" in out["named"]
