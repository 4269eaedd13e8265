"""A torch wheel of a few kilobytes: the names, files and constructors that relinking depends on.

Its functions return numbers, so that a test can tell whose function an entry calls: 100 + index
are the wheel's, 200 + index those of the toy base's source.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from fake_base import write_files

from aotools.patchset.base import LINALG, Base, blob_id
from aotools.patchset.relink import ENTRIES, magma_declared

STUBS = ENTRIES[:-1]
GIT = "70f0" * 10
_STUB_HEADER = (
    """\
#pragma once
#include <atomic>
namespace c10 { enum class DeviceType : signed char { CUDA = 1 }; }
namespace at { struct Tensor { int number; }; }
namespace at::native {
struct DispatchStubImpl {
  void* get_call_ptr(c10::DeviceType, void*, void*, void*);
  std::atomic<void*> cpu_dispatch_ptr{nullptr};
  void* cuda_dispatch_ptr = nullptr;
};
struct Stub { DispatchStubImpl impl; };
using Function = int (*)();
"""
    + "\n".join(f"extern Stub {name}_stub;" for name in STUBS)
    + "\n}\n"
)
MODE = """\
#pragma once

// What a routine is asked to do.

namespace at {
enum class Mode { A, B };
inline int count() {
  return 2;
}
}
"""
_LIB_HEADER = """\
#pragma once
#include <ATen/native/BatchLinearAlgebra.h>
namespace at::native::cuda::detail {
struct LinalgDispatch { Tensor (*cholesky_solve_helper)(const Tensor&, const Tensor&, bool); };
void registerLinalgDispatch(const LinalgDispatch&);
}
"""
_CPU = (
    "#include <ATen/native/BatchLinearAlgebra.h>\nnamespace at::native {\n"
    + "\n".join(f"Stub {name}_stub;" for name in STUBS)
    + "\nvoid* DispatchStubImpl::get_call_ptr(c10::DeviceType, void*, void*, void*) "
    "{ return cuda_dispatch_ptr; }\n}\n"
    + "".join(
        f'extern "C" int call_{name}() {{ return reinterpret_cast<at::native::Function>('
        f"at::native::{name}_stub.impl.cuda_dispatch_ptr)(); }}\n"
        for name in STUBS
    )
)
_CUDA = """\
#include <ATen/native/cuda/linalg/BatchLinearAlgebraLib.h>
namespace at::native::cuda::detail {
static LinalgDispatch disp;
void registerLinalgDispatch(const LinalgDispatch& other) { disp = other; }
}
extern "C" int call_cholesky_solve_helper() {
  return at::native::cuda::detail::disp.cholesky_solve_helper({}, {}, true).number;
}
"""


def linalg_source(start: int) -> str:
    """A linalg library's source whose functions return `start` + the entry's index."""
    functions = "".join(
        f"int {name}_kernel() {{ return {start + index}; }}\n"
        f"struct R{index} {{ R{index}() {{ {name}_stub.impl.cuda_dispatch_ptr = "
        f"reinterpret_cast<void*>(&{name}_kernel); }} }} r{index};\n"
        for index, name in enumerate(STUBS)
    )
    return (
        "#include <ATen/native/cuda/linalg/BatchLinearAlgebraLib.h>\n"
        "namespace at::native::lazy_linalg {\n"
        "Tensor _cholesky_solve_helper_cuda(const Tensor&, const Tensor&, bool) "
        f"{{ return {{{start + len(STUBS)}}}; }}\nnamespace {{\n{functions}"
        "struct Helper { Helper() { cuda::detail::registerLinalgDispatch("
        "{_cholesky_solve_helper_cuda}); } } helper;\n"
        "void* use = lu_factor_stub.impl.get_call_ptr(c10::DeviceType::CUDA, 0, 0, 0);\n}\n}\n"
    )


def base_files() -> dict[str, str]:
    """The toy base: what a relink compiles."""
    return {
        f"{LINALG}/BatchLinearAlgebraLib.h": _LIB_HEADER,
        f"{LINALG}/BatchLinearAlgebra.cpp": linalg_source(200),
        "aten/src/ATen/Mode.h": MODE,
    }


def base_toml() -> str:
    """The toy base's description; the first three entries are those that it changes."""
    rows = [f'"{path}" = "{blob_id(text.encode())}"' for path, text in base_files().items()]
    return (
        'version = "0.1"\ntag = "v0.1"\nurl = "file:///nowhere"\n'
        'entries = ["cholesky", "lu_factor", "lu_solve"]\n'
        f'[wheels."0.1"]\ngit = "{GIT}"\ncuda = "12.4"\ncxx11_abi = true\n'
        'cpu_macros = ["HAVE_AVX2_CPU_DEFINITION", "HAVE_AVX512_CPU_DEFINITION"]\n\n[blobs]\n'
        + "\n".join(rows)
        + "\n"
    )


def _link(site: Path, name: str, source: str, *libraries: str) -> None:
    folder = site / "torch/lib"
    folder.mkdir(parents=True, exist_ok=True)
    path = site / f"{name}.cpp"
    path.write_text(source)
    command = ["g++", "-shared", "-fPIC", "-O2", "-std=c++17", f"-I{site}/torch/include"]
    command += [f"-I{site}/linalg", "-o", str(folder / f"{name}.so"), str(path)]
    command += [f"-Wl,-soname,{name}.so", "-Wl,--no-as-needed", "-Wl,--disable-new-dtags"]
    command += [str(folder / f"{other}.so") for other in libraries if "." not in other]
    command += [str(site / "nvidia/cuda/lib" / other) for other in libraries if "." in other]
    subprocess.run([*command, "-Wl,-rpath,$ORIGIN/../../nvidia/cuda/lib:$ORIGIN"], check=True)


def make(site: Path, *, lacking: tuple[str, ...] = (), magma: bool = True) -> Path:
    """Builds the wheel in `site`; `lacking` are MAGMA functions that it does not export."""
    config = f"#define AT_ROCM_ENABLED() 0\n#define AT_MAGMA_ENABLED() {int(magma)}\n"
    version = f"__version__ = '0.1+cu124'\ncuda = '12.4'\ngit_version = '{GIT}'\n"
    headers = ("cuda_runtime_api.h", "crt/host_defines.h", "nv/target", "cublas_v2.h")
    write_files(
        site,
        {
            "torch/version.py": version,
            "torch/__init__.py": "from torch import version\n__version__ = version.__version__\n",
            "torch/include/ATen/native/BatchLinearAlgebra.h": _STUB_HEADER,
            "torch/include/ATen/cuda/CUDAConfig.h": config,
            "torch/include/ATen/Mode.h": base_files()["aten/src/ATen/Mode.h"],
            "torch/include/c10/util/Exception.h": (
                "#pragma once\n#include <stdexcept>\n#define TORCH_CHECK(condition, name, ...) "
                "throw std::runtime_error(name)\n"
            ),
            "linalg/ATen/native/cuda/linalg/BatchLinearAlgebraLib.h": _LIB_HEADER,
            **{f"nvidia/cuda/include/{name}": "" for name in headers},
            "nvidia/cuda/include/cusolverDn.h": "",
            "nvidia/cuda/include/cusparse.h": "",
        },
    )
    cuda = [f"lib{name}.so.12" for name in ("cudart", "cublas", "cusolver", "cusparse")]
    (site / "nvidia/cuda/lib").mkdir(parents=True)
    for name in cuda:
        made = str(site / "nvidia/cuda/lib" / name)
        options = ["-shared", "-fPIC", "-xc++", "/dev/null", f"-Wl,-soname,{name}", "-o", made]
        subprocess.run(["g++", *options], check=True)
    c10 = 'extern "C" void error() __asm__("_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx11");\n'
    _link(site, "libc10", c10 + "void error() {}\n")
    _link(site, "libc10_cuda", "")
    _link(site, "libtorch_cpu", _CPU, "libc10")
    _link(site, "libtorch_cuda", _CUDA, "libtorch_cpu")
    linalg = linalg_source(100)
    if magma:
        names = sorted(magma_declared() - set(lacking))
        linalg += "".join(f'extern "C" int {name}() {{ return 1; }}\n' for name in names)
    _link(site, "libtorch_cuda_linalg", linalg, "libtorch_cpu", "libtorch_cuda", *cuda)
    return site


def toy_base(folder: Path, patches: dict[str, str] | None = None) -> tuple[Base, Path]:
    """The toy base below `folder`, with these patches, and its source."""
    from aotools.patchset import base

    source = write_files(folder / "source", base_files())
    files = {"base.toml": base_toml(), "series": "\n".join(patches or {}) + "\n", **(patches or {})}
    write_files(folder / "patches/v0.1", files)
    return base.load("v0.1", folder / "patches"), source
