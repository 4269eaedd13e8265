#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

// On ROCm lu_solve keeps PyTorch's rule.
#if !defined(USE_ROCM)

#include <ATen/native/cuda/linalg/LUSolveRoutes.h>

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/TensorIterator.h>
#include <ATen/cuda/CUDABlas.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#else
#include <ATen/ops/arange.h>
#endif

#include <limits>
#include <vector>

namespace at::native::lu_solve_routes {
namespace {

// On some devices cuBLAS's batched routines fail for more matrices in one call, see
// https://github.com/pytorch/pytorch/issues/192508.
constexpr int64_t kMostMatrices = 65535;
// Up to so many matrices of so many rows cuBLAS's batched triangular solve is behind a loop, as in
// PyTorch's own triangular solve.
constexpr int64_t kFewMatrices = 8, kLoopedRows = 64;

// Runs body(start, count) over a batch in pieces that a batched routine takes.
template <class Body>
void for_each_chunk(int64_t batch, Body&& body) {
  for (int64_t start = 0; start < batch; start += kMostMatrices) {
    body(start, static_cast<int>(std::min(kMostMatrices, batch - start)));
  }
}

// An int64 tensor of the addresses of the matrices of a batch that lie `stride` elements apart.
Tensor addresses(const Tensor& first, int64_t count, int64_t stride) {
  const auto begin = reinterpret_cast<int64_t>(first.data_ptr());
  const int64_t step = stride * first.element_size();
  return at::arange(begin, begin + count * step, step, first.options().dtype(kLong));
}

IntArrayRef batch_sizes(const Tensor& matrices) {
  return matrices.sizes().slice(0, matrices.dim() - 2);
}

Tensor factors_of_each(const Systems& systems) {
  const int64_t factors = batchCount(systems.LU);
  const Tensor own = addresses(systems.LU, factors, systems.n * systems.n);
  if (!systems.sharing.regular) {
    return own.view(batch_sizes(systems.LU)).expand(batch_sizes(systems.B)).reshape({-1});
  }
  const int64_t times = systems.batch() / systems.sharing.factors;
  return times == 1 ? own : own.repeat({times});
}

// Of the columns from `first` on of each matrix of right-hand sides.
Tensor targets_from(const Systems& systems, int64_t first) {
  const Tensor columns = systems.columns();
  return addresses(
      columns.narrow(-1, first, systems.nrhs() - first),
      systems.batch(),
      systems.n * systems.nrhs());
}

// permutation[i]: the row of A that is row i of L U.
Tensor permutation_of(const Tensor& pivots, unpack_pivots_fn unpack) {
  const int64_t n = pivots.size(-1);
  Tensor permutation =
      at::arange(n, pivots.options().dtype(kLong)).expand(pivots.sizes()).contiguous();
  auto iterator = TensorIteratorConfig()
                      .set_check_mem_overlap(false)
                      .check_all_same_dtype(false)
                      .resize_outputs(false)
                      .declare_static_shape(pivots.sizes(), /*squash_dims=*/{pivots.dim() - 1})
                      .add_output(permutation)
                      .add_const_input(pivots)
                      .build();
  unpack(iterator, n, n);
  return permutation;
}

}  // namespace

bool usual_layout(const Tensor& LU, const Tensor& pivots, const Tensor& B) {
  return LU.mT().is_contiguous() && B.mT().is_contiguous() && pivots.is_contiguous();
}

Systems systems_of(const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans) {
  return {
      LU, pivots, B, trans, sharing_of(batch_sizes(LU), batch_sizes(B), B.size(-1)), LU.size(-2)};
}

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

int checked_int(int64_t value, const char* what) {
  TORCH_CHECK(
      value <= std::numeric_limits<int>::max(),
      what,
      " is ",
      value,
      ", and cuBLAS and cuSOLVER take sizes up to 2^31 - 1 only");
  return static_cast<int>(value);
}

Tensor pivots_of_each(const Systems& systems) {
  if (!systems.sharing.regular) {
    auto shape = batch_sizes(systems.B).vec();
    shape.push_back(systems.n);
    return systems.pivots.expand(shape).reshape({-1, systems.n});
  }
  const Tensor own = systems.pivots.reshape({systems.sharing.factors, systems.n});
  const int64_t times = systems.batch() / systems.sharing.factors;
  return times == 1 ? own : own.repeat({times, 1});
}

void exchange_rows(const Systems& systems, unpack_pivots_fn unpack) {
  const Tensor b = systems.columns();
  const Tensor rows = permutation_of(pivots_of_each(systems), unpack).unsqueeze(-1).expand_as(b);
  if (systems.trans == TransposeType::NoTranspose) {
    b.copy_(b.gather(-2, rows));
  } else {
    b.scatter_(-2, rows, b.clone());
  }
}

void batched_cublas(const Systems& systems) {
  const int n = checked_int(systems.n, "n");
  const int lda = std::max(1, n);
  const Tensor all_pivots = pivots_of_each(systems);
  const Tensor factors = factors_of_each(systems);
  const NoTF32Guard no_tf32;
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(systems.LU.scalar_type(), "lu_solve_batched_cublas", [&] {
    auto* lu = reinterpret_cast<scalar_t**>(factors.data_ptr());
    auto* pivots = all_pivots.data_ptr<int>();
    const auto handle = at::cuda::getCurrentCUDABlasHandle();
    for_each_columns(systems.nrhs(), [&](int64_t first, int nrhs) {
      const Tensor targets = targets_from(systems, first);
      auto* b = reinterpret_cast<scalar_t**>(targets.data_ptr());
      for_each_chunk(systems.batch(), [&](int64_t start, int count) {
        int info = 0;  // says only which argument is wrong
        at::cuda::blas::getrsBatched<scalar_t>(
            handle,
            operation(systems.trans),
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

void triangular_cublas(const Systems& systems, void (*exchange)(const Systems&)) {
  const int n = checked_int(systems.n, "n");
  const bool plain = systems.trans == TransposeType::NoTranspose;
  const int64_t batch = systems.batch();
  if (plain) {
    exchange(systems);
  }
  const bool looped = batch == 1 || (batch <= kFewMatrices && n >= kLoopedRows);
  const Tensor factors = looped ? Tensor() : factors_of_each(systems);
  const NoTF32Guard no_tf32;
  const auto handle = at::cuda::getCurrentCUDABlasHandle();
  const auto trans = operation(systems.trans);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(
      systems.LU.scalar_type(), "lu_solve_triangular_cublas", [&] {
        const scalar_t one(1);
        auto* lu = systems.LU.data_ptr<scalar_t>();
        auto* b = systems.B.data_ptr<scalar_t>();
        for_each_columns(systems.nrhs(), [&](int64_t first, int nrhs) {
          const Tensor targets = looped ? Tensor() : targets_from(systems, first);
          // L first, or U's transpose.
          for (const bool lower : {plain, !plain}) {
            const auto triangle = lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
            const auto diagonal = lower ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
            for (int64_t item = 0; looped && item < batch; ++item) {
              at::cuda::blas::trsm<scalar_t>(
                  handle,
                  CUBLAS_SIDE_LEFT,
                  triangle,
                  trans,
                  diagonal,
                  n,
                  nrhs,
                  &one,
                  lu + item % systems.sharing.factors * systems.n * systems.n,
                  n,
                  b + (item * systems.nrhs() + first) * systems.n,
                  n);
            }
            if (!looped) {
              auto* all_lu = reinterpret_cast<scalar_t**>(factors.data_ptr());
              auto* all_b = reinterpret_cast<scalar_t**>(targets.data_ptr());
              for_each_chunk(batch, [&](int64_t start, int count) {
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
    exchange(systems);
  }
}

}  // namespace at::native::lu_solve_routes

#endif  // !defined(USE_ROCM)
