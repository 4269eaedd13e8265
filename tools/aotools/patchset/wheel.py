"""What a torch wheel is: found by reading its files, without importing it and without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotools import env
from aotools.env import UserError
from aotools.patchset import facts
from aotools.patchset.base import WheelFacts

LINALG_LIBRARY = "libtorch_cuda_linalg.so"
_CUDA_LIBRARIES = ("libcudart", "libcublas", "libcusolver", "libcusparse")
# A header of each package that compiling needs, and what brings it.
_HEADERS = {
    "cuda_runtime_api.h": "nvidia-cuda-runtime",
    "crt/host_defines.h": "nvidia-cuda-nvcc (CUDA 13: nvidia-cuda-crt)",
    "nv/target": "nvidia-cuda-cccl",
    "cublas_v2.h": "nvidia-cublas",
    "cusolverDn.h": "nvidia-cusolver",
    "cusparse.h": "nvidia-cusparse",
}


@dataclass(frozen=True)
class Wheel:
    """An unpacked or installed torch wheel with CUDA."""

    site: Path  # the folder that holds torch/ and nvidia/
    full_version: str  # "2.6.0+cu124"
    git: str
    cuda: str  # "12.4"
    cxx11_abi: bool
    cpu_macros: tuple[str, ...]
    magma_enabled: bool
    linalg: facts.Elf
    cuda_includes: tuple[Path, ...]
    cuda_libraries: Mapping[str, Path]  # soname -> file, as the wheel's linalg library needs them

    @property
    def version(self) -> str:
        """The release without its local part: "2.6.0"."""
        return self.full_version.partition("+")[0]

    @property
    def include(self) -> Path:
        """torch's own headers."""
        return self.site / "torch/include"

    @property
    def lib(self) -> Path:
        """torch's own libraries."""
        return self.site / "torch/lib"

    @property
    def magma_functions(self) -> frozenset[str]:
        """The C functions of MAGMA that the wheel's linalg library exports."""
        return frozenset(name for name in self.linalg.defined if name.startswith("magma"))


def locate(spec: str) -> Path:
    """The site folder for "2.6.0" (fetched when needed), "existing" (the user's own torch) or a
    path to one.
    """
    if spec == "existing":
        return _existing()
    if "/" in spec or spec.startswith("."):
        site = Path(spec).expanduser().absolute()
        if not (site / "torch/version.py").is_file():
            raise UserError(f"{site} holds no torch: there is no torch/version.py in it")
        return site
    return env.wheel_tree(spec)


def users_python() -> str:
    """The user's own interpreter: $PYTHON, else the python3 that was first on the user's PATH.

    .venv's is this project's; the one that .venv was made from need not be the user's virtual
    environment, in which torch may lie.
    """
    named = os.environ.get("PYTHON") or os.environ.get("AOTOOLS_USER_PYTHON")
    return named or str(getattr(sys, "_base_executable", sys.executable))


def _existing() -> Path:
    """The folder of the torch that the user's own interpreter would import."""
    python = users_python()
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    if own := os.environ.get("AOTOOLS_USER_PYTHONPATH"):
        variables["PYTHONPATH"] = own
    code = (
        "import importlib.util as u, os\n"
        "s = u.find_spec('torch')\n"
        "print(os.path.dirname(os.path.dirname(s.origin)) if s and s.origin else '')"
    )
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, env=variables, cwd="/"
    )
    found = done.stdout.strip()
    if done.returncode != 0 or not found:
        raise UserError(
            f"the torch of your own Python was asked for, and {python} has none. Name the "
            "interpreter that has one: PYTHON=/path/to/python"
        )
    return Path(found)


def inspect(site: Path) -> Wheel:
    """Reads the wheel in `site`; UserError when it has no CUDA or no separate linalg library."""
    version = _version_py(site)
    library = site / "torch/lib" / LINALG_LIBRARY
    if not library.is_file():
        raise UserError(
            f"torch {version['__version__']} in {site} has no torch/lib/{LINALG_LIBRARY}: it was "
            "built without CUDA "
            "or with linear algebra inside libtorch_cuda. Only a build with that library can be "
            "relinked"
        )
    linalg = facts.read(library)
    includes = _cuda_includes(site, version.get("cuda", ""))
    return Wheel(
        site=site,
        full_version=version["__version__"],
        git=version.get("git_version", ""),
        cuda=version.get("cuda", ""),
        cxx11_abi=_cxx11_abi(site / "torch/lib/libc10.so"),
        cpu_macros=_cpu_macros(linalg),
        magma_enabled=_magma_enabled(site),
        linalg=linalg,
        cuda_includes=includes,
        cuda_libraries=_cuda_libraries(site, version.get("cuda", ""), linalg),
    )


def check_known(wheel: Wheel, known: WheelFacts | None) -> list[str]:
    """How the wheel differs from what base.toml says about its version; [] also when it says
    nothing.
    """
    if known is None:
        return []
    pairs = (
        ("git commit", wheel.git, known.git),
        ("CUDA", wheel.cuda, known.cuda),
        ("new C++ string ABI", wheel.cxx11_abi, known.cxx11_abi),
        ("CPU capability macros", wheel.cpu_macros, known.cpu_macros),
    )
    return [
        f"{what}: {found}, base.toml says {said}" for what, found, said in pairs if found != said
    ]


def _version_py(site: Path) -> dict[str, str]:
    text = (site / "torch/version.py").read_text(encoding="utf-8")
    found = re.findall(r"^(\w+)(?:: [^=]+)? = '([^']*)'", text, re.M)
    values = dict(found)
    if "__version__" not in values:
        raise UserError(f"{site / 'torch/version.py'} states no version")
    return values


def _cxx11_abi(c10: Path) -> bool:
    """Which std::string the constructors of c10::Error take: that is the ABI of the whole build."""
    constructors = [name for name in facts.read(c10).defined if name.startswith("_ZN3c105ErrorC")]
    if any("__cxx11" in name for name in constructors):
        return True
    if any(name.endswith("Ss") for name in constructors):
        return False
    raise UserError(f"{c10} shows no constructor of c10::Error, so its C++ ABI cannot be told")


def _cpu_macros(linalg: facts.Elf) -> tuple[str, ...]:
    """The CPU-capability macros of the build: get_call_ptr takes one pointer for each, and one
    more.
    """
    names = [name for name in linalg.undefined if "DispatchStubImpl12get_call_ptr" in name]
    pointers = names[0].partition("DeviceTypeE")[2] if len(names) == 1 else ""
    if re.fullmatch(r"Pv(S\d?_)*", pointers) is None:
        raise UserError(
            f"{linalg.path}: its use of DispatchStub is not one that this tool knows: {names}"
        )
    count = pointers.count("_")
    if count == 0:
        return ()
    if count == 2:
        return ("HAVE_AVX2_CPU_DEFINITION", "HAVE_AVX512_CPU_DEFINITION")
    raise UserError(
        f"{linalg.path} was built with {count} CPU capabilities beside the default; 0 or 2 are "
        "known"
    )


def _magma_enabled(site: Path) -> bool:
    text = (site / "torch/include/ATen/cuda/CUDAConfig.h").read_text(encoding="utf-8")
    return re.search(r"^#define AT_MAGMA_ENABLED\(\) 1\s*$", text, re.M) is not None


def _packages(site: Path, cuda: str, part: str) -> list[Path]:
    """The `part` folders ("include", "lib") of the nvidia packages of this CUDA version."""
    folders = sorted((site / "nvidia").glob(f"*/{part}"))
    own = site / "nvidia" / f"cu{cuda.partition('.')[0]}" / part  # from CUDA 13 on all is in one
    others = [folder for folder in folders if not re.fullmatch(r"cu\d+", folder.parent.name)]
    return [own, *others] if own in folders else others


def _toolkits(cuda: str) -> list[Path]:
    """CUDA toolkits of exactly this version: mixed headers read structs at wrong offsets."""
    named = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    found = []
    for toolkit in [*(Path(name) for name in named if name), Path("/usr/local/cuda")]:
        header = toolkit / "include/cuda_runtime_api.h"
        text = header.read_text(encoding="utf-8", errors="replace") if header.is_file() else ""
        version = re.search(r"^#define CUDART_VERSION\s+(\d+)", text, re.M)
        if version and f"{int(version[1]) // 1000}.{int(version[1]) % 1000 // 10}" == cuda:
            found.append(toolkit)
    return found


def _cuda_includes(site: Path, cuda: str) -> tuple[Path, ...]:
    folders = [*_packages(site, cuda, "include")]
    folders += [toolkit / "include" for toolkit in _toolkits(cuda)]
    # From CUDA 13 on a toolkit may have these headers one level down only, which nvcc knows of.
    nested = (folder / "cccl" for folder in folders if not (folder / "nv/target").is_file())
    return (*folders, *(folder for folder in nested if (folder / "nv/target").is_file()))


def check_headers(wheel: Wheel) -> None:
    """UserError that names the packages whose CUDA headers are missing."""
    missing = [
        f"{header} ({package})"
        for header, package in _HEADERS.items()
        if not any((folder / header).is_file() for folder in wheel.cuda_includes)
    ]
    if missing:
        raise UserError(
            f"CUDA {wheel.cuda} headers are missing for torch {wheel.full_version} in "
            f"{wheel.site}: {', '.join(missing)}. Install the nvidia packages of that CUDA version "
            "beside torch, or set CUDA_HOME to a CUDA toolkit of that version; tools/requirements/ "
            "shows the packages for the pinned wheels"
        )


def _cuda_libraries(site: Path, cuda: str, linalg: facts.Elf) -> dict[str, Path]:
    origin = str(linalg.path.parent)
    folders = [Path(part.replace("$ORIGIN", origin)) for part in (*linalg.rpath, *linalg.runpath)]
    folders += _packages(site, cuda, "lib")
    folders += [toolkit / part for toolkit in _toolkits(cuda) for part in ("lib64", "lib")]
    found: dict[str, Path] = {}
    for soname in linalg.needed:
        if soname.partition(".")[0] in _CUDA_LIBRARIES:
            places = [folder / soname for folder in folders if (folder / soname).is_file()]
            if not places:
                raise UserError(
                    f"{soname}, which {linalg.path} needs, is in none of its library folders"
                )
            found[soname] = places[0].resolve()
    return found
