"""What exactly a gpu library was built for, and whether that is the torch at hand.

A library built for one torch must never be loaded into another: it would fail in the loader at
best. So its facts are kept in a JSON file beside it and compared before it is opened.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aten_overrides._errors import UserError

LIBRARY = "libaten_overrides_gpu.so"
API = 5  # kAtenOverridesGpuApi in csrc/package/gpu/Api.h
BUILD_COMMAND = "aten-overrides build"


@dataclass(frozen=True)
class TorchBuild:
    """One build of torch. ``cuda`` is None for a build without CUDA."""

    version: str
    git: str
    cuda: str | None
    cxx11_abi: bool
    machine: str

    def __str__(self) -> str:
        return f"torch {self.version} ({f'CUDA {self.cuda}' if self.cuda else 'without CUDA'})"

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(match[1]), int(match[2])) if match else (0, 0)


@dataclass(frozen=True)
class NativeFacts:
    """Our kernels in a gpu library: compute capabilities as ("80", "90"), the nvcc's version, and
    ``reason`` why they are not built where they are not.
    """

    architectures: tuple[str, ...] = ()
    nvcc: str = ""
    reason: str = ""

    @staticmethod
    def of(raw: Any) -> NativeFacts:
        """From the values of a facts file."""
        return NativeFacts(tuple(raw["architectures"]), raw["nvcc"], raw["reason"])

    def __str__(self) -> str:
        if not self.architectures:
            return f"not built: {self.reason}"
        names = ", ".join(f"sm_{number}" for number in self.architectures)
        return f"for {names}, by nvcc {self.nvcc}"

    def runs_on(self, major: int, minor: int) -> bool:
        """Whether the kernels run on a GPU of this compute capability."""
        pairs = (divmod(int(number), 10) for number in self.architectures)
        return any(own == major and least <= minor for own, least in pairs)


@dataclass(frozen=True)
class BuildFacts:
    """What is known about a built gpu library. ``sha256`` and ``size`` (bytes) are the file's."""

    torch: TorchBuild
    api: int
    compiler: str
    sources: str
    date: str
    sha256: str
    size: int
    cuda_headers: str = ""
    native: NativeFacts = NativeFacts()

    def to_json(self) -> str:
        """The text of the facts file."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True) + "\n"


def facts_path(library: Path) -> Path:
    """The facts file of a library."""
    return library.with_suffix(".json")


def read_facts(library: Path) -> BuildFacts:
    """The facts of a library. UserError if its facts file is missing or cannot be understood."""
    path = facts_path(library)
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        torch_raw = raw.pop("torch")
        native = NativeFacts.of(raw.pop("native")) if "native" in raw else NativeFacts()
        return BuildFacts(torch=TorchBuild(**torch_raw), native=native, **raw)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"the build facts {path} of the gpu library cannot be read ({error}), so it is not "
            f"loaded; "
            f"build it again: {BUILD_COMMAND}"
        ) from error


def file_digest(path: Path) -> tuple[str, int]:
    """SHA-256 and size in bytes of a file."""
    data = path.read_bytes()
    return hashlib.sha256(data).hexdigest(), len(data)


def mismatch(facts: BuildFacts, torch: TorchBuild) -> str | None:
    """Why a library with these facts must not be loaded into this torch; None if it may."""
    if facts.api != API:
        return (
            f"the gpu library has interface {facts.api} and this package needs {API}; "
            f"run `{BUILD_COMMAND}`"
        )
    if facts.torch == torch:
        return None
    differences = [
        f"{name} {built} there, {found} here"
        for name, built, found in (
            ("git commit", facts.torch.git, torch.git),
            ("C++11 ABI", facts.torch.cxx11_abi, torch.cxx11_abi),
            ("machine", facts.torch.machine, torch.machine),
        )
        if built != found
    ]
    same_name = str(facts.torch) == str(torch)
    detail = f" ({'; '.join(differences)})" if same_name and differences else ""
    return f"built for {facts.torch}, found {torch}{detail}; run `{BUILD_COMMAND}`"


def check_library(library: Path, torch: TorchBuild) -> BuildFacts:
    """The facts of a library that may be loaded into this torch.

    UserError with the reason if it is missing, damaged or built for another torch. The library is
    only read, never opened by the loader.
    """
    if not library.is_file():
        raise UserError(f"there is no gpu library at {library}; run `{BUILD_COMMAND}`")
    facts = read_facts(library)
    reason = mismatch(facts, torch)
    if reason is not None:
        raise UserError(f"{library}: {reason}")
    try:
        found = file_digest(library)
    except OSError as error:
        raise UserError(f"the gpu library {library} cannot be read: {error}") from error
    if found != (facts.sha256, facts.size):
        raise UserError(
            f"the gpu library {library} is damaged: {found[1]} bytes that do not match its build "
            f"facts "
            f"({facts.size} bytes); it is not loaded. Run `{BUILD_COMMAND}`"
        )
    return facts


def torch_build(torch: Any) -> TorchBuild:
    """The build facts of an imported torch module."""
    return TorchBuild(
        version=str(torch.__version__),
        git=str(torch.version.git_version),
        cuda=torch.version.cuda,
        cxx11_abi=bool(torch._C._GLIBCXX_USE_CXX11_ABI),
        machine=platform.machine(),
    )


def torch_folder(torch: Any) -> Path:
    """The folder of an imported torch module."""
    return Path(torch.__file__).resolve().parent


def wheel_linalg(torch: Any) -> Path | None:
    """torch's own linalg library, None where it is part of torch's CUDA library."""
    path = torch_folder(torch) / "lib" / "libtorch_cuda_linalg.so"
    return path if path.is_file() else None
