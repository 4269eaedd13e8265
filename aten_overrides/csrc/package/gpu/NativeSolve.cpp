#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "NativeSolve.h"

#include <c10/util/Exception.h>

#ifdef ATEN_OVERRIDES_NATIVE_ARCHITECTURES

#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/cuda/linalg/native/BatchedLUSolve.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace aten_overrides::gpu {
namespace {

namespace native = at::native::batched_native;

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
      TORCH_INTERNAL_ASSERT(false, "no solve of ours for ", type);
  }
}

native::SolveProblem problem_of(const NativeSystems& systems) {
  return {
      scalar_of(systems.type),
      systems.batch,
      systems.n,
      systems.nrhs,
      systems.lu_batch,
      systems.transposed,
      systems.conjugated};
}

// The most rows that fit, by bisection.
int64_t most_rows(native::Scalar scalar, bool pass) {
  int64_t fits = 0, not_ = 1 << 16;
  while (not_ - fits > 1) {
    const int64_t rows = (fits + not_) / 2;
    const bool ok = native::solve_fits({scalar, 1, rows, 1, 1, false, false}, pass);
    (ok ? fits : not_) = rows;
  }
  return fits;
}

c10::DataPtr allocate(size_t bytes) {
  return bytes > 0 ? at::cuda::getCUDADeviceAllocator()->allocate(bytes) : c10::DataPtr();
}

}  // namespace

SolveRows native_solve_rows(c10::ScalarType type) {
  // By device and type; 0: not asked yet, else pass and blocked plus one, 32 bits each.
  static std::array<std::array<std::atomic<uint64_t>, 4>, C10_COMPILE_TIME_MAX_GPUS> known{};
  const auto scalar = scalar_of(type);
  auto& slot =
      known.at(static_cast<size_t>(c10::cuda::current_device())).at(static_cast<size_t>(scalar));
  uint64_t found = slot.load(std::memory_order_relaxed);
  if (found == 0) {
    found = static_cast<uint64_t>(most_rows(scalar, true) + 1) << 32 |
            static_cast<uint64_t>(most_rows(scalar, false) + 1);
    slot.store(found, std::memory_order_relaxed);
  }
  return {static_cast<int64_t>(found >> 32) - 1, static_cast<int64_t>(found & 0xffffffffU) - 1};
}

void lu_solve_native(const NativeSystems& systems, bool pass) {
  const auto problem = problem_of(systems);
  const auto plan = native::solve_plan(problem, pass);
  const size_t bytes = native::solve_workspace(problem, plan);
  const c10::DataPtr workspace = allocate(bytes);
  const int64_t lda = std::max<int64_t>(1, systems.n);
  // torch's handle may bring a workspace of its own with it; only this route multiplies by cuBLAS.
  const bool multiplies = plan.route == native::SolveRoute::Blocked;
  native::lu_solve(
      problem,
      plan,
      systems.lu,
      lda,
      systems.n * systems.n,
      systems.pivots,
      systems.n,
      systems.b,
      lda,
      systems.n * systems.nrhs,
      workspace.get(),
      bytes,
      multiplies ? at::cuda::getCurrentCUDABlasHandle() : nullptr,
      at::cuda::getCurrentCUDAStream());
}

void exchange_rows_native(const NativeSystems& systems) {
  const auto problem = problem_of(systems);
  const size_t bytes = native::exchange_workspace(problem);
  const c10::DataPtr workspace = allocate(bytes);
  native::exchange_rows(
      problem,
      systems.pivots,
      systems.n,
      systems.b,
      std::max<int64_t>(1, systems.n),
      systems.n * systems.nrhs,
      workspace.get(),
      bytes,
      at::cuda::getCurrentCUDAStream());
}

}  // namespace aten_overrides::gpu

#else

namespace aten_overrides::gpu {

SolveRows native_solve_rows(c10::ScalarType /*type*/) {
  return {0, 0};
}

void lu_solve_native(const NativeSystems& /*systems*/, bool /*pass*/) {
  TORCH_INTERNAL_ASSERT(false, "the gpu library was built without our kernels");
}

void exchange_rows_native(const NativeSystems& /*systems*/) {
  TORCH_INTERNAL_ASSERT(false, "the gpu library was built without our kernels");
}

}  // namespace aten_overrides::gpu

#endif
