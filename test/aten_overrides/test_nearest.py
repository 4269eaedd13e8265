"""The table for a GPU: its own, else the nearest one's, and what is said about it."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest

from aten_overrides import _device
from aten_overrides._device import Gpu
from aten_overrides._explain import explain
from aten_overrides.tables import nearest, table

H200 = Gpu("NVIDIA H200", "9.0", 132)
L40S = Gpu("NVIDIA L40S", "8.9", 142)
A100 = Gpu("NVIDIA A100-SXM4-80GB", "8.0", 108)


def own_table(folder: Path, gpu: Gpu, ms: float = 1.0) -> Path:
    point = {"op": "lu_factor", "dtype": "float32", "batch": 4, "m": 8, "n": 8, "pivot": True}
    data = {
        "format": 1,
        "gpu": {
            "name": gpu.name,
            "compute_capability": gpu.compute_capability,
            "sm_count": gpu.sm_count,
        },
        "meta": {"record": "none", "date": "2026", "torch": "2.11.0"},
        "lanes": 4,
        "axes": {"lu_factor": {"batch": [4], "n": [8], "rectangular": []}},
        "points": [{**point, "ms": {"batched_cublas": ms, "looped_cusolver": 2 * ms}}],
    }
    path = folder / "tables" / f"{'-'.join(gpu.name.lower().split())}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of the user's tables."""
    monkeypatch.setenv("ATEN_OVERRIDES_DATA", str(tmp_path))
    monkeypatch.delenv("ATEN_OVERRIDES_TABLE", raising=False)
    return tmp_path


def test_the_rate_of_double_precision_counts_first(data: Path) -> None:
    own_table(data, L40S)
    own_table(data, A100)
    for gpu, expected in (
        (Gpu("NVIDIA GeForce RTX 4090", "8.9", 128), L40S.name),
        (Gpu("NVIDIA RTX A6000", "8.6", 84), L40S.name),  # not A100, whose number is nearer
        (Gpu("NVIDIA A100-PCIE-40GB", "8.0", 108), A100.name),
        (Gpu("NVIDIA H100 80GB HBM3", "9.0", 132), H200.name),
        (Gpu("NVIDIA B200", "10.0", 148), H200.name),
        (Gpu("NVIDIA GeForce RTX 5090", "12.0", 170), L40S.name),
    ):
        used = nearest.for_gpu(gpu)
        assert used.table.gpu.name == expected, gpu
        assert f"not measured here: this is {gpu.name}" in used.note
        assert "aten-overrides calibrate" in used.note


def test_a_measured_gpu_needs_no_note_and_the_user_s_own_table_wins(data: Path) -> None:
    assert nearest.for_gpu(H200).note == ""
    assert nearest.for_gpu(H200).table.path.parent == table.FOLDER
    own = own_table(data, H200, ms=7.0)
    assert nearest.for_gpu(H200).table.path == own
    assert table.find("h200") == own
    assert explain("lu_factor", (4, 8, 8), "float32", lanes=0, stock=False).ms == pytest.approx(7.0)


def test_without_a_gpu_the_package_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device, "gpu", lambda: None)
    assert explain("lu_factor", (4, 8, 8), "float32").source.note == ""
    monkeypatch.setattr(_device, "gpu", lambda: L40S)
    source = explain("lu_factor", (4, 8, 8), "float32").source
    assert source.gpu == H200.name and source.note.startswith("not measured here: this is NVIDIA L")
    assert explain("lu_factor", (4, 8, 8), "float32", "h200").source.note == ""


def test_a_damaged_table_is_left_out_and_named(data: Path) -> None:
    own_table(data, L40S).write_text("{")
    used = nearest.for_gpu(H200)
    assert used.table.gpu.name == H200.name
    assert "left out: " in used.note and "is not JSON" in used.note


class Nvml:
    """The driver's library, for one H200."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.open = fails, 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            if name == self.fails:
                return 3
            targets = [getattr(argument, "_obj", argument) for argument in arguments]
            if name == "nvmlInit_v2":
                self.open += 1
            elif name == "nvmlShutdown":
                self.open -= 1
            elif name == "nvmlDeviceGetHandleByIndex_v2":
                assert targets[0].value == 0
            elif name == "nvmlDeviceGetName":
                targets[1].value = b"NVIDIA H200"
            elif name == "nvmlDeviceGetCudaComputeCapability":
                targets[1].value, targets[2].value = 9, 0
            elif name == "nvmlDeviceGetNumGpuCores":
                targets[1].value = 132 * 128
            elif name == "nvmlSystemGetDriverVersion":
                targets[0].value = b"580.1"
            return 0

        return call


def test_the_gpu_at_hand_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = Nvml()
    monkeypatch.setattr(_device, "_load", lambda: driver)
    assert _device.gpu() == H200 and _device.driver() == "580.1"
    assert driver.open == 0
    assert (H200.fp64_ratio, L40S.fp64_ratio, H200.capability) == (2, 64, (9, 0))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert _device.gpu() == H200
    for hidden in ("", "-1", "GPU-1234"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert _device.gpu() is None


@pytest.mark.parametrize("fails", ["nvmlInit_v2", "nvmlDeviceGetName", "nvmlDeviceGetNumGpuCores"])
def test_a_driver_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = Nvml(fails)
    monkeypatch.setattr(_device, "_load", lambda: driver)
    assert _device.gpu() is None and driver.open == 0

    def missing() -> Any:
        return ctypes.CDLL("libno-such-driver.so.1")

    monkeypatch.setattr(_device, "_load", missing)
    assert _device.gpu() is None and _device.driver() is None
