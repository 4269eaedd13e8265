"""What is measured on: the meta data of records."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any


def _mapped(stem: str) -> str | None:
    """The file of a library that this process has loaded."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"\S*/{stem}\.so\S*", maps)
    return found[0] if found else None


def library_version(stem: str, function: str) -> str | None:
    """ "13.1.0" as the loaded library itself says by its xGetProperty; None if it is not loaded."""
    path = _mapped(stem)
    if path is None:
        return None
    get = getattr(ctypes.CDLL(path), function)
    parts = []
    for index in range(3):
        value = ctypes.c_int(-1)
        get(ctypes.c_int(index), ctypes.byref(value))
        parts.append(str(value.value))
    return ".".join(parts)


def _smi(fields: str) -> list[str]:
    """Values that nvidia-smi tells for the first GPU; [] if it cannot be run."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [part.strip() for part in done.stdout.split(",")] if done.returncode == 0 else []


def clocks() -> dict[str, str] | None:
    """MHz of the first GPU's processors and memory, degrees and watts now; None if unknown."""
    names = ("sm_mhz", "sm_max_mhz", "memory_mhz", "celsius", "watts")
    values = _smi("clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.draw")
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else None


def processor() -> str:
    """The CPU's name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return found[1].strip() if found else platform.machine()


def machine(torch: Any | None, cuda: bool) -> dict[str, Any]:
    """GPU (or the CPU and its threads), driver and versions, and the day."""
    meta: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": None,
        "driver": None,
        "torch": torch.__version__ if torch is not None else None,
        "cuda": torch.version.cuda if torch is not None else None,
        "cublas": None,
        "cusolver": None,
        "python": platform.python_version(),
    }
    if not (cuda and torch is not None):
        threads = torch.get_num_threads() if torch is not None else os.cpu_count()
        return {**meta, "cpu": processor(), "threads": threads}
    eye = torch.eye(4, device="cuda").expand(2, 4, 4)
    torch.linalg.solve(eye, eye)  # loads cuBLAS, cuSOLVER and torch's linalg library
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    driver = _smi("driver_version")
    return {
        **meta,
        "gpu": properties.name,
        "driver": driver[0] if driver else None,
        "cublas": library_version("libcublas", "cublasGetProperty"),
        "cusolver": library_version("libcusolver", "cusolverGetProperty"),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30, 1),
    }
