#pragma once

// The back ends of lu_solve, for LuSolveThresholds.h and LuSolveChoice.h.

#include <cstdint>

namespace aten_overrides::lu_solve {

enum class Backend : int8_t {
  BatchedNative,     // our kernel: a block per matrix reads the factor once for few columns
  BlockedNative,     // our kernels for diagonal blocks of many columns, cuBLAS's products between
  BatchedCublas,     // getrsBatched
  TriangularCublas,  // row exchanges and two of cuBLAS's triangular solves
  LoopedCusolver,    // getrs, one call per matrix on the current stream
  StreamedCusolver,  // the same calls, dealt out to auxiliary streams
  Stock,             // what the wheel does
};
inline constexpr int kBackends = 7;

constexpr const char* name(Backend backend) noexcept {
  switch (backend) {
    case Backend::BatchedNative:
      return "batched_native";
    case Backend::BlockedNative:
      return "blocked_native";
    case Backend::BatchedCublas:
      return "batched_cublas";
    case Backend::TriangularCublas:
      return "triangular_cublas";
    case Backend::LoopedCusolver:
      return "looped_cusolver";
    case Backend::StreamedCusolver:
      return "streamed_cusolver";
    case Backend::Stock:
      return "stock";
  }
  return "unknown";
}

// All back ends by measured time, the fastest first, those without a time last. The first one that
// is feasible is taken. LoopedCusolver stands for StreamedCusolver too.
struct Ranking {
  Backend order[6];
};

// Holds from this n up to that of the next segment; the first one below it too.
struct Segment {
  int64_t from_n;
  Ranking ranking;
};

constexpr int kMostSegments = 8;
constexpr int64_t kAsManyAsRows = 0;

// What was measured at one batch and number of right-hand sides (or with as many as rows). Rows
// ascend by batch, then by nrhs; kAsManyAsRows comes last.
struct Row {
  int64_t batch, nrhs;
  int count;
  Segment segments[kMostSegments];
};

struct Rows {
  int count;  // 0: not measured
  const Row* data;
};

}  // namespace aten_overrides::lu_solve
