"""Which nvcc compiles our kernels, for which GPUs, and what is said where none can."""

from __future__ import annotations

from pathlib import Path

import pytest

from aten_overrides import _device, _nvcc
from aten_overrides._errors import UserError


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No toolkit and no GPU of the machine's own."""
    for name in ("CUDA_HOME", "CUDA_PATH", _nvcc.ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_device, "gpu", lambda: None)
    real = _nvcc._candidates

    def only_given(site: list[Path], cuda: str) -> list[Path]:
        return [path for path in real(site, cuda) if path.is_relative_to(tmp_path)]

    monkeypatch.setattr(_nvcc, "_candidates", only_given)


def compiler(path: Path, release: str, *, fails: str = "") -> Path:
    """A stand-in for nvcc that refuses command lines with the text `fails`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse = f'case "$*" in *{fails}*) echo "no {fails} here" >&2; exit 1;; esac' if fails else ""
    version = f"Cuda compilation tools, release {release}, V{release}.88"
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) echo "{version}"; exit 0;; esac\n{refuse}\n'
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, ("90",)),  # without a GPU
        ("native", ("90",)),
        ("none", ()),
        ("all", _nvcc.KNOWN),
        ("90,80", ("80", "90")),
        ("sm_100 8.6;120", ("86", "100", "120")),
        ("9.0,90", ("90",)),
    ],
)
def test_architectures(asked: str | None, expected: tuple[str, ...]) -> None:
    assert _nvcc.architectures(asked) == expected


def test_the_gpu_at_hand_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_device, "gpu", lambda: _device.Gpu("NVIDIA L4", "8.9", 58))
    assert _nvcc.architectures() == ("89",)
    monkeypatch.setenv(_nvcc.ENVIRONMENT, "80")
    assert _nvcc.architectures() == ("80",)
    assert _nvcc.architectures("100") == ("100",)  # the call wins


@pytest.mark.parametrize("asked", ["ninety", "9", "90a", "1000", ","])
def test_wrong_architectures_are_refused(asked: str) -> None:
    with pytest.raises(UserError, match="expected compute capabilities separated by commas"):
        _nvcc.architectures(asked)


def test_the_compiler_beside_torch(tmp_path: Path) -> None:
    path = compiler(tmp_path / "nvidia/cu13/bin/nvcc", "13.0")
    found = _nvcc.find([tmp_path], "13.0", "g++", "90,100")
    assert (found.path, found.version, found.architectures) == (path, "13.0", ("90", "100"))
    assert found.flags == [
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_100,code=sm_100",
    ]


def test_one_named_by_the_user_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path / "nvidia/cu13/bin/nvcc", "13.0")
    own = compiler(tmp_path / "own/bin/nvcc", "13.1")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "own"))
    assert _nvcc.find([tmp_path], "13.0").path == own


def test_what_does_not_fit_is_passed_over_and_named(tmp_path: Path) -> None:
    compiler(tmp_path / "nvidia/cuda_nvcc/bin/nvcc", "12.4")
    with pytest.raises(_nvcc.NoKernels, match=r"nvcc: CUDA 12\.4\. pip install 'cuda-toolkit\["):
        _nvcc.find([tmp_path], "13.0")
    compiler(tmp_path / "nvidia/cu13/bin/nvcc", "13.0", fails="sm_120")
    with pytest.raises(_nvcc.NoKernels, match="does not compile for 90, 120: no sm_120 here"):
        _nvcc.find([tmp_path], "13.0", asked="90,120")
    assert _nvcc.find([tmp_path], "13.0", asked="90").version == "13.0"


def test_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(_nvcc.NoKernels, match=r"no usable nvcc for CUDA 13\.0, found none"):
        _nvcc.find([tmp_path], "13.0")
    with pytest.raises(_nvcc.NoKernels, match=r"install a CUDA 12\.4 toolkit"):
        _nvcc.find([tmp_path], "12.4")
    with pytest.raises(_nvcc.NoKernels, match="not asked for"):
        _nvcc.find([tmp_path], "13.0", asked="none")
