#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include <ATen/native/cuda/linalg/LUSolve.h>

// On ROCm lu_solve keeps PyTorch's rule.
#if !defined(USE_ROCM)

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/CUDASolver.h>
#include <ATen/native/cuda/linalg/LUSolveRoutes.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#else
#include <ATen/ops/empty.h>
#endif

#include <algorithm>

namespace at::native {
namespace {

using lu_solve_choice::Backend;
using lu_solve_choice::Preference;

lu_solve_choice::Dtype choice_dtype(ScalarType type) {
  switch (type) {
    case kFloat:
      return lu_solve_choice::Dtype::Float;
    case kDouble:
      return lu_solve_choice::Dtype::Double;
    case kComplexFloat:
      return lu_solve_choice::Dtype::ComplexFloat;
    case kComplexDouble:
      return lu_solve_choice::Dtype::ComplexDouble;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "lu_solve is not implemented for ", type);
  }
}

void exchange_rows(const lu_solve_routes::Systems& systems) {
  lu_solve_routes::exchange_rows(
      systems, [](TensorIterator& iterator, const int64_t dim_size, const int64_t max_pivot) {
        unpack_pivots_stub(kCUDA, iterator, dim_size, max_pivot);
      });
}

void lu_solve_on_lanes(const lu_solve_routes::Systems& systems, int lanes) {
  const Tensor infos = at::empty({lanes}, systems.LU.options().dtype(kInt));
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(systems.LU.scalar_type(), "lu_solve_looped_cusolver", [&] {
    lu_solve_routes::looped_cusolver<scalar_t>(
        systems,
        lanes,
        infos,
        [](cusolverDnHandle_t handle,
           cublasOperation_t trans,
           int n,
           int nrhs,
           scalar_t* lu,
           int lda,
           int* pivots,
           scalar_t* b,
           int ldb,
           int* info) {
          at::cuda::solver::getrs<scalar_t>(handle, n, nrhs, lu, lda, pivots, b, ldb, info, trans);
        });
  });
}

// False for Stock.
bool solve_by(Backend backend, const lu_solve_routes::Systems& systems, int lanes) {
  if (backend == Backend::Stock) {
    return false;
  }
  if (backend == Backend::BatchedCublas || !systems.sharing.regular) {
    lu_solve_routes::batched_cublas(systems);  // the others count on regular sharing
  } else if (backend == Backend::TriangularCublas) {
    lu_solve_routes::triangular_cublas(systems, exchange_rows);
  } else {
    lu_solve_on_lanes(systems, lanes);
  }
  return true;
}

}  // namespace

bool lu_solve_measured(
    const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans, bool magma) {
  const auto preference = static_cast<Preference>(at::globalContext().linalgPreferredBackend());
  if (preference == Preference::Magma || !lu_solve_routes::usual_layout(LU, pivots, B)) {
    return false;
  }
  const auto systems = lu_solve_routes::systems_of(LU, pivots, B, trans);
  const auto dtype = choice_dtype(LU.scalar_type());
  const lu_solve_choice::Problem problem{
      systems.batch(), systems.n, systems.nrhs(), trans != TransposeType::NoTranspose};
  // PyTorch's own triangular solves would copy factors that serve several right-hand sides. MAGMA
  // synchronizes the device, which is not permitted during capture.
  const bool may_stock = magma && batchCount(LU) == batchCount(B);
  const bool capturing = may_stock && c10::cuda::currentStreamCaptureStatusMayInitCtx() !=
                                          c10::cuda::CaptureStatus::None;
  // Deterministic algorithms use streams only where the loop is chosen without them: how many a
  // call gets depends on memory, other threads and captures, and another back end returns other
  // bits.
  const bool deterministic = at::globalContext().deterministicAlgorithms();
  lu_solve_choice::Facts facts{
      deterministic ? 1 : solver_lanes::limits().lanes, may_stock, capturing};
  auto backend = lu_solve_choice::choose(dtype, problem, preference, facts);

  int lanes = 1;
  if (deterministic && backend == Backend::LoopedCusolver) {
    lanes = solver_lanes::available_lanes(problem.batch);
  } else if (backend == Backend::StreamedCusolver) {
    lanes = solver_lanes::available_lanes(problem.batch);
    if (lanes < std::min<int64_t>(facts.lanes, problem.batch)) {
      facts.lanes = lanes;
      backend = lu_solve_choice::choose(dtype, problem, preference, facts);
    }
  }

  return solve_by(backend, systems, lanes);
}

bool lu_solve_by(
    Backend backend,
    const Tensor& LU,
    const Tensor& pivots,
    const Tensor& B,
    TransposeType trans,
    int lanes) {
  return lu_solve_routes::usual_layout(LU, pivots, B) &&
         solve_by(backend, lu_solve_routes::systems_of(LU, pivots, B, trans), lanes);
}

}  // namespace at::native

#endif  // !defined(USE_ROCM)
