#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include <ATen/native/cuda/linalg/native/Kernels.h>

// What the host side of the batched solve asks of its kernels. Matrices are column-major.
namespace at::native::batched_native {

// Right-hand sides b of a batch and the factors that solve them: factor item % lu_batch serves
// item. Pivots are 1-based.
template <typename T>
struct Systems {
  const T* lu;
  int64_t lda, lu_stride, lu_batch;
  const int32_t* pivots;
  int64_t pivot_stride;
  T* b;
  int64_t ldb, b_stride, batch;
  int n, nrhs;
  bool transposed, conjugated;  // A^T X = B or A^H X = B instead of A X = B
};

// Matrices of at most 32 rows, row exchanges included.
constexpr int kSmallRows = 32;
template <typename T>
void launch_small(const Systems<T>& p, cudaStream_t stream);

constexpr int kPassWarps = 17;  // most of a block: one that solves and 16 that read the factor

// Both triangles for few right-hand sides, `together` of them (1 or what pass_columns says) in one
// pass over the factor; row exchanges included. Bytes of shared memory that a block needs, and the
// launch.
template <typename T>
int pass_columns(int nrhs);
template <typename T>
size_t pass_bytes(int n, int together, int warps);
template <typename T>
void launch_pass(const Systems<T>& p, int together, int warps, cudaStream_t stream);

// orders[item * n + i]: the row of A that is row i of L U, for every factor.
size_t order_bytes(int n);
void launch_order(
    const int32_t* pivots,
    int64_t pivot_stride,
    int64_t batch,
    int n,
    int32_t* orders,
    cudaStream_t stream);

// B := P B, or P^T B for a transposed system, in place.
template <typename T>
size_t permute_bytes(int n);
template <typename T>
void launch_permute(const Systems<T>& p, const int32_t* orders, size_t shared, cudaStream_t stream);

// Rows first .. first + width of the right-hand sides, solved with that diagonal block of the
// factor; width <= tile_width.
template <typename T>
struct TileSolve {
  Systems<T> systems;
  int first, width;
  int tiles;              // of 32 columns that a block has: 1 .. tile_columns
  bool lower, upper;      // by which triangles, in the order that the system asks for
  const int32_t* orders;  // null, or where the tile is the whole matrix: rows are exchanged too
};

template <typename T>
int tile_width(size_t shared);
template <typename T>
int tile_columns(int width, size_t shared);
template <typename T>
void launch_tile_solve(const TileSolve<T>& p, cudaStream_t stream);

}  // namespace at::native::batched_native
