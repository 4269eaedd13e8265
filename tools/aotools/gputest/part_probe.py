"""What the machine is: the meta data of a record."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

from aotools.gputest.session import Session


def _mapped(stem: str) -> str | None:
    """The file of a library that is loaded in this process."""
    found = re.search(rf"\S*/{stem}\.so\S*", Path("/proc/self/maps").read_text())
    return found[0] if found else None


def _version(stem: str, get_property: str) -> str:
    """ "13.1.0" by the library's own xGetProperty(MAJOR, MINOR, PATCH)."""
    path = _mapped(stem)
    if path is None:
        return "not loaded"
    function = getattr(ctypes.CDLL(path), get_property)
    parts = []
    for index in range(3):
        value = ctypes.c_int(-1)
        function(ctypes.c_int(index), ctypes.byref(value))
        parts.append(str(value.value))
    return ".".join(parts)


def driver_version() -> str:
    """The NVIDIA driver's version, from nvidia-smi or the kernel module's file."""
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.split()[0]
    except (OSError, subprocess.TimeoutExpired):
        pass
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "unknown"
    found = re.search(r"\d+\.\d+(\.\d+)?", text)
    return found[0] if found else "unknown"


def run(session: Session) -> None:
    """Writes one row {"meta": ...}."""
    torch = session.torch
    eye = torch.eye(4, device="cuda").expand(2, 4, 4)
    torch.linalg.solve(eye, eye)  # loads cuBLAS, cuSOLVER and the wheel's linalg library
    torch.linalg.eigh(eye)
    properties = torch.cuda.get_device_properties(0)
    meta = {
        "gpu": torch.cuda.get_device_name(0),
        "visible_gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "driver": driver_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cublas": _version("libcublas", "cublasGetProperty"),
        "cusolver": _version("libcusolver", "cusolverGetProperty"),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "memory_gib": round(properties.total_memory / 2**30, 1),
    }
    session.rows.write({"meta": meta})
