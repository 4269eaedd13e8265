"""The real series on the real source and the real wheels. No GPU is needed, and none is used."""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aotools import env
from aotools.patchset import apply, base, check, facts, fetch, git, kernels, relink, wheel
from aotools.patchset.base import LINALG, Base
from aotools.patchset.relink import ENTRIES, Relinked
from aotools.patchset.report import Report

VERSIONS = ("2.6.0", "2.11.0")
# What the 2.11.0 wheel's trimmed MAGMA does not carry; the default routes do not call it.
TRIMMED = r"magma_[sdcz](gels_gpu|geqrf2?_gpu|gesdd|potrf_gpu|potrf_batched)"


@pytest.fixture(scope="module")
def real() -> Base:
    return base.load("v2.6.0")


@pytest.fixture(scope="module")
def source(real: Base) -> Path:
    """The pinned source, which the marker says is in the cache."""
    return fetch.source(real, progress=False)


@pytest.fixture(scope="module", params=VERSIONS)
def stock(request: pytest.FixtureRequest) -> wheel.Wheel:
    return wheel.inspect(env.wheel_tree(str(request.param), download=False))


@pytest.fixture(scope="module")
def buildable(real: Base, stock: wheel.Wheel) -> kernels.Buildable:
    """The whole series where there is an nvcc for the wheel: 2.11.0's tree has one, 2.6.0's not."""
    return kernels.buildable(real.patches(), stock, architectures="90")


@pytest.fixture(scope="module")
def tree(
    real: Base,
    source: Path,
    buildable: kernels.Buildable,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("trees")
    return apply.plain_tree(real, source, buildable.patches, folder)


@pytest.fixture(scope="module")
def made(
    real: Base,
    tree: Path,
    stock: wheel.Wheel,
    buildable: kernels.Buildable,
    tmp_path_factory: pytest.TempPathFactory,
) -> Relinked:
    out = tmp_path_factory.mktemp("patched")
    return relink.relink(real, tree, buildable.patches, stock, out, quiet=True, nvcc=buildable.nvcc)


# --- the source ----------------------------------------------------------------------------------


@pytest.mark.source
def test_the_series_gives_the_same_commits_whatever_the_users_git_says(
    real: Base, source: Path, tmp_path: Path, hostile_git: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile, _ = apply.work_tree(real, source, real.patches(), tmp_path / "hostile")
    monkeypatch.undo()
    plain, _ = apply.work_tree(real, source, real.patches(), tmp_path / "plain")
    assert git.text(hostile, "rev-parse", "HEAD") == git.text(plain, "rev-parse", "HEAD")
    assert git.text(plain, "status", "--porcelain") == ""
    assert not hostile_git.exists()


@pytest.mark.source
def test_a_checkout_gets_the_same_files(real: Base, source: Path, tmp_path: Path) -> None:
    from aotools.patchset import onto

    checkout = tmp_path / "pytorch"
    subprocess.run(["cp", "-r", source, checkout], check=True)
    git.init(checkout)
    git.git(checkout, "add", "--all", "--force")
    git.git(checkout, "commit", "-qm", "v2.6.0", extra=git.BASE_AUTHOR)
    onto.apply_onto(real, source, real.patches(), checkout)
    own, _ = apply.work_tree(real, source, real.patches(), tmp_path / "own")
    assert git.text(checkout, "rev-parse", "HEAD^{tree}") == git.text(
        own, "rev-parse", "HEAD^{tree}"
    )


@pytest.mark.source
def test_what_is_added_and_listed(real: Base, source: Path, tmp_path: Path) -> None:
    tree = apply.plain_tree(real, source, real.patches(), tmp_path / "trees")
    assert fetch.wrong_files(source, real.blobs) == []
    names = {path.name for path in (tree / LINALG).iterdir()}
    assert {"BatchLinearAlgebra.cpp", "CUDASolver.cpp", "LinalgChoice.h", "SolverLanes.h"} <= names


def globbed(tree: Path, file: str, pattern: str) -> set[str]:
    """What the globs of a build file that stand in `pattern` find, as paths in the tree."""
    found = re.search(pattern, (tree / file).read_text(), re.S)
    assert found is not None, (file, pattern)
    top = tree / ("" if file == "BUILD.bazel" else Path(file).parent)
    names = re.findall(r'"([^"]+\*\.\w+)"', found[1])
    return {path.relative_to(tree).as_posix() for name in names for path in top.glob(name)}


@pytest.mark.source
def test_the_build_files_name_the_kernels(real: Base, source: Path, tmp_path: Path) -> None:
    """Each once, for CUDA by CMake and by Bazel, and none for ROCm."""
    tree = apply.plain_tree(real, source, real.patches(), tmp_path / "trees")
    cmake, native = "aten/src/ATen/CMakeLists.txt", f"{LINALG}/native"
    added = [path for path in (tree / native).iterdir() if path.suffix in (".cu", ".cpp")]
    for suffix in (".cu", ".cpp"):
        units = {f"{native}/{path.name}" for path in added if path.suffix == suffix}
        assert units
        name = f"native_cuda_linalg_{suffix[1:]}"
        found = globbed(tree, cmake, rf"file\(GLOB {name} (.*?)\)")
        assert {path for path in found if path.startswith(native)} == units
        group = "aten_cu_srcs" if suffix == ".cu" else "aten_cuda_cpp_srcs"
        found = globbed(tree, "BUILD.bazel", rf'name = "{group}",(.*?)\n\)')
        assert {path for path in found if path.startswith(native)} == units
    text = (tree / cmake).read_text()
    both = "${native_cuda_linalg_cpp} ${native_cuda_linalg_cu})"
    assert f"set(ATen_CUDA_LINALG_SRCS {both}" in text  # the lazy library
    assert f"list(APPEND ATen_CUDA_CU_SRCS {both}" in text  # and where there is none
    hip = re.findall(r"file\(GLOB native_hip\w* (.*?)\)", text)
    assert hip and not any("linalg/native" in globs for globs in hip)
    # CMake would link a static CUDA runtime into the library that holds kernels.
    library = (tree / "caffe2/CMakeLists.txt").read_text()
    assert "torch_cuda_linalg PROPERTIES CUDA_RUNTIME_LIBRARY None" in library
    linked = re.search(
        r"target_link_libraries\(torch_cuda_linalg PRIVATE\s+torch_cpu(.*?)\)", library, re.S
    )
    assert linked and linked[1].split() == ["torch_cuda", "caffe2::cublas", "torch::cudart"]


@pytest.mark.source
@pytest.mark.wheel
def test_check_finds_nothing(real: Base, source: Path, tmp_path: Path) -> None:
    stream = io.StringIO()
    report = check.run(
        real,
        source,
        wheel_spec=None,
        fast=False,
        build=tmp_path / "build",
        report=Report(stream=stream),
    )
    assert report.exit_code == 0, stream.getvalue()
    items = [finding.item for finding in report.findings]
    for patch in real.patches():
        for what in ("linalg units compile", "without MAGMA", "Context.cpp", "Module.cpp"):
            assert f"after {patch.name}: {what}" in items
        assert f"after {patch.name}: ROCm with MAGMA" in items
    assert f"after {real.series()[-1]}: kernels compile" in items
    # Only what this machine cannot bring may be missing, and it is said.
    skipped = [finding for finding in report.findings if finding.verdict == "SKIP"]
    assert all(finding.item.endswith("Module.cpp") for finding in skipped), stream.getvalue()


# --- the wheels ----------------------------------------------------------------------------------


def run(stock: wheel.Wheel, code: str, *arguments: Path | str) -> Any:
    """Runs Python with the wheel's torch; returns what it printed as JSON."""
    variables = env.tree_environment(stock.site)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.wheel
def test_base_toml_describes_the_wheels(real: Base, stock: wheel.Wheel) -> None:
    assert stock.version in real.wheels
    assert wheel.check_known(stock, real.wheels[stock.version]) == []
    assert stock.magma_enabled
    wheel.check_headers(stock)


@pytest.mark.wheel
def test_our_magma_prototypes_fit_the_wheels_magma(stock: wheel.Wheel) -> None:
    magma, lacking = relink.choose_magma(None, stock)
    assert magma
    assert all(re.fullmatch(TRIMMED, name) for name in lacking)
    assert bool(lacking) == (stock.version == "2.11.0")
    code = (
        "import ctypes, json, torch\n"
        'lib = ctypes.CDLL(torch.__path__[0] + "/lib/libtorch_cuda_linalg.so")\n'
        "v = [ctypes.c_int() for _ in range(3)]\n"
        "lib.magma_version(*map(ctypes.byref, v))\n"
        "out = {'version': [x.value for x in v]}\n"
        "for kind, letters in (('trans', 'NTC'), ('uplo', 'UL'), ('diag', 'NU'), ('side', 'LR'),\n"
        "                      ('vec', 'NVIASO')):\n"
        "    ask = getattr(lib, f'magma_{kind}_const')\n"
        "    ask.argtypes = [ctypes.c_char]\n"
        "    out[kind] = [ask(letter.encode()) for letter in letters]\n"
        "print(json.dumps(out))"
    )
    found = run(stock, code)
    types = (relink.MAGMA_PROTOTYPES / "magma_types.h").read_text()
    own = [int(n) for n in re.findall(r"MAGMA_VERSION_\w+ (\d+)", types)]
    assert found.pop("version") >= own
    for kind, values in found.items():
        declared = re.search(rf"typedef enum {{([^}}]*)}} magma_{kind}_t;", types)
        assert declared is not None
        assert [int(n) for n in re.findall(r"= (\d+)", declared[1])] == values


@pytest.mark.wheel
@pytest.mark.source
def test_the_library_is_right_and_built_only_once(
    real: Base,
    tree: Path,
    stock: wheel.Wheel,
    made: Relinked,
    buildable: kernels.Buildable,
) -> None:
    elf = facts.read(made.library)
    assert elf.soname == relink.SONAME
    assert elf.rpath == ()
    assert "libtorch_cuda_linalg.so" in elf.needed
    assert all(name.startswith("aten_linalg_patched_") for name in elf.defined)
    used = {name for name in elf.undefined if name.startswith("magma")}
    assert used <= stock.magma_functions
    assert "magma_sgetrf_batched" in used
    assert made.facts["entries"] == [name for name in ENTRIES if name in real.entries]
    names = [patch["name"] for patch in made.facts["patches"]]
    assert names + [patch.name for patch in buildable.left_out] == real.series()
    if stock.version == "2.11.0":  # whose tree has nvcc
        assert not buildable.left_out
        assert made.facts["kernels"] == {"nvcc": "13.0", "architectures": ["90"]}
    else:
        assert (made.facts["kernels"] is None) == bool(buildable.left_out)
    again = relink.relink(
        real,
        tree,
        buildable.patches,
        stock,
        made.library.parent,
        quiet=True,
        nvcc=buildable.nvcc,
    )
    assert not again.built
    assert again.seconds <= 3


LOAD = """
import ctypes, json, sys
import torch
lib = ctypes.CDLL(sys.argv[1])
lib.aten_linalg_patched_report.restype = ctypes.c_char_p
rows = lambda: json.loads(lib.aten_linalg_patched_report())
files = lambda key: {r["entry"]: r[key] and r[key]["file"].rpartition("/")[2] for r in rows()}
"""


@pytest.mark.wheel
@pytest.mark.source
def test_a_plain_load_changes_the_listed_entries_and_keeps_the_others(
    real: Base, stock: wheel.Wheel, made: Relinked
) -> None:
    code = (
        LOAD + "out = [files('current'), files('ours'), files('wheel')]\n"
        "lib.aten_linalg_patched_restore(); out.append(files('current'))\n"
        "lib.aten_linalg_patched_select(b','.join(n.encode() for n in out[0]))\n"
        "out.append(files('current')); print(json.dumps(out))"
    )
    current, ours, stocks, restored, everything = run(stock, code, made.library)
    assert list(current) == list(ENTRIES)
    assert set(ours.values()) == {relink.SONAME}
    assert set(stocks.values()) == {wheel.LINALG_LIBRARY}
    # The 15th is read too, from the instructions of torch's setter.
    assert current == {
        name: relink.SONAME if name in real.entries else wheel.LINALG_LIBRARY for name in ENTRIES
    }
    assert restored == stocks
    assert everything == ours


# Without a GPU, a CUDA kernel that is called with CPU tensors comes as far as its first CUDA call.
CALL = """
def call(operator, *arguments):
    try:
        operator._op_dk(torch._C.DispatchKey.CUDA, *arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "returned"
a = torch.eye(3, dtype=torch.float64).expand(2, 3, 3).contiguous()
"""


@pytest.mark.wheel
@pytest.mark.source
@pytest.mark.parametrize("first", ["before", "after"])
def test_the_first_use_is_no_second_load(stock: wheel.Wheel, made: Relinked, first: str) -> None:
    """torch's wrappers, which load its library at first use, must find it loaded and step aside."""
    helper = "call(torch.ops.aten._cholesky_solve_helper.default, a, a, False)"
    use = f"out.append({helper})\n"
    code = (
        "import ctypes, json, sys\nimport torch\nout = []\n"
        + CALL
        + (use if first == "before" else "")
        + "lib = ctypes.CDLL(sys.argv[1])\n"
        + use
        + use
        + "maps = open('/proc/self/maps').read()\n"
        "out.append([n for n in ('libtorch_cuda_linalg.so', 'libtorch_cuda_linalg_patched.so')\n"
        "            if '/' + n in maps])\nprint(json.dumps(out))"
    )
    *said, mapped = run(stock, code, made.library)
    assert mapped == ["libtorch_cuda_linalg.so", "libtorch_cuda_linalg_patched.so"]
    assert len(said) == (3 if first == "before" else 2)
    for text in said:
        assert "lazy wrapper" not in text
        assert "Can't find" not in text


@pytest.mark.wheel
@pytest.mark.source
def test_the_loader_proves_where_each_function_lies(
    real: Base, stock: wheel.Wheel, made: Relinked
) -> None:
    code = (
        "import json, sys\nfrom aotools.patchset import loader\n"
        "lib = loader.load(sys.argv[1]); out = [lib.table()]\n"
        "lib.restore(); out.append(lib.table()); lib.install(); out.append(lib.table())\n"
        "print(json.dumps(out))"
    )
    loaded, restored, installed = run(stock, code, made.library.parent)
    assert loaded == {name: "ours" if name in real.entries else "wheel" for name in ENTRIES}
    assert set(restored.values()) == {"wheel"}
    assert installed == loaded


@pytest.mark.wheel
@pytest.mark.source
def test_the_unpatched_source_without_magma(
    real: Base, source: Path, stock: wheel.Wheel, tmp_path: Path
) -> None:
    tree = apply.plain_tree(real, source, [], tmp_path / "trees")
    made = relink.relink(real, tree, [], stock, tmp_path / "out", magma="off", quiet=True)
    assert made.facts["magma"] == {"mode": "off", "lacking": []}
    assert made.facts["patches"] == []
    assert not any(name.startswith("magma") for name in facts.read(made.library).undefined)
    code = LOAD + "print(json.dumps(files('current')))"
    current = run(stock, code, made.library)
    assert [name for name in ENTRIES if current[name] == relink.SONAME] == made.facts["entries"]
    assert current["linalg_eig"] == wheel.LINALG_LIBRARY  # which needs MAGMA


@pytest.mark.wheel
def test_elf_reader_and_loader_agree_about_the_wheel(stock: wheel.Wheel) -> None:
    """A symbol is found by the reader if and only if the system's own loader finds it."""
    if "magma_init" not in stock.magma_functions:
        pytest.fail("the wheel exports no MAGMA")
    library = stock.lib / "libc10.so"
    handle = ctypes.CDLL(str(library), mode=os.RTLD_LAZY)
    elf = facts.read(library)
    for name in sorted(elf.defined)[::50]:
        assert hasattr(handle, name)
