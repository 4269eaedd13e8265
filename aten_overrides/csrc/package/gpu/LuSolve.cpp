// Solution of linear systems by LU factors, in place of the right-hand sides.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "Cusolver.h"
#include "Kernels.h"
#include "Observe.h"
#include "Pointers.h"
#include "Stub.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/TensorIterator.h>
#include <ATen/cuda/CUDABlas.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_solve_triangular.h>

#include <algorithm>
#include <vector>

namespace aten_overrides::gpu {
namespace {

using at::Tensor;
using at::native::TransposeType;

cublasOperation_t operation(TransposeType trans) {
  switch (trans) {
    case TransposeType::NoTranspose:
      return CUBLAS_OP_N;
    case TransposeType::Transpose:
      return CUBLAS_OP_T;
    case TransposeType::ConjTranspose:
      return CUBLAS_OP_C;
  }
  TORCH_INTERNAL_ASSERT(false, "invalid transpose type");
}

// The batch dimensions of B followed by `last` dimensions of `tensor`.
std::vector<int64_t> batch_of_b_with_last(const Tensor& B, const Tensor& tensor, int64_t last) {
  const auto batch = B.sizes().slice(0, B.dim() - 2);
  std::vector<int64_t> shape(batch.begin(), batch.end());
  const auto own = tensor.sizes().slice(tensor.dim() - last);
  shape.insert(shape.end(), own.begin(), own.end());
  return shape;
}

// One pointer per right-hand side, also where one factor serves several.
Tensor factor_pointers(const Tensor& LU, const Tensor& B) {
  const Tensor pointers = matrix_pointers(LU);
  const int64_t batch = at::native::batchCount(B);
  if (pointers.numel() == batch) {
    return pointers;
  }
  return pointers.view(LU.sizes().slice(0, LU.dim() - 2))
      .expand(B.sizes().slice(0, B.dim() - 2))
      .contiguous();
}

Tensor expanded_pivots(const Tensor& pivots, const Tensor& B) {
  return pivots.expand(batch_of_b_with_last(B, pivots, 1)).contiguous();
}

void lu_solve_batched_cublas(
    const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans) {
  const int n = checked_int(LU.size(-2), "n");
  const int nrhs = checked_int(B.size(-1), "the number of right-hand sides");
  const int lda = std::max(1, n);
  const Tensor all_pivots = expanded_pivots(pivots, B);
  const Tensor factors = factor_pointers(LU, B);
  const Tensor targets = matrix_pointers(B);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(LU.scalar_type(), "lu_solve_batched_cublas", [&] {
    auto* lu = reinterpret_cast<scalar_t**>(factors.data_ptr());
    auto* b = reinterpret_cast<scalar_t**>(targets.data_ptr());
    auto* pivots_data = all_pivots.data_ptr<int>();
    const auto handle = at::cuda::getCurrentCUDABlasHandle();
    for_each_chunk(at::native::batchCount(B), [&](int64_t start, int count) {
      int info = 0;  // says only which argument is wrong
      at::cuda::blas::getrsBatched<scalar_t>(
          handle,
          operation(trans),
          n,
          nrhs,
          lu + start,
          lda,
          pivots_data + start * n,
          b + start,
          lda,
          &info,
          count);
      TORCH_INTERNAL_ASSERT(info == 0, "getrsBatched: argument ", -info, " is wrong");
    });
  });
}

// One factor per right-hand side.
void lu_solve_looped_cusolver(
    const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans) {
  const int n = checked_int(LU.size(-2), "n");
  const int nrhs = checked_int(B.size(-1), "the number of right-hand sides");
  const int lda = std::max(1, n);
  const Tensor info = at::empty({1}, LU.options().dtype(at::kInt));
  const int64_t lu_stride = at::native::matrixStride(LU);
  const int64_t b_stride = at::native::matrixStride(B);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(LU.scalar_type(), "lu_solve_looped_cusolver", [&] {
    auto* lu = LU.data_ptr<scalar_t>();
    auto* b = B.data_ptr<scalar_t>();
    const auto* pivots_data = pivots.data_ptr<int>();
    const auto handle = at::cuda::getCurrentCUDASolverDnHandle();
    for (int64_t item = 0; item < at::native::batchCount(B); ++item) {
      cusolver::getrs(
          handle,
          operation(trans),
          n,
          nrhs,
          lu + item * lu_stride,
          lda,
          pivots_data + item * n,
          b + item * b_stride,
          lda,
          info.data_ptr<int>());
    }
  });
}

// permutation[i]: the row of A that is row i of L U.
Tensor permutation_of(const Tensor& pivots) {
  const int64_t n = pivots.size(-1);
  Tensor permutation =
      at::arange(n, pivots.options().dtype(at::kLong)).expand(pivots.sizes()).contiguous();
  auto iterator = at::TensorIteratorConfig()
                      .set_check_mem_overlap(false)
                      .check_all_same_dtype(false)
                      .resize_outputs(false)
                      .declare_static_shape(pivots.sizes(), /*squash_dims=*/{pivots.dim() - 1})
                      .add_output(permutation)
                      .add_const_input(pivots)
                      .build();
  cuda_function(at::native::unpack_pivots_stub)(iterator, n, n);
  return permutation;
}

void lu_solve_triangular_cublas(
    const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans) {
  Tensor& out = const_cast<Tensor&>(B);
  const bool broadcast = at::native::batchCount(LU) != at::native::batchCount(B);
  const Tensor factor =
      broadcast ? at::native::cloneBatchedColumnMajor(LU.expand(batch_of_b_with_last(B, LU, 2)))
                : LU;
  const Tensor rows = permutation_of(expanded_pivots(pivots, B)).unsqueeze(-1).expand_as(B);
  if (trans == TransposeType::NoTranspose) {
    const Tensor permuted = B.gather(-2, rows);
    at::linalg_solve_triangular_out(
        out, factor, permuted, /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
    at::linalg_solve_triangular_out(out, factor, B, /*upper=*/true);
    return;
  }
  const Tensor transposed = trans == TransposeType::ConjTranspose ? factor.mH() : factor.mT();
  at::linalg_solve_triangular_out(out, transposed, B, /*upper=*/false);
  at::linalg_solve_triangular_out(
      out, transposed, B, /*upper=*/true, /*left=*/true, /*unitriangular=*/true);
  B.scatter_(-2, rows, B.clone());
}

}  // namespace

void lu_solve_kernel(const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans) {
  choice::Dtype dtype{};
  if (!choice_dtype(LU.scalar_type(), dtype) || B.numel() == 0) {
    stock_lu_solve()(LU, pivots, B, trans);
    return;
  }
  const auto preference = choice_preference(at::globalContext().linalgPreferredBackend());
  const SolveProblem problem{
      at::native::batchCount(B),
      LU.size(-2),
      B.size(-1),
      at::native::batchCount(LU) != at::native::batchCount(B)};
  const Plan plan = plan_lu_solve(dtype, problem, preference);
  const Observed observed(
      {problem.batch,
       problem.n,
       problem.n,
       problem.nrhs,
       -1,
       plan.reason,
       static_cast<int32_t>(choice::Op::LuSolve),
       static_cast<int32_t>(dtype),
       static_cast<int32_t>(preference),
       static_cast<int32_t>(plan.route),
       static_cast<int32_t>(plan.wanted),
       1,
       1,
       plan.capturing});
  switch (plan.route) {
    case Route::BatchedCublas:
      lu_solve_batched_cublas(LU, pivots, B, trans);
      break;
    case Route::LoopedCusolver:
      lu_solve_looped_cusolver(LU, pivots, B, trans);
      break;
    case Route::TriangularCublas:
      lu_solve_triangular_cublas(LU, pivots, B, trans);
      break;
    default:
      stock_lu_solve()(LU, pivots, B, trans);
  }
}

}  // namespace aten_overrides::gpu
