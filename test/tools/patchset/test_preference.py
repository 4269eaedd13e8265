"""The names "cublas" and "native" on a stock torch: added, used, taken out, refused if harmful."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aotools.env import UserError  # noqa: E402
from aotools.patchset import preference  # noqa: E402

pytestmark = [pytest.mark.wheel, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    preference.unregister()
    torch._C._set_linalg_preferred_backend(torch._C._LinalgBackend.Default)


def members() -> dict[str, int]:
    return {name: int(value) for name, value in torch._C._LinalgBackend.__members__.items()}


def test_the_name_works_like_torchs_own() -> None:
    value = preference.register()
    assert preference.is_registered()
    assert preference.register() is value
    prefer = torch.backends.cuda.preferred_linalg_library
    assert prefer("cublas") == torch._C._LinalgBackend.Cublas == value
    assert prefer() == value
    assert (str(value), value.name, int(value)) == ("_LinalgBackend.Cublas", "Cublas", 3)
    with pytest.raises(RuntimeError, match="default, cusolver, magma, cublas, native"):
        prefer("cublaslt")
    assert prefer() == value
    native = prefer("native")
    assert native == torch._C._LinalgBackend.Native and (native.name, int(native)) == ("Native", 4)


@pytest.mark.parametrize("name", ["cublas", "native"])
def test_unregister_leaves_nothing_behind(name: str) -> None:
    before = (
        members(),
        dict(torch.backends.cuda._LinalgBackends),
        torch.backends.cuda._LinalgBackends_str,
    )
    preference.register()
    torch.backends.cuda.preferred_linalg_library(name)
    preference.unregister()
    after = (
        members(),
        dict(torch.backends.cuda._LinalgBackends),
        torch.backends.cuda._LinalgBackends_str,
    )
    assert after == before
    assert not hasattr(torch._C._LinalgBackend, "Cublas")
    assert not hasattr(torch._C._LinalgBackend, "Native")
    assert torch.backends.cuda.preferred_linalg_library() == torch._C._LinalgBackend.Default
    with pytest.raises(RuntimeError, match="Unknown input value"):
        torch.backends.cuda.preferred_linalg_library(name)
    preference.unregister()  # nothing to do is no error


def test_unregister_keeps_another_preference() -> None:
    preference.register()
    torch._C._set_linalg_preferred_backend(
        torch._C._LinalgBackend(2)
    )  # no check of ours in between
    preference.unregister()
    assert int(torch._C._get_linalg_preferred_backend()) == 2


@pytest.mark.parametrize(
    "found",
    [
        {"Default": 0, "Cusolver": 1, "Magma": 2, "Native": 3},
        {"Default": 0, "Cusolver": 1, "Magma": 2, "Cublas": 3},
        {"Default": 0, "Cusolver": 1},
        {"Default": 0, "Magma": 1, "Cusolver": 2},
    ],
)
def test_another_enum_is_refused_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, int]
) -> None:
    enum = SimpleNamespace(__members__=found)
    enum.__dict__["__entries"] = dict(found)
    monkeypatch.setattr(preference, "_enum", lambda: enum)
    with pytest.raises(UserError, match="cannot be added"):
        preference.register()
    assert enum.__dict__["__entries"] == found
    assert not preference.is_registered()
    assert "cublas" not in torch.backends.cuda._LinalgBackends


@pytest.mark.parametrize(
    ("environ", "current", "expected"),
    [
        ({"TORCH_LINALG_PREFER_CUBLAS": "1"}, 0, True),
        ({"TORCH_LINALG_PREFER_CUBLAS": "0"}, 0, False),
        ({}, 0, False),
        ({"TORCH_LINALG_PREFER_CUBLAS": "1"}, 2, False),  # chosen in the process before
    ],
)
def test_from_environment(environ: dict[str, str], current: int, expected: bool) -> None:
    torch._C._set_linalg_preferred_backend(torch._C._LinalgBackend(current))
    assert preference.from_environment(environ) is expected
    held: Any = torch._C._get_linalg_preferred_backend()
    assert int(held) == (3 if expected else current)
