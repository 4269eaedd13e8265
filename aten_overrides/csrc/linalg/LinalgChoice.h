#pragma once

// Which back end factors a batch of matrices: pure functions of the problem, the
// user's preference and what this build and call allow. No tensor, no CUDA, no
// allocation and no global state, so the choice can be tested without a GPU.
//
// Two layers. `feasible` says whether a back end can take a problem at all, and
// if not, why. `choose_lu_factor` picks one that can: it is total, for any sizes,
// and never returns a back end that `feasible` rejects. The measured crossovers
// are in LinalgThresholds.h and NativeThresholds.h, which are generated.

#include <algorithm>
#include <cstdint>
#include <limits>

#include <ATen/native/cuda/linalg/LinalgThresholds.h>
#include <ATen/native/cuda/linalg/NativeThresholds.h>

namespace at::native::linalg_choice {

enum class Op : int8_t { LuFactor, LuSolve, Geqrf, Gels };

enum class Dtype : int8_t { Float, Double, ComplexFloat, ComplexDouble };

enum class Backend : int8_t {
  BatchedCublas,     // one cuBLAS call for the whole batch
  LoopedCusolver,    // one cuSOLVER call per matrix, on the current stream
  StreamedCusolver,  // the same calls, dealt out to auxiliary streams
  Stock,             // what the build has besides cuSOLVER and cuBLAS: MAGMA
  BatchedNative,     // our own kernels, native/
};

// Values equal those of at::LinalgBackend; appended only.
enum class Preference : int8_t { Default, Cusolver, Magma, Cublas, Native };

struct Problem {
  int64_t batch;
  int64_t m;
  int64_t n;
  bool pivot;
};

// What this build and this call allow.
struct Facts {
  int lanes;                     // auxiliary streams usable for this call; below 2: none
  bool stock;                    // MAGMA is compiled in and may be used
  bool capturing;                // the current stream is being captured into a CUDA graph
  bool native = false;           // our kernels are in this build and run on this GPU
  bool native_measured = false;  // NativeThresholds.h was measured on a GPU of its kind
};

struct Feasibility {
  bool ok;
  const char* reason;  // why not; a static string, empty if ok
};

constexpr const char* name(Backend backend) noexcept {
  switch (backend) {
    case Backend::BatchedCublas:
      return "batched_cublas";
    case Backend::LoopedCusolver:
      return "looped_cusolver";
    case Backend::StreamedCusolver:
      return "streamed_cusolver";
    case Backend::Stock:
      return "stock";
    case Backend::BatchedNative:
      return "batched_native";
  }
  return "unknown";
}

// Whether cuBLAS has a batched routine for this operation and shape.
constexpr bool has_batched_cublas(Op op, const Problem& problem) noexcept {
  switch (op) {
    case Op::LuFactor:  // getrfBatched
      return problem.m == problem.n;
    case Op::LuSolve:  // getrsBatched
    case Op::Geqrf:    // geqrfBatched
      return true;
    case Op::Gels:  // gelsBatched
      return problem.m >= problem.n;
  }
  return false;
}

// Whether the preference alone decides for cuBLAS.
constexpr bool prefers_cublas(Op op, const Problem& problem, Preference preference) noexcept {
  return preference == Preference::Cublas && has_batched_cublas(op, problem);
}

// Whether our kernels have this operation and shape: any whose sizes are below 2^31 - 1.
constexpr bool has_native(Op op, const Problem& problem) noexcept {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  return op == Op::LuFactor && problem.batch < most && problem.m < most && problem.n < most;
}

constexpr Feasibility feasible(
    Op op, Dtype /*dtype*/, const Problem& problem, Backend backend, const Facts& facts) noexcept {
  switch (backend) {
    case Backend::BatchedCublas:
      if (!has_batched_cublas(op, problem)) {
        return {
            false,
            op == Op::Gels ? "cuBLAS gelsBatched needs m >= n"
                           : "cuBLAS getrfBatched needs m == n"};
      }
      return {true, ""};
    case Backend::LoopedCusolver:
      return {true, ""};
    case Backend::StreamedCusolver:
      if (facts.lanes < 2) {
        return {false, "fewer than two auxiliary streams are usable"};
      }
      if (problem.batch < 2) {
        return {false, "one matrix cannot be dealt out to several streams"};
      }
      return {true, ""};
    case Backend::Stock:
      if (!facts.stock) {
        return {false, "MAGMA is not in this build or may not be used"};
      }
      if (facts.capturing) {
        return {false, "MAGMA synchronizes and allocates, which a CUDA graph capture forbids"};
      }
      return {true, ""};
    case Backend::BatchedNative:
      if (!facts.native) {
        return {false, "our kernels are not in this build or do not run on this GPU"};
      }
      if (!has_native(op, problem)) {
        return {
            false,
            op == Op::LuFactor ? "our kernels take sizes below 2^31 - 1"
                               : "there is no kernel of ours for this operation"};
      }
      return {true, ""};
  }
  return {false, "unknown back end"};
}

// Whether the preference alone decides for our kernels.
constexpr bool prefers_native(
    Op op,
    Dtype dtype,
    const Problem& problem,
    Preference preference,
    const Facts& facts) noexcept {
  return preference == Preference::Native &&
         feasible(op, dtype, problem, Backend::BatchedNative, facts).ok;
}

// The last row whose batch is not above `batch`; rows ascend and begin with batch 1.
template <typename Row, int count>
constexpr const Row& row_for(const Row (&rows)[count], int64_t batch) noexcept {
  int i = count - 1;
  while (i > 0 && rows[i].batch > batch) {
    --i;
  }
  return rows[i];
}

constexpr const SquareRow& square_row(Dtype dtype, const Problem& problem) noexcept {
  const bool pivot = problem.pivot;
  switch (dtype) {
    case Dtype::Double:
      if (pivot && problem.n >= kLeap) {
        return row_for(kPivotedDoubleFromLeap, problem.batch);
      }
      return pivot ? row_for(kPivotedDouble, problem.batch)
                   : row_for(kUnpivotedDouble, problem.batch);
    case Dtype::ComplexFloat:
      return pivot ? row_for(kPivotedComplexFloat, problem.batch)
                   : row_for(kUnpivotedComplexFloat, problem.batch);
    case Dtype::ComplexDouble:
      return pivot ? row_for(kPivotedComplexDouble, problem.batch)
                   : row_for(kUnpivotedComplexDouble, problem.batch);
    case Dtype::Float:
      break;
  }
  return pivot ? row_for(kPivotedFloat, problem.batch) : row_for(kUnpivotedFloat, problem.batch);
}

constexpr const NativeRow& native_row(Dtype dtype, const Problem& problem) noexcept {
  const bool square = problem.m == problem.n;
  switch (dtype) {
    case Dtype::Double:
      return !square         ? row_for(kNativeRectangularDouble, problem.batch)
             : problem.pivot ? row_for(kNativePivotedDouble, problem.batch)
                             : row_for(kNativeUnpivotedDouble, problem.batch);
    case Dtype::ComplexFloat:
      return !square         ? row_for(kNativeRectangularComplexFloat, problem.batch)
             : problem.pivot ? row_for(kNativePivotedComplexFloat, problem.batch)
                             : row_for(kNativeUnpivotedComplexFloat, problem.batch);
    case Dtype::ComplexDouble:
      return !square         ? row_for(kNativeRectangularComplexDouble, problem.batch)
             : problem.pivot ? row_for(kNativePivotedComplexDouble, problem.batch)
                             : row_for(kNativeUnpivotedComplexDouble, problem.batch);
    case Dtype::Float:
      break;
  }
  return !square         ? row_for(kNativeRectangularFloat, problem.batch)
         : problem.pivot ? row_for(kNativePivotedFloat, problem.batch)
                         : row_for(kNativeUnpivotedFloat, problem.batch);
}

// Whether our kernels were measured to be the fastest for such a problem.
constexpr bool native_is_fastest(Dtype dtype, const Problem& problem, bool lanes) noexcept {
  if (problem.m != problem.n &&
      (!problem.pivot || std::min(problem.m, problem.n) < kNativeRectangularFrom ||
       problem.n > kNativeRectangularTo)) {
    return false;  // not measured
  }
  const NativeRow& row = native_row(dtype, problem);
  return problem.m < (lanes ? row.lanes : row.loop);
}

// | preference | meaning                                                        |
// |------------|----------------------------------------------------------------|
// | Default    | measured choice among all back ends                            |
// | Cusolver   | measured choice among cuSOLVER and cuBLAS, never MAGMA         |
// | Cublas     | cuBLAS where it has a batched routine; elsewhere as Cusolver   |
// | Magma      | MAGMA where it may be used; elsewhere as Default               |
// | Native     | our kernels where they take the problem; elsewhere as Default  |
constexpr Backend choose_lu_factor(
    Dtype dtype, const Problem& problem, Preference preference, const Facts& facts) noexcept {
  const bool among_libraries =
      preference == Preference::Cusolver || preference == Preference::Cublas;
  const bool may_stock =
      !among_libraries && feasible(Op::LuFactor, dtype, problem, Backend::Stock, facts).ok;
  if (preference == Preference::Magma && may_stock) {
    return Backend::Stock;
  }
  if (prefers_cublas(Op::LuFactor, problem, preference)) {
    return Backend::BatchedCublas;
  }
  if (prefers_native(Op::LuFactor, dtype, problem, preference, facts)) {
    return Backend::BatchedNative;
  }

  const bool may_stream =
      feasible(Op::LuFactor, dtype, problem, Backend::StreamedCusolver, facts).ok;
  const Backend cusolver = may_stream ? Backend::StreamedCusolver : Backend::LoopedCusolver;
  // With fewer lanes than were measured, streams still beat the loop, but when
  // to leave the others for cuSOLVER is decided as if there were none.
  const bool as_measured =
      may_stream && facts.lanes >= std::min<int64_t>(problem.batch, kMeasuredLanes);

  if (!among_libraries && facts.native_measured &&
      feasible(Op::LuFactor, dtype, problem, Backend::BatchedNative, facts).ok &&
      native_is_fastest(dtype, problem, as_measured)) {
    return Backend::BatchedNative;
  }

  if (problem.m != problem.n) {
    // Not measured: MAGMA's one call, as PyTorch had it, rather than a call per tiny matrix.
    if (std::min(problem.m, problem.n) < kRectangularFrom) {
      return may_stock ? Backend::Stock : cusolver;
    }
    const Rectangular& both = kRectangular[static_cast<int>(dtype)];
    const RectangularRow& row = as_measured ? both.lanes : both.loop;
    const int64_t stock_from = problem.m >= kTallFrom ? row.tall : row.wide;
    return may_stock && problem.batch >= stock_from ? Backend::Stock : cusolver;
  }

  const SquareRow& row = square_row(dtype, problem);
  const Crossover& crossover = as_measured ? row.lanes : row.loop;
  if (may_stock && problem.n >= crossover.stock_from && problem.n < crossover.stock_below) {
    return Backend::Stock;
  }
  return problem.n < crossover.cusolver_from ? Backend::BatchedCublas : cusolver;
}

}  // namespace at::native::linalg_choice
