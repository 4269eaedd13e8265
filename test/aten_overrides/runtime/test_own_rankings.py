"""Users' own tables in the gpu library on a stock wheel, without a GPU: taken and refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]

CODE = """
import dataclasses, json, random, torch, aten_overrides
from aten_overrides import _device, _runtime, _select
from aten_overrides._device import Gpu
from aten_overrides.tables import own

_device.gpu = lambda: Gpu("NVIDIA Test", "9.0", 100)
library, select = _runtime._load(torch), _select.load()
made_by = {"made_by": "aten-overrides calibrate", "compute_capability": "9.0", "sm_count": 100}
paths = {}
for op, best in (("eigh", "stock"), ("lu_solve", "batched_cublas")):
    package = own.compiled(op).table
    points = [dataclasses.replace(p, ms={**p.ms, best: min(p.ms.values()) / 10})
              for p in package.points]
    table = own.KINDS[op].table("NVIDIA Test", {**package.meta, **made_by}, tuple(points), None)
    paths[op] = own.target(op, "NVIDIA Test")
    paths[op].parent.mkdir(parents=True)
    paths[op].write_text(own.KINDS[op].render(table))

random.seed(1)
problems = [(random.choice(["float32", "float64", "complex64", "complex128"]),
             random.randint(1, 9000), random.randint(1, 600), random.random() < 0.5)
            for _ in range(500)]

def routes():
    return [library.eigh_route(d, b, n, vectors=v) for d, b, n, v in problems]

def chosen(rankings):
    return [select.eigh("eigh" if v else "eigvalsh", d, _select.Problem(b, n, n), "default",
                        _select.Facts(), rankings=rankings) for d, b, n, v in problems]

out = {}
compiled = routes()
out["compiled"] = compiled == chosen(None)
out["stock before"] = compiled.count("stock")
status = aten_overrides.enable(only=("eigh", "lu_solve"))
out["choices"], out["notes"] = dict(status.choices), status.notes
turned = _select.Rankings(select, "eigh", own.numbers("eigh", own.load("eigh", paths["eigh"])))
out["own"] = routes() == chosen(turned)
out["stock"] = routes().count("stock")
kept = paths["eigh"].read_text()
paths["eigh"].write_text(kept[: len(kept) // 2])
status = aten_overrides.enable(only=("eigh", "lu_solve"))
out["truncated"] = routes() == compiled
out["truncated choices"], out["truncated notes"] = dict(status.choices), status.notes
paths["eigh"].write_text(kept)
aten_overrides.enable(only=("eigh", "lu_solve"))
out["again"] = routes() == chosen(turned)
paths["eigh"].unlink()
status = aten_overrides.enable(only=("eigh", "lu_solve"))
out["gone"] = routes() == compiled
out["gone choices"] = dict(status.choices)
try:
    library.set_rankings("eigh", [4, 1, 2])
except Exception as error:
    out["refused"] = str(error)
out["after refusal"] = routes() == compiled
print(json.dumps(out))
"""


def test_a_users_tables_choose_in_the_library(python: RunPython, tmp_path: Path) -> None:
    out = json.loads(python(CODE, ATEN_OVERRIDES_DATA=str(tmp_path)).stdout)
    here = "measured on this GPU on 2026-11-30"
    assert out["compiled"] and out["own"]
    assert out["choices"] == {"lu_solve": here, "eigh": here}
    assert out["stock before"] < 20 and out["stock"] > 200  # of 500, not all of sizes measured
    assert not [note for note in out["notes"] if "refused" in note]
    assert out["truncated"] and out["truncated choices"]["lu_solve"] == here
    assert out["truncated choices"]["eigh"] == (
        "compiled in, measured on NVIDIA H200 (2026-11-30); not measured here. Measure: "
        "aten-overrides calibrate --op eigh"
    )
    assert [
        note for note in out["truncated notes"] if "the user's table of eigh is refused" in note
    ]
    assert out["again"] and out["gone"] and out["after refusal"]
    assert out["gone choices"]["eigh"].startswith("compiled in")
    assert out["refused"].startswith("the rankings of eigh are refused: ")
