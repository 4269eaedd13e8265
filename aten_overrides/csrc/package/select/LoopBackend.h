#pragma once

// The operations that torch runs as a loop of cuSOLVER calls, or that such a loop on several
// streams can run instead, and their back ends: for LoopThresholds.h and LoopChoice.h.

#include <cstdint>

namespace aten_overrides::loops {

// Appended only.
enum class Op : int8_t {
  Geqrf,
  Orgqr,
  Ormqr,
  Cholesky,
  CholeskySolve,
  CholeskyInverse,
  LdlFactor,
};
inline constexpr int kOps = 7;

enum class Backend : int8_t {
  LoopedCusolver,    // one call per matrix on the current stream
  StreamedCusolver,  // the same calls, dealt out to auxiliary streams
  BatchedCublas,     // geqrfBatched
  Stock,             // the wheel's own function
};
inline constexpr int kBackends = 4;

constexpr const char* name(Backend backend) noexcept {
  switch (backend) {
    case Backend::LoopedCusolver:
      return "looped_cusolver";
    case Backend::StreamedCusolver:
      return "streamed_cusolver";
    case Backend::BatchedCublas:
      return "batched_cublas";
    case Backend::Stock:
      return "stock";
  }
  return "unknown";
}

// LAPACK's routine behind an operation, by which it was measured. The inverse of a Cholesky factor
// is its solution for the identity.
enum class Routine : int8_t { Geqrf, Orgqr, Ormqr, Potrf, Potrs, Sytrf };

// What the wheel's own function does with a problem.
enum class Rival : int8_t { Loop, BatchedCublas, BatchedCusolver, Magma };

// Numbers of right-hand sides that were measured; None: the routine has no right-hand sides.
enum class Columns : int8_t { None, One, Some, AsManyAsRows };
inline constexpr int64_t kSomeColumns = 32;

// Problems of from_n up to below to_n rows, from this batch up to the next one of the same key,
// that a back end other than Stock takes: StreamedCusolver where it alone is ahead, LoopedCusolver
// where the loop is on one stream already. A row with from_n = to_n = 0 says that none is taken.
struct Interval {
  Routine routine;
  Rival rival;
  Columns columns;
  int8_t dtype;
  Backend backend;
  int64_t batch;
  int64_t from_n;
  int64_t to_n;
};

}  // namespace aten_overrides::loops
