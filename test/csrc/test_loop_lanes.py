"""LoopThresholds.h and LoopLanes: which loop gets lanes, and a workspace for each of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LINALG = Path(__file__).resolve().parents[2] / "aten_overrides" / "csrc" / "linalg"
LOOPS = ("Getrs", "Potrf", "Potrs", "Geqrf", "Orgqr", "Ormqr", "Syevd", "Syevj")

# What LoopLanes uses of torch and of CUDASolverLanes.h, in one header.
FAKES = """
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
namespace c10 {
struct DataPtr {
  std::shared_ptr<void> block;
  void* get() const { return block.get(); }
};
struct Allocator {
  size_t asked = 0;
  int calls = 0;
  DataPtr allocate(size_t bytes) {
    asked = bytes;
    ++calls;
    return {{bytes ? std::aligned_alloc(256, bytes) : nullptr, std::free}};
  }
};
inline Allocator host;
inline Allocator* GetCPUAllocator() { return &host; }
}  // namespace c10
namespace at::cuda {
inline c10::Allocator device;
inline c10::Allocator* getCUDADeviceAllocator() { return &device; }
}  // namespace at::cuda
namespace at::native::solver_lanes {
struct Lane { int index; };
inline int asked_for_lanes = 0;
inline int available_lanes(int64_t items) {
  ++asked_for_lanes;
  return static_cast<int>(std::clamp<int64_t>(items, 1, 4));
}
}  // namespace at::native::solver_lanes
"""

PROGRAM = """
#include <ATen/native/cuda/linalg/LoopLanes.h>
#include <cstdio>
namespace sl = at::native::solver_lanes;

bool lie_apart(const sl::LaneWorkspace& workspace, size_t bytes, int lanes) {
  for (int i = 0; i < lanes; ++i) {
    char* const start = workspace.of<char>({i});
    if (reinterpret_cast<uintptr_t>(start) % 256 != 0) {
      return false;
    }
    if (i > 0 && start < workspace.of<char>({i - 1}) + bytes) {
      return false;
    }
    for (size_t at = 0; at < bytes; ++at) {
      start[at] = 1;  // within the allocation, which the sanitizer watches
    }
  }
  return true;
}

int main() {
  std::printf("[");
  for (const auto& row : sl::kLoopThresholds) {
    const int64_t ns[] = {1, row.least_n - 1, row.least_n};
    const int64_t most = row.most_batch;
    const int64_t batches[] = {
        0, 1, 2, row.least_batch - 1, row.least_batch, most, most == sl::kAny ? most : most + 1};
    for (const auto n : ns) {
      for (const auto batch : batches) {
        const int before = sl::asked_for_lanes;
        const int lanes = sl::loop_lanes(row.loop, n, batch);
        const int asked = sl::asked_for_lanes - before;
#if !defined(USE_ROCM)
        sl::set_streams_always(true);
        const int always = sl::loop_lanes(row.loop, n, batch);
        sl::set_streams_always(false);
#else
        const int always = 1;
#endif
        std::printf(
            "{\\"loop\\": %d, \\"row\\": [%lld, %lld, %lld], \\"n\\": %lld, \\"batch\\": %lld, "
            "\\"lanes\\": %d, \\"asked\\": %d, \\"always\\": %d},\\n",
            static_cast<int>(row.loop), (long long)row.least_n, (long long)row.least_batch,
            (long long)row.most_batch,
            (long long)n, (long long)batch, lanes, asked, always);
      }
    }
  }
  bool apart = true;
  for (const size_t bytes : {0, 1, 255, 256, 257, 1000}) {
    for (const int lanes : {1, 2, 4}) {
      apart = apart && lie_apart(sl::LaneWorkspace::on_device(bytes, lanes), bytes, lanes);
      apart = apart && at::cuda::device.asked >= bytes * lanes;
      apart = apart && lie_apart(sl::LaneWorkspace::on_host(bytes, lanes), bytes, lanes);
    }
  }
  std::printf("{\\"apart\\": %s, \\"allocations\\": [%d, %d]}]", apart ? "true" : "false",
      at::cuda::device.calls, c10::host.calls);
}
"""


class Builder:
    """Compiles PROGRAM with LoopLanes.cpp against the fakes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        include = folder / "include"
        linalg = include / "ATen/native/cuda/linalg"
        linalg.mkdir(parents=True)
        (folder / "include/fakes.h").write_text(FAKES)
        names = ("ATen/cuda/CUDAContext.h", "c10/core/Allocator.h", "c10/core/CPUAllocator.h")
        for name in (*names, "ATen/native/cuda/linalg/CUDASolverLanes.h"):
            path = include / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#include <fakes.h>\n")
        shutil.copy(LINALG / "LoopLanes.h", linalg)
        (folder / "main.cpp").write_text(PROGRAM)
        self._thresholds = linalg / "LoopThresholds.h"

    def build(self, *flags: str, rows: dict[str, str] | None = None) -> Any:
        """The program's output, or the compiler's errors as a text; `rows` replaces rows of the
        table, by the names of their loops.
        """
        text = (LINALG / "LoopThresholds.h").read_text()
        for name, row in (rows or {}).items():
            text, count = re.subn(rf"    {{Loop::{name}, [^}}]*}},[^\n]*\n", row, text)
            assert count == 1, f"Loop::{name} has {count} rows"
        self._thresholds.write_text(text)
        out = self._folder / "program"
        command = [os.environ.get("CXX", "g++"), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
        command += ["-fsanitize=address,undefined", f"-I{self._folder / 'include'}", *flags]
        sources = [str(self._folder / "main.cpp"), str(LINALG / "LoopLanes.cpp")]
        done = subprocess.run(
            [*command, *sources, "-o", str(out)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return done.stderr
        return json.loads(subprocess.run([str(out)], capture_output=True, check=True).stdout)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return Builder(tmp_path_factory.mktemp("loops")).build


CUDA = "-DCUDART_VERSION=12040"


def test_lanes_are_asked_for_from_the_thresholds_on(build: Callable[..., Any]) -> None:
    *rows, end = build(CUDA, rows={"Geqrf": "{Loop::Geqrf, 100, 3, 7},"})
    assert {LOOPS[row["loop"]] for row in rows} == set(LOOPS)
    assert {row["lanes"] for row in rows if LOOPS[row["loop"]] == "Geqrf"} == {1, 3, 4}
    for row in rows:
        least_n, least_batch, most_batch = row["row"]
        on = row["n"] >= least_n and least_batch <= row["batch"] <= most_batch
        assert row["asked"] == on, row
        assert row["lanes"] == (min(row["batch"], 4) if on else 1), row
        assert row["always"] == max(1, min(row["batch"], 4)), row
    assert end["apart"]
    assert end["allocations"] == [18, 18], "one allocation each"


def test_rocm_gets_one_lane(build: Callable[..., Any]) -> None:
    *rows, end = build("-DUSE_ROCM")
    assert {row["lanes"] for row in rows} == {1}
    assert end["apart"]


@pytest.mark.parametrize(
    "rows",
    [
        {"Geqrf": "{Loop::Orgqr, 9, 9, kAny},"},
        {"Syevj": ""},
        {"Syevd": "{Loop::Syevd, 16, 1, kAny},"},
    ],
    ids=["out of order", "missing", "one matrix"],
)
def test_a_wrong_table_does_not_compile(build: Callable[..., Any], rows: dict[str, str]) -> None:
    errors = build(CUDA, rows=rows)
    assert isinstance(errors, str)
    assert "one row for each Loop" in errors
