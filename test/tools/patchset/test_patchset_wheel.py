"""Reading a wheel's facts from its files."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
import toy_wheel

from aotools.env import UserError
from aotools.patchset import facts, wheel


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_wheel.make(tmp_path_factory.mktemp("toy") / "site")


@pytest.fixture
def site(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "site"))


def test_what_is_read(site: Path) -> None:
    found = wheel.inspect(site)
    assert (found.full_version, found.version, found.cuda) == ("0.1+cu124", "0.1", "12.4")
    assert (found.git, found.cxx11_abi, found.magma_enabled) == (toy_wheel.GIT, True, True)
    assert found.cpu_macros == ("HAVE_AVX2_CPU_DEFINITION", "HAVE_AVX512_CPU_DEFINITION")
    assert {"magma_init", "magmablas_ztrsm_batched"} <= found.magma_functions
    assert set(found.cuda_libraries) == {
        f"lib{name}.so.12" for name in ("cudart", "cublas", "cusolver", "cusparse")
    }
    assert all(path.is_file() for path in found.cuda_libraries.values())
    wheel.check_headers(found)


def test_a_build_without_cuda_or_without_its_own_library(site: Path) -> None:
    (site / "torch/lib/libtorch_cuda_linalg.so").unlink()
    with pytest.raises(UserError, match=r"torch 0\.1\+cu124 .*built without CUDA or with linear"):
        wheel.inspect(site)


def test_a_missing_cuda_library(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "_toolkits", lambda cuda: [])
    (site / "nvidia/cuda/lib/libcusolver.so.12").unlink()
    with pytest.raises(UserError, match=r"libcusolver\.so\.12, which .* needs"):
        wheel.inspect(site)


@pytest.mark.parametrize(
    ("names", "abi"),
    [
        ({"_ZN3c105ErrorC1ENS_14SourceLocationESs"}, False),
        ({"_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringE"}, True),
        ({"_ZN3c107WarningC1E", "_Z3fooSs"}, None),
    ],
)
def test_the_string_abi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: set[str], abi: bool | None
) -> None:
    elf = facts.Elf(tmp_path, "", (), (), (), frozenset(names), frozenset(), frozenset())
    monkeypatch.setattr(facts, "read", lambda path: elf)
    if abi is None:
        with pytest.raises(UserError, match=r"its C\+\+ ABI cannot be told"):
            wheel._cxx11_abi(tmp_path)
    else:
        assert wheel._cxx11_abi(tmp_path) is abi


@pytest.mark.parametrize(("pointers", "count"), [("Pv", 0), ("PvS4_S4_", 2), ("PvS4_", None)])
def test_the_cpu_macros(tmp_path: Path, pointers: str, count: int | None) -> None:
    name = f"_ZN2at6native16DispatchStubImpl12get_call_ptrEN3c1010DeviceTypeE{pointers}"
    elf = facts.Elf(tmp_path, "", (), (), (), frozenset(), frozenset({name}), frozenset())
    if count is None:
        with pytest.raises(UserError, match="1 CPU capabilities beside the default"):
            wheel._cpu_macros(elf)
    else:
        assert len(wheel._cpu_macros(elf)) == count


def toolkit(folder: Path, version: int) -> Path:
    (folder / "include").mkdir(parents=True)
    header = folder / "include/cuda_runtime_api.h"
    header.write_text(f"/* x */\n#define CUDART_VERSION  {version}\n")
    return folder


def test_only_a_toolkit_of_the_same_version_is_used(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(toolkit(tmp_path / "same", 12040)))
    monkeypatch.setenv("CUDA_PATH", str(toolkit(tmp_path / "other", 13000)))
    found = wheel.inspect(site).cuda_includes
    assert tmp_path / "same/include" in found
    assert tmp_path / "other/include" not in found


def test_packages_of_another_cuda_are_left_out(site: Path) -> None:
    (site / "nvidia/cu13/include").mkdir(parents=True)
    assert site / "nvidia/cu13/include" not in wheel.inspect(site).cuda_includes
    version = site / "torch/version.py"
    version.write_text(version.read_text().replace("'12.4'", "'13.0'"))
    assert wheel.inspect(site).cuda_includes[0] == site / "nvidia/cu13/include"


def test_where_a_wheel_is_looked_for(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wheel.locate(str(site)) == site
    monkeypatch.chdir(site.parent)
    assert wheel.locate("./site") == site
    with pytest.raises(UserError, match=r"holds no torch"):
        wheel.locate(str(site.parent))
    with pytest.raises(UserError, match="not among the versions this project pins"):
        wheel.locate("1.2.3")


def test_existing_is_the_torch_of_the_users_own_interpreter(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("AOTOOLS_USER_PYTHONPATH", str(site))
    assert wheel.locate("existing") == site
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PYTHON", str(script))
    with pytest.raises(UserError, match=r"has none\. Name the interpreter .* PYTHON="):
        wheel.locate("existing")


def test_existing_lies_in_the_users_virtual_environment(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$PYTHON is asked first, then the python3 of the user's PATH, which python.sh hands on."""

    def python(name: str, folder: Path) -> str:
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
        script.chmod(0o755)
        return str(script)

    other = tmp_path / "other"
    (other / "torch").mkdir(parents=True)
    (other / "torch/__init__.py").touch()
    monkeypatch.delenv("PYTHON", raising=False)
    monkeypatch.delenv("AOTOOLS_USER_PYTHONPATH", raising=False)
    monkeypatch.setenv("AOTOOLS_USER_PYTHON", python("python3", site))
    (site / "torch/__init__.py").touch()
    assert wheel.locate("existing") == site
    monkeypatch.setenv("PYTHON", python("named", other))
    assert wheel.locate("existing") == other


def test_headers_that_a_toolkit_keeps_one_level_down(site: Path) -> None:
    before = wheel.inspect(site).cuda_includes
    nested = site / "nvidia/cuda_cccl/include/cccl"
    (nested / "nv").mkdir(parents=True)
    (nested / "nv/target").touch()
    assert set(wheel.inspect(site).cuda_includes) == {*before, nested.parent, nested}
    (nested.parent / "nv").mkdir()
    (nested.parent / "nv/target").touch()  # needs no help
    assert set(wheel.inspect(site).cuda_includes) == {*before, nested.parent}


def test_the_environment_is_not_changed(site: Path) -> None:
    before = dict(os.environ)
    wheel.inspect(site)
    assert dict(os.environ) == before
