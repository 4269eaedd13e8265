"""Clocks and the meta data of a record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aten_overrides.measure import clock, machine


class FakeTorch:
    """As much of torch as the CUDA clock uses; keeps what was asked, in order."""

    int8 = "int8"

    def __init__(self, l2: int) -> None:
        self.log: list[str] = []
        log = self.log

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                log.append("record")

            def synchronize(self) -> None:
                log.append("wait")

            def elapsed_time(self, end: Any) -> float:
                return 2.5

        self.cuda = SimpleNamespace(
            Event=Event,
            current_device=lambda: 0,
            synchronize=lambda: log.append("wait"),
            get_device_properties=lambda device: SimpleNamespace(L2_cache_size=l2),
        )

    def empty(self, size: int, dtype: str, device: str) -> Any:
        self.log.append(f"empty {size}")
        return SimpleNamespace(zero_=lambda: self.log.append("flush"))


def test_cuda_clock_flushes_without_allocating() -> None:
    torch = FakeTorch(l2=1000)
    made = clock.clock_for(torch, True)
    assert torch.log == ["empty 2000"]
    torch.log.clear()
    assert made.seconds(lambda: torch.log.append("call"), 0.1) == pytest.approx(2.5e-3)
    assert torch.log == ["flush", "record", "call", "record", "wait"]
    torch.log.clear()
    made.warm(lambda: torch.log.append("call"))
    assert torch.log.count("call") == 2 and not any("empty" in word for word in torch.log)


def test_cuda_clock_of_a_gpu_that_does_not_tell_its_cache() -> None:
    torch = FakeTorch(l2=0)
    clock.CudaClock(torch)
    assert torch.log == [f"empty {clock.L2_UNKNOWN}"]


def test_wall_clock_repeats_short_calls_and_takes_the_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {"time": 0.0}
    monkeypatch.setattr("time.perf_counter", lambda: now["time"])
    lengths = iter([9e-4] * 5 + [1e-4] * 5 + [2e-4] * 5)  # three timings of five calls

    def call() -> None:
        now["time"] += next(lengths)

    made = clock.clock_for(None, False)
    assert made.seconds(call, 1e-4) == pytest.approx(1e-4)
    assert next(lengths, None) is None
    slow = iter([0.5, 0.3, 0.4])
    lengths = slow
    assert made.seconds(call, 0.3) == pytest.approx(0.3)


def test_machine_without_a_gpu() -> None:
    facts = machine.machine(None, False)
    assert facts["gpu"] is None and facts["torch"] is None
    assert facts["cpu"] and facts["threads"] >= 1 and len(facts["date"]) == 10
    assert machine.library_version("libnot_there", "getProperty") is None


def test_clocks_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_smi", lambda fields: ["1980", "1980", "3201", "40", "300.5"])
    assert machine.clocks() == {
        "sm_mhz": "1980",
        "sm_max_mhz": "1980",
        "memory_mhz": "3201",
        "celsius": "40",
        "watts": "300.5",
    }
    monkeypatch.setattr(machine, "_smi", lambda fields: [])
    assert machine.clocks() is None
