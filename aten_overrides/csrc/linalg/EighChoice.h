#pragma once

// Which back end computes the eigenvalues and eigenvectors of a batch of symmetric (Hermitian)
// matrices: pure functions, as in LinalgChoice.h. `choose` is total and returns nothing but Stock
// that `feasible` rejects. The measured crossovers are in EighThresholds.h, which is generated.

#include <cstdint>
#include <limits>

#include <ATen/native/cuda/linalg/EighBackend.h>
#include <ATen/native/cuda/linalg/EighThresholds.h>
#include <ATen/native/cuda/linalg/LinalgChoice.h>

namespace at::native::eigh_choice {

using linalg_choice::Dtype;
using linalg_choice::Feasibility;
using linalg_choice::Preference;

struct Problem {
  int64_t batch;
  int64_t n;
  bool vectors;  // eigenvectors too
};

// What this build and this call allow.
struct Facts {
  int lanes;       // auxiliary streams usable for this call; below 2: none
  bool batched;    // the cuSOLVER at hand has XsyevBatched
  bool stock;      // the build's own function may be used
  bool capturing;  // the current stream is being captured into a CUDA graph
};

// cuSOLVER's batched routines count the elements of all matrices of a call in 32 bits, and refuse
// larger calls. XsyevBatched besides refuses batches that are documented nowhere: 16384 is known to
// pass, 40000 not.
constexpr int64_t kMostElements = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostMatrices = 16384;

// The most rows for syevjBatched: 7 n eps of error at n = 40, 48 at 100, 66 at 130, where the other
// routines stay at 2; it lies behind XsyevBatched from about 40 on.
constexpr int64_t kMostJacobiRows = 64;

// How many matrices one call of a batched routine may get; 0: not even one.
constexpr int64_t matrices_per_call(Backend backend, const Problem& problem) noexcept {
  const int64_t n = problem.n < 1 ? 1 : problem.n;
  if (n > kMostElements / n) {
    return 0;
  }
  const int64_t by_elements = kMostElements / (n * n);
  const int64_t most = backend == Backend::JacobiBatchedCusolver ? kMostElements : kMostMatrices;
  const int64_t fitting = by_elements < most ? by_elements : most;
  return problem.batch < fitting ? problem.batch : fitting;
}

constexpr Feasibility feasible(
    const Problem& problem, Backend backend, const Facts& facts) noexcept {
  switch (backend) {
    case Backend::BatchedCusolver:
      if (!facts.batched) {
        return {false, "this cuSOLVER has no XsyevBatched; it came with CUDA 12.6 Update 2"};
      }
      if (problem.batch > 0 && matrices_per_call(backend, problem) < 1) {
        return {false, "cuSOLVER's batched routines take matrices of at most 2^31 - 1 elements"};
      }
      return {true, ""};
    case Backend::JacobiBatchedCusolver:
      if (problem.n > kMostJacobiRows) {
        return {false, "syevjBatched loses accuracy with n and is used for at most 64 rows"};
      }
      if (facts.capturing) {
        return {false, "syevjBatched may wait for the GPU, which a CUDA graph capture forbids"};
      }
      return {true, ""};
    case Backend::StreamedCusolver:
      if (facts.lanes < 2) {
        return {false, "fewer than two auxiliary streams are usable"};
      }
      if (problem.batch < 2) {
        return {false, "one matrix cannot be dealt out to several streams"};
      }
      [[fallthrough]];
    case Backend::LoopedCusolver:
      if (facts.capturing) {
        return {false, "Xsyevd works in host memory, which a CUDA graph capture forbids"};
      }
      return {true, ""};
    case Backend::Stock:
      if (!facts.stock) {
        return {false, "the build's own function may not be used"};
      }
      if (facts.capturing) {
        return {
            false,
            "the build's own function may work in host memory, which a CUDA graph "
            "capture forbids"};
      }
      if (facts.batched && problem.batch > kMostMatrices) {
        return {
            false,
            "the build's own function may hand XsyevBatched all matrices at once, "
            "which refuses more than 16384"};
      }
      return {true, ""};
  }
  return {false, "unknown back end"};
}

// The last element whose `from` is not above `value`; elements ascend, the first holds below it
// too.
template <class Element, class From>
constexpr const Element& last_from(
    const Element* elements, int count, int64_t value, From from) noexcept {
  int i = count - 1;
  while (i > 0 && from(elements[i]) > value) {
    --i;
  }
  return elements[i];
}

constexpr int64_t batch_of(const Row& row) noexcept {
  return row.batch;
}

constexpr int64_t n_of(const Segment& segment) noexcept {
  return segment.from_n;
}

// Rankings and streams by dtype, without eigenvectors and with them.
struct Measured {
  const Rows (*rows)[2];
  const int64_t (*lanes_from)[2];
};

inline constexpr Measured kMeasured{kRows, kLanesFrom};

constexpr Ranking ranking_of(
    Dtype dtype, const Problem& problem, const Measured& measured = kMeasured) noexcept {
  const Rows& rows = measured.rows[static_cast<int>(dtype)][problem.vectors ? 1 : 0];
  const Row& row = last_from(rows.data, rows.count, problem.batch, batch_of);
  return last_from(row.segments, row.count, problem.n, n_of).ranking;
}

// | preference      | meaning                                                              |
// |-----------------|----------------------------------------------------------------------|
// | Default         | measured choice                                                      |
// | Cusolver, Cublas | the same: all back ends are cuSOLVER's, cuBLAS has no such routine   |
// | Magma           | the build's own function, which hands the call to MAGMA              |
constexpr Backend choose(
    Dtype dtype,
    const Problem& problem,
    Preference preference,
    const Facts& facts,
    const Measured& measured = kMeasured) noexcept {
  if (preference == Preference::Magma) {
    return Backend::Stock;
  }
  const int64_t from = measured.lanes_from[static_cast<int>(dtype)][problem.vectors ? 1 : 0];
  const bool streams = problem.n >= from && feasible(problem, Backend::StreamedCusolver, facts).ok;
  const Ranking ranking = ranking_of(dtype, problem, measured);
  for (const Backend ranked : ranking.order) {
    const Backend backend =
        ranked == Backend::LoopedCusolver && streams ? Backend::StreamedCusolver : ranked;
    if (feasible(problem, backend, facts).ok) {
      return backend;
    }
  }
  return Backend::Stock;  // a ranking holds all: nothing is possible here, with the error of before
}

}  // namespace at::native::eigh_choice
