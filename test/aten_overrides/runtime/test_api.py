"""The public functions on the stock wheel, without a GPU."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

DEFAULT = [
    "lu_factor",
    "lu_solve",
    "eigh",
    "geqrf",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
]

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]

HEAD = """
import ctypes, json, logging, os, sys
import torch, aten_overrides as ao
from aten_overrides import _runtime
def error(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except ao.UserError as caught:
        return str(caught)
    return None
"""


def test_status_context_manager_and_wrong_arguments(python: RunPython) -> None:
    done = python(
        HEAD
        + """
out = {"light": "aten_overrides._select" in sys.modules, "off": ao.is_enabled()}
out["unknown"] = error(ao.enable, only="svd")
out["nothing"] = error(ao.enable, only=())
out["profile"] = error(lambda: ao.profile().__enter__())
out["still off"] = ao.is_enabled() or _runtime.loaded_library() is not None
with ao.enabled(only=["lu_factor"], strict=True) as status:
    out["inside"] = [status.ops, status.strict, ao.is_enabled()]
    with ao.enabled():
        out["nested"] = _runtime.loaded_library().installed()
    out["back"] = [_runtime.loaded_library().installed(), _runtime.current_status().strict]
out["after"] = ao.is_enabled()
try:
    with ao.enabled():
        raise KeyError("own")
except KeyError:
    out["raised"] = ao.is_enabled()
status = ao.enable()
out["text"] = str(status)
out["info"] = ao.info()
print(json.dumps(out))
"""
    )
    out = json.loads(done.stdout)
    assert not out["off"] and not out["light"]
    assert "only=svd: the operations that can be overridden are lu_factor, " in out["unknown"]
    assert "only=nothing" in out["nothing"]
    assert "call aten_overrides.enable() first" in out["profile"]
    assert not out["still off"]
    assert out["inside"] == [["lu_factor"], True, True]
    assert out["nested"] == DEFAULT
    assert out["back"] == [["lu_factor"], True]
    assert not out["after"] and not out["raised"]
    ours = f"{', '.join(DEFAULT)} overridden in torch 2.11.0+cu130 (CUDA 13.0), 4 streams, by "
    assert out["text"].startswith(ours)
    info = out["info"]
    assert info["state"]["enabled"] and info["state"]["ops"] == DEFAULT
    assert info["library"]["usable"] and info["library"]["up_to_date"]
    assert info["gpus"] == []
    held = {feature["name"]: feature["in_this_torch"] for feature in info["features"]}
    assert not any(held.values())  # 2.11 has none of the pieces
    assert {"eigh", "lu rule", "lu workspace", "lu kernel", "streams", "prefer cublas"} == set(held)


PREFERENCE = (
    HEAD
    + """
enum = torch._C._LinalgBackend
names = torch.backends.cuda
def state():
    return [sorted(enum.__members__), sorted(names._LinalgBackends), names._LinalgBackends_str,
            hasattr(enum, "Cublas"), int(torch._C._get_linalg_preferred_backend())]
"""
)


def test_the_preference_is_a_citizen_while_enabled(python: RunPython) -> None:
    done = python(
        PREFERENCE
        + """
out = {"before": state(), "not yet": error(ao.preferred_linalg_library, "cublas")}
out["get"] = ao.preferred_linalg_library()
ao.enable()
out["torch"] = str(names.preferred_linalg_library("cublas"))
out["enum"] = [str(enum.Cublas), enum.Cublas == enum(3), repr(enum(3)), int(enum.Cublas)]
out["ours"] = ao.preferred_linalg_library()
out["native"] = [str(names.preferred_linalg_library("native")), ao.preferred_linalg_library(),
                 int(enum.Native), enum.Native == enum(4)]
out["by enum"] = ao.preferred_linalg_library(enum.Cusolver)
with ao.preferred_linalg_library("magma") as inner:
    out["inner"] = [inner, ao.preferred_linalg_library()]
out["outer"] = ao.preferred_linalg_library()
out["unknown"] = error(ao.preferred_linalg_library, "mkl")
try:
    names.preferred_linalg_library("mkl")
except RuntimeError as caught:
    out["torch unknown"] = str(caught)
names.preferred_linalg_library("cublas")
ao.disable()
out["after"] = state()
ao.enable(); ao.enable(); ao.disable()
out["twice"] = state()
print(json.dumps(out))
"""
    )
    out = json.loads(done.stdout)
    assert out["not yet"].endswith("call aten_overrides.enable() first")
    assert out["get"] == "default"
    assert out["torch"] == "_LinalgBackend.Cublas"
    assert out["enum"] == ["_LinalgBackend.Cublas", True, "<_LinalgBackend.Cublas: 3>", 3]
    assert out["ours"] == "cublas"
    assert out["native"] == ["_LinalgBackend.Native", "native", 4, True]
    assert out["by enum"] == "cusolver"
    assert out["inner"] == ["magma", "magma"]
    assert out["outer"] == "cusolver"
    assert "'mkl'; known are default, cusolver, magma, cublas, native" in out["unknown"]
    names = "default, cusolver, magma, cublas, native"
    assert out["torch unknown"] == f"Unknown input value. Choose from: {names}."
    assert out["after"] == out["before"] == out["twice"]


def test_an_enum_that_is_not_the_known_one_is_refused(python: RunPython) -> None:
    done = python(
        PREFERENCE
        + """
getattr(enum, "__entries")["Native"] = (enum(3), None)  # as a later torch might
before = state()
status = ao.enable()
out = {"notes": status.notes, "same": state() == before, "enabled": ao.is_enabled()}
out["cublas"] = error(ao.preferred_linalg_library, "cublas")
ao.disable()
out["same after"] = state() == before
print(json.dumps(out))
"""
    )
    out = json.loads(done.stdout)
    assert out["enabled"] and out["same"] and out["same after"]
    assert '"cublas" and "native" cannot be added' in out["notes"][0]
    assert "Native" in out["notes"][0]
    assert out["cublas"] is not None


@pytest.mark.parametrize(
    ("environment", "code", "expected"),
    [
        ({"ATEN_OVERRIDES_PREFER": "cublas"}, "", "cublas"),
        ({"ATEN_OVERRIDES_PREFER": "native"}, "", "native"),
        ({"TORCH_LINALG_PREFER_CUBLAS": "1"}, "", "cublas"),
        ({"TORCH_LINALG_PREFER_CUSOLVER": "1"}, "", "cusolver"),
        ({"TORCH_LINALG_PREFER_CUSOLVER": "1", "TORCH_LINALG_PREFER_CUBLAS": "1"}, "", "cublas"),
        ({"TORCH_LINALG_PREFER_CUBLAS": "1", "ATEN_OVERRIDES_PREFER": "magma"}, "", "magma"),
        ({"TORCH_LINALG_PREFER_CUSOLVER": "1", "ATEN_OVERRIDES_PREFER": "default"}, "", "default"),
        (
            {"ATEN_OVERRIDES_PREFER": "cublas"},
            "torch.backends.cuda.preferred_linalg_library('magma')",
            "magma",
        ),
        (
            {"ATEN_OVERRIDES_PREFER": "cublas"},
            "ao.preferred_linalg_library('default')",
            "default",
        ),
    ],
)
def test_the_order_of_environment_and_calls(
    python: RunPython, environment: dict[str, str], code: str, expected: str
) -> None:
    done = python(
        f"import torch, aten_overrides as ao\n{code}\nao.enable()\n"
        "print(ao.preferred_linalg_library())",
        **environment,
    )
    assert done.stdout.strip() == expected
    assert code or done.stderr == ""


def test_wrong_settings_change_nothing(python: RunPython) -> None:
    code = HEAD + "found = [error(ao.enable), ao.is_enabled(), _runtime.loaded_library() is None]\n"
    code += "print(json.dumps(found))"
    for environment, words in (
        ({"ATEN_OVERRIDES_PREFER": "mkl"}, "ATEN_OVERRIDES_PREFER=mkl: there is no"),
        ({"ATEN_OVERRIDES_STREAMS": "many"}, "ATEN_OVERRIDES_STREAMS=many: expected STREAMS"),
        ({"ATEN_OVERRIDES_STREAMS": "17"}, "at most 16 streams"),
        ({"ATEN_OVERRIDES_LOG": "loud"}, "LOG=loud: known are off, fallbacks, calls"),
    ):
        message, enabled, untouched = json.loads(python(code, **environment).stdout)
        assert words in message
        assert not enabled and untouched


def test_streams_and_table_of_the_environment(python: RunPython, tmp_path: Path) -> None:
    code = (
        HEAD
        + """
before = error(ao.enable)
library = _runtime.loaded_library()
print(json.dumps([before, library.limits(), ao.is_enabled(),
    {entry.name: os.path.basename(entry.current) for entry in library.entries()},
    library.lu_factor_route("float32", 64, 512, 512, preference="cusolver")]))
"""
    )
    message, limits, enabled, _, _ = json.loads(python(code, ATEN_OVERRIDES_STREAMS="8:900").stdout)
    assert (message, limits, enabled) == (None, [8, 900], True)
    message, limits, _, _, _ = json.loads(python(code, ATEN_OVERRIDES_STREAMS="0").stdout)
    assert (message, limits) == (None, [0, 512])
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    message, _, enabled, entries, _ = json.loads(python(code, ATEN_OVERRIDES_TABLE=str(bad)).stdout)
    assert "bad.json is not valid" in message
    assert not enabled
    assert set(entries.values()) == {"libtorch_cuda.so"}  # the guards are gone too
    source = Path("aten_overrides/tables/nvidia-h200.json")
    table = json.loads(source.read_text())
    for point in table["points"]:  # a GPU on which cuBLAS is slow
        if "batched_cublas" in point["ms"]:
            point["ms"]["batched_cublas"] *= 1000
    own = tmp_path / "own.json"
    own.write_text(json.dumps(table))
    message, _, enabled, _, route = json.loads(python(code, ATEN_OVERRIDES_TABLE=str(own)).stdout)
    assert message is None and enabled
    assert route == "streamed_cusolver"
    *_, route = json.loads(python(code).stdout)
    assert route == "batched_cublas"


def test_the_choice_is_that_of_explain(python: RunPython) -> None:
    done = python(
        HEAD
        + """
import random
from aten_overrides import _select
from aten_overrides.tables import table
ao.enable()
library = _runtime.loaded_library()
costs = table.load(table.find("h200")).costs(_select.load())
random.seed(3)
wrong = []
for _ in range(4000):
    dtype = random.choice(("float32", "float64", "complex64", "complex128"))
    batch = int(2 ** random.uniform(0, 12)); m = int(2 ** random.uniform(0, 11.5))
    n = m if random.random() < 0.7 else int(2 ** random.uniform(0, 11.5))
    pivot = random.random() < 0.8
    preference = random.choice(("default", "cusolver", "cublas", "native"))
    native = random.choice(list(_select.Native))
    lanes = random.choice((0, 2, 4)); capturing = random.random() < 0.3
    ours = library.lu_factor_route(dtype, batch, m, n, pivot=pivot, preference=preference,
                                   lanes=lanes, capturing=capturing, native=native)
    choice = costs.choose(dtype, _select.Problem(batch, m, n, pivot), preference,
                          _select.Facts(lanes, True, capturing, native))
    if choice.by_table != ours:
        wrong.append([dtype, batch, m, n, pivot, preference, lanes, capturing, ours, choice])
print(json.dumps([str(row) for row in wrong[:5]]))
"""
    )
    assert json.loads(done.stdout) == []
