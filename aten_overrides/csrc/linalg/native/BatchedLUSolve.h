#pragma once

#include <cstddef>
#include <cstdint>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <ATen/native/cuda/linalg/native/BatchedLU.h>

// Solution of A X = B, A^T X = B or A^H X = B for a batch of column-major right-hand sides, in
// place, by the factors that LAPACK's getrf leaves: getrs, by our own kernels. By substitution, no
// triangle is inverted; a zero on U's diagonal gives inf or NaN as there. Work is only queued on
// `stream`: no allocation, no host synchronisation, fit for graph capture. Repeated runs of one
// plan give equal bits. Arithmetic is IEEE in the matrices' own type, no TF32.
namespace at::native::batched_native {

struct SolveProblem {
  Scalar scalar;
  int64_t batch;  // of right-hand sides
  int64_t n, nrhs;
  int64_t lu_batch;  // divides batch; factor item % lu_batch serves item
  bool transposed;   // solve with the transpose,
  bool conjugated;   // with its conjugate if this is set too
};

enum class SolveRoute : int8_t {
  None,     // nothing to solve
  Small,    // part of a warp per matrix of at most 32 rows, the factor in registers
  Pass,     // a block per matrix and few right-hand sides: one pass over the factor
  Tile,     // a block per matrix and many right-hand sides, all rows of them in shared memory
  Blocked,  // such tiles for diagonal blocks, cuBLAS's products for the rest
};

// For measurements together may be 1, warps 1..17, width up to the plan's.
struct SolvePlan {
  SolveRoute route;
  int together;  // right-hand sides of one pass; tiles of 32 columns of a block
  int warps;     // of a block that makes a pass
  int width;     // rows of a tile
};

// The best plan with one pass over the factor (`pass`), or without: what pays with few or many
// right-hand sides. Its route is None where nothing is to be done, and also where n is too large
// for the current device's shared memory: see solve_fits.
SolvePlan solve_plan(const SolveProblem& problem, bool pass);
bool solve_fits(const SolveProblem& problem, bool pass);

// Device bytes that lu_solve needs: at most 4 n for every factor.
size_t solve_workspace(const SolveProblem& problem, const SolvePlan& plan);

// lda, ldb >= n and all strides in elements. `handle` may be null unless the route is Blocked; else
// it must be set to `stream`, and its math and pointer mode are restored. Throws when an argument
// or a CUDA call is wrong.
void lu_solve(
    const SolveProblem& problem,
    const SolvePlan& plan,
    const void* lu,
    int64_t lda,
    int64_t lu_stride,
    const int32_t* pivots,
    int64_t pivot_stride,
    void* b,
    int64_t ldb,
    int64_t b_stride,
    void* workspace,
    size_t workspace_bytes,
    cublasHandle_t handle,
    cudaStream_t stream);

// B := P B for A X = B, P^T B for its transpose, in place; what a solve does besides its triangles.
// Only where solve_fits(problem, false).
size_t exchange_workspace(const SolveProblem& problem);
void exchange_rows(
    const SolveProblem& problem,
    const int32_t* pivots,
    int64_t pivot_stride,
    void* b,
    int64_t ldb,
    int64_t b_stride,
    void* workspace,
    size_t workspace_bytes,
    cudaStream_t stream);

}  // namespace at::native::batched_native
