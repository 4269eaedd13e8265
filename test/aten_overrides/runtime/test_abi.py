"""The gate before the loader: a library is opened only into the torch that it was built for."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from aten_overrides import _abi, _gpu
from aten_overrides._errors import UserError

TORCH = _abi.TorchBuild("2.11.0+cu130", "70d99e998b4955e0", "13.0", True, "x86_64")


def make(
    folder: Path, torch: _abi.TorchBuild = TORCH, content: bytes = b"library", **more: object
) -> Path:
    """A library file with facts, as the build leaves them."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / _abi.LIBRARY
    library.write_bytes(content)
    digest, size = _abi.file_digest(library)
    facts = _abi.BuildFacts(torch, _abi.API, "GNU 12", "0" * 64, "2026-01-01", digest, size)
    _abi.facts_path(library).write_text(dataclasses.replace(facts, **more).to_json())  # type: ignore[arg-type]
    return library


def test_facts_survive_the_file(tmp_path: Path) -> None:
    library = make(tmp_path)
    facts = _abi.check_library(library, TORCH)
    assert facts.torch == TORCH
    assert json.loads(facts.to_json()) == json.loads(_abi.facts_path(library).read_text())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": "2.6.0+cu124", "cuda": "12.4"}, "found torch 2.6.0+cu124 (CUDA 12.4)"),
        ({"version": "2.11.0+cpu", "cuda": None}, "found torch 2.11.0+cpu (without CUDA)"),
        ({"cuda": "12.8"}, "found torch 2.11.0+cu130 (CUDA 12.8)"),
        ({"git": "0123456789"}, "git commit 70d99e998b4955e0 there, 0123456789 here"),
        ({"cxx11_abi": False}, "C++11 ABI True there, False here"),
        ({"machine": "aarch64"}, "machine x86_64 there, aarch64 here"),
    ],
)
def test_any_other_torch_is_refused(tmp_path: Path, changed: dict[str, object], words: str) -> None:
    library = make(tmp_path)
    other = dataclasses.replace(TORCH, **changed)  # type: ignore[arg-type]
    with pytest.raises(UserError) as caught:
        _abi.check_library(library, other)
    text = str(caught.value)
    assert "built for torch 2.11.0+cu130 (CUDA 13.0)" in text
    assert words in text
    assert "run `aten-overrides build`" in text


def test_another_interface_is_refused(tmp_path: Path) -> None:
    library = make(tmp_path, api=_abi.API + 1)
    with pytest.raises(UserError, match=rf"interface {_abi.API + 1}.*needs {_abi.API}"):
        _abi.check_library(library, TORCH)


def test_missing_damaged_or_without_facts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no gpu library at"):
        _abi.check_library(tmp_path / _abi.LIBRARY, TORCH)
    library = make(tmp_path)
    whole = library.read_bytes()
    library.write_bytes(whole[:-2])  # cut off
    with pytest.raises(UserError, match=r"damaged: 5 bytes .*7 bytes.*not loaded"):
        _abi.check_library(library, TORCH)
    library.write_bytes(whole[:-1] + b"?")  # same size
    with pytest.raises(UserError, match="damaged"):
        _abi.check_library(library, TORCH)
    library.write_bytes(whole)
    for text in ("", "{", "[]", '{"torch": {}}', '{"api": 1}'):
        _abi.facts_path(library).write_text(text)
        with pytest.raises(UserError, match=r"facts .* cannot be read"):
            _abi.check_library(library, TORCH)
    _abi.facts_path(library).unlink()
    with pytest.raises(UserError, match=r"facts .* cannot be read"):
        _abi.check_library(library, TORCH)


def test_a_library_in_the_cache_serves_where_the_package_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATEN_OVERRIDES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_gpu, "PACKAGE_FOLDER", tmp_path / "package")
    with pytest.raises(UserError, match=r"there is no gpu library for torch 2\.11\.0"):
        _gpu.find_library(TORCH)
    other = dataclasses.replace(TORCH, version="2.6.0+cu124", cuda="12.4")
    make(tmp_path / "package", other)
    with pytest.raises(
        UserError, match=r"built for torch 2\.6\.0\+cu124 \(CUDA 12\.4\), found torch 2\.11"
    ):
        _gpu.find_library(TORCH)
    cached = make(_gpu.cache_folder(TORCH))
    assert _gpu.find_library(TORCH)[0] == cached
    assert _gpu.find_library(other)[0].parent == tmp_path / "package"
    make(tmp_path / "package")
    assert _gpu.find_library(TORCH)[0].parent == tmp_path / "package"


def test_caches_of_different_torches_do_not_meet() -> None:
    variants = [
        TORCH,
        dataclasses.replace(TORCH, version="2.11.0+cu128"),
        dataclasses.replace(TORCH, git="ffffffffffff"),
        dataclasses.replace(TORCH, cxx11_abi=False),
        dataclasses.replace(TORCH, machine="aarch64"),
    ]
    assert len({_gpu.cache_folder(torch) for torch in variants}) == len(variants)
