#pragma once

// The back ends of the symmetric (Hermitian) eigenvalue problem, for EighThresholds.h and
// EighChoice.h.

#include <cstdint>

namespace at::native::eigh_choice {

enum class Backend : int8_t {
  BatchedCusolver,        // XsyevBatched, one call for many matrices
  JacobiBatchedCusolver,  // syevjBatched, likewise
  LoopedCusolver,         // Xsyevd, one call per matrix on the current stream
  StreamedCusolver,       // the same calls, dealt out to auxiliary streams
  Stock,                  // what the build does without this choice
};
inline constexpr int kBackends = 5;

constexpr const char* name(Backend backend) noexcept {
  switch (backend) {
    case Backend::BatchedCusolver:
      return "batched_cusolver";
    case Backend::JacobiBatchedCusolver:
      return "jacobi_batched_cusolver";
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
  Backend order[4];
};

// Holds from this n up to that of the next segment.
struct Segment {
  int64_t from_n;
  Ranking ranking;
};

constexpr int kMostSegments = 8;

// Holds from this batch up to that of the next row. Segments ascend and begin with n = 1; `count`
// of them are used.
struct Row {
  int64_t batch;
  int count;
  Segment segments[kMostSegments];
};

// Rows ascend and begin with batch 1.
struct Rows {
  int count;
  const Row* data;
};

}  // namespace at::native::eigh_choice
