"""The solver lanes under arbitrary use, errors at every call, and with wrong schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Report = list[dict[str, Any]]
Lanes = Callable[..., Report]

FUNCTIONS = (
    "any",
    "cudaEventRecord",
    "cudaStreamWaitEvent",
    "cudaStreamSynchronize",
    "cudaStreamGetCaptureInfo",
    "cusolverDnSetStream",
    "cusolverDnCreate",
)

# Processes start in milliseconds, but the machine may be busy.
many = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def programs(draw: st.DrawFn, failures: bool) -> str:
    """Valid uses by three threads on two devices: calls, captures, replays, new limits."""
    lines: list[str] = []
    stream = dict.fromkeys(range(3), 0)
    device = dict.fromkeys(range(3), 0)
    capturing: dict[int, bool] = dict.fromkeys(range(3), False)
    ended: set[int] = set()
    begun: list[int] = []  # the device of each graph
    done: set[int] = set()  # graphs that can be replayed
    own: dict[int, int] = {}  # the graph that a thread captures
    for _ in range(draw(st.integers(1, 30))):
        thread = draw(st.sampled_from([t for t in range(3) if t not in ended]))
        kinds = ["call", "call", "graph", "replay", "replay", "stream", "begin", "beside", "end"]
        kinds += ["limits", "release", "exit", "device", "capacity"] + ["fail", "throw"] * failures
        kind = draw(st.sampled_from(kinds))
        if kind == "call":
            lines.append(f"{thread} call {draw(st.integers(0, 9))}")
        elif kind == "throw":
            lines.append(f"{thread} call 9 {draw(st.integers(0, 8))}")
        elif kind == "fail":
            function = draw(st.sampled_from(FUNCTIONS))
            lines.append(f"{thread} fail {function} {draw(st.integers(1, 12))}")
        elif kind == "limits":
            lines.append(f"{thread} limits {draw(st.integers(0, 6))} {draw(st.integers(0, 1500))}")
        elif kind == "capacity":
            lines.append(f"{thread} capacity {draw(st.integers(0, 12))}")
        elif kind == "beside" and capturing[thread]:
            # A call on another stream than the one that captures.
            lines += [f"{thread} stream {draw(st.integers(0, 2))}", f"{thread} call 5"]
            lines.append(f"{thread} stream {10 + thread}")
        elif kind == "end" and capturing[thread]:
            lines += [f"{thread} end", f"{thread} stream {stream[thread]}"]
            capturing[thread] = False
            done.add(own[thread])
        elif capturing[thread]:
            continue
        elif kind == "stream":
            stream[thread] = draw(st.integers(0, 2))
            lines.append(f"{thread} stream {stream[thread]}")
        elif kind == "device":
            device[thread], stream[thread] = 1 - device[thread], 0
            lines += [f"{thread} device {device[thread]}", f"{thread} stream 0"]
        elif kind in ("begin", "graph"):
            # Captures have streams of their own, as torch.cuda.graph has.
            lines += [f"{thread} call 5"] * (kind == "graph")
            lines += [f"{thread} stream {10 + thread}", f"{thread} begin {draw(st.integers(0, 2))}"]
            capturing[thread] = True
            begun.append(device[thread])
            own[thread] = len(begun)
            lines += [f"{thread} call {draw(st.integers(2, 7))}"] * (kind == "graph")
        elif kind == "replay":
            graphs = [g for g in sorted(done) if begun[g - 1] == device[thread]]
            if graphs:
                lines.append(f"{thread} replay {draw(st.sampled_from(graphs))}")
        elif kind == "release":
            lines.append(f"{thread} release")
        elif kind == "exit" and thread > 0:
            lines.append(f"{thread} exit")
            ended.add(thread)
    return "\n".join(lines) + "\n"


@many
@given(programs(failures=False))
def test_any_valid_use_is_in_order(lanes: Lanes, script: str) -> None:
    report = lanes(script)
    assert report[-1]["violations"] == [], script
    for step in report:
        assert step.get("error", "") == "", script
        assert step.get("raised", "") == "", script


@many
@given(programs(failures=True))
def test_any_use_with_failures_is_in_order(lanes: Lanes, script: str) -> None:
    report = lanes(script)
    assert report[-1]["violations"] == [], script


@pytest.mark.parametrize("function", ["cudaEventRecord", "cudaStreamWaitEvent"])
@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("for_good", [0, 1])
def test_failure_at_each_call_of_fork_and_join(
    lanes: Lanes, function: str, capture: bool, for_good: int
) -> None:
    begin, end = ("0 begin 0\n", "0 end\n") if capture else ("", "")
    in_fork = 1 if function == "cudaEventRecord" else 3
    for nth in range(1, in_fork + 4):
        for throw in ("", " 0", " 5"):
            script = f"0 stream 5\n0 call 8\n{begin}0 fail {function} {nth} {for_good}\n"
            report = lanes(script + f"0 call 8{throw}\n{end}0 stream 1\n0 call 8\n")
            assert report[-1]["violations"] == []
            call = [step for step in report if step["op"] == "call"][1]
            assert "on demand" in call["raised"]
            if capture:
                # A capture survives if every lane was joined; it never ends well otherwise.
                joined = nth <= in_fork and (not for_good or nth == 1)
                (ended,) = [step for step in report if step["op"] == "end" and "graph" in step]
                assert (ended["error"] == "") == joined, (script, ended)


@pytest.mark.parametrize("throw", range(9))
@pytest.mark.parametrize("capture", [False, True])
def test_body_throws_at_each_item(lanes: Lanes, throw: int, capture: bool) -> None:
    begin, end = ("0 begin 0\n", "0 end\n") if capture else ("", "")
    script = f"0 stream 5\n0 call 9\n{begin}0 call 9 {throw}\n0 call 9\n{end}0 stream 1\n0 call 9\n"
    report = lanes(script)
    assert report[-1]["violations"] == []
    calls = [step for step in report if step["op"] == "call"]
    assert [call["raised"] != "" for call in calls] == [False, True, False, False]
    assert [call["lanes"] for call in calls] == [4] * 4
    # Exactly the forked lanes are joined, whatever the body did.
    assert calls[1]["run_calls"]["cudaEventRecord"] == 4
    assert calls[1]["run_calls"]["cudaStreamWaitEvent"] == 6
    assert [step["error"] for step in report if "graph" in step] == [""] * capture


CAPTURED = "0 call 8\n0 stream 5\n0 begin 0\n"
FAULTS = {
    "no fork wait": (1, "0 call 8\n", "in no order"),
    "old fork": (2, "0 call 8\n0 call 8\n", "in no order"),
    "no join": (3, "0 call 8\n", "in no order"),
    "no join under capture": (3, CAPTURED + "0 call 8\n0 end\n", "in no order"),
    "old join": (4, "0 call 8\n0 call 8\n", "in no order"),
    "no join on throw": (5, "0 call 8 6\n", "in no order"),
    "join of lanes not forked": (
        6,
        CAPTURED + "0 fail cudaStreamWaitEvent 2\n0 call 8\n0 end\n",
        "a capture would depend on work outside it",
    ),
    "no drain": (7, "0 call 8\n0 fail cudaEventRecord 3\n0 call 8\n", "in no order"),
    "exception swallowed": (8, "0 call 8 6\n", "swallowed"),
    "failed join swallowed": (8, "0 fail cudaEventRecord 3\n0 call 8\n", "swallowed"),
    "last exception": (9, "0 fail cudaEventRecord 2\n0 call 8 7\n", "not the first exception"),
    "shared workspace": (10, "0 call 8\n", "in no order"),
    "shared handle": (11, "0 call 8\n", "not set to the lane's stream"),
    "shared stream": (12, "0 call 8\n", "share a handle or a stream"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_scheduler_is_caught(lanes: Lanes, name: str) -> None:
    number, script, expected = FAULTS[name]
    violations = lanes(f"0 fault {number}\n{script}")[-1]["violations"]
    assert any(expected in text for text in violations), violations
    right = lanes(script)
    assert right[-1]["violations"] == []


def test_unjoined_capture_is_reported(lanes: Lanes) -> None:
    report = lanes("0 fault 3\n" + CAPTURED + "0 call 8\n0 end\n")
    assert "unjoined" in next(step["error"] for step in report if "graph" in step)


def test_threads_that_do_not_take_turns(sanitized_lanes: Lanes) -> None:
    report = sanitized_lanes("4 stress 40\n", TORCH_LINALG_STREAMS_MEMORY_MIB="1600")
    assert report[-1]["violations"] == []
