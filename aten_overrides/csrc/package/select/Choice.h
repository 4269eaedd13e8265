#pragma once

// The package's choice: that of LinalgChoice.h, with the reason why our own LU kernels cannot run
// where they cannot. Pure functions, as there.

#include <cstdint>

#include <ATen/native/cuda/linalg/LinalgChoice.h>

namespace aten_overrides::choice {

namespace aten = at::native::linalg_choice;

using aten::Backend;
using aten::Dtype;
using aten::Feasibility;
using aten::name;
using aten::Op;
using aten::Preference;
using aten::prefers_cublas;
using aten::Problem;

constexpr int kBackends = 5;

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

  // The package judges by its table whether our kernels were measured on a GPU like this one.
  constexpr aten::Facts of_aten() const noexcept {
    const bool usable = native == Native::Usable;
    return {lanes, stock, capturing, usable, usable};
  }
};

constexpr Feasibility feasible(
    Op op, Dtype dtype, const Problem& problem, Backend backend, const Facts& facts) noexcept {
  if (backend == Backend::BatchedNative && facts.native != Native::Usable) {
    return {false, reason(facts.native)};
  }
  return aten::feasible(op, dtype, problem, backend, facts.of_aten());
}

// Whether the preference alone decides for our kernels.
constexpr bool prefers_native(
    Op op,
    Dtype dtype,
    const Problem& problem,
    Preference preference,
    const Facts& facts) noexcept {
  return aten::prefers_native(op, dtype, problem, preference, facts.of_aten());
}

// The choice without a table: ATen's thresholds.
constexpr Backend choose_lu_factor(
    Dtype dtype, const Problem& problem, Preference preference, const Facts& facts) noexcept {
  return aten::choose_lu_factor(dtype, problem, preference, facts.of_aten());
}

}  // namespace aten_overrides::choice
