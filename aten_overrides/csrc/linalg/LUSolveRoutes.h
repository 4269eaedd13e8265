#pragma once

// Ways to solve linear systems by LU factors, in place of the right-hand sides, for matrices that
// lie column by column without gaps. Factors that serve several right-hand sides are not copied,
// and the right-hand sides of one factor that follow one another are solved as one matrix.

#include <ATen/core/Tensor.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/TransposeType.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <ATen/native/cuda/linalg/LUSolveChoice.h>
#include <ATen/native/cuda/linalg/LUSolveSharing.h>
#include <ATen/cuda/CUDAContext.h>

#include <algorithm>
#include <cstdint>

namespace at::native::lu_solve_routes {

// LU: (*, n, n), pivots: (*, n), int32, B: (*, n, k), to whose batch those of LU and pivots, which
// are the same, can be broadcast. sharing: sharing_of() of their batch dimensions.
struct Systems {
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

// Whether the three lie as the routes need them.
bool usual_layout(const Tensor& LU, const Tensor& pivots, const Tensor& B);

Systems systems_of(const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans);

// Pivots of each of the `batch` matrices: (batch, n).
Tensor pivots_of_each(const Systems& systems);

cublasOperation_t operation(TransposeType trans);

int checked_int(int64_t value, const char* what);

// B with its rows as the pivots exchange them: P^T B without transposition, else P B. unpack: the
// CUDA function of unpack_pivots_stub.
void exchange_rows(const Systems& systems, unpack_pivots_fn unpack);

// getrsBatched. Takes any sharing.
void batched_cublas(const Systems& systems);

// Row exchanges, which `exchange` does, and two of cuBLAS's triangular solves.
void triangular_cublas(const Systems& systems, void (*exchange)(const Systems&));

// Runs body(first, count) over the columns of the right-hand sides, in pieces that a routine takes.
template <class Body>
void for_each_columns(int64_t nrhs, Body&& body) {
  constexpr int64_t most = lu_solve_choice::kMostColumns;
  for (int64_t first = 0; first < nrhs; first += most) {
    body(first, static_cast<int>(std::min(most, nrhs - first)));
  }
}

// A cuSOLVER call per matrix, on as many lanes as solver_lanes::available_lanes() returned:
// getrs(handle, operation, n, nrhs, lu, lda, pivots, b, ldb, info) calls cusolverDn*getrs.
// infos: (lanes), int32, on the device.
template <typename scalar_t, class Getrs>
void looped_cusolver(const Systems& systems, int lanes, const Tensor& infos, Getrs&& getrs) {
  const int n = checked_int(systems.n, "n");
  const int lda = std::max(1, n);
  const auto trans = operation(systems.trans);
  auto* lu = systems.LU.data_ptr<scalar_t>();
  auto* b = systems.B.data_ptr<scalar_t>();
  auto* pivots = systems.pivots.data_ptr<int>();
  auto* info = infos.data_ptr<int>();
  solver_lanes::for_each_on_lanes(systems.batch(), lanes, [&](const auto& lane, int64_t item) {
    const int64_t factor = item % systems.sharing.factors;
    for_each_columns(systems.nrhs(), [&](int64_t first, int nrhs) {
      getrs(
          lane.handle,
          trans,
          n,
          nrhs,
          lu + factor * systems.n * systems.n,
          lda,
          pivots + factor * systems.n,
          b + (item * systems.nrhs() + first) * systems.n,
          lda,
          info + lane.index);
    });
  });
}

}  // namespace at::native::lu_solve_routes
