"""The compiling part of tools/patchset check: each patch alone, MAGMA off, ROCm's form, Context.cpp
and Module.cpp.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset import apt, hip, kernels, overlay, relink, wheel
from aotools.patchset.base import Base, Patch
from aotools.patchset.compile import Compiler, Unit, compiler
from aotools.patchset.report import Report
from aotools.patchset.wheel import Wheel
from aten_overrides._nvcc import NoKernels

_SINGLE = ("aten/src/ATen/Context.cpp", "torch/csrc/Module.cpp")
_ERROR_LINES = 12


def planned(base_: Base) -> list[str]:
    """The names of the items that `run` looks at."""
    names = []
    with_kernels = False
    for patch in base_.patches():
        with_kernels = with_kernels or kernels.adds_kernels(patch)
        names.append(f"after {patch.name}: linalg units compile")
        if with_kernels:
            names.append(f"after {patch.name}: kernels compile")
        names.append(f"after {patch.name}: without MAGMA")
        names += [f"after {patch.name}: {Path(path).name}" for path in _SINGLE]
        names += [f"after {patch.name}: ROCm with and without MAGMA"]
    return names


def run(
    report: Report,
    base_: Base,
    patches: Sequence[Patch],
    trees: Sequence[Path],
    wheel_spec: str | None,
    build: Path,
) -> None:
    """Compiles the states after each patch; `trees[k]` is the source after k patches."""
    try:
        compiler()
        wheel_ = wheel.inspect(wheel.locate(wheel_spec or base_.version))
        wheel.check_headers(wheel_)
    except UserError as error:
        report.add("compiling", str(error))
        return
    differs = wheel.check_known(wheel_, base_.wheels.get(wheel_.version))
    report.add(f"torch {wheel_.full_version} is the build that base.toml describes", differs)
    states = [
        (f"after {patch.name}", list(patches[: index + 1])) for index, patch in enumerate(patches)
    ]
    states = states or [("the bare base", [])]
    folder = build / "check"
    with env.lock(folder / ".lock", "checking the series"):
        for (label, applied), tree in zip(states, trees[1:] or trees, strict=True):
            # The last state is what gets relinked: its objects serve there too.
            optimize = "-O2" if label == states[-1][0] else "-O0"
            _state(report, label, base_, applied, tree, wheel_, folder, optimize)


def _state(
    report: Report,
    label: str,
    base_: Base,
    patches: Sequence[Patch],
    tree: Path,
    wheel_: Wheel,
    build: Path,
    optimize: str,
) -> None:
    on = overlay.build(build / "magma", tree, base_, patches, wheel_, magma=True)
    flags = relink.flags(wheel_, on.folder, magma=True, optimize=optimize)
    units = [Unit(source.name, source, flags) for source in on.sources()]
    note = f"{len(units)} units, {optimize}, MAGMA {'on' if wheel_.magma_enabled else 'off'}"
    _compile(
        report,
        f"{label}: linalg units compile",
        relink.make_compiler(wheel_, on.folder),
        units,
        note,
    )
    if on.kernels():
        _kernels(report, f"{label}: kernels compile", on, wheel_)
    off = overlay.build(build / "no-magma", tree, base_, patches, wheel_, magma=False)
    flags = relink.flags(wheel_, off.folder, magma=False)
    guarded = [
        Unit(source.name, source, flags, syntax_only=True)
        for source in off.sources()
        if _names_magma(source)
    ]
    names = ", ".join(unit.source.name for unit in guarded)
    _compile(
        report,
        f"{label}: without MAGMA",
        relink.make_compiler(wheel_, off.folder),
        guarded,
        f"{names}, syntax",
    )
    for path in _SINGLE:
        _single(report, f"{label}: {Path(path).name}", base_, tree, path, wheel_, build / "singles")
    _rocm(report, label, wheel_, on, build)


def _kernels(report: Report, item: str, include: overlay.Overlay, wheel_: Wheel) -> None:
    """The kernels for one architecture; by an nvcc of another CUDA if the wheel's is not there."""
    try:
        nvcc = kernels.find_any(wheel_)
    except NoKernels as error:
        report.skip(item, str(error))
        return
    units = kernels.units(include, wheel_, nvcc)
    note = f"{len(units)} units, sm_{kernels.CHECKED}, nvcc {nvcc.version}"
    _compile(report, item, relink.make_compiler(wheel_, include.folder), units, note)


def _names_magma(source: Path) -> bool:
    return "AT_MAGMA_ENABLED" in source.read_text(encoding="utf-8")


def _compile(
    report: Report, item: str, compiler_: Compiler, units: Sequence[Unit], note: str
) -> None:
    if not units:
        report.add(item, "there is nothing to compile")
        return
    order = sorted(units, key=lambda unit: -unit.source.stat().st_size)
    problems = []
    for result in compiler_.run(order):
        if not result.ok:
            rows = [
                row for row in result.messages.splitlines() if "error" in row
            ] or result.messages.splitlines()
            problems.append(f"{result.unit.label}:\n" + "\n".join(rows[:_ERROR_LINES]))
    report.add(item, problems, note=note)


def _single(
    report: Report, item: str, base_: Base, tree: Path, path: str, wheel_: Wheel, folder: Path
) -> None:
    """A syntax check of one file outside linalg, the tree's own headers first."""
    if wheel_.version != base_.version:
        report.skip(
            item,
            f"it needs the headers of torch {base_.version}, and this is {wheel_.full_version}",
        )
        return
    if not (tree / path).is_file():
        report.skip(item, f"{path} is not among the base's files")
        return
    extra = []
    if "fmt/" in (tree / path).read_text(encoding="utf-8"):
        try:
            extra = [f"-isystem{include}" for include in (_fmt(base_), _python_headers())]
        except UserError as error:
            report.skip(item, str(error))
            return
    contents = {
        name.relative_to(tree).as_posix(): name.read_bytes()
        for name in tree.rglob("*")
        if name.is_file() and (name.suffix in (".h", ".cuh", ".hpp") or name == tree / path)
    }
    overlay.sync(folder, contents)
    arguments = list(relink.flags(wheel_, folder / "aten/src", magma=True))
    arguments += [f"-I{folder}", *extra, f"-isystem{wheel_.include}/kineto"]
    unit = Unit(path, folder / path, tuple(arguments), syntax_only=True)
    roots = {"tree": folder, "wheel": wheel_.site, "root": env.ROOT}
    _compile(
        report, item, Compiler(roots=roots, first=(folder / "aten/src", folder)), [unit], "syntax"
    )


def _fmt(base_: Base) -> Path:
    """The include folder of fmt: the system's, or that of base.toml's Debian package."""
    if Path("/usr/include/fmt/format.h").is_file():
        return Path("/usr/include")
    if not base_.fmt:
        raise UserError(
            "the headers of fmt are not installed, and base.toml names no package of them"
        )
    place = env.cache_dir() / f"fmt-{re.sub(r'[^0-9.]', '-', base_.fmt['version'])}"
    if not (place / "usr/include/fmt/format.h").is_file():
        with env.lock(place.with_name(f".{place.name}.lock"), "fetching the headers of fmt"):
            if not place.exists():
                try:
                    apt.binary_package(**base_.fmt, to=place, state=env.cache_dir() / "apt")
                except UserError as error:
                    raise UserError(
                        f"the headers of fmt are not installed and could not be fetched ({error}). "
                        "On Debian and "
                        f"Ubuntu: apt-get install {base_.fmt['package']}"
                    ) from None
    return place / "usr/include"


def _python_headers() -> Path:
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        version = sysconfig.get_python_version()
        raise UserError(
            f"Python.h is not in {folder}. On Debian and Ubuntu: apt-get install "
            f"python{version}-dev"
        )
    return folder


def _rocm(report: Report, label: str, wheel_: Wheel, include: overlay.Overlay, build: Path) -> None:
    """The front end over every hipified unit, against our own small HIP headers."""
    for magma in (True, False):
        item = f"{label}: ROCm {'with' if magma else 'without'} MAGMA"
        folder = build / ("hip" if magma else "hip-no-magma")
        try:
            sources = hip.build(folder, wheel_, include, magma=magma)
        except UserError as error:
            report.skip(item, str(error))
            continue
        if not magma:
            sources = [source for source in sources if _names_magma(source)]
        units = [
            hip.unit(source, folder, wheel_, relink.MAGMA_PROTOTYPES, magma=magma)
            for source in sources
        ]
        roots = {"hip": folder, "wheel": wheel_.site, "root": env.ROOT}
        first = (folder, hip.PROTOTYPES, relink.MAGMA_PROTOTYPES)
        units = [replace(unit, label=unit.source.name) for unit in units]
        names = ", ".join(unit.label for unit in units) if len(units) < 3 else f"{len(units)} units"
        _compile(
            report,
            item,
            Compiler(roots=roots, first=first),
            units,
            f"{names} hipified, syntax, prototypes",
        )
