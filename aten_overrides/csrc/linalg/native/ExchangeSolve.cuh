#pragma once

#include <cuda_pipeline.h>

#include <ATen/native/cuda/linalg/native/Kernels.h>
#include <ATen/native/cuda/linalg/native/LaunchCheck.h>
#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// Row exchange from a permutation, and for the columns to the right of a factored block the triangular
// solve with its unit lower triangle in the same pass. A block owns 32 columns of one matrix, so every
// read of a column is ordered before its writes by barriers alone.
//
// The exchange of K pivots moves rows from anywhere into the top K places, and only rows that stood in
// the top K to anywhere else: so K gathered loads and at most K scattered stores a column do it.
namespace at::native::batched_native {

constexpr int kExchangeColumns = 32;
constexpr int kExchangeWarps = 4;

template <typename T>
struct ExchangeShared {
  static constexpr int kBlock = sizeof(T) >= 16 ? 16 : 32; // rows solved at a time, in registers
  static constexpr int kStride = kExchangeColumns + 1;

  static __host__ __device__ int padded(int width) {
    return (width + kBlock - 1) / kBlock * kBlock;
  }
  static __host__ size_t bytes(int width, bool solve) {
    const size_t rows = padded(width);
    return (rows * kStride + (solve ? rows * kBlock : 0) + kBlock) * sizeof(T) +
        2 * rows * sizeof(int32_t);
  }
};

// x[rows of this block] -= L x[rows before], then the block's own triangle by one warp.
template <typename T>
__device__ __forceinline__ void solve_tile(
    T* x,
    T* lower,
    const T* triangle,
    int64_t lda,
    int width,
    int warp,
    int lane) {
  using Shared = ExchangeShared<T>;
  constexpr int B = Shared::kBlock;
  constexpr int kRows = B / kExchangeWarps;
  for (int first = 0; first < width; first += B) {
    for (int j = warp; j < first + B; j += kExchangeWarps) {
      for (int q = lane; q < B; q += 32) {
        const int row = first + q;
        lower[j * B + q] = row < width && j < row ? triangle[row + j * lda] : zero<T>();
      }
    }
    __syncthreads();
    if (first > 0) {
      T sum[kRows];
#pragma unroll
      for (int q = 0; q < kRows; ++q) {
        sum[q] = x[(first + warp * kRows + q) * Shared::kStride + lane];
      }
#pragma unroll 4
      for (int j = 0; j < first; ++j) {
        const T value = x[j * Shared::kStride + lane];
#pragma unroll
        for (int q = 0; q < kRows; ++q) {
          sum[q] = subtract_product(sum[q], lower[j * B + warp * kRows + q], value);
        }
      }
#pragma unroll
      for (int q = 0; q < kRows; ++q) {
        x[(first + warp * kRows + q) * Shared::kStride + lane] = sum[q];
      }
      __syncthreads();
    }
    if (warp == 0) {
      T y[B];
#pragma unroll
      for (int q = 0; q < B; ++q) {
        y[q] = x[(first + q) * Shared::kStride + lane];
      }
#pragma unroll
      for (int j = 0; j < B - 1; ++j) {
#pragma unroll
        for (int q = j + 1; q < B; ++q) {
          y[q] = subtract_product(y[q], lower[(first + j) * B + q], y[j]);
        }
      }
#pragma unroll
      for (int q = 1; q < B; ++q) {
        x[(first + q) * Shared::kStride + lane] = y[q];
      }
    }
    __syncthreads();
  }
}

template <typename T>
__global__ void __launch_bounds__(32 * kExchangeWarps)
    exchange_kernel(Exchange<T> p, int left_tiles, int tiles) {
  using Shared = ExchangeShared<T>;
  extern __shared__ __align__(16) unsigned char raw[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t item = blockIdx.x / tiles;
  const int tile = static_cast<int>(blockIdx.x % tiles);
  const bool solve = tile >= left_tiles;
  const int start = p.level.start, width = p.level.width;
  const int64_t lda = p.whole.lda;
  const int rows = Shared::padded(width);

  T* const x = reinterpret_cast<T*>(raw);
  T* const lower = x + (rows * Shared::kStride + Shared::kBlock - 1) / Shared::kBlock * Shared::kBlock;
  // The maps lie last, whether or not any tile of this launch solves.
  int32_t* const comes = reinterpret_cast<int32_t*>(
      lower + (p.right_n > 0 ? rows * Shared::kBlock : 0));
  int32_t* const goes = comes + rows;

  T* const matrix = p.whole.a + item * p.whole.stride;
  const int skipped = (solve ? tile - left_tiles : tile) * kExchangeColumns;
  const int columns = min(kExchangeColumns, (solve ? p.right_n : p.left_n) - skipped);
  T* const a = matrix + ((solve ? p.right : p.left) + skipped) * lda;

  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    comes[i] = p.whole.pivot ? p.level.now[item * p.level_stride + start + i] : start + i;
    goes[i] = p.whole.pivot ? p.level.gone[item * p.level_stride + i] : start;
  }
  __syncthreads();
  for (int c = warp; c < kExchangeColumns; c += kExchangeWarps) {
    for (int i = lane; i < rows; i += 32) {
      if (c < columns && i < width) {
        __pipeline_memcpy_async(&x[i * Shared::kStride + c], &a[comes[i] + c * lda], sizeof(T));
      } else {
        x[i * Shared::kStride + c] = zero<T>();
      }
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  for (int c = warp; c < columns; c += kExchangeWarps) {
    for (int i = lane; i < width; i += 32) {
      if (goes[i] >= start + width) {
        a[goes[i] + c * lda] = a[start + i + c * lda];
      }
    }
  }
  __syncthreads();
  if (solve) {
    solve_tile(x, lower, matrix + start * (lda + 1), lda, width, warp, lane);
  }
  for (int c = warp; c < columns; c += kExchangeWarps) {
    for (int i = lane; i < width; i += 32) {
      a[start + i + c * lda] = x[i * Shared::kStride + c];
    }
  }
}

template <typename T>
void launch_exchange(const Exchange<T>& p, cudaStream_t stream) {
  const int left_tiles = (p.left_n + kExchangeColumns - 1) / kExchangeColumns;
  const int tiles = left_tiles + (p.right_n + kExchangeColumns - 1) / kExchangeColumns;
  const size_t shared = ExchangeShared<T>::bytes(p.level.width, p.right_n > 0);
  if (tiles == 0) {
    return;
  }
  if (shared > 48 * 1024) {
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        exchange_kernel<T>,
        cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(shared)));
  }
  const int64_t blocks = p.whole.batch * tiles;
  exchange_kernel<T><<<static_cast<unsigned>(blocks), 32 * kExchangeWarps, shared, stream>>>(
      p, left_tiles, tiles);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

} // namespace at::native::batched_native
