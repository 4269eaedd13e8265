#pragma once

#include <cstddef>
#include <cstdint>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

// Partial-pivoting LU of a batch of column-major m x n matrices, in place, by our own kernels:
// P A = L U, L unit lower. LAPACK's contract for each matrix of its own:
//  - pivots: min(m, n) 1-based int32 row indices (k itself without pivoting); complex pivots are
//    chosen by |re| + |im| as LAPACK does, ties by the smallest row;
//  - info: 0 or the 1-based index of the first exactly zero pivot; elimination goes on past it;
//  - NaN and inf reach the result; a NaN in a column becomes its pivot.
// Work is only queued on `stream`: no allocation, no host synchronisation, fit for graph capture.
// Repeated runs of one plan give equal bits. Arithmetic is IEEE in the matrix's own type, no TF32.
namespace at::native::batched_native {

enum class Scalar : int8_t { Float, Double, ComplexFloat, ComplexDouble };

struct LuProblem {
  Scalar scalar;
  int64_t batch, m, n;
  bool pivot;
};

enum class LuRoute : int8_t {
  None,     // nothing to factor
  Warp,     // part of a warp per matrix, matrix in registers
  Block,    // a block per matrix, matrix in shared memory
  Blocked,  // panels by one block per matrix, the rest by exchange kernels and cuBLAS
};

// How a problem is factored on the current device; lu_plan chooses. For measurements leaf and outer
// may be other powers of two, leaf <= outer <= 256; the workspace depends on them.
struct LuPlan {
  LuRoute route;
  int leaf;      // widest panel that one block factors
  int outer;     // width of the trailing products
  int resident;  // panels narrow enough for this many blocks on a multiprocessor
  int room;  // panels of more than 256 rows that the device holds at once; twice as many shorter
  bool clusters = false;  // whether several blocks may share a tall panel, where the device can
};

LuPlan lu_plan(const LuProblem& problem);

// Device bytes that lu_factor wants: at most 10 % of the input plus 1 MB. Any smaller amount down
// to lu_workspace of a batch of one works too, in more and smaller steps.
size_t lu_workspace(const LuProblem& problem, const LuPlan& plan);

// lda >= m, in elements; stride: elements from one matrix to the next; pivot_stride likewise, in
// int32. `handle` must be set to `stream`; its math and pointer mode are restored. Throws when an
// argument or a CUDA call is wrong.
void lu_factor(
    const LuProblem& problem,
    const LuPlan& plan,
    void* a,
    int64_t lda,
    int64_t stride,
    int32_t* pivots,
    int64_t pivot_stride,
    int32_t* info,
    void* workspace,
    size_t workspace_bytes,
    cublasHandle_t handle,
    cudaStream_t stream);

}  // namespace at::native::batched_native
