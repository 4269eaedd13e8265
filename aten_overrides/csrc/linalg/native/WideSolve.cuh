#pragma once

#include <ATen/native/cuda/linalg/native/ExchangeSolve.cuh>

// The triangular solve of many columns by themselves, after their exchange: a thread solves a
// column of its own, kBlock rows at a time in registers, so that all warps have the same work and
// meet at one barrier only. What is read of L serves kBlock multiply-adds a thread at a time.
namespace at::native::batched_native {

template <typename T>
struct SolveTile {
  using Exchanged = ExchangeTile<T>;
  static constexpr int kBlock = Exchanged::kBlock;
  // Rows, and columns of a tile: two blocks or more to a multiprocessor of 227 KB.
  static constexpr int kWidth = sizeof(T) == 4 ? 128 : 64;
  static constexpr int kThreads = sizeof(T) == 4 ? 128 : 64;

  static __host__ size_t bytes(int width, int threads) {
    const size_t rows = Exchanged::padded(width);
    return (Exchanged::triangle(Exchanged::padded(width) / kBlock) + rows * (threads + 1)) *
           sizeof(T);
  }
};

template <typename T>
__global__ void __launch_bounds__(SolveTile<T>::kThreads) solve_kernel(Solve<T> p, int tiles) {
  using Tile = ExchangeTile<T>;
  constexpr int B = Tile::kBlock;
  extern __shared__ __align__(16) unsigned char raw[];
  const int threads = blockDim.x, tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int step = threads + 1;  // odd: the rows of a column fall into different banks
  const int64_t item = blockIdx.x / tiles, lda = p.whole.lda;
  const int skipped = static_cast<int>(blockIdx.x % tiles) * threads;
  const int columns = min(threads, p.right_n - skipped);
  const int width = p.width, rows = Tile::padded(width);

  T* const lower = reinterpret_cast<T*>(raw);     // blocks of kBlock rows of L
  T* const x = lower + Tile::triangle(rows / B);  // [row][column]
  T* const matrix = p.whole.a + item * p.whole.stride + p.first;
  T* const a = matrix + (p.right + skipped) * lda;
  for (int c = warp; c < columns; c += threads / 32) {
    for (int i = lane; i < rows; i += 32) {
      if (i < width) {
        __pipeline_memcpy_async(&x[i * step + c], &a[i + c * lda], sizeof(T));
      } else {
        x[i * step + c] = zero<T>();
      }
    }
  }
  for (int first = 0; first < width; first += B) {
    read_triangle(lower + Tile::triangle(first / B), matrix + p.first * lda, lda, width, first);
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  if (tid < columns) {
    const T* rows_of_l = lower;
    T* const column = x + tid;
    for (int first = 0; first < width; first += B) {
      T y[B];
#pragma unroll
      for (int q = 0; q < B; ++q) {
        y[q] = column[(first + q) * step];
      }
#pragma unroll 2
      for (int j = 0; j < first; ++j) {
        const T value = column[j * step];
        T l[B];
        load_row<T, B>(l, rows_of_l + j * B, 0);
#pragma unroll
        for (int q = 0; q < B; ++q) {
          y[q] = subtract_product(y[q], l[q], value);
        }
      }
#pragma unroll
      for (int j = 0; j < B - 1; ++j) {
        T l[B];
        load_row<T, B>(l, rows_of_l + (first + j) * B, j + 1);
#pragma unroll
        for (int q = j + 1; q < B; ++q) {
          y[q] = subtract_product(y[q], l[q], y[j]);
        }
      }
#pragma unroll
      for (int q = 0; q < B; ++q) {
        column[(first + q) * step] = y[q];
      }
      rows_of_l += (first + B) * B;
    }
  }
  __syncthreads();
  for (int c = warp; c < columns; c += threads / 32) {
    for (int i = lane; i < width; i += 32) {
      a[i + c * lda] = x[i * step + c];
    }
  }
}

template <typename T>
int solve_width(size_t shared) {
  int width = SolveTile<T>::kWidth;
  while (SolveTile<T>::bytes(width, SolveTile<T>::kThreads) > shared) {
    width /= 2;
  }
  return width;
}

template <typename T>
int solve_tiles(int columns) {
  return (columns + SolveTile<T>::kThreads - 1) / SolveTile<T>::kThreads;
}

template <typename T>
void launch_solve(const Solve<T>& p, cudaStream_t stream) {
  const int threads = std::min(SolveTile<T>::kThreads, (p.right_n + 31) / 32 * 32);
  const int tiles = solve_tiles<T>(p.right_n);
  const size_t shared = SolveTile<T>::bytes(p.width, threads);
  static DynamicShared allowance;
  allowance.allow(solve_kernel<T>, shared);
  const unsigned blocks = static_cast<unsigned>(p.whole.batch * tiles);
  solve_kernel<T><<<blocks, threads, shared, stream>>>(p, tiles);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace at::native::batched_native
