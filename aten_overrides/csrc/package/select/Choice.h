#pragma once

// The package's choice: what LinalgChoice.h knows, and our own LU kernels besides. The values of
// LinalgChoice.h come first and keep their numbers; a series that adds the kernels to ATen appends
// the same ones there. Pure functions, as there.

#include <cstdint>
#include <limits>

#include <ATen/native/cuda/linalg/LinalgChoice.h>

namespace aten_overrides::choice {

namespace aten = at::native::linalg_choice;

using aten::Dtype;
using aten::Feasibility;
using aten::Op;
using aten::Problem;

enum class Backend : int8_t {
  BatchedCublas,
  LoopedCusolver,
  StreamedCusolver,
  Stock,
  BatchedNative,  // our kernels, linalg/native
};
constexpr int kBackends = 5;

// Default, Cusolver, Magma and Cublas are values of torch's enum or of the series.
enum class Preference : int8_t {
  Default,
  Cusolver,
  Magma,
  Cublas,
  Native,  // our kernels where they take operation and shape; elsewhere as Default
};

constexpr bool equal(Backend ours, aten::Backend theirs) noexcept {
  return static_cast<int8_t>(ours) == static_cast<int8_t>(theirs);
}
constexpr bool equal(Preference ours, aten::Preference theirs) noexcept {
  return static_cast<int8_t>(ours) == static_cast<int8_t>(theirs);
}
static_assert(equal(Backend::BatchedCublas, aten::Backend::BatchedCublas));
static_assert(equal(Backend::LoopedCusolver, aten::Backend::LoopedCusolver));
static_assert(equal(Backend::StreamedCusolver, aten::Backend::StreamedCusolver));
static_assert(equal(Backend::Stock, aten::Backend::Stock));
static_assert(equal(Preference::Default, aten::Preference::Default));
static_assert(equal(Preference::Cusolver, aten::Preference::Cusolver));
static_assert(equal(Preference::Magma, aten::Preference::Magma));
static_assert(equal(Preference::Cublas, aten::Preference::Cublas));

// Whether the kernels can run: a matter of the build and the device. Appended only.
enum class Native : int8_t { NotBuilt, Usable, NotForThisGpu, DriverTooOld };
constexpr int kNativeStates = 4;

constexpr const char* reason(Native state) noexcept {
  switch (state) {
    case Native::NotBuilt:
      return "the gpu library was built without our kernels";
    case Native::Usable:
      return "";
    case Native::NotForThisGpu:
      return "our kernels were not compiled for this GPU's architecture";
    case Native::DriverTooOld:
      return "our kernels were compiled by a CUDA that this driver is too old for";
  }
  return "unknown";
}

struct Facts {
  int lanes;        // as in LinalgChoice.h
  bool stock;       // likewise
  bool capturing;   // likewise
  Native native{};  // not built unless said otherwise

  constexpr aten::Facts of_aten() const noexcept {
    return {lanes, stock, capturing};
  }
};

constexpr const char* name(Backend backend) noexcept {
  return backend == Backend::BatchedNative ? "batched_native"
                                           : aten::name(static_cast<aten::Backend>(backend));
}

// Whether our kernels have this operation and shape: any shape whose sizes are below 2^31 - 1.
constexpr bool has_native(Op op, const Problem& problem) noexcept {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  return op == Op::LuFactor && problem.batch < most && problem.m < most && problem.n < most;
}

constexpr Feasibility feasible(
    Op op, Dtype dtype, const Problem& problem, Backend backend, const Facts& facts) noexcept {
  if (backend != Backend::BatchedNative) {
    return aten::feasible(op, dtype, problem, static_cast<aten::Backend>(backend), facts.of_aten());
  }
  if (facts.native != Native::Usable) {
    return {false, reason(facts.native)};
  }
  if (!has_native(op, problem)) {
    return {
        false,
        op == Op::LuFactor ? "our kernels take sizes below 2^31 - 1"
                           : "there is no kernel of ours for this operation"};
  }
  return {true, ""};
}

constexpr bool prefers_cublas(Op op, const Problem& problem, Preference preference) noexcept {
  return preference == Preference::Cublas && aten::has_batched_cublas(op, problem);
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

// The choice without a table: ATen's thresholds, which leave our kernels to the preference.
constexpr Backend choose_lu_factor(
    Dtype dtype, const Problem& problem, Preference preference, const Facts& facts) noexcept {
  if (prefers_native(Op::LuFactor, dtype, problem, preference, facts)) {
    return Backend::BatchedNative;
  }
  const auto known = preference == Preference::Native ? aten::Preference::Default
                                                      : static_cast<aten::Preference>(preference);
  return static_cast<Backend>(aten::choose_lu_factor(dtype, problem, known, facts.of_aten()));
}

}  // namespace aten_overrides::choice
