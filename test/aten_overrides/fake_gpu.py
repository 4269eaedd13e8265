"""What stands for torch's GPU in the tests of calibrate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

FACTS = {
    "gpu": "NVIDIA Test",
    "compute_capability": "9.0",
    "sm_count": 10,
    "driver": "1.2",
    "torch": "2.11.0+cu130",
    "cuda": "13.0",
    "cublas": "13.1.0",
    "cusolver": "12.0.4",
    "magma": "2.6.1",
}


class Event:
    """A clock that stands for the GPU's: a call takes 0.05 ms."""

    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = Event.now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


def torch_without_gpu(*names: str, **more: Any) -> SimpleNamespace:
    """These functions of torch, and a torch.cuda whose clock is Event."""
    cuda = SimpleNamespace(
        Event=Event,
        _sleep=lambda cycles: None,
        empty_cache=lambda: None,
        OutOfMemoryError=torch.cuda.OutOfMemoryError,
    )
    return SimpleNamespace(cuda=cuda, **{name: getattr(torch, name) for name in names}, **more)
