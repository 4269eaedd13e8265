"""eigh on stock wheels without a GPU: which function is behind the entry, and the choice in the
library. 2.6.0's cuSOLVER has no XsyevBatched, 2.11.0's has it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from wheel_process import build_cache, run

from aotools import env
from aten_overrides import _runtime
from aten_overrides._names import LOOP_OPS
from aten_overrides.tables.eigh import fit
from aten_overrides.tables.eigh.table import load

pytestmark = pytest.mark.wheel

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]

CODE = """
import ctypes, json, os, sys, torch, aten_overrides
from aten_overrides import _runtime
status = aten_overrides.enable(only="eigh")
library = _runtime.loaded_library()
entries = {entry.name: os.path.basename(entry.current) for entry in library.entries()}
out = {"ops": status.ops, "eigh": entries["linalg_eigh"], "lu": entries["lu_factor"]}
out["svd"] = entries["svd"]
out["routes"] = [library.eigh_route(dtype, batch, n, vectors=vectors, batched=batched)
                 for dtype, batch, n, vectors, batched in json.loads(sys.argv[1])]
out["capture"] = library.eigh_route("float32", 8, 1024, capturing=True)
out["magma"] = library.eigh_route("float32", 8, 64, preference="magma")
out["native"] = library.eigh_route("float32", 8, 64, preference="native")
out["default"] = library.eigh_route("float32", 8, 64)
out["workspace"] = [library.eigh_workspace(), library.eigh_workspace(64), library.eigh_workspace()]
library.force_route("eigh", "jacobi_batched_cusolver")
library.force_route("eigvalsh", None)
try:
    library.force_route("eigh", "no such")
except Exception as error:
    out["unknown route"] = type(error).__name__
solver = ctypes.CDLL(os.path.basename([line.split()[-1] for line in open("/proc/self/maps")
                                       if "libcusolver.so" in line][0]))
out["batched"] = hasattr(solver, "cusolverDnXsyevBatched")
aten_overrides.disable()
entries = {entry.name: os.path.basename(entry.current) for entry in library.entries()}
out["restored"] = entries["linalg_eigh"]
print(json.dumps(out))
"""

PROBLEMS = [
    (dtype, batch, n, vectors, batched)
    for dtype in ("float32", "complex128")
    for batch in (1, 8, 500, 300000)
    for n in (2, 32, 33, 100, 1024)
    for vectors in (True, False)
    for batched in (True, False)
]


@pytest.mark.parametrize(("version", "batched"), [("2.6.0", False), ("2.11.0", True)])
def test_the_entry_is_ours_and_given_back(version: str, batched: bool) -> None:
    tree = env.wheel_tree(version, download=False)
    done = run(tree, build_cache(tree, version), CODE, json.dumps(PROBLEMS))
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert out["ops"] == ["eigh"] and out["eigh"] == "libaten_overrides_gpu.so"
    assert out["lu"] == out["svd"] == out["restored"] == "libtorch_cuda_linalg.so"
    assert out["batched"] is batched
    fitted = fit.fit(load())
    for (dtype, batch, n, vectors, has), route in zip(PROBLEMS, out["routes"], strict=True):
        rows = fitted["eigh" if vectors else "eigvalsh", dtype]
        usable = fit.RANKED if has else fit.RANKED[1:]
        assert route == fit.choose(rows, batch, n, usable), (dtype, batch, n, vectors, has)
    assert out["capture"] == "batched_cusolver"
    assert out["magma"] == "stock" and out["native"] == out["default"]
    assert out["workspace"] == [1024, 64, 64]
    assert out["unknown route"] in ("UserError", "KeyError")


def test_the_call_reaches_our_function(python: RunPython, stub_caller: Path) -> None:
    """It fails for want of a driver, in our route: the control is the same call before enable()."""
    done = python(
        """
import ctypes, json, sys, torch, aten_overrides
from aten_overrides import _runtime
caller = ctypes.CDLL(sys.argv[1])
def call():
    text = ctypes.create_string_buffer(2000)
    caller.stub_caller_linalg_eigh(ctypes.c_long(3), ctypes.c_long(40), 1, text, 2000)
    return text.value.decode()
def counts():
    return {route: n for (op, route), n in library.counts().items() if op == "eigh"}
out = {"without": call()}
aten_overrides.enable()
library = _runtime.loaded_library()
out["before"] = counts()
for route in ("batched_cusolver", "jacobi_batched_cusolver", "looped_cusolver", "stock"):
    library.force_route("eigh", route)
    out[route] = call()
out["counts"] = counts()
print(json.dumps(out))
""",
        str(stub_caller),
    )
    out = json.loads(done.stdout)
    assert out["before"] == {}
    routes = ("batched_cusolver", "jacobi_batched_cusolver", "looped_cusolver", "stock")
    assert out["counts"] == dict.fromkeys(routes, 1)
    assert all("NVIDIA" in out[name] or "CUDA" in out[name] for name in ("without", *routes))


def test_torch_keeps_its_own_from_2_12_on() -> None:
    assert _runtime.default_ops((2, 6), LOOP_OPS) == _runtime.OPS
    assert _runtime.default_ops((2, 11)) == ("lu_factor", "lu_solve", "eigh")
    for release in ((2, 12), (2, 15), (3, 0)):
        assert _runtime.default_ops(release) == ("lu_factor", "lu_solve")
        assert _runtime.default_ops(release, ["geqrf"]) == ("lu_factor", "lu_solve", "geqrf")
