#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "NativeLu.h"

#include <c10/util/Exception.h>

#ifdef ATEN_OVERRIDES_NATIVE_ARCHITECTURES

#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/native/BatchedLU.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

namespace aten_overrides::gpu {
namespace {

namespace native = at::native::batched_native;
using choice::Native;

// Machine code for a compute capability runs on those of the same major number and at least the
// same minor one.
bool compiled_for(int major, int minor) {
  for (const char* rest = native_architectures(); *rest != '\0';) {
    char* end = nullptr;
    const long number = std::strtol(rest, &end, 10);
    if (number / 10 == major && number % 10 <= minor) {
      return true;
    }
    rest = *end == ',' ? end + 1 : end;
  }
  return false;
}

Native find_state(c10::DeviceIndex device) {
  int driver = 0;
  if (C10_CUDA_ERROR_HANDLED(cudaDriverGetVersion(&driver)) != cudaSuccess ||
      driver / 1000 < ATEN_OVERRIDES_NATIVE_CUDA) {
    return Native::DriverTooOld;
  }
  const auto* properties = at::cuda::getDeviceProperties(device);
  return compiled_for(properties->major, properties->minor) ? Native::Usable
                                                            : Native::NotForThisGpu;
}

native::Scalar scalar_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return native::Scalar::Float;
    case c10::ScalarType::Double:
      return native::Scalar::Double;
    case c10::ScalarType::ComplexFloat:
      return native::Scalar::ComplexFloat;
    case c10::ScalarType::ComplexDouble:
      return native::Scalar::ComplexDouble;
    default:
      TORCH_INTERNAL_ASSERT(false, "no LU kernel for ", type);
  }
}

}  // namespace

choice::Native native_state() {
  // By device; 0: not asked yet, else the state plus one.
  static std::array<std::atomic<int>, C10_COMPILE_TIME_MAX_GPUS> known{};
  try {
    if (c10::cuda::device_count() < 1) {
      return Native::NotForThisGpu;
    }
    const auto device = c10::cuda::current_device();
    auto& state = known.at(static_cast<size_t>(device));
    int found = state.load(std::memory_order_relaxed);
    if (found == 0) {
      found = static_cast<int>(find_state(device)) + 1;
      state.store(found, std::memory_order_relaxed);
    }
    return static_cast<Native>(found - 1);
  } catch (const std::exception&) {
    return Native::NotForThisGpu;  // what is wrong with the device is for the operation to say
  }
}

const char* native_architectures() {
  return ATEN_OVERRIDES_NATIVE_ARCHITECTURES;
}

void lu_factor_batched_native(
    const at::Tensor& input,
    const at::Tensor& pivots,
    const at::Tensor& infos,
    bool compute_pivots) {
  const int64_t m = input.size(-2);
  const int64_t n = input.size(-1);
  const native::LuProblem problem{
      scalar_of(input.scalar_type()), at::native::batchCount(input), m, n, compute_pivots};
  const native::LuPlan plan = native::lu_plan(problem);
  const size_t bytes = native::lu_workspace(problem, plan);
  c10::DataPtr workspace;
  if (bytes > 0) {
    workspace = at::cuda::getCUDADeviceAllocator()->allocate(bytes);
  }
  // torch's handle may bring a workspace of its own with it; only this route multiplies by cuBLAS.
  const bool multiplies = plan.route == native::LuRoute::Blocked;
  native::lu_factor(
      problem,
      plan,
      input.data_ptr(),
      std::max<int64_t>(1, m),
      at::native::matrixStride(input),
      pivots.data_ptr<int>(),
      std::min(m, n),
      infos.data_ptr<int>(),
      workspace.get(),
      bytes,
      multiplies ? at::cuda::getCurrentCUDABlasHandle() : nullptr,
      at::cuda::getCurrentCUDAStream());
}

}  // namespace aten_overrides::gpu

#else

namespace aten_overrides::gpu {

choice::Native native_state() {
  return choice::Native::NotBuilt;
}

const char* native_architectures() {
  return "";
}

void lu_factor_batched_native(
    const at::Tensor& /*input*/,
    const at::Tensor& /*pivots*/,
    const at::Tensor& /*infos*/,
    bool /*compute_pivots*/) {
  TORCH_INTERNAL_ASSERT(false, "the gpu library was built without the LU kernels");
}

}  // namespace aten_overrides::gpu

#endif
