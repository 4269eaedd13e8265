"""Finding CUDA headers: the right version or a message that names what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from aten_overrides import _cuda_headers
from aten_overrides._errors import UserError


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No toolkit of the machine's own."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    real = _cuda_headers._includes
    outside = ("/usr/local", "/usr")

    def only_given(root: Path) -> list[Path]:
        return [] if str(root).startswith(outside) else real(root)

    monkeypatch.setattr(_cuda_headers, "_includes", only_given)


def headers(folder: Path, version: int, *, without: str = "") -> None:
    for name in _cuda_headers.NEEDED:
        if name != without:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#define CUDART_VERSION {version}\n")


def test_the_packages_beside_torch(tmp_path: Path) -> None:
    headers(tmp_path / "nvidia/cu13/include", 13000)
    folders, version = _cuda_headers.find_headers([tmp_path], "13.0")
    assert (folders, version) == ([tmp_path / "nvidia/cu13/include"], "13.0")


def test_the_older_layout_of_one_folder_per_package(tmp_path: Path) -> None:
    for number, name in enumerate(_cuda_headers.NEEDED):
        path = tmp_path / f"nvidia/part{number}/include" / name
        path.parent.mkdir(parents=True)
        path.write_text("#define CUDART_VERSION 12040\n")
    folders, version = _cuda_headers.find_headers([tmp_path], "12.4")
    assert version == "12.4"
    assert len(folders) == len(_cuda_headers.NEEDED)


def test_a_toolkit_named_by_the_user_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers(tmp_path / "nvidia/cu13/include", 13000)
    headers(tmp_path / "toolkit/include", 13010)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    assert _cuda_headers.find_headers([tmp_path], "13.0")[1] == "13.1"


def test_headers_of_another_major_version_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers(tmp_path / "toolkit/include", 13000)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    with pytest.raises(UserError) as caught:
        _cuda_headers.find_headers([tmp_path], "12.4")
    text = str(caught.value)
    assert "the CUDA 12.4 headers are needed" in text
    assert "CUDA_HOME: CUDA 13.0" in text
    assert "nvidia-cuda-nvcc-cu12==12.4.*" in text


def test_incomplete_headers_name_what_is_missing(tmp_path: Path) -> None:
    headers(tmp_path / "nvidia/cu13/include", 13000, without="cusolverDn.h")
    with pytest.raises(UserError) as caught:
        _cuda_headers.find_headers([tmp_path], "13.0")
    text = str(caught.value)
    assert "without cusolverDn.h" in text
    assert "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl,cublas,cusolver,cusparse]==13.0.*" in text
