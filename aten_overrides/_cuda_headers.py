"""Find the CUDA headers and runtime that the host code of the gpu library is compiled against."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from aten_overrides._errors import UserError

# One header of each part that ATen's headers include.
NEEDED = (
    "cuda_runtime_api.h",
    "crt/host_defines.h",
    "nv/target",
    "cublas_v2.h",
    "cusolverDn.h",
    "cusparse.h",
)


def _sets(site: list[Path], cuda: str) -> Iterator[tuple[str, list[Path]]]:
    """Candidate sets of include folders, the most exact first."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield name, _includes(Path(os.environ[name]))
    for folder in site:
        nvidia = folder / "nvidia"
        bundle = nvidia / f"cu{cuda.split('.')[0]}" / "include"
        parts = sorted(nvidia.glob("*/include"))
        yield "the nvidia packages beside torch", [bundle] if bundle.is_dir() else parts
    for root in (f"/usr/local/cuda-{cuda}", "/usr/local/cuda"):
        yield root, _includes(Path(root))
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        yield nvcc, _includes(Path(nvcc).resolve().parent.parent)
    yield "the system", [Path("/usr/include")]


def _includes(root: Path) -> list[Path]:
    candidates = [root / "include", *sorted(root.glob("targets/*/include")), root / "include/cccl"]
    return [path for path in candidates if path.is_dir()]


def header_version(folders: list[Path]) -> str | None:
    """The CUDA version of the headers in these folders, e.g. "13.0"."""
    for folder in folders:
        try:
            text = (folder / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        match = re.search(r"^#define\s+CUDART_VERSION\s+(\d+)", text, re.M)
        if match:
            number = int(match[1])
            return f"{number // 1000}.{number % 1000 // 10}"
    return None


def _remedy(cuda: str) -> str:
    major, _, _ = cuda.partition(".")
    if int(major) >= 13:
        parts = "nvcc,nvvm,crt,cudart,cccl,cublas,cusolver,cusparse"
        command = f"pip install 'cuda-toolkit[{parts}]=={cuda}.*'"
    else:
        packages = (f"'nvidia-cuda-{part}-cu{major}=={cuda}.*'" for part in ("nvcc", "cccl"))
        command = f"pip install {' '.join(packages)}"
    return f"install them beside torch ({command}), or a CUDA {cuda} toolkit named by CUDA_HOME"


def find_headers(site: list[Path], cuda: str) -> tuple[list[Path], str]:
    """Include folders with all headers of the major version of ``cuda``, and their version.

    ``site`` are the folders in which torch's nvidia packages may lie. UserError that says what
    was found and what to install if no candidate is complete.
    """
    seen: list[str] = []
    for label, folders in _sets(site, cuda):
        version = header_version(folders)
        if version is None:
            continue
        if version.split(".")[0] != cuda.split(".")[0]:
            seen.append(f"{label}: CUDA {version}")
            continue
        missing = [name for name in NEEDED if not any((f / name).exists() for f in folders)]
        if not missing:
            return folders, version
        seen.append(f"{label}: CUDA {version} without {', '.join(missing)}")
    found = "; ".join(seen) or "none"
    raise UserError(
        f"the CUDA {cuda} headers are needed to build the gpu library; found: {found}. "
        f"{_remedy(cuda)}"
    )


def mapped_library(name: str) -> Path | None:
    """The file of a library that this process has loaded, by the beginning of its file name."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in maps.splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.startswith("/") and path.rsplit("/", 1)[-1].startswith(name):
            return Path(path)
    return None
