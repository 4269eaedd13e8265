// Solution of linear systems by LU factors, in place of the right-hand sides.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "Cusolver.h"
#include "Kernels.h"
#include "Magma.h"
#include "MagmaLimits.h"
#include "NativeSolve.h"
#include "Observe.h"
#include "Pointers.h"
#include "Sharing.h"
#include "SolvePlan.h"
#include "Stub.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/TensorIterator.h>
#include <ATen/cuda/CUDABlas.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

namespace aten_overrides::gpu {
namespace {

using at::Tensor;
using at::native::TransposeType;
namespace lanes = at::native::solver_lanes;

// The most columns that a library's routine gets at once: cuBLAS's batched triangular solve is
// silently wrong from 524281 on up to CUDA 13.1 (upstream 187717).
constexpr int64_t kMostColumns = int64_t{1} << 18;
// Up to so many matrices of so many rows cuBLAS's batched triangular solve is behind a loop.
constexpr int64_t kFewMatrices = 8, kLoopedRows = 64;

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

// One call, as its route gets it.
struct Call {
  const Tensor& LU;
  const Tensor& pivots;
  const Tensor& B;
  TransposeType trans;
  Sharing sharing;
  int64_t n;

  int64_t batch() const {
    return sharing.batch;
  }
  int64_t nrhs() const {
    return sharing.nrhs;
  }
  // B as `batch` matrices of `nrhs` columns.
  Tensor columns() const {
    return B.as_strided({batch(), n, nrhs()}, {n * nrhs(), 1, n});
  }
};

// The batch dimensions of B followed by the last one of pivots.
std::vector<int64_t> pivots_by_batch_of_b(const Call& call) {
  const auto batch = call.B.sizes().slice(0, call.B.dim() - 2);
  std::vector<int64_t> shape(batch.begin(), batch.end());
  shape.push_back(call.n);
  return shape;
}

// Pivots and pointers to factors, one for each matrix of right-hand sides.
Tensor pivots_of_each(const Call& call) {
  if (!call.sharing.regular) {
    return call.pivots.expand(pivots_by_batch_of_b(call)).reshape({-1, call.n});
  }
  const Tensor own = call.pivots.reshape({call.sharing.factors, call.n});
  const int64_t times = call.batch() / call.sharing.factors;
  return times == 1 ? own : own.repeat({times, 1});
}

Tensor factors_of_each(const Call& call) {
  const Tensor own = matrix_pointers(call.LU);
  if (!call.sharing.regular) {
    return own.view(call.LU.sizes().slice(0, call.LU.dim() - 2))
        .expand(call.B.sizes().slice(0, call.B.dim() - 2))
        .reshape({-1});
  }
  const int64_t times = call.batch() / call.sharing.factors;
  return times == 1 ? own : own.repeat({times});
}

// Runs body(first column, columns) over all right-hand sides.
template <class Body>
void for_each_columns(int64_t nrhs, Body&& body) {
  for (int64_t first = 0; first < nrhs; first += kMostColumns) {
    body(first, static_cast<int>(std::min(kMostColumns, nrhs - first)));
  }
}

void lu_solve_batched_cublas(const Call& call) {
  const int n = checked_int(call.n, "n");
  const int lda = std::max(1, n);
  const Tensor all_pivots = pivots_of_each(call);
  const Tensor factors = factors_of_each(call);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(call.LU.scalar_type(), "lu_solve_batched_cublas", [&] {
    auto* lu = reinterpret_cast<scalar_t**>(factors.data_ptr());
    auto* pivots = all_pivots.data_ptr<int>();
    const auto handle = at::cuda::getCurrentCUDABlasHandle();
    for_each_columns(call.nrhs(), [&](int64_t first, int nrhs) {
      const Tensor targets = matrix_pointers(call.columns().narrow(-1, first, nrhs));
      auto* b = reinterpret_cast<scalar_t**>(targets.data_ptr());
      for_each_chunk(call.batch(), [&](int64_t start, int count) {
        int info = 0;  // says only which argument is wrong
        at::cuda::blas::getrsBatched<scalar_t>(
            handle,
            operation(call.trans),
            n,
            nrhs,
            lu + start,
            lda,
            pivots + start * n,
            b + start,
            lda,
            &info,
            count);
        TORCH_INTERNAL_ASSERT(info == 0, "getrsBatched: argument ", -info, " is wrong");
      });
    });
  });
}

void lu_solve_cusolver(const Call& call, int lane_count) {
  const int n = checked_int(call.n, "n");
  const int lda = std::max(1, n);
  const Tensor infos = at::empty({lane_count}, call.LU.options().dtype(at::kInt));
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(call.LU.scalar_type(), "lu_solve_cusolver", [&] {
    auto* lu = call.LU.data_ptr<scalar_t>();
    auto* b = call.B.data_ptr<scalar_t>();
    const auto* pivots = call.pivots.data_ptr<int>();
    auto* info = infos.data_ptr<int>();
    lanes::for_each_on_lanes(call.batch(), lane_count, [&](const auto& lane, int64_t item) {
      const int64_t factor = item % call.sharing.factors;
      for_each_columns(call.nrhs(), [&](int64_t first, int nrhs) {
        cusolver::getrs(
            lane.handle,
            operation(call.trans),
            n,
            nrhs,
            lu + factor * n * n,
            lda,
            pivots + factor * n,
            b + (item * call.nrhs() + first) * n,
            lda,
            info + lane.index);
      });
    });
  });
}

NativeSystems native_systems(const Call& call) {
  return {
      call.LU.scalar_type(),
      call.n,
      call.nrhs(),
      call.batch(),
      call.sharing.factors,
      call.trans != TransposeType::NoTranspose,
      call.trans == TransposeType::ConjTranspose,
      call.LU.data_ptr(),
      call.pivots.data_ptr<int>(),
      call.B.data_ptr()};
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

void exchange_rows(const Call& call) {
  const lu_solve::Problem problem{
      call.batch(), call.n, call.nrhs(), call.trans != TransposeType::NoTranspose};
  const auto facts = solve_facts(call.LU.scalar_type());
  if (lu_solve::feasible(problem, lu_solve::Backend::BlockedNative, facts).ok) {
    exchange_rows_native(native_systems(call));
    return;
  }
  const Tensor b = call.columns();
  const Tensor rows = permutation_of(pivots_of_each(call)).unsqueeze(-1).expand_as(b);
  if (call.trans == TransposeType::NoTranspose) {
    b.copy_(b.gather(-2, rows));
  } else {
    b.scatter_(-2, rows, b.clone());
  }
}

void lu_solve_triangular_cublas(const Call& call) {
  const int n = checked_int(call.n, "n");
  const bool plain = call.trans == TransposeType::NoTranspose;
  if (plain) {
    exchange_rows(call);
  }
  const bool looped = call.batch() == 1 || (call.batch() <= kFewMatrices && n >= kLoopedRows);
  const Tensor factors = looped ? Tensor() : factors_of_each(call);
  const at::NoTF32Guard no_tf32;
  const auto handle = at::cuda::getCurrentCUDABlasHandle();
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(call.LU.scalar_type(), "lu_solve_triangular_cublas", [&] {
    const scalar_t one(1);
    auto* lu = call.LU.data_ptr<scalar_t>();
    auto* b = call.B.data_ptr<scalar_t>();
    for_each_columns(call.nrhs(), [&](int64_t first, int nrhs) {
      const Tensor targets =
          looped ? Tensor() : matrix_pointers(call.columns().narrow(-1, first, nrhs));
      // L first, or U's transpose.
      for (const bool lower : {plain, !plain}) {
        const auto triangle = lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
        const auto diagonal = lower ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
        const auto trans = operation(call.trans);
        for (int64_t item = 0; looped && item < call.batch(); ++item) {
          at::cuda::blas::trsm<scalar_t>(
              handle,
              CUBLAS_SIDE_LEFT,
              triangle,
              trans,
              diagonal,
              n,
              nrhs,
              &one,
              lu + item % call.sharing.factors * n * n,
              n,
              b + (item * call.nrhs() + first) * n,
              n);
        }
        if (!looped) {
          auto* all_lu = reinterpret_cast<scalar_t**>(factors.data_ptr());
          auto* all_b = reinterpret_cast<scalar_t**>(targets.data_ptr());
          for_each_chunk(call.batch(), [&](int64_t start, int count) {
            at::cuda::blas::trsmBatched<scalar_t>(
                handle,
                CUBLAS_SIDE_LEFT,
                triangle,
                trans,
                diagonal,
                n,
                nrhs,
                &one,
                all_lu + start,
                n,
                all_b + start,
                n,
                count);
          });
        }
      }
    });
  });
  if (!plain) {
    exchange_rows(call);
  }
}

// Whether stock's function may go to MAGMA without having been asked to.
bool may_be_magma(const Tensor& B, TransposeType trans, choice::Preference preference) {
  return stock_kind() == ATEN_OVERRIDES_GPU_STOCK_MAGMA &&
         preference != choice::Preference::Magma &&
         forced_route(static_cast<int>(choice::Op::LuSolve)) < 0 &&
         stock_lu_solve_may_be_magma(
             at::native::batchCount(B),
             B.size(-2),
             B.size(-1),
             trans != TransposeType::NoTranspose);
}

}  // namespace

void lu_solve_kernel(const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans) {
  choice::Dtype dtype{};
  // torch gives all of them column by column, without gaps.
  const bool usual = LU.mT().is_contiguous() && B.mT().is_contiguous() && pivots.is_contiguous();
  if (!choice_dtype(LU.scalar_type(), dtype) || B.numel() == 0 || !usual) {
    stock_lu_solve()(LU, pivots, B, trans);
    return;
  }
  const auto preference = choice_preference(at::globalContext().linalgPreferredBackend());
  const auto batch_of = [](const Tensor& tensor) {
    return tensor.sizes().slice(0, static_cast<size_t>(tensor.dim() - 2));
  };
  const Sharing sharing = sharing_of(batch_of(LU), batch_of(B), B.size(-1));
  const Call call{LU, pivots, B, trans, sharing, LU.size(-2)};
  const lu_solve::Problem problem{
      call.batch(), call.n, call.nrhs(), trans != TransposeType::NoTranspose, call.sharing.regular};
  Plan plan = plan_lu_solve(dtype, LU.scalar_type(), problem, preference);
  const auto described = [&] {
    return aten_overrides_gpu_call{
        at::native::batchCount(B),
        call.n,
        call.n,
        B.size(-1),
        -1,
        plan.reason,
        static_cast<int32_t>(choice::Op::LuSolve),
        static_cast<int32_t>(dtype),
        static_cast<int32_t>(preference),
        static_cast<int32_t>(plan.route),
        static_cast<int32_t>(plan.wanted),
        plan.lanes,
        1,
        plan.capturing};
  };
  const Observed observed(described());
  std::optional<Observed> observed_next;
  if (plan.route == Route::Stock && may_be_magma(B, trans, preference)) {
    MagmaCall magma(static_cast<int>(choice::Op::LuSolve), B);
    const char* failed = magma.run([&] { stock_lu_solve()(LU, pivots, B, trans); });
    if (failed == nullptr) {
      return;
    }
    plan = plan_lu_solve(dtype, LU.scalar_type(), problem, preference, failed);
    observed_next.emplace(described());
  }
  switch (plan.route) {
    case Route::BatchedNative:
    case Route::BlockedNative:
      lu_solve_native(native_systems(call), plan.route == Route::BatchedNative);
      break;
    case Route::BatchedCublas:
      lu_solve_batched_cublas(call);
      break;
    case Route::LoopedCusolver:
    case Route::StreamedCusolver:
      lu_solve_cusolver(call, plan.lanes);
      break;
    case Route::TriangularCublas:
      lu_solve_triangular_cublas(call);
      break;
    default:
      stock_lu_solve()(LU, pivots, B, trans);
  }
}

}  // namespace aten_overrides::gpu
