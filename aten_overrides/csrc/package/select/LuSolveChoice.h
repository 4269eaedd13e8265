#pragma once

// Which back end solves with LU factors: pure functions, as in Choice.h. `choose` is total. The
// measured crossovers are in LuSolveThresholds.h, which is generated.

#include <cstdint>
#include <limits>

#include "Choice.h"
#include "LuSolveBackend.h"
#include "LuSolveThresholds.h"

namespace aten_overrides::lu_solve {

using choice::Dtype;
using choice::Feasibility;
using choice::Native;
using choice::Preference;

// A X = B, or with A's (conjugate) transpose, for `batch` right-hand sides of `nrhs` columns.
struct Problem {
  int64_t batch;
  int64_t n;
  int64_t nrhs;
  bool transposed;
  bool regular = true;  // factor item % (number of factors) serves item
};

// What this build and this call allow.
struct Facts {
  int lanes;           // auxiliary streams usable for this call; below 2: none
  bool stock;          // the wheel's own function may be used
  bool magma;          // it calls MAGMA
  bool capturing;      // the current stream is being captured into a CUDA graph
  Native native;       // our kernels
  int64_t pass_rows;   // the most rows that BatchedNative takes on this device
  int64_t block_rows;  // and BlockedNative
};

// Columns from which torch's triangular solve is silently wrong up to CUDA 13.1 (upstream 187717).
constexpr int64_t kWrongFromColumns = 524281;

constexpr const char* kIrregular = "one factor serves several right-hand sides out of their order";

constexpr Feasibility feasible(
    const Problem& problem, Backend backend, const Facts& facts) noexcept {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  switch (backend) {
    case Backend::BatchedNative:
    case Backend::BlockedNative:
      if (facts.native != Native::Usable) {
        return {false, choice::reason(facts.native)};
      }
      if (problem.batch >= most || problem.n >= most || problem.nrhs >= most) {
        return {false, "our kernels take sizes below 2^31 - 1"};
      }
      if (problem.n > (backend == Backend::BatchedNative ? facts.pass_rows : facts.block_rows)) {
        return {false, "our kernels keep whole columns in shared memory, and these are too long"};
      }
      break;
    case Backend::BatchedCublas:
      return {true, ""};
    case Backend::TriangularCublas:
    case Backend::LoopedCusolver:
      break;
    case Backend::StreamedCusolver:
      if (facts.lanes < 2) {
        return {false, "fewer than two auxiliary streams are usable"};
      }
      if (problem.batch < 2) {
        return {false, "one matrix cannot be dealt out to several streams"};
      }
      break;
    case Backend::Stock:
      if (!facts.stock) {
        return {false, "the wheel's own function may not be used"};
      }
      // Above 512 its triangular solves of more than 8 matrices go to MAGMA.
      if (facts.capturing && facts.magma && problem.n > 512 && problem.batch > 8) {
        return {
            false,
            "MAGMA synchronizes the device and allocates, which a CUDA graph capture forbids"};
      }
      if (problem.nrhs >= kWrongFromColumns) {
        return {false, "torch's triangular solve is wrong from 524281 columns on"};
      }
      return {true, ""};
  }
  if (!problem.regular) {
    return {false, kIrregular};
  }
  return {true, ""};
}

// The row measured nearest to a problem; null without rows.
constexpr const Row* row_of(const Rows& rows, const Problem& problem) noexcept {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();  // whose square is an int64
  const auto limited = [](int64_t size) { return size < 1 ? 1 : size > most ? most : size; };
  const int64_t batch = limited(problem.batch), n = limited(problem.n);
  const int64_t nrhs = limited(problem.nrhs);
  int64_t nearest = 0;
  for (int i = 0; i < rows.count; ++i) {
    const int64_t there = rows.data[i].batch;
    if (nearest == 0 || (there > nearest && batch * batch >= nearest * there)) {
      nearest = there;
    }
  }
  // As near to n as to the numbers of columns that were measured for all n: 8 and 64.
  const bool many = n > 64 ? nrhs * nrhs >= 64 * n : nrhs * nrhs >= 8 * n && nrhs * nrhs < 64 * n;
  const Row* found = nullptr;
  for (int i = 0; i < rows.count; ++i) {
    const Row& row = rows.data[i];
    if (row.batch != nearest) {
      continue;
    }
    if (found == nullptr || (row.nrhs == kAsManyAsRows && many) ||
        (row.nrhs > 0 && nrhs * nrhs >= found->nrhs * row.nrhs)) {
      found = &row;
    }
  }
  return found;
}

// The rule where nothing was measured. Of the libraries' routes, float32 on one H200 with torch
// 2.11: with one right-hand side and a batch of 1024, getrsBatched needs half the time of two
// triangular solves at n = 256..512 and about the same at smaller batches; with as many right-hand
// sides as rows it needs up to 13 times as long.
constexpr Ranking unmeasured(Dtype dtype, const Problem& problem, bool libraries) noexcept {
  using B = Backend;
  const bool few = problem.nrhs <= 8;
  const B first = few ? B::BatchedNative : B::BlockedNative;
  const B second = few ? B::BlockedNative : B::BatchedNative;
  if (libraries) {
    if (problem.n >= 256 && problem.nrhs >= 64) {
      return {{B::TriangularCublas, B::BatchedCublas, B::LoopedCusolver, B::Stock, first, second}};
    }
    if (problem.batch <= 2 && problem.n >= 64) {
      return {{B::LoopedCusolver, B::BatchedCublas, B::TriangularCublas, B::Stock, first, second}};
    }
    return {{B::BatchedCublas, B::TriangularCublas, B::LoopedCusolver, B::Stock, first, second}};
  }
  if (dtype == Dtype::Float && problem.nrhs == 1 && problem.n >= 256 && problem.n <= 512 &&
      problem.batch >= 1024) {
    return {{first, second, B::BatchedCublas, B::Stock, B::TriangularCublas, B::LoopedCusolver}};
  }
  if (problem.nrhs >= 64) {
    return {{first, second, B::Stock, B::TriangularCublas, B::BatchedCublas, B::LoopedCusolver}};
  }
  return {{first, second, B::Stock, B::BatchedCublas, B::TriangularCublas, B::LoopedCusolver}};
}

// Rankings by dtype, without transposition and with it, and by dtype the n from which streams take
// the place of the loop.
struct Measured {
  const Rows (*rows)[2];
  const int64_t* lanes_from;
};

inline constexpr Measured kMeasured{kRows, kLanesFrom};

constexpr Ranking ranking_of(
    Dtype dtype,
    const Problem& problem,
    bool libraries,
    const Measured& measured = kMeasured) noexcept {
  const Rows& rows = measured.rows[static_cast<int>(dtype)][problem.transposed ? 1 : 0];
  const Row* const row = row_of(rows, problem);
  if (row == nullptr) {
    return unmeasured(dtype, problem, libraries);
  }
  int i = row->count - 1;
  while (i > 0 && row->segments[i].from_n > problem.n) {
    --i;
  }
  return row->segments[i].ranking;
}

constexpr bool of_ours(Backend backend) noexcept {
  return backend == Backend::BatchedNative || backend == Backend::BlockedNative;
}

constexpr bool ours_can_run(const Problem& problem, const Facts& facts) noexcept {
  return feasible(problem, Backend::BatchedNative, facts).ok ||
         feasible(problem, Backend::BlockedNative, facts).ok;
}

// Why the preference leaves a back end out; "" if it does not. `ours`: our kernels can run.
constexpr const char* left_out(Backend backend, Preference preference, bool ours) noexcept {
  switch (preference) {
    case Preference::Default:
      break;
    case Preference::Cusolver:
      return of_ours(backend) || backend == Backend::Stock ? "the preference is cusolver" : "";
    case Preference::Magma:
      return backend == Backend::Stock ? "" : "the preference is magma";
    case Preference::Cublas:
      return backend == Backend::BatchedCublas ? "" : "the preference is cublas";
    case Preference::Native:
      return ours && !of_ours(backend) ? "the preference is native" : "";
  }
  return "";
}

// Whether loops over the batch are dealt out to streams.
constexpr bool on_streams(
    Dtype dtype,
    const Problem& problem,
    const Facts& facts,
    const Measured& measured = kMeasured) noexcept {
  return problem.n >= measured.lanes_from[static_cast<int>(dtype)] &&
         feasible(problem, Backend::StreamedCusolver, facts).ok;
}

// | preference | meaning                                                  |
// |------------|----------------------------------------------------------|
// | Default    | measured choice                                          |
// | Cusolver   | measured choice among cuSOLVER and cuBLAS                |
// | Cublas     | getrsBatched                                             |
// | Magma      | the wheel's own function                                 |
// | Native     | our kernels where they can run; elsewhere as Default     |
constexpr Backend choose(
    Dtype dtype,
    const Problem& problem,
    Preference preference,
    const Facts& facts,
    const Measured& measured = kMeasured) noexcept {
  if (preference == Preference::Magma) {
    return Backend::Stock;
  }
  if (preference == Preference::Cublas) {
    return Backend::BatchedCublas;
  }
  const bool ours = preference == Preference::Native && ours_can_run(problem, facts);
  const Ranking ranking = ranking_of(dtype, problem, preference == Preference::Cusolver, measured);
  for (const Backend ranked : ranking.order) {
    if (*left_out(ranked, preference, ours) != '\0' || !feasible(problem, ranked, facts).ok) {
      continue;
    }
    return ranked == Backend::LoopedCusolver && on_streams(dtype, problem, facts, measured)
               ? Backend::StreamedCusolver
               : ranked;
  }
  return Backend::BatchedCublas;
}

// Whether `choose` takes a back end into account, and why not.
constexpr Feasibility considered(
    Dtype dtype,
    const Problem& problem,
    Backend backend,
    Preference preference,
    const Facts& facts,
    const Measured& measured = kMeasured) noexcept {
  if (preference == Preference::Magma && backend == Backend::Stock) {
    return {true, ""};  // whatever it does with the problem
  }
  const auto possible = feasible(problem, backend, facts);
  if (!possible.ok) {
    return possible;
  }
  const char* const out = left_out(backend, preference, ours_can_run(problem, facts));
  if (*out != '\0') {
    return {false, out};
  }
  const bool streams = on_streams(dtype, problem, facts, measured);
  if (backend == Backend::StreamedCusolver && !streams) {
    return {false, "for so few rows the loop stays on one stream"};
  }
  if (backend == Backend::LoopedCusolver && streams) {
    return {false, "its calls are dealt out to streams"};
  }
  return {true, ""};
}

}  // namespace aten_overrides::lu_solve
