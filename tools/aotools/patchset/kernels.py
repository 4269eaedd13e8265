"""nvcc for the .cu files of a series: which one, its arguments, and what to do without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset.base import Patch
from aotools.patchset.compile import Unit, compiler
from aotools.patchset.overlay import Overlay
from aotools.patchset.wheel import Wheel
from aten_overrides import _nvcc
from aten_overrides._errors import UserError as Refused
from aten_overrides._nvcc import NoKernels, Nvcc

# The check compiles for one architecture: that of the GPU with measured thresholds.
CHECKED = "90"


def adds_kernels(patch: Patch) -> bool:
    """Whether a patch brings CUDA sources of ours."""
    return any(change.path.endswith(".cu") and change.new is not None for change in patch.changes)


def find(wheel: Wheel, *, nvcc: Path | None = None, architectures: str | None = None) -> Nvcc:
    """The nvcc for the wheel: `nvcc` if given, else the first one of the wheel's major version.

    `architectures`: "80,90", "all" or "native", as for the package. A given one may be of a newer
    CUDA; its machine code then needs a driver of that CUDA. NoKernels with the reason where there
    is none; UserError for a given one that does not serve.
    """
    try:
        if nvcc is None:
            return _nvcc.find([wheel.site], wheel.cuda, compiler()[0], architectures)
        version = _nvcc.version_of(nvcc)
        if version is None:
            raise UserError(f"--nvcc {nvcc} does not run, or does not say its version")
        if int(version.partition(".")[0]) < int(wheel.cuda.partition(".")[0]):
            raise UserError(
                f"--nvcc {nvcc} is of CUDA {version}, and torch {wheel.full_version} uses CUDA "
                f"{wheel.cuda}: one of CUDA {wheel.cuda} or newer is needed"
            )
        wanted = _nvcc.architectures(architectures)
        if not wanted:
            raise UserError("--nvcc and the architectures none contradict each other")
        return Nvcc(nvcc, version, wanted)
    except Refused as error:
        raise UserError(str(error)) from None


def find_any(wheel: Wheel) -> Nvcc:
    """An nvcc of any CUDA for the check, which compiles and does not link; NoKernels without one.

    Besides the wheel's own toolkit those of the other wheels in the cache are looked at.
    """
    reasons = []
    sites = [wheel.site, *sorted((env.cache_dir() / "wheels").glob("torch-*"))]
    for cuda in dict.fromkeys((wheel.cuda, "13.0")):
        try:
            return _nvcc.find(sites, cuda, compiler()[0], CHECKED)
        except NoKernels as error:
            reasons.append(str(error))
    raise NoKernels("; ".join(reasons))


def units(overlay: Overlay, wheel: Wheel, nvcc: Nvcc) -> list[Unit]:
    """The kernels' units. They see torch's headers, but no CUDA header except nvcc's own."""
    arguments = [
        "-std=c++17",
        "-O3",
        "-ccbin",
        compiler()[0],
        "-Xcompiler=-fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden,-w,"
        f"-ffile-prefix-map={overlay.folder}/=",
        # torch's headers: unused variables and functions
        "-diag-suppress=177,611",
        "-DUSE_CUDA",
        "-DNDEBUG",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(wheel.cxx11_abi)}",
        f"-I{overlay.folder}",
        f"-isystem={wheel.include}",
        *nvcc.flags,
    ]
    program = (str(nvcc.path), f"nvcc {nvcc.version}")
    return [
        Unit(source.name, source, tuple(arguments), program=program) for source in overlay.kernels()
    ]


@dataclass(frozen=True)
class Buildable:
    """The patches that can be built for a wheel, with which nvcc, and why others are left out."""

    patches: list[Patch]
    nvcc: Nvcc | None
    left_out: list[Patch]
    why: str

    def note(self) -> str:
        """A line about what is left out, "" when nothing is."""
        if not self.left_out:
            return ""
        names = ", ".join(patch.name for patch in self.left_out)
        return f"left out: {names}, because {self.why}"


def buildable(
    patches: Sequence[Patch],
    wheel: Wheel,
    *,
    asked: str | None = None,
    nvcc: Path | None = None,
    architectures: str | None = None,
) -> Buildable:
    """Without a usable nvcc the series ends before the first patch that needs one.

    UserError with the reason and what to do when `asked`, the last patch that was asked for by
    name, would be left out.
    """
    first = next((i for i, patch in enumerate(patches) if adds_kernels(patch)), None)
    if first is None:
        return Buildable(list(patches), None, [], "")
    try:
        found = find(wheel, nvcc=nvcc, architectures=architectures)
        return Buildable(list(patches), found, [], "")
    except NoKernels as error:
        if asked is not None:
            before = patches[first - 1].name.removesuffix(".patch") if first else "none"
            raise UserError(
                f"{patches[first].name} adds CUDA kernels, and {error}. Or name an nvcc of a newer "
                "CUDA, for a driver of that CUDA: --nvcc /usr/local/cuda/bin/nvcc. Without the "
                f"kernels: --patches {before}"
            ) from None
        return Buildable(list(patches[:first]), None, list(patches[first:]), str(error))


def nvcc_for(overlay: Overlay, wheel: Wheel) -> Nvcc:
    """The nvcc for a tree that has kernels; UserError where there is none."""
    try:
        return find(wheel)
    except NoKernels as error:
        names = ", ".join(path.name for path in overlay.kernels())
        raise UserError(f"{names} need nvcc, and {error}") from None
