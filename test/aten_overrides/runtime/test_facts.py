"""What is said about back ends and releases agrees with the code and with itself."""

from __future__ import annotations

import re

import pytest

from aotools import env
from aten_overrides import _backends, _features, _gpu, _names


def _source(name: str) -> str:
    return (env.ROOT / "aten_overrides/csrc/package/gpu" / name).read_text()


def test_every_route_of_the_library_has_facts() -> None:
    numbers = re.search(r"enum class Route : int8_t \{(.*?)\};", _source("Plan.h"), re.S)
    assert numbers is not None
    routes = re.findall(r"^\s+([A-Z]\w+)", numbers[1], re.M)
    described = {fact.name.replace("_", "") for fact in _backends.BACKENDS}
    assert {route.lower() for route in routes} == described
    assert {fact.name for fact in _backends.BACKENDS} >= set(_names.BACKENDS)
    assert {op for fact in _backends.BACKENDS for op in fact.ops} == set(_gpu.ENTRY_BITS)


def test_interface_number_and_structures_agree() -> None:
    api = re.search(r"kAtenOverridesGpuApi = (\d+);", _source("Api.h"))
    assert api is not None
    from aten_overrides import _abi

    assert int(api[1]) == _abi.API
    fields = re.search(r"struct aten_overrides_gpu_call \{(.*?)\};", _source("Api.h"), re.S)
    assert fields is not None
    names = re.findall(r"^\s+[\w ]+[ *]+(\w+);", fields[1], re.M)
    assert names == [name for name, _ in _gpu.RawCall._fields_]


@pytest.mark.parametrize(
    ("release", "held"),
    [
        ((2, 6), set()),
        ((2, 11), set()),
        ((2, 12), {"eigh"}),
        ((2, 13), {"eigh", "lu rule"}),
        ((2, 14), {"eigh", "lu rule", "lu workspace"}),
        ((2, 15), {"eigh", "lu rule", "lu workspace", "lu kernel"}),
    ],
)
def test_which_release_holds_which_piece(release: tuple[int, int], held: set[str]) -> None:
    assert {piece.name for piece in _features.PIECES if _features.held(piece, release)} == held
    for piece in _features.PIECES:
        assert _features.ours(piece, release)
