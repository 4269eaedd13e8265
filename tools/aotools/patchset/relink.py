"""Builds the linalg sources of a patched work tree into one library that a stock wheel loads beside
its own.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotools import env
from aotools.env import ROOT, UserError
from aotools.patchset import facts, overlay, wheel
from aotools.patchset.base import Base, Patch
from aotools.patchset.compile import Compiler, Result, Unit, compiler, job_count

if TYPE_CHECKING:
    from aten_overrides._nvcc import Nvcc

SONAME = "libtorch_cuda_linalg_patched.so"
FACTS = "build-facts.json"
ENTRIES = (
    "cholesky",
    "cholesky_inverse",
    "lu_factor",
    "ldl_factor",
    "ldl_solve",
    "triangular_solve",
    "orgqr",
    "ormqr",
    "geqrf",
    "linalg_eigh",
    "linalg_eig",
    "svd",
    "lu_solve",
    "lstsq",
    "cholesky_solve_helper",
)
MAGMA_PROTOTYPES = ROOT / "test/prototypes/magma"
_ENTRY_SOURCE = Path(__file__).with_name("relink_entries.cpp")
# What forces routes, and the header without which a library has none to force.
_ROUTES = {
    "CUDASolverLanes.h": Path(__file__).with_name("relink_routes.cpp"),
    "LUSolve.h": Path(__file__).with_name("relink_solve_routes.cpp"),
}
_EXPORT = "aten_linalg_patched_"
_EXPORTED = {f"{_EXPORT}{name}" for name in ("report", "select", "install", "restore")}
# What the default routes of lu_factor and lu_solve call: without these a wheel's MAGMA is of no use
# here.
_MAGMA_NEEDED = re.compile(
    r"magma_init|magma_queue_\w+|magma_[sdcz]get(rf|rs)(_nopiv)?_(batched|gpu)|magmablas_[sdcz]trsm_batched"
)
_LINK = (
    "-Wl,-Bsymbolic",
    "-Wl,-z,defs",
    "-Wl,--no-undefined",
    "-Wl,--no-as-needed",
    "-Wl,--enable-new-dtags",
)


@dataclass(frozen=True)
class Relinked:
    """A relinked library, the facts written beside it, and whether anything had to be built."""

    library: Path
    facts: dict[str, Any]
    seconds: float
    built: bool


def flags(
    wheel_: wheel.Wheel, include: Path, *, magma: bool, optimize: str = "-O2"
) -> tuple[str, ...]:
    """The arguments with which ATen's linalg units compile against the wheel, `include` first."""
    result = [
        "-std=gnu++17",
        optimize,
        "-fPIC",
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
    ]
    result += [f"-ffile-prefix-map={include}/=", "-w"]
    defines = [
        "USE_CUDA",
        "BUILD_LAZY_CUDA_LINALG",
        "AT_PER_OPERATOR_HEADERS",
        "NDEBUG",
        *wheel_.cpu_macros,
    ]
    defines.append(f"_GLIBCXX_USE_CXX11_ABI={int(wheel_.cxx11_abi)}")
    result += [f"-D{name}" for name in defines]
    if not wheel_.cxx11_abi:
        result.append("-fabi-version=11")  # with the old strings go the manglings of their time
    result.append(f"-I{include}")
    if magma:
        result.append(f"-I{MAGMA_PROTOTYPES}")
    result += [f"-isystem{wheel_.include}", f"-isystem{wheel_.include}/torch/csrc/api/include"]
    return (*result, *(f"-isystem{folder}" for folder in wheel_.cuda_includes))


def make_compiler(wheel_: wheel.Wheel, include: Path) -> Compiler:
    """A compiler whose kept results do not depend on where the wheel, the overlay or this checkout
    lie.
    """
    roots = {"overlay": include, "out": include.parent, "wheel": wheel_.site, "root": ROOT}
    return Compiler(roots=roots, first=(include, MAGMA_PROTOTYPES))


def magma_declared() -> frozenset[str]:
    """The C functions that our MAGMA prototypes declare."""
    text = (MAGMA_PROTOTYPES / "magma_v2.h").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"#define (\w+PROTOTYPES)\(p.*?\)((?:.*\\\n)+.*)", text))
    names = set(re.findall(r"\b(magma_[a-z_]+)\(", re.sub(r"#define.*(\\\n.*)*", "", text)))
    for block, letter in re.findall(r"^(\w+PROTOTYPES)\((\w), ", text, re.M):
        for template in re.findall(r"\b(magma\w*?_\w*##p##\w+)\(", blocks[block]):
            names.add(template.replace("##p##", letter))
    return frozenset(name for name in names if "_hip_" not in name)


def choose_magma(asked: str | None, wheel_: wheel.Wheel) -> tuple[bool, list[str]]:
    """Whether to build with the wheel's MAGMA, and which of its functions the wheel lacks.

    `asked` is "wheel", "off" or None: the wheel's if it exports what the default routes need.
    UserError when "wheel" is asked for and it does not.
    """
    lacking = sorted(magma_declared() - wheel_.magma_functions)
    needed = [name for name in lacking if _MAGMA_NEEDED.fullmatch(name)]
    usable = wheel_.magma_enabled and not needed
    if asked == "off" or (asked is None and not usable):
        return False, []
    if not usable:
        reason = (
            f"lacks {', '.join(needed[:6])}" if wheel_.magma_enabled else "was built without MAGMA"
        )
        raise UserError(f"--magma wheel: torch {wheel_.full_version} {reason}; use --magma off")
    return True, lacking


def parse_entries(asked: str, base: Base) -> list[str]:
    """The entries that the library keeps: "changed" (base.toml), "all", or a comma list."""
    if asked == "all":
        return list(ENTRIES)
    names = (
        list(base.entries)
        if asked == "changed"
        else [name.strip() for name in asked.split(",") if name.strip()]
    )
    unknown = [name for name in names if name not in ENTRIES]
    if unknown:
        raise UserError(
            f"no linalg entry is called {', '.join(unknown)}. There are: {', '.join(ENTRIES)}"
        )
    return [name for name in ENTRIES if name in names]


def relink(
    base: Base,
    tree: Path,
    patches: Sequence[Patch],
    wheel_: wheel.Wheel,
    out: Path,
    *,
    magma: str | None = None,
    entries: str = "changed",
    command: str = "",
    quiet: bool = False,
    tree_only: bool = False,
    nvcc: Nvcc | None = None,
) -> Relinked:
    """Builds `out`/libtorch_cuda_linalg_patched.so from `tree`, in which `patches` are applied.

    With `tree_only` the tree is a user's, so the facts name no patches, only the sources' checksum.
    `nvcc` compiles the tree's kernels, if it has any; one is looked for when none is given.
    Nothing that is already there changes unless everything succeeded. UserError when a source does
    not compile, the wheel is not what base.toml says, or the result fails its verification.
    """
    started = time.monotonic()
    recorded = [] if tree_only else patches
    differs = wheel.check_known(wheel_, base.wheels.get(wheel_.version))
    if differs:
        raise UserError(
            f"the torch in {wheel_.site} is another build than expected. " + "; ".join(differs)
        )
    wheel.check_headers(wheel_)
    wanted = parse_entries(entries, base)
    with_magma, lacking = choose_magma(magma, wheel_)
    env.make_folder(out)
    with env.lock(out / ".lock", f"relinking into {out}"):
        include = overlay.build(out / "include", tree, base, patches, wheel_, magma=with_magma)
        if not include.kernels():
            nvcc = None
        elif nvcc is None:
            # Not above: the loader takes names from here where there is neither package nor TOML.
            from aotools.patchset import kernels

            nvcc = kernels.nvcc_for(include, wheel_)
        objects = _compile(
            wheel_, include, wanted, lacking if with_magma else [], with_magma, out, quiet, nvcc
        )
        for left in out.glob(".tmp-*"):  # of a run that was killed: the lock is ours
            shutil.rmtree(left)
        link = _link_command(wheel_, objects, out)
        key = _link_key(objects, link, recorded)
        library = out / SONAME
        old = _read_facts(out)
        if old.get("link_key") == key and _matches(library, old):
            return Relinked(library, old, time.monotonic() - started, False)
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=out) as name:
            fresh = Path(name) / SONAME
            _link(link, fresh)
            elf = verify(fresh, wheel_)
            record = {
                "format": 1,
                "base": base.name,
                "patches": [
                    {"name": each.name, "sha256": each.sha256, "code_sha256": each.code_sha256}
                    for each in recorded
                ],
                "sources": _digest(include.linalg),
                "entries": wanted,
                "magma": {
                    "mode": "wheel" if with_magma else "off",
                    "lacking": lacking if with_magma else [],
                },
                **_build_facts(wheel_, include, elf),
                "kernels": (
                    {"nvcc": nvcc.version, "architectures": list(nvcc.architectures)}
                    if nvcc
                    else None
                ),
                "library": {
                    "file": SONAME,
                    "sha256": _sha256(fresh),
                    "bytes": fresh.stat().st_size,
                },
                "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                "command": command,
                "link_key": key,
            }
            (out / FACTS).unlink(
                missing_ok=True
            )  # never facts beside a library that they do not describe
            fresh.replace(library)
            env.write_file(out / FACTS, json.dumps(record, indent=1) + "\n")
    return Relinked(library, record, time.monotonic() - started, True)


def _compile(
    wheel_: wheel.Wheel,
    include: overlay.Overlay,
    wanted: Sequence[str],
    lacking: Sequence[str],
    magma: bool,
    out: Path,
    quiet: bool,
    nvcc: Nvcc | None,
) -> list[Path]:
    """All objects in link order; the one that gives entries back is last (relink_entries.cpp says
    why).
    """
    arguments = flags(wheel_, include.folder, magma=magma)
    units = [Unit(source.name, source, arguments) for source in include.sources()]
    if nvcc is not None:
        from aotools.patchset import kernels

        units += kernels.units(include, wheel_, nvcc)
    if lacking:
        overlay.sync(out / "generated", {"magma_lacking.cpp": _lacking_source(lacking).encode()})
        units.append(Unit("magma_lacking.cpp", out / "generated/magma_lacking.cpp", arguments))
    for header, source in _ROUTES.items():
        if (include.linalg / header).is_file():
            units.append(Unit(source.name, source, arguments))
    chosen = f'-DATEN_LINALG_PATCHED_ENTRIES="{",".join(wanted)}"'
    units.append(Unit(_ENTRY_SOURCE.name, _ENTRY_SOURCE, (*arguments, chosen)))

    def report(result: Result) -> None:
        if not quiet and not result.cached:
            print(f"  {result.unit.label:32} {result.seconds:5.1f} s", flush=True)

    def start(missing: int) -> None:
        if not quiet:
            cached = len(units) - missing
            known = f" ({cached} more are as before)" if cached else ""
            print(f"compiling {missing} sources, {job_count()} at once{known}", flush=True)

    # What takes longest first, so that it does not run alone at the end.
    order = sorted(units, key=lambda unit: (unit.program is None, -unit.source.stat().st_size))
    by_label = {
        result.unit.label: result
        for result in make_compiler(wheel_, include.folder).run(order, report, start)
    }
    results = [by_label[unit.label] for unit in units]
    failed = [result for result in results if not result.ok]
    if failed:
        said = "\n".join(f"{result.unit.label}:\n{_shorten(result.messages)}" for result in failed)
        names = ", ".join(result.unit.label for result in failed)
        raise UserError(f"{names} did not compile against torch {wheel_.full_version}:\n{said}")
    return [result.object for result in results if result.object is not None]


def _lacking_source(lacking: Sequence[str]) -> str:
    """Definitions, for the linker, of MAGMA functions that a trimmed wheel does not carry: each
    raises.
    """
    lines = [
        "#include <c10/util/Exception.h>",
        "namespace {",
        "[[noreturn]] void refuse(const char* name) {",
        "  TORCH_CHECK(",
        "      false,",
        "      name,",
        '      " is not in the MAGMA of this torch; choose another preferred_linalg_library "',
        "      \"than 'magma'\");",
        "}",
        "}",
    ]
    lines += [f'extern "C" int {name}() {{\n  refuse("{name}");\n}}' for name in lacking]
    return "\n".join(lines) + "\n"


def _shorten(text: str, lines: int = 30) -> str:
    rows = text.splitlines()
    return "\n".join(
        rows if len(rows) <= lines else [*rows[:lines], f"... {len(rows) - lines} more lines"]
    )


def _link_command(wheel_: wheel.Wheel, objects: Sequence[Path], out: Path) -> list[str]:
    overlay.sync(out / "link", {"exports.map": f"{{ global: {_EXPORT}*; local: *; }};\n".encode()})
    names = [
        wheel.LINALG_LIBRARY,
        "libtorch_cpu.so",
        "libtorch_cuda.so",
        "libc10.so",
        "libc10_cuda.so",
    ]
    libraries = [wheel_.lib / name for name in names] + list(wheel_.cuda_libraries.values())
    folders = list(dict.fromkeys(path.parent for path in libraries))
    others = sorted((wheel_.site / "nvidia").glob("*/lib"))  # what those need in turn
    result = [compiler()[0], "-shared", *map(str, objects), f"-Wl,-soname,{SONAME}", *_LINK]
    # -Xlinker where a path follows: -Wl would split it at its commas.
    result += ["-Xlinker", f"--version-script={out / 'link/exports.map'}"]
    result += map(str, libraries)
    for option, places in (("-rpath", folders), ("-rpath-link", others)):
        for folder in places:
            result += ["-Xlinker", option, "-Xlinker", str(folder)]
    return [*result, "-ldl"]


def _link_key(objects: Sequence[Path], link: Sequence[str], patches: Sequence[Patch]) -> str:
    """What the library and the facts beside it depend on; an object's name is its checksum."""
    named = [f"{patch.name} {patch.sha256}" for patch in patches]
    parts = [compiler()[1], *(path.stem for path in objects), *link, *named]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _link(link: Sequence[str], fresh: Path) -> None:
    variables = {**os.environ, "TMPDIR": str(fresh.parent), "LC_ALL": "C"}
    done = subprocess.run([*link, "-o", str(fresh)], capture_output=True, text=True, env=variables)
    if done.returncode != 0:
        kept = fresh.parent.parent / "link/command.txt"
        env.write_file(kept, shlex.join(link) + "\n")
        raise UserError(
            f"linking failed (the command is in {kept}):\n{_shorten(done.stderr.strip())}"
        )


def verify(library: Path, wheel_: wheel.Wheel) -> facts.Elf:
    """Reads the finished library and checks it against the wheel; UserError names what is wrong."""
    elf = facts.read(library)
    problems = []
    if elf.soname != SONAME:
        problems.append(f"its SONAME is {elf.soname!r}, not {SONAME}")
    needed = {
        wheel.LINALG_LIBRARY,
        "libtorch_cpu.so",
        "libtorch_cuda.so",
        "libc10.so",
        *wheel_.cuda_libraries,
    }
    if missing := sorted(needed - set(elf.needed)):
        problems.append(f"it does not name {', '.join(missing)} as needed")
    if elf.rpath:
        problems.append("it has a DT_RPATH, which would come before LD_LIBRARY_PATH")
    if absent := [folder for folder in elf.runpath if not Path(folder).is_dir()]:
        problems.append(f"its RUNPATH names folders that are not there: {', '.join(absent)}")
    if extra := sorted(name for name in elf.defined if not name.startswith(_EXPORT)):
        problems.append(
            f"it exports {len(extra)} names that could meet the wheel's, such as {extra[0]}"
        )
    if missing_functions := sorted(_EXPORTED - elf.defined):
        problems.append(f"it does not export {', '.join(missing_functions)}")
    errors = [name for name in elf.undefined if name.startswith("_ZN3c105ErrorC")]
    if any(("__cxx11" in name) != wheel_.cxx11_abi for name in errors):
        problems.append("it was compiled with the other C++ string ABI than the wheel")
    calls = [name for name in elf.undefined if "DispatchStubImpl12get_call_ptr" in name]
    if not set(calls) <= wheel_.linalg.undefined:
        problems.append("it was compiled with other CPU-capability macros than the wheel")
    if problems:
        raise UserError(f"the relinked library is not right: {'; '.join(problems)}")
    return elf


def _build_facts(wheel_: wheel.Wheel, include: overlay.Overlay, elf: facts.Elf) -> dict[str, Any]:
    return {
        "torch": wheel_.full_version,
        "torch_git": wheel_.git,
        "cuda": wheel_.cuda,
        "cxx11_abi": wheel_.cxx11_abi,
        "cpu_macros": list(wheel_.cpu_macros),
        "compiler": compiler()[1],
        "headers": include.headers,
        "soname": elf.soname,
        "needed": list(elf.needed),
        "runpath": list(elf.runpath),
        "needs": {family: elf.newest(family) for family in ("GLIBC", "GLIBCXX", "CXXABI")},
    }


def _digest(folder: Path) -> str:
    """One checksum of all linalg sources that were compiled."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()} {_sha256(path)}\n".encode())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_facts(out: Path) -> dict[str, Any]:
    try:
        found = json.loads((out / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _matches(library: Path, old: dict[str, Any]) -> bool:
    return library.is_file() and _sha256(library) == old.get("library", {}).get("sha256")
