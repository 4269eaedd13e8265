#pragma once

#include <algorithm>

#include <cuda_pipeline.h>

#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/Kernels.h>
#include <ATen/native/cuda/linalg/native/LaunchCheck.h>
#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// Row exchange from a permutation, and for the columns to the right of a factored block the
// triangular solve with its unit lower triangle in the same pass. A block owns a tile of columns of
// one matrix, so every read of a column is ordered before its writes by barriers alone.
//
// The exchange of K pivots moves rows from anywhere into the top K places, and only rows that stood
// in the top K to anywhere else: so K gathered loads and at most K scattered stores a column do it.
namespace at::native::batched_native {

constexpr int kExchangeWarps = 4;
constexpr int64_t kFewBlocks = 256;  // about two to a multiprocessor

template <typename T>
struct ExchangeTile {
  static constexpr int kColumns = sizeof(T) >= 16 ? 16 : 32;
  static constexpr int kBlock = kColumns;  // rows solved at a time, in registers
  static constexpr int kStride = kColumns + 1;

  static __host__ __device__ int padded(int width) {
    return (width + kBlock - 1) / kBlock * kBlock;
  }
  // Elements before block `index` of the triangle, when the blocks lie one after the other.
  static __host__ __device__ int triangle(int index) {
    return index * (index + 1) / 2 * kBlock * kBlock;
  }
  // With `whole` the triangle has room of its own and is read with the columns, else block by block
  // into the room of the old rows.
  static __host__ size_t bytes(int width, bool whole) {
    const size_t rows = padded(width);
    return (rows * (kColumns + kStride) + kBlock + (whole ? triangle(padded(width) / kBlock) : 0)) *
               sizeof(T) +
           2 * rows * sizeof(int32_t);
  }
};

// Start to read rows first .. first + kBlock of the triangle, a column contiguous, zeros elsewhere.
template <typename T>
__device__ __forceinline__ void read_triangle(
    T* lower, const T* triangle, int64_t lda, int width, int first) {
  constexpr int B = ExchangeTile<T>::kBlock;
  for (int i = threadIdx.x; i < (first + B) * B; i += blockDim.x) {
    const int r = first + i % B, j = i / B;
    if (r < width && j < r) {
      __pipeline_memcpy_async(&lower[i], &triangle[r + j * lda], sizeof(T));
    } else {
      lower[i] = zero<T>();
    }
  }
}

// Solves L x = x in place for the tile: rows of one block after the other, first minus the rows
// above them, then the block's own triangle. `lower` holds all of L if `whole`, else has room for a
// block.
template <typename T>
__device__ __forceinline__ void solve_tile(
    T* x, T* lower, const T* triangle, int64_t lda, int width, bool whole) {
  using Tile = ExchangeTile<T>;
  constexpr int B = Tile::kBlock;
  constexpr int kPerThread = 2;  // columns, and B / parts rows of each
  constexpr int kLanes = Tile::kColumns / kPerThread;
  constexpr int kRows = B * kLanes / (32 * kExchangeWarps);
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int column = tid % kLanes, row = tid / kLanes * kRows;
  for (int first = 0; first < width; first += B) {
    if (!whole) {
      read_triangle(lower, triangle, lda, width, first);
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
    }
    if (first > 0) {
      T sum[kRows][kPerThread];
#pragma unroll
      for (int q = 0; q < kRows; ++q) {
#pragma unroll
        for (int c = 0; c < kPerThread; ++c) {
          sum[q][c] = x[(first + row + q) * Tile::kStride + column + c * kLanes];
        }
      }
#pragma unroll 4
      for (int j = 0; j < first; ++j) {
        T value[kPerThread], l[kRows];
#pragma unroll
        for (int c = 0; c < kPerThread; ++c) {
          value[c] = x[j * Tile::kStride + column + c * kLanes];
        }
        if constexpr (kRows % Pack<T>::size == 0) {
          load_row<T, kRows>(l, lower + j * B + row, 0);
        } else {
#pragma unroll
          for (int q = 0; q < kRows; ++q) {
            l[q] = lower[j * B + row + q];
          }
        }
#pragma unroll
        for (int q = 0; q < kRows; ++q) {
#pragma unroll
          for (int c = 0; c < kPerThread; ++c) {
            sum[q][c] = subtract_product(sum[q][c], l[q], value[c]);
          }
        }
      }
#pragma unroll
      for (int q = 0; q < kRows; ++q) {
#pragma unroll
        for (int c = 0; c < kPerThread; ++c) {
          x[(first + row + q) * Tile::kStride + column + c * kLanes] = sum[q][c];
        }
      }
      __syncthreads();
    }
    if (warp == 0 && lane < Tile::kColumns) {
      T y[B];
#pragma unroll
      for (int q = 0; q < B; ++q) {
        y[q] = x[(first + q) * Tile::kStride + lane];
      }
#pragma unroll
      for (int j = 0; j < B - 1; ++j) {
        T l[B];
        load_row<T, B>(l, lower + (first + j) * B, j + 1);
#pragma unroll
        for (int q = j + 1; q < B; ++q) {
          y[q] = subtract_product(y[q], l[q], y[j]);
        }
      }
#pragma unroll
      for (int q = 1; q < B; ++q) {
        x[(first + q) * Tile::kStride + lane] = y[q];
      }
    }
    __syncthreads();
    if (whole) {
      lower += (first + B) * B;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(32 * kExchangeWarps)
    exchange_kernel(Exchange<T> p, int left_tiles, int tiles, bool whole) {
  using Tile = ExchangeTile<T>;
  constexpr int kColumns = Tile::kColumns;
  extern __shared__ __align__(16) unsigned char raw[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t item = blockIdx.x / tiles;
  const int tile = static_cast<int>(blockIdx.x % tiles);
  const bool right = tile >= left_tiles;
  const int start = p.level.start, width = p.level.width;
  const int64_t lda = p.whole.lda;
  const int rows = Tile::padded(width);

  T* const old = reinterpret_cast<T*>(raw);  // [column][row] what stands in the top rows
  T* const x = old + rows * kColumns;        // [row][column] what comes there
  T* const own = x + (rows * Tile::kStride + Tile::kBlock - 1) / Tile::kBlock * Tile::kBlock;
  T* const lower = whole ? own : old;
  int32_t* const comes =
      reinterpret_cast<int32_t*>(whole ? own + Tile::triangle(rows / Tile::kBlock) : own);
  int32_t* const goes = comes + rows;

  T* const matrix = p.whole.a + item * p.whole.stride;
  const int skipped = (right ? tile - left_tiles : tile) * kColumns;
  const int columns = min(kColumns, (right ? p.right_n : p.left_n) - skipped);
  T* const a = matrix + ((right ? p.right : p.left) + skipped) * lda;

  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    comes[i] = p.whole.pivot ? p.level.now[item * p.level_stride + start + i] : start + i;
    goes[i] = p.whole.pivot ? p.level.gone[item * p.level_stride + i] : start;
  }
  __syncthreads();
  for (int c = warp; c < kColumns; c += kExchangeWarps) {
    for (int i = lane; i < rows; i += 32) {
      if (c < columns && i < width) {
        __pipeline_memcpy_async(&x[i * Tile::kStride + c], &a[comes[i] + c * lda], sizeof(T));
        if (goes[i] >= start + width) {
          __pipeline_memcpy_async(&old[c * rows + i], &a[start + i + c * lda], sizeof(T));
        }
      } else {
        x[i * Tile::kStride + c] = zero<T>();
      }
    }
  }
  const T* const triangle = matrix + start * (lda + 1);
  if (whole && right) {
    for (int first = 0; first < width; first += Tile::kBlock) {
      read_triangle(lower + Tile::triangle(first / Tile::kBlock), triangle, lda, width, first);
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  for (int c = warp; c < columns; c += kExchangeWarps) {
    for (int i = lane; i < width; i += 32) {
      if (goes[i] >= start + width) {
        a[goes[i] + c * lda] = old[c * rows + i];
      }
    }
  }
  if (right) {
    __syncthreads();
    solve_tile(x, lower, triangle, lda, width, whole);
  }
  for (int c = warp; c < columns; c += kExchangeWarps) {
    for (int i = lane; i < width; i += 32) {
      a[start + i + c * lda] = x[i * Tile::kStride + c];
    }
  }
}

template <typename T>
void launch_exchange(const Exchange<T>& p, size_t shared_limit, cudaStream_t stream) {
  using Tile = ExchangeTile<T>;
  const int left_tiles = (p.left_n + Tile::kColumns - 1) / Tile::kColumns;
  const int tiles = left_tiles + (p.right_n + Tile::kColumns - 1) / Tile::kColumns;
  if (tiles == 0) {
    return;
  }
  const int64_t blocks = p.whole.batch * tiles;
  // Few blocks: nothing hides the latency of reading L piece by piece.
  const bool whole =
      p.right_n > 0 && blocks <= kFewBlocks && Tile::bytes(p.level.width, true) <= shared_limit;
  const size_t shared = Tile::bytes(p.level.width, whole);
  static DynamicShared allowance;
  allowance.allow(exchange_kernel<T>, shared);
  exchange_kernel<T><<<static_cast<unsigned>(blocks), 32 * kExchangeWarps, shared, stream>>>(
      p, left_tiles, tiles, whole);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// Bring the finished columns of every outer block into the row order of the blocks after it: one
// pass over whole columns at the end instead of one scattered exchange per block.
constexpr int kFinishThreads = 256;
constexpr int kFinishColumns = 32;  // of one tile, staged a few at a time

template <typename T>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(Finish<T> p, int tile_columns, int staged, int tiles) {
  extern __shared__ __align__(16) unsigned char raw[];
  const int64_t item = blockIdx.x / tiles;
  const int tile = static_cast<int>(blockIdx.x % tiles), m = p.whole.m;
  const int first_tiles = (p.first + tile_columns - 1) / tile_columns;
  const int beyond = (tile - first_tiles) * tile_columns;  // columns after the first block
  const int own = beyond < 0 ? 0 : 1 + beyond / p.outer;   // the tile's block
  const int column = beyond < 0 ? tile * tile_columns : p.first + beyond;
  const int columns = beyond < 0 ? min(tile_columns, p.first - column) : tile_columns;
  const int top = p.first + own * p.outer;  // rows above stay
  const int rows = m - top;
  T* const stage = reinterpret_cast<T*>(raw);
  int32_t* const from = reinterpret_cast<int32_t*>(stage + static_cast<int64_t>(staged) * rows);
  const int32_t* const orders = p.orders + item * p.order_stride;

  for (int i = threadIdx.x; i < rows; i += kFinishThreads) {
    int row = top + i;
    for (int block = p.blocks - 1; block > own; --block) {
      if (row >= p.first + (block - 1) * p.outer) {
        row = orders[static_cast<int64_t>(block) * m + row];
      }
    }
    from[i] = row - top;
  }
  T* const a = p.whole.a + item * p.whole.stride + top + column * p.whole.lda;
  for (int done = 0; done < columns; done += staged) {
    const int count = min(staged, columns - done);
    __syncthreads();
    for (int c = 0; c < count; ++c) {
      for (int i = threadIdx.x; i < rows; i += kFinishThreads) {
        __pipeline_memcpy_async(
            &stage[static_cast<int64_t>(c) * rows + i],
            &a[i + (done + c) * p.whole.lda],
            sizeof(T));
      }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int c = 0; c < count; ++c) {
      for (int i = threadIdx.x; i < rows; i += kFinishThreads) {
        a[i + (done + c) * p.whole.lda] = stage[static_cast<int64_t>(c) * rows + from[i]];
      }
    }
  }
}

template <typename T>
size_t finish_bytes(int m, int staged) {
  return m * (staged * sizeof(T) + sizeof(int32_t));
}

template <typename T>
bool finish_fits(int m, size_t shared) {
  return finish_bytes<T>(m, 1) <= shared;
}

template <typename T>
void launch_finish(const Finish<T>& p, cudaStream_t stream) {
  if (p.blocks < 2) {
    return;
  }
  const int tile_columns = std::min(kFinishColumns, p.outer);
  const int tiles = (p.first + tile_columns - 1) / tile_columns +
                    (p.blocks - 2) * (p.outer / tile_columns);  // the last block has no followers
  const int rows = p.whole.m - p.first;
  int staged = tile_columns;
  while (staged > 1 && finish_bytes<T>(rows, staged) > 56 * 1024) {
    staged /= 2;  // four blocks to a multiprocessor where that is possible
  }
  const size_t shared = finish_bytes<T>(rows, staged);
  static DynamicShared allowance;
  allowance.allow(finish_kernel<T>, shared);
  const int64_t blocks = p.whole.batch * tiles;
  finish_kernel<T><<<static_cast<unsigned>(blocks), kFinishThreads, shared, stream>>>(
      p, tile_columns, staged, tiles);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace at::native::batched_native
