"""The include folder of a relink, and the hipified one: which header comes from where."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import fake_base
import pytest
import toy_wheel

from aotools.env import UserError
from aotools.patchset import apply, base, git, hip, overlay, wheel
from aotools.patchset.base import LINALG, Base
from aotools.patchset.wheel import Wheel

MODE = "aten/src/ATen/Mode.h"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return wheel.inspect(toy_wheel.make(tmp_path_factory.mktemp("toy") / "site"))


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Base, Path]:
    """The toy base with a patch to a header outside linalg and a new one, and the patched tree."""
    folder = tmp_path_factory.mktemp("base")
    repo = fake_base.write_files(folder / "repo", toy_wheel.base_files())
    git.init(repo)
    git.git(repo, "add", "-A")
    git.git(repo, "commit", "-qm", "base", extra=git.BASE_AUTHOR)
    mode = (repo / MODE).read_text().replace("A, B }", "A, B, C }")
    fake_base.write_files(repo, {MODE: mode, "c10/New.h": "#pragma once\n", "docs/x.rst": "x\n"})
    git.git(repo, "add", "-A")
    message = f"Add a mode\n\n{fake_base.FIELDS}"
    git.git(repo, "commit", "-qm", message, extra=git.BASE_AUTHOR)
    text = git.git(repo, "format-patch", "--full-index", "--stdout", "-1").decode()
    base_, source = toy_wheel.toy_base(folder, {"mode.patch": text})
    return base_, apply.plain_tree(base_, source, base_.patches(), folder / "trees")


def build(
    folder: Path, patched: tuple[Base, Path], stock: Wheel, **options: bool
) -> overlay.Overlay:
    base_, tree = patched
    return overlay.build(folder, tree, base_, base_.patches(), stock, **{"magma": True, **options})


def newer(stock: Wheel, tmp_path: Path, mode: str) -> Wheel:
    """The wheel of a later release, whose own header is another."""
    site = tmp_path / "newer"
    subprocess.run(["cp", "-r", stock.site, site], check=True)
    (site / "torch/include/ATen/Mode.h").write_text(mode)
    return dataclasses.replace(stock, site=site)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("aten/src/ATen/Context.h", "ATen/Context.h"),
        ("c10/util/Thing.h", "c10/util/Thing.h"),
        ("torch/csrc/Module.h", "torch/csrc/Module.h"),
        ("aten/src/ATen/Context.cpp", None),
        ("docs/source/x.rst", None),
        ("third_party/x.h", None),
    ],
)
def test_how_a_header_is_included(path: str, name: str | None) -> None:
    assert overlay.include_name(path) == name


def test_on_the_bases_own_wheel(tmp_path: Path, patched: tuple[Base, Path], stock: Wheel) -> None:
    made = build(tmp_path / "include", patched, stock)
    assert made.headers == {"ATen/Mode.h": "patched", "c10/New.h": "new"}
    assert "A, B, C }" in (made.folder / "ATen/Mode.h").read_text()
    assert [source.name for source in made.sources()] == ["BatchLinearAlgebra.cpp"]
    assert (made.linalg / "BatchLinearAlgebraLib.h").is_file()


def test_a_newer_wheels_header_is_patched_and_keeps_its_own(
    tmp_path: Path, patched: tuple[Base, Path], stock: Wheel
) -> None:
    mode = "// later\n" + toy_wheel.MODE + "int later();\n"
    other = newer(stock, tmp_path, mode)
    made = build(tmp_path / "include", patched, other)
    assert made.headers["ATen/Mode.h"] == "the wheel's, patched"
    assert (made.folder / "ATen/Mode.h").read_text() == mode.replace("A, B }", "A, B, C }")
    assert (other.include / "ATen/Mode.h").read_text() == mode


def test_a_header_that_cannot_be_patched_stays_the_wheels_and_says_so(
    tmp_path: Path, patched: tuple[Base, Path], stock: Wheel
) -> None:
    made = build(tmp_path / "include", patched, newer(stock, tmp_path, "enum Mode { Z };\n"))
    assert made.headers["ATen/Mode.h"].startswith("the wheel's own, which differs from the base")
    assert not (made.folder / "ATen/Mode.h").exists()


def test_a_second_build_changes_only_what_differs(
    tmp_path: Path, patched: tuple[Base, Path], stock: Wheel
) -> None:
    folder = tmp_path / "include"
    made = build(folder, patched, stock, magma=False)
    (folder / "ATen/stray.h").write_text("left over\n")
    times = {
        path: path.stat().st_mtime_ns for path in folder.rglob("*.h") if path.name != "stray.h"
    }
    build(folder, patched, stock, magma=False)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.h")} == times
    assert (folder / "ATen/cuda/CUDAConfig.h").is_file()
    assert "ATen/cuda/CUDAConfig.h" not in build(folder, patched, stock).headers
    assert not (folder / "ATen/cuda").exists()
    assert made.headers["ATen/cuda/CUDAConfig.h"] == "the wheel's with MAGMA off"


def test_a_config_without_the_line_is_refused(
    tmp_path: Path, patched: tuple[Base, Path], stock: Wheel
) -> None:
    other = newer(stock, tmp_path, "x\n")
    (other.include / "ATen/cuda/CUDAConfig.h").write_text("#define AT_CUDNN_ENABLED() 1\n")
    with pytest.raises(UserError, match="has no line '#define AT_MAGMA_ENABLED"):
        build(tmp_path / "include", patched, other, magma=False)


TABLES = """
import re
PYTORCH_MAP = {"cudaStream_t": "hipStream_t", "cublasHandle_t": "rocblas_handle"}
PYTORCH_SPECIAL_MAP = {"cublasHandle_t": "hipblasHandle_t"}
CAFFE2_MAP = {"CUDAStream": "HIPStream"}
RE_PYTORCH_PREPROCESSOR = re.compile("|".join(PYTORCH_MAP))
RE_CAFFE2_PREPROCESSOR = re.compile("|".join(CAFFE2_MAP))
is_special_file = lambda path: "linalg" in path
is_pytorch_file = lambda path: path.startswith("aten/")
get_hip_file_path = lambda path: path.replace("cuda", "hip").replace("CUDA", "HIP")
"""


def test_hipified_files(tmp_path: Path, patched: tuple[Base, Path], stock: Wheel) -> None:
    other = newer(stock, tmp_path, (stock.include / "ATen/Mode.h").read_text())
    hipify = {"__init__.py": "", "hipify_python.py": TABLES}
    fake_base.write_files(other.site / "torch/utils/hipify", hipify)
    headers = {
        "c10/cuda/CUDAStream.h": "CUDAStream cudaStream_t\n",
        "ATen/cuda/Blas.h": "#include <ATen/cuda/Other.h>\ncublasHandle_t cudaStream_t\n",
    }
    fake_base.write_files(other.include, headers)
    include = build(tmp_path / "include", patched, other)
    (include.linalg / "CUDAThing.h").write_text('#include "ATen/cuda/A.h"\ncublasHandle_t\n')
    made = tmp_path / "hip"
    sources = hip.build(made, other, include, magma=False)
    assert [str(path.relative_to(made)) for path in sources] == [
        "ATen/native/hip/linalg/BatchLinearAlgebra.cpp"
    ]
    assert (made / "c10/hip/HIPStream.h").read_text() == "HIPStream cudaStream_t\n"
    text = "#include <ATen/hip/Other.h>\nrocblas_handle hipStream_t\n"
    assert (made / "ATen/hip/Blas.h").read_text() == text
    thing = made / "ATen/native/hip/linalg/HIPThing.h"
    assert thing.read_text() == '#include "ATen/hip/A.h"\nhipblasHandle_t\n'
    config = (made / "ATen/hip/HIPConfig.h").read_text()
    assert config == "#define AT_ROCM_ENABLED() 1\n#define AT_MAGMA_ENABLED() 0\n"
    assert "A, B, C }" in (made / "ATen/Mode.h").read_text()


def test_a_wheel_without_hipify_is_told(
    tmp_path: Path, patched: tuple[Base, Path], stock: Wheel
) -> None:
    include = build(tmp_path / "include", patched, stock)
    with pytest.raises(UserError, match="holds no hipify_python"):
        hip.build(tmp_path / "hip", stock, include, magma=True)


def test_the_linalg_folder_is_where_the_base_says(patched: tuple[Base, Path]) -> None:
    assert LINALG.endswith("native/cuda/linalg")
    assert base.touched(patched[0].patches()) == [MODE]


def test_each_wheel_has_its_own_hipify_tables(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        files = {"__init__.py": "", "hipify_python.py": f"NAME = {name!r}\n"}
        fake_base.write_files(tmp_path / name, files)
        found.append(hip._tables(tmp_path / name).NAME)
    assert found == ["one", "two"]
