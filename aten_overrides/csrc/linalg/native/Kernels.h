#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

// What the host side asks of the kernels. Matrices are column-major; indices into a matrix's rows
// and columns are 0-based except in `pivots` and `info`.
namespace at::native::batched_native {

template <typename Real>
struct alignas(2 * sizeof(Real)) Complex {
  Real re;
  Real im;
};

// Permutations kept by the blocked route, one per level of its recursion.
constexpr int kMaxLevels = 7;

template <typename T>
struct WholeMatrices {
  T* a;
  int64_t lda, stride;
  int32_t* pivots;
  int64_t pivot_stride;
  int32_t* info;
  int64_t batch;
  int m, n;
  bool pivot;
};

// The row order that a level of the recursion has made since its first column. Rows are absolute.
// now[r]: which row (as of the level's start) stands at r; gone[s]: where row start + s stands.
struct Level {
  int32_t* now;
  int32_t* gone;
  int start;
  int width;
};

// Columns [first, first + n) below and on the diagonal, factored by one block per matrix.
template <typename T>
struct Panel {
  WholeMatrices<T> whole;
  int first;
  int n;
  int levels;            // 0: nobody needs the row order (the panel is the whole matrix)
  int64_t level_stride;  // int32 elements from one matrix's levels to the next
  Level level[kMaxLevels];
};

// Apply a level's row order to columns [left, left + left_n) and [right, right + right_n); in the
// latter solve with the level's unit lower triangle as well.
template <typename T>
struct Exchange {
  WholeMatrices<T> whole;
  Level level;
  int64_t level_stride;
  int left, left_n;
  int right, right_n;
};

// Give the columns of each outer block the row order of the blocks after it. orders: per matrix
// `blocks` maps of m rows, each as Level::now made since its block's start.
template <typename T>
struct Finish {
  WholeMatrices<T> whole;
  const int32_t* orders;
  int64_t order_stride;
  int first;  // columns of the first block
  int outer;  // and of every other
  int blocks;
};

template <typename T>
void launch_warp_lu(const WholeMatrices<T>& p, cudaStream_t stream);  // m, n <= 32

// Widest panel of `rows` rows that one block holds, capped at `wanted`; 0 when none does. `shared`
// is what a block may use of shared memory, in bytes.
template <typename T>
int panel_width(int rows, int wanted, size_t shared);
// many: more panels than the GPU has room for at once.
template <typename T>
void launch_panel_lu(const Panel<T>& p, bool many, cudaStream_t stream);

// The same by a cluster of up to eight blocks per panel, which has at least as many rows as
// columns; 0 where the device has no clusters.
template <typename T>
int cluster_width(int rows, int wanted, size_t shared);
template <typename T>
void launch_cluster_lu(const Panel<T>& p, cudaStream_t stream);

// Panels of any height, kept in global memory: correct, not quick.
template <typename T>
void launch_tall_lu(const Panel<T>& p, cudaStream_t stream);

template <typename T>
void launch_exchange(const Exchange<T>& p, size_t shared, cudaStream_t stream);

// Whether a column of m rows and its map fit into `shared` bytes, as launch_finish needs.
template <typename T>
bool finish_fits(int m, size_t shared);
template <typename T>
void launch_finish(const Finish<T>& p, cudaStream_t stream);

}  // namespace at::native::batched_native
