"""The oldest torch that is supported: built, loaded, installed and restored on 2.6.0."""

from __future__ import annotations

import json

import pytest
from wheel_process import build_cache, run

from aotools import env

pytestmark = pytest.mark.wheel


def test_builds_and_installs_on_2_6_0() -> None:
    tree = env.wheel_tree("2.6.0", download=False)
    done = run(
        tree,
        build_cache(tree, "2.6.0"),
        """
import json, os, torch, aten_overrides
from aten_overrides import _runtime
def files(library):
    return {entry.name: os.path.basename(entry.current) for entry in library.entries()}
status = aten_overrides.enable()
library = _runtime.loaded_library()
out = {"status": str(status), "enabled": files(library)}
out["cublas"] = str(torch.backends.cuda.preferred_linalg_library("cublas"))
aten_overrides.disable()
out["restored"] = files(library)
out["after"] = str(torch.backends.cuda.preferred_linalg_library())
print(json.dumps(out))
""",
    )
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert "torch 2.6.0+cu124 (CUDA 12.4)" in out["status"]
    ours = {name for name, file in out["enabled"].items() if file == "libaten_overrides_gpu.so"}
    loops = {"geqrf", "cholesky", "cholesky_inverse"}
    assert ours == {"lu_factor", "lu_solve", "linalg_eigh", *loops}
    assert out["cublas"] == "_LinalgBackend.Cublas"
    assert set(out["restored"].values()) == {"libtorch_cuda_linalg.so"}
    assert out["after"] == "_LinalgBackend.Default"
