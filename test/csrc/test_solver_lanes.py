"""The solver lanes on a simulated CUDA runtime: what they promise, case by case.

Each case is a function that gets the lanes. It passes on the source as it is, and it fails on the
source with the mistake that is named beside it: see MISTAKES.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Report = list[dict[str, Any]]
Lanes = Callable[..., Report]
Case = Callable[[Lanes], None]


def ran(lanes: Lanes, script: str, **environment: str) -> Report:
    """Run a script in which nothing may go wrong; return the reports of its calls."""
    report = lanes(script, **environment)
    assert report[-1]["violations"] == []
    for step in report:
        assert step.get("error", "") == "", step
        assert step.get("raised", "") == "", step
    return [step for step in report if step["op"] == "call"]


def used(calls: Report) -> list[int]:
    return [call["lanes"] for call in calls]


# ---- Counting ----


def only_the_lanes_needed(lanes: Lanes) -> None:
    calls = ran(lanes, "0 call 2\n0 call 3\n0 call 9\n0 call 1\n0 call 0\n")
    assert used(calls) == [2, 3, 4, 1, 1]
    assert [call["handles"] for call in calls] == [1, 2, 3, 3, 3]
    # One lane costs neither event nor wait; nothing to do costs nothing at all.
    assert calls[3]["run_calls"] == calls[4]["run_calls"] == {}
    assert calls[2]["run_calls"]["cudaEventRecord"] == 4
    assert calls[2]["run_calls"]["cudaStreamWaitEvent"] == 6


def cheap_once_created(lanes: Lanes) -> None:
    calls = ran(lanes, "0 call 8\n0 call 8\n0 limits 4 100\n0 call 8\n0 call 8\n")
    assert calls[0]["available_calls"]["cusolverDnCreate"] == 3
    for call in (calls[1], calls[3]):
        assert call["available_calls"] == {"cudaStreamGetCaptureInfo": 1}


def limits_are_kept(lanes: Lanes) -> None:
    # Five handles of 100 MiB; the second thread takes what is left, the third works serially.
    calls = ran(lanes, "0 call 8\n1 call 8\n2 call 8\n2 call 8\n0 device 1\n0 call 8\n")
    assert used(calls) == [4, 3, 1, 1, 4]
    assert "memory limit" in calls[2]["reason"]
    # An end of the wait: the limit is raised, a thread ends.
    script = "0 call 8\n1 call 8\n2 call 8\n0 limits 3 700\n2 call 8\n1 exit\n2 call 8\n"
    calls = ran(lanes, script + "3 call 8\n")
    assert used(calls) == [4, 3, 1, 3, 3, 3]


def environment_is_read(lanes: Lanes) -> None:
    script = "0 call 99\n"
    streams, memory = "TORCH_LINALG_STREAMS", "TORCH_LINALG_STREAMS_MEMORY_MIB"
    assert used(ran(lanes, script, **{streams: "8", memory: "10000"})) == [8]
    assert used(ran(lanes, script, **{streams: "99", memory: "10000"})) == [16]
    assert used(ran(lanes, script, **{streams: "8", memory: "250"})) == [3]
    for off in ("0", "1"):
        calls = ran(lanes, script, **{streams: off})
        assert used(calls) == [1] and "turned off" in calls[0]["reason"]
    assert used(ran(lanes, script, **{memory: "99"})) == [1]
    for wrong in ("four", "-1", "4x", "99999999999999999999"):
        report = lanes(script, **{streams: wrong})
        assert report[0]["lanes"] == 4
        (warning,) = report[-1]["warnings"]
        assert f"TORCH_LINALG_STREAMS={wrong}" in warning and "using 4" in warning


def limits_are_checked(lanes: Lanes) -> None:
    report = lanes("0 limits -1 5\n0 limits 2 -5\n0 limits 99 7\n")
    for step in report[:2]:
        assert "must not be negative" in step["raised"]
        assert (step["lanes"], step["memory_mib"]) == (4, 512)
    assert (report[2]["lanes"], report[2]["memory_mib"]) == (16, 7)


# ---- Creation that fails ----


def full_memory_is_no_error(lanes: Lanes) -> None:
    report = lanes("0 capacity 0\n0 call 8\n0 call 8\n0 capacity 1\n0 limits 4 512\n0 call 8\n")
    assert report[-1]["violations"] == []
    calls = [step for step in report if step["op"] == "call"]
    assert used(calls) == [1, 1, 2]
    assert all(call["raised"] == "" for call in calls)
    assert "could be created" in calls[0]["reason"]
    assert "cusolverDnCreate" not in calls[1]["available_calls"]  # not tried each time
    (warning,) = report[-1]["warnings"]  # said once
    assert "CUSOLVER_STATUS_ALLOC_FAILED" in warning and "TORCH_LINALG_STREAMS=0" in warning


def every_failed_creation_is_survived(lanes: Lanes) -> None:
    for function in (
        "cudaStreamCreateWithFlags",
        "cudaEventCreateWithFlags",
        "cusolverDnCreate",
        "cusolverDnSetStream",
    ):
        for nth in range(1, 4):
            report = lanes(f"0 fail {function} {nth}\n0 call 8\n0 limits 4 512\n0 call 8\n")
            assert report[-1]["violations"] == []
            calls = [step for step in report if step["op"] == "call"]
            assert calls[0]["lanes"] < 4 and calls[0]["raised"] == ""
            assert calls[1]["lanes"] == 4
            assert len(report[-1]["warnings"]) == 1


def unknown_capture_state_is_serial(lanes: Lanes) -> None:
    calls = ran(lanes, "0 call 8\n0 fail cudaStreamGetCaptureInfo 1\n0 call 8\n0 call 8\n")
    assert used(calls) == [4, 1, 4]
    assert "capture" in calls[1]["reason"]


# ---- Threads ----


def threads_have_lanes_of_their_own(lanes: Lanes) -> None:
    calls = ran(lanes, "0 limits 3 999\n0 call 8\n1 call 8\n0 call 8\n1 stream 1\n1 call 8\n")
    assert used(calls) == [3] * 4
    assert calls[-1]["handles"] == 4


def lanes_outlive_their_thread(lanes: Lanes) -> None:
    calls = ran(lanes, "1 call 8\n1 exit\n2 stream 3\n2 call 8\n2 exit\n0 call 8\n3 call 8\n")
    assert [call["handles"] for call in calls] == [3, 3, 3, 5]


def devices_have_lanes_of_their_own(lanes: Lanes) -> None:
    script = "0 call 4\n0 device 1\n0 call 4\n0 device 0\n0 call 4\n1 device 1\n1 call 4\n"
    assert used(ran(lanes, script + "0 release\n")) == [4, 4, 4, 3]


def current_streams_may_change(lanes: Lanes) -> None:
    calls = ran(lanes, "".join(f"0 stream {n}\n0 call {n + 2}\n" for n in (0, 1, 2, 1, 0)))
    assert used(calls) == [2, 3, 4, 3, 2]


# ---- Captures ----


def warmed_up_lanes_are_captured(lanes: Lanes) -> None:
    script = "0 call 8\n0 stream 5\n0 begin 0\n0 call 8\n0 call 3\n0 end\n0 stream 0\n"
    calls = ran(lanes, script + "0 replay 1\n0 call 8\n0 replay 1\n0 call 8\n")
    assert used(calls) == [4, 4, 3, 4, 4]
    assert calls[1]["run_calls"]["cusolverDnSetStream"] == 3
    assert "cusolverDnSetStream" not in calls[2]["run_calls"]


def nothing_is_created_during_capture(lanes: Lanes) -> None:
    script = "0 stream 5\n0 begin 0\n0 call 8\n0 end\n0 replay 1\n0 call 3\n"
    calls = ran(lanes, script + "0 begin 0\n0 call 8\n0 end\n")
    assert used(calls) == [1, 3, 3]
    assert "not created while the current stream captures" in calls[0]["reason"]


def captures_of_other_threads_survive_creation(lanes: Lanes) -> None:
    script = "1 stream 5\n1 begin 0\n1 call 8\n0 call 8\n1 call 8\n1 end\n1 replay 1\n0 call 8\n"
    assert used(ran(lanes, script)) == [1, 4, 1, 4]


def captures_of_other_threads_survive_release(lanes: Lanes) -> None:
    script = "0 call 8\n1 stream 5\n1 begin 0\n1 call 8\n0 release\n1 call 8\n1 end\n"
    ran(lanes, script + "1 replay 1\n")


def calls_beside_a_capture_keep_their_lanes(lanes: Lanes) -> None:
    script = "0 call 8\n0 stream 5\n0 begin 2\n0 call 8\n0 stream 1\n0 call 8\n0 stream 5\n"
    assert (
        used(ran(lanes, script + "0 call 8\n0 end\n0 stream 1\n0 call 8\n0 replay 1\n")) == [4] * 5
    )


def two_captures_at_once_share_no_lane(lanes: Lanes) -> None:
    script = "0 call 8\n0 stream 5\n0 begin 2\n0 call 8\n0 stream 6\n0 begin 2\n0 call 8\n0 end\n"
    script += "0 begin 2\n0 call 8\n0 stream 5\n0 end\n0 stream 6\n0 call 8\n0 end\n"
    calls = ran(lanes, script)
    assert used(calls) == [4, 4, 1, 1, 4]
    assert "another stream capture" in calls[2]["reason"]


def a_graph_may_run_beside_other_calls(lanes: Lanes) -> None:
    script = "0 call 8\n0 stream 5\n0 begin 0\n0 call 8\n0 end\n"
    ran(lanes, script + "0 stream 1\n0 replay 1\n0 stream 2\n0 call 8\n0 stream 1\n0 replay 1\n")


def the_lanes_of_a_capturing_thread_that_ended(lanes: Lanes) -> None:
    script = "1 call 8\n1 stream 5\n1 begin 2\n1 call 8\n1 exit\n"
    calls = ran(lanes, script + "0 call 8\n0 stream 6\n0 begin 2\n0 call 8\n0 end\n")
    assert used(calls) == [4, 4, 4, 1]


# ---- Release ----


def released_lanes_come_back(lanes: Lanes) -> None:
    report = lanes("0 call 8\n1 call 8\n1 exit\n0 release\n0 call 8\n0 release\n0 release\n")
    assert report[-1]["violations"] == []
    assert [step["handles"] for step in report if "handles" in step] == [3, 5, 0, 3, 0, 0]


def released_lanes_of_graphs_stay(lanes: Lanes) -> None:
    script = "0 call 8\n0 stream 5\n0 begin 0\n0 call 3\n0 end\n0 stream 0\n0 release\n0 replay 1\n"
    report = lanes(script)
    assert report[-1]["violations"] == []
    assert report[-2]["handles"] == 2


CASES: list[Case] = [
    only_the_lanes_needed,
    cheap_once_created,
    limits_are_kept,
    environment_is_read,
    limits_are_checked,
    full_memory_is_no_error,
    every_failed_creation_is_survived,
    unknown_capture_state_is_serial,
    threads_have_lanes_of_their_own,
    lanes_outlive_their_thread,
    devices_have_lanes_of_their_own,
    current_streams_may_change,
    warmed_up_lanes_are_captured,
    nothing_is_created_during_capture,
    captures_of_other_threads_survive_creation,
    captures_of_other_threads_survive_release,
    calls_beside_a_capture_keep_their_lanes,
    two_captures_at_once_share_no_lane,
    a_graph_may_run_beside_other_calls,
    the_lanes_of_a_capturing_thread_that_ended,
    released_lanes_come_back,
    released_lanes_of_graphs_stay,
]

_RELAXED = "relaxed(cudaStreamCaptureModeRelaxed);\n    std::lock_guard"
_LIMIT = "if ((shared.created + 1) * kHandleMiB > settings().memory_mib) {"
_RELEASE = "relaxed(cudaStreamCaptureModeRelaxed);\n  std::lock_guard"
_CLEAR = "C10_CUDA_CLEAR_ERROR();\n  return error != cudaSuccess"
_CLEAR_QUERY = "C10_CUDA_CLEAR_ERROR();\n    return std::nullopt;"
_AFTER_LOCK = "  }\n  // After the lock: a warning may take Python's lock.\n  if (failure) {"
_WARNING_END = 'turns auxiliary streams off.");\n  }\n}'

# Mistakes: the case that has to catch each, what it reports, and the change of the source.
MISTAKES: dict[str, tuple[Case, str, Sequence[tuple[str, str]]]] = {
    "capture mode not relaxed": (
        captures_of_other_threads_survive_creation,
        "unsafe while a stream captures",
        [(_RELAXED, _RELAXED.replace("Relaxed", "Global"))],
    ),
    "release in global mode": (
        captures_of_other_threads_survive_release,
        "unsafe while a stream captures",
        [(_RELEASE, _RELEASE.replace("Relaxed", "Global"))],
    ),
    "created during capture": (
        nothing_is_created_during_capture,
        "while the current stream captures",
        [("*capture == 0 && set.short_since", "set.short_since")],
    ),
    "no look for other captures": (
        two_captures_at_once_share_no_lane,
        "a capture would depend on work outside it",
        [("if (other != 0 && other != capture) {", "if (other == 77) {")],
    ),
    "one stream for graphs and other calls": (
        a_graph_may_run_beside_other_calls,
        "memory of handle",
        [("capturing ? mine.captured : mine.eager", "mine.eager")],
    ),
    "one stream in and beside a capture": (
        calls_beside_a_capture_keep_their_lanes,
        "a capture would depend on work outside it",
        [("capturing ? mine.captured : mine.eager", "mine.captured")],
    ),
    "handle not set to the stream": (
        warmed_up_lanes_are_captured,
        "not set to the lane's stream",
        [("TORCH_CUSOLVER_CHECK(cusolverDnSetStream(mine.handle, stream));", "")],
    ),
    "no memory limit": (
        limits_are_kept,
        "more handles were created than the limit allows",
        [(_LIMIT, "if (false) {")],
    ),
    "limit per thread": (
        limits_are_kept,
        "more handles were created than the limit allows",
        [(_LIMIT, _LIMIT.replace("shared.created", "int64_t(set.streams.size())"))],
    ),
    "more lanes than calls": (
        only_the_lanes_needed,
        "available_lanes returned 4",
        [("std::min<int64_t>(settings().lanes, items);", "settings().lanes.load();")],
    ),
    "creation tried at each call": (
        full_memory_is_no_error,
        "'cusolverDnCreate' not in",
        [(" && set.short_since != pool().generation", "")],
    ),
    "creation never tried again": (
        full_memory_is_no_error,
        r"\[1, 1, 1\] == \[1, 1, 2\]",
        [("set.short_since != pool().generation", "set.short_since == 0")],
    ),
    "an error left behind": (
        full_memory_is_no_error,
        "an error is left for the next launch check",
        [(_CLEAR, _CLEAR.replace("C10_CUDA_CLEAR_ERROR();", ""))],
    ),
    "a query's error left behind": (
        unknown_capture_state_is_serial,
        "an error is left for the next launch check",
        [(_CLEAR_QUERY, _CLEAR_QUERY.replace("C10_CUDA_CLEAR_ERROR();", ""))],
    ),
    "warned under the lock": (
        full_memory_is_no_error,
        "a warning was given under the pool's lock",
        [(_AFTER_LOCK, "  if (failure) {"), (_WARNING_END, _WARNING_END + "}")],
    ),
    "lanes lost with their thread": (
        lanes_outlive_their_thread,
        r"\[3, 5, 5, 5\] == \[3, 3, 3, 5\]",
        [("      std::lock_guard<std::mutex> guard(pool().mutex);\n      give_back();", "")],
    ),
    "lanes given to two threads": (
        lanes_outlive_their_thread,
        "with a handle that another thread holds",
        [("shared.idle.pop_back();", "break;")],
    ),
    "lanes of the first device": (
        devices_have_lanes_of_their_own,
        "asked for 4 lanes, this thread has 0",
        [("auto& set = thread_streams().on(device);", "auto& set = thread_streams().on(0);")],
    ),
    "released without change of device": (
        devices_have_lanes_of_their_own,
        "destroyed while another device is current",
        [("const c10::cuda::CUDAGuard device_guard(device);", "static_cast<void>(device);")],
    ),
    "released under a graph": (
        released_lanes_of_graphs_stay,
        "uses a destroyed handle",
        [("if (lane.in_graph ||", "if (")],
    ),
    "released while it works": (
        released_lanes_come_back,
        "a handle was destroyed while",
        [("cudaStreamSynchronize(lane.eager))", "cudaSuccess)")],
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Case, lanes: Lanes) -> None:
    case(lanes)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_caught(
    mistake: str, lanes_with: Callable[[Sequence[tuple[str, str]]], Lanes]
) -> None:
    case, report, changes = MISTAKES[mistake]
    wrong = lanes_with(changes)
    with pytest.raises(AssertionError, match=report):
        case(wrong)


ROCM = """
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
int main() {
  namespace sl = at::native::solver_lanes;
  const char* reason = nullptr;
  const int lanes = sl::available_lanes(9, &reason);
  int64_t next = 0;
  bool right = lanes == 1 && reason != nullptr;
  const auto body = [&](const sl::Lane& lane, int64_t item) {
    right = right && item == next++ && lane.index == 0 &&
        lane.handle == simulated::current_handle() &&
        lane.stream == simulated::current_stream(0);
  };
  sl::for_each_on_lanes(9, lanes, body);
  sl::for_each_on_lanes(0, lanes, body);
  return right && next == 9 ? 0 : 1;
}
"""


def test_rocm_has_one_lane(rocm_program: Callable[[str], Path]) -> None:
    assert subprocess.run([str(rocm_program(ROCM))], check=False).returncode == 0
