#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include <ATen/native/cuda/linalg/NativeLU.h>

#if !defined(USE_ROCM)

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/LinalgChoice.h>
#include <ATen/native/cuda/linalg/native/BatchedLU.h>
#include <ATen/native/cuda/linalg/native/Usable.h>

#include <algorithm>

namespace at::native {
namespace {

using batched_native::Scalar;
using linalg_choice::Dtype;
using linalg_choice::Preference;

static_assert(
    static_cast<int8_t>(at::LinalgBackend::Default) == static_cast<int8_t>(Preference::Default) &&
    static_cast<int8_t>(at::LinalgBackend::Native) == static_cast<int8_t>(Preference::Native));
static_assert(
    static_cast<int8_t>(Scalar::Float) == static_cast<int8_t>(Dtype::Float) &&
    static_cast<int8_t>(Scalar::Double) == static_cast<int8_t>(Dtype::Double) &&
    static_cast<int8_t>(Scalar::ComplexFloat) == static_cast<int8_t>(Dtype::ComplexFloat) &&
    static_cast<int8_t>(Scalar::ComplexDouble) == static_cast<int8_t>(Dtype::ComplexDouble));

Dtype choice_dtype(ScalarType type) {
  switch (type) {
    case kFloat:
      return Dtype::Float;
    case kDouble:
      return Dtype::Double;
    case kComplexFloat:
      return Dtype::ComplexFloat;
    case kComplexDouble:
      return Dtype::ComplexDouble;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "lu_factor is not implemented for ", type);
  }
}

// The window of the kernel that PyTorch has besides, see get_lu_factor_solver_backend.
bool other_kernel_takes(const linalg_choice::Problem& problem) {
  return problem.pivot && problem.m == problem.n && problem.m >= 256 && problem.batch >= 4 &&
         problem.batch <= 65535;
}

bool is_measured_here() {
  const auto* device = at::cuda::getCurrentDeviceProperties();
  return 10 * device->major + device->minor == linalg_choice::kNativeCapability;
}

bool takes(Dtype dtype, const linalg_choice::Problem& problem, Preference preference) {
  using namespace linalg_choice;
  if (preference != Preference::Native && preference != Preference::Default) {
    return false;
  }
  Facts facts{/*lanes=*/1, /*stock=*/false, /*capturing=*/false};
  facts.native = batched_native::usable();
  if (!feasible(Op::LuFactor, dtype, problem, Backend::BatchedNative, facts).ok) {
    return false;
  }
  // As if cuSOLVER always had auxiliary streams, which makes it the faster rival.
  return preference == Preference::Native || (!other_kernel_takes(problem) && is_measured_here() &&
                                              native_is_fastest(dtype, problem, /*lanes=*/true));
}

}  // namespace

bool lu_factor_native(
    const Tensor& input, const Tensor& pivots, const Tensor& infos, bool compute_pivots) {
  const auto m = input.size(-2), n = input.size(-1);
  const auto dtype = choice_dtype(input.scalar_type());
  const auto preference = static_cast<Preference>(at::globalContext().linalgPreferredBackend());
  if (!takes(dtype, {batchCount(input), m, n, compute_pivots}, preference)) {
    return false;
  }
  const batched_native::LuProblem problem{
      static_cast<Scalar>(dtype), batchCount(input), m, n, compute_pivots};
  const auto plan = batched_native::lu_plan(problem);
  const auto workspace_bytes = batched_native::lu_workspace(problem, plan);
  c10::DataPtr workspace;
  if (workspace_bytes > 0) {
    workspace = at::cuda::getCUDADeviceAllocator()->allocate(workspace_bytes);
  }
  // Only this route multiplies by cuBLAS; a handle may bring a workspace of its own.
  const bool multiplies = plan.route == batched_native::LuRoute::Blocked;
  batched_native::lu_factor(
      problem,
      plan,
      input.data_ptr(),
      std::max<int64_t>(1, m),
      matrixStride(input),
      pivots.data_ptr<int>(),
      std::min(m, n),
      infos.data_ptr<int>(),
      workspace.get(),
      workspace_bytes,
      multiplies ? at::cuda::getCurrentCUDABlasHandle() : nullptr,
      at::cuda::getCurrentCUDAStream());
  return true;
}

}  // namespace at::native

#endif  // !defined(USE_ROCM)
