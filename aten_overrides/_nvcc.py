"""Find the compiler of our kernels, and for which GPUs to compile them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aten_overrides import _device
from aten_overrides._errors import UserError

ENVIRONMENT = "ATEN_OVERRIDES_ARCHITECTURES"
KNOWN = ("80", "86", "89", "90", "100", "120")
WITHOUT_GPU = ("90",)  # the GPU of the shipped table


class NoKernels(Exception):
    """Why the library is built without our kernels."""


@dataclass(frozen=True)
class Nvcc:
    """A usable compiler: its path, its version as "13.0" and its flags for the architectures."""

    path: Path
    version: str
    architectures: tuple[str, ...]

    @property
    def flags(self) -> list[str]:
        """Machine code for every architecture, no intermediate code."""
        return [f"-gencode=arch=compute_{a},code=sm_{a}" for a in self.architectures]


def architectures(asked: str | None = None) -> tuple[str, ...]:
    """The compute capabilities to compile for, as ("80", "90"); empty: none.

    ``asked``, else ATEN_OVERRIDES_ARCHITECTURES: numbers separated by commas (80,90 or 8.0,9.0),
    ``all`` for every one that is known to work, ``none``, or ``native`` for the GPU at hand, which
    is the default. Without a GPU ``native`` is 90. UserError for anything else.
    """
    text = (asked or os.environ.get(ENVIRONMENT, "")).strip().lower() or "native"
    if text == "none":
        return ()
    if text == "all":
        return KNOWN
    if text == "native":
        found = _device.gpu()
        return WITHOUT_GPU if found is None else (f"{found.capability[0]}{found.capability[1]}",)
    parts = [part for part in re.split(r"[\s,;]+", text.replace("sm_", "")) if part]
    numbers = [part.replace(".", "") for part in parts]
    wrong = [p for p, n in zip(parts, numbers, strict=True) if not re.fullmatch(r"\d{2,3}", n)]
    if wrong or not numbers:
        raise UserError(
            f"{ENVIRONMENT}={text}: expected compute capabilities separated by commas, as in "
            f"80,90, or native, all or none; found {', '.join(wrong) or 'nothing'}"
        )
    return tuple(sorted(set(numbers), key=int))


def _candidates(site: list[Path], cuda: str) -> Iterator[Path]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name]) / "bin/nvcc"
    for folder in site:
        yield folder / "nvidia" / f"cu{cuda.split('.')[0]}" / "bin/nvcc"
        yield folder / "nvidia/cuda_nvcc/bin/nvcc"
    yield Path(f"/usr/local/cuda-{cuda}/bin/nvcc")
    yield Path("/usr/local/cuda/bin/nvcc")
    found = shutil.which("nvcc")
    if found is not None:
        yield Path(found)


def version_of(nvcc: Path) -> str | None:
    """The release of a compiler, as "13.0"; None if it does not run."""
    try:
        done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    match = re.search(r"release (\d+\.\d+)", done.stdout)
    return match[1] if match else None


def _remedy(cuda: str) -> str:
    if int(cuda.split(".")[0]) < 13:
        return f"install a CUDA {cuda} toolkit and name it by CUDA_HOME"
    return f"pip install 'cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]=={cuda}.*', or set CUDA_HOME"


def _try(nvcc: Path, architectures: tuple[str, ...], compiler: str) -> str | None:
    """What the compiler says against a kernel of one line, for each architecture; None: nothing."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "try.cu"
        source.write_text("__global__ void kernel(int* p) { *p = 1; }\n", encoding="utf-8")
        command = [str(nvcc), "-c", str(source), "-o", str(Path(folder) / "try.o")]
        command += Nvcc(nvcc, "", architectures).flags
        command += ["-ccbin", compiler] if compiler else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


def find(site: list[Path], cuda: str, compiler: str = "", asked: str | None = None) -> Nvcc:
    """The first nvcc of the major version of ``cuda`` that compiles for the architectures.

    ``site``: folders in which nvidia's packages may lie; ``compiler``: the host compiler.
    NoKernels with the reason, and what to do, where there is none.
    """
    wanted = architectures(asked)
    if not wanted:
        raise NoKernels("not asked for (architectures: none)")
    seen: dict[Path, str] = {}
    for path in _candidates(site, cuda):
        place = path.resolve()
        if place in seen or not place.is_file():
            continue
        version = version_of(path)
        if version is None:
            seen[place] = "does not run"
        elif version.split(".")[0] != cuda.split(".")[0]:
            seen[place] = f"CUDA {version}"
        elif (why := _try(path, wanted, compiler)) is not None:
            seen[place] = f"CUDA {version}, does not compile for {', '.join(wanted)}: {why}"
        else:
            return Nvcc(path, version, wanted)
    found = "; ".join(f"{path}: {why}" for path, why in seen.items()) or "none"
    raise NoKernels(f"no usable nvcc for CUDA {cuda}, found {found}. {_remedy(cuda)}")
