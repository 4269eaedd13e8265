"""A stand-in for the overrides' library, and for torch with it: the parts of `overrides` run on it.

Every route is the CPU's LU. Forced routes, counts, streams and graphs behave as the real ones do.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import fake_cuda
import torch

ROUTES = (
    "batched_cublas",
    "looped_cusolver",
    "streamed_cusolver",
    "stock",
    "triangular_cublas",
    "batched_native",
    "blocked_native",
)
COUNTED = {
    "lu_factor_ex": ("lu_factor",),
    "lu_factor": ("lu_factor",),
    "lu_solve": ("lu_solve",),
    "solve_ex": ("lu_factor", "lu_solve"),
    "solve": ("lu_factor", "lu_solve"),
    "inv_ex": ("lu_factor", "lu_solve"),
    "inv": ("lu_factor", "lu_solve"),
    "slogdet": ("lu_factor",),
    "det": ("lu_factor",),
}


class Library:
    """What Library of aten_overrides._gpu offers to the parts."""

    def __init__(self, choice: str = "batched_cublas") -> None:
        self.choice = choice
        self.forced: dict[str, str | None] = {}
        self.used: Counter[tuple[str, str]] = Counter()
        self.lanes, self.memory_mib, self.made = 4, 512, 0
        self.ours = False

    def routes(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(ROUTES)}

    def force_route(self, op: str, route: str | None) -> None:
        assert route is None or route in ROUTES, route
        self.forced[op] = route

    def lu_factor_route(self, dtype: str, batch: int, m: int, n: int, **_: object) -> str:
        return self.choice

    def native(self) -> int:
        return 0  # Native.NOT_BUILT

    def counts(self) -> dict[tuple[str, str], int]:
        return dict(self.used)

    def note(self, name: str) -> None:
        """A call of torch.linalg."""
        for op in COUNTED.get(name, ()) if self.ours else ():
            route = self.forced.get(op) or self.choice
            self.used[op, route] += 1
            if route == "streamed_cusolver":
                self.made = max(self.made, min(self.lanes - 1, self.memory_mib // 100))

    def limits(self) -> tuple[int, int]:
        return self.lanes, self.memory_mib

    def configure(self, *, strict: bool, stock: int, lanes: int = -1, memory_mib: int = -1) -> None:
        self.lanes, self.memory_mib = lanes, memory_mib

    def release_lanes(self) -> None:
        self.made = 0

    def call(self, name: str, *_: object) -> int:
        assert name == "created_lanes"
        return self.made

    def installed(self) -> tuple[str, ...]:
        return ("lu_factor", "lu_solve") if self.ours else ()


def without_exchanges(a: Any) -> Any:
    """LU without row exchanges, which torch lacks on the CPU."""
    lu = a.mT.clone(memory_format=torch.contiguous_format).mT
    for k in range(min(a.shape[-2:]) - 1):
        lu[..., k + 1 :, k] /= lu[..., k, k, None]
        lu[..., k + 1 :, k + 1 :] -= lu[..., k + 1 :, k, None] * lu[..., None, k, k + 1 :]
    return lu


class Linalg:
    """torch.linalg, whose calls are counted, and kept while a graph captures."""

    LinAlgError = torch.linalg.LinAlgError

    def __init__(self, library: Library) -> None:
        self.library = library
        self.capturing: list[tuple[Callable[[], Any], Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        function = getattr(torch.linalg, name)
        if name not in COUNTED:
            return function

        def call(*args: Any, **kwargs: Any) -> Any:
            self.library.note(name)
            if self.capturing is not None and name in ("solve", "inv"):
                raise RuntimeError("a capturing stream cannot be waited for")
            if kwargs.pop("pivot", True):
                out = function(*args, **kwargs)
            else:
                k = min(args[0].shape[-2:])
                trivial = torch.arange(1, k + 1, dtype=torch.int32)
                info = torch.zeros(args[0].shape[:-2], dtype=torch.int32)
                out = (without_exchanges(args[0]), trivial.expand(*args[0].shape[:-2], k), info)
            if self.capturing is not None:
                self.capturing.append((lambda: function(*args, **kwargs), out))
            return out

        call.__module__ = "torch.linalg"
        return call


class Cuda(fake_cuda.Cuda):
    def __init__(self, linalg: Linalg) -> None:
        super().__init__()
        self._linalg = linalg
        self.CUDAGraph: Any = SimpleNamespace

    @contextlib.contextmanager
    def graph(self, graph: Any, **_: object) -> Iterator[None]:
        calls: list[tuple[Callable[[], Any], Any]] = []
        self._linalg.capturing = calls
        try:
            yield
        finally:
            self._linalg.capturing = None

        def replay() -> None:
            for call, old in calls:
                new = call()
                pairs = (
                    [(old, new)] if isinstance(old, torch.Tensor) else zip(old, new, strict=True)
                )
                for x, y in pairs:
                    x.copy_(y)

        graph.replay = replay

    def memory_stats(self, _: int = 0) -> dict[str, int]:
        return super().memory_stats(_)

    def empty_cache(self) -> None:
        return None

    def device_count(self) -> int:
        return 1

    def set_sync_debug_mode(self, _: str) -> None:
        return None

    def _sleep(self, _: int) -> None:
        return None


class Torch(fake_cuda.Torch):
    """torch whose cuda is the CPU, with the overrides' library behind torch.linalg."""

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.linalg: Any = Linalg(library)
        self.cuda: Any = Cuda(self.linalg)
        self.preferred = "default"
        self.backends = SimpleNamespace(
            cuda=SimpleNamespace(preferred_linalg_library=self._preferred_linalg_library)
        )

    def _preferred_linalg_library(self, name: str | None = None) -> str:
        self.preferred = name or self.preferred
        return f"_LinalgBackend.{self.preferred.capitalize()}"

    def Generator(self, device: str) -> Any:
        return torch.Generator("cpu")

    def __getattr__(self, name: str) -> Any:
        if name in ("ones", "logspace"):
            return fake_cuda._on_cpu(getattr(torch, name))
        return super().__getattr__(name)


class Clock:
    """Sessions whose samples come from a table instead of a clock."""

    def __init__(self, times: dict[str, list[float]]) -> None:
        self.times = {name: list(found) for name, found in times.items()}
        self.order: list[str] = []

    def clock(self, call: Callable[[], Any]) -> Callable[[], float]:
        def once() -> float:
            name = call()
            self.order.append(name)
            found = self.times[name]
            return found.pop(0) if len(found) > 1 else found[0]

        return once
