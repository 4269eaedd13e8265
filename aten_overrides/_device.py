"""The GPU at hand, found through the driver's management library: no torch and no CUDA context.

CUDA itself is not asked, because a process that has initialised it can no longer be forked.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

NVML = "libnvidia-ml.so.1"
# Single-precision lanes of a multiprocessor, by major and minor number, else by major number.
_LANES = {(6, 0): 64, (6, 1): 128, (7, 0): 64, (7, 5): 64, (8, 0): 64}
# Times as many single- as double-precision operations per cycle (NVIDIA's programming guide).
_FP64_RATIO = {(6, 0): 2, (7, 0): 2, (8, 0): 2, (9, 0): 2, (10, 0): 2, (7, 5): 32, (6, 1): 32}


@dataclass(frozen=True)
class Gpu:
    """Name as the driver reports it, compute capability as "9.0", number of multiprocessors."""

    name: str
    compute_capability: str
    sm_count: int

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor number."""
        return capability_of(self.compute_capability)

    @property
    def fp64_ratio(self) -> int:
        """Single-precision operations per double-precision one."""
        return _FP64_RATIO.get(self.capability, 64)


def capability_of(text: str) -> tuple[int, int]:
    """ "9.0" -> (9, 0)."""
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


def _load() -> Any:
    return ctypes.CDLL(NVML)


def _visible() -> int | None:
    """Number of the first GPU that CUDA may use; None: none, or named by something else than a
    number.
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return 0
    first = setting.split(",")[0].strip()
    return int(first) if first.isdecimal() else None


def gpu() -> Gpu | None:
    """The first GPU that CUDA may use; None where there is none or the driver does not tell."""
    index = _visible()
    if index is None:
        return None
    try:
        nvml = _load()
        if nvml.nvmlInit_v2():
            return None
    except (OSError, AttributeError):
        return None
    try:
        return _ask(nvml, index)
    except AttributeError:
        return None  # a driver older than these functions
    finally:
        nvml.nvmlShutdown()


def driver() -> str | None:
    """The driver's version; None where it does not tell."""
    try:
        nvml = _load()
        if nvml.nvmlInit_v2():
            return None
        text = ctypes.create_string_buffer(80)
        failed = nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text)))
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return None
    return None if failed else text.value.decode()


def _ask(nvml: Any, index: int) -> Gpu | None:
    device = ctypes.c_void_p()
    name = ctypes.create_string_buffer(96)
    major, minor, cores = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint()
    failed = (
        nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
        or nvml.nvmlDeviceGetName(device, name, ctypes.c_uint(len(name)))
        or nvml.nvmlDeviceGetCudaComputeCapability(device, ctypes.byref(major), ctypes.byref(minor))
        or nvml.nvmlDeviceGetNumGpuCores(device, ctypes.byref(cores))
    )
    if failed:
        return None
    lanes = _LANES.get((major.value, minor.value), 128)
    return Gpu(name.value.decode(), f"{major.value}.{minor.value}", cores.value // lanes)
