#pragma once

// Which route solves with LU factors: pure functions of the problem, the user's preference and
// what this build and call allow, without tensors and CUDA, so that the choice can be tested
// without a GPU. The measured crossovers are in LUSolveThresholds.h, which is generated.

#include <algorithm>
#include <cstdint>
#include <limits>

#include <ATen/native/cuda/linalg/LUSolveThresholds.h>

namespace at::native::lu_solve_choice {

// As in LinalgChoice.h, which this header does without.
enum class Dtype : int8_t { Float, Double, ComplexFloat, ComplexDouble };

enum class Backend : int8_t {
  BatchedCublas,     // getrsBatched, one call for the whole batch
  LoopedCusolver,    // getrs, one call per matrix on the current stream
  StreamedCusolver,  // the same calls, dealt out to auxiliary streams
  TriangularCublas,  // row exchanges and two of cuBLAS's triangular solves
  Stock,             // PyTorch's own rule, which knows MAGMA
};

// Values equal those of at::LinalgBackend; appended only.
enum class Preference : int8_t { Default, Cusolver, Magma, Cublas, Native };

// A X = B, or with A's (conjugate) transpose, for `batch` right-hand sides of `nrhs` columns.
struct Problem {
  int64_t batch;
  int64_t n;
  int64_t nrhs;
  bool transposed;
};

// What this build and this call allow.
struct Facts {
  int lanes;       // auxiliary streams usable for this call; below 2: none
  bool magma;      // PyTorch's triangular solves of many large matrices are MAGMA's
  bool capturing;  // the current stream is being captured into a CUDA graph
};

// The most columns that a routine gets at once: cuBLAS's batched triangular solve is silently wrong
// from 524281 on up to CUDA 13.1, see https://github.com/pytorch/pytorch/issues/187717.
constexpr int64_t kMostColumns = int64_t{1} << 18;

constexpr const char* name(Backend backend) noexcept {
  switch (backend) {
    case Backend::BatchedCublas:
      return "batched_cublas";
    case Backend::LoopedCusolver:
      return "looped_cusolver";
    case Backend::StreamedCusolver:
      return "streamed_cusolver";
    case Backend::TriangularCublas:
      return "triangular_cublas";
    case Backend::Stock:
      return "stock";
  }
  return "unknown";
}

// Whether PyTorch's triangular solves call MAGMA, and may.
constexpr bool may_stock(
    const Problem& problem, Preference preference, const Facts& facts) noexcept {
  return facts.magma && !facts.capturing && preference != Preference::Cusolver && problem.n > 512 &&
         problem.batch > 8 && problem.nrhs <= kMostColumns;
}

// The last row of the last batch not above the problem's whose right-hand sides are not more than
// the problem's. Rows ascend by batch, then by nrhs, and begin with 1 and 1.
template <int count>
constexpr const Row& row_for(const Row (&rows)[count], const Problem& problem) noexcept {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();  // whose square is an int64
  const int64_t n = std::min(problem.n, most);
  const int64_t nrhs = std::min(problem.nrhs, most);
  const int64_t sides = n > 64 && nrhs * nrhs >= 64 * n ? kMany : nrhs;
  int i = count - 1;
  while (i > 0 && rows[i].batch > problem.batch) {
    --i;
  }
  while (i > 0 && rows[i - 1].batch == rows[i].batch && rows[i].nrhs > sides) {
    --i;
  }
  return rows[i];
}

constexpr const Row& row_of(Dtype dtype, const Problem& problem) noexcept {
  switch (dtype) {
    case Dtype::Double:
      return row_for(kDouble, problem);
    case Dtype::ComplexFloat:
      return row_for(kComplexFloat, problem);
    case Dtype::ComplexDouble:
      return row_for(kComplexDouble, problem);
    case Dtype::Float:
      break;
  }
  return row_for(kFloat, problem);
}

// | preference | meaning                                             |
// |------------|-----------------------------------------------------|
// | Default    | measured choice                                     |
// | Cusolver   | measured choice among cuSOLVER and cuBLAS           |
// | Cublas     | getrsBatched                                        |
// | Magma      | MAGMA, by PyTorch's own rule                        |
// | Native     | as Default                                          |
constexpr Backend choose(
    Dtype dtype, const Problem& problem, Preference preference, const Facts& facts) noexcept {
  if (preference == Preference::Magma) {
    return Backend::Stock;
  }
  if (preference == Preference::Cublas) {
    return Backend::BatchedCublas;
  }
  if (problem.nrhs >= kWideFrom && problem.n < kWideRowsFrom) {
    const bool many = problem.batch >= kWideBatchFrom && problem.nrhs < kWideRowsFrom;
    return problem.n <= 8 || many ? Backend::BatchedCublas : Backend::TriangularCublas;
  }
  const bool may_stream = facts.lanes >= 2 && problem.batch >= 2;
  // With fewer lanes than were measured, streams still beat the loop, but when to leave the others
  // for cuSOLVER is decided as if there were none.
  const bool as_measured =
      may_stream && facts.lanes >= std::min<int64_t>(problem.batch, kMeasuredLanes);
  const Row& row = row_of(dtype, problem);
  const Crossover& crossover = problem.transposed
                                   ? (as_measured ? row.transposed_lanes : row.transposed_loop)
                                   : (as_measured ? row.lanes : row.loop);
  if (problem.n < crossover.cusolver_from) {
    return Backend::BatchedCublas;
  }
  if (problem.n < crossover.triangular_from) {
    return may_stream ? Backend::StreamedCusolver : Backend::LoopedCusolver;
  }
  return may_stock(problem, preference, facts) ? Backend::Stock : Backend::TriangularCublas;
}

}  // namespace at::native::lu_solve_choice
