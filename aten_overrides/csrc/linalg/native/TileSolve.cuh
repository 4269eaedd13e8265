#pragma once

#include <algorithm>

#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/SolveKernels.h>
#include <ATen/native/cuda/linalg/native/SolveScalar.cuh>

// Many right-hand sides and one diagonal block of the factor: a thread solves a column of its own,
// kBlock rows at a time in registers. Both triangles are solved as lower ones over positions, as in
// PassSolve.cuh, so the triangle lies in shared memory in the order in which it is read.
namespace at::native::batched_native {

template <typename T>
struct TileShape {
  static constexpr int kBlock = 8;
  static constexpr int kThreads = sizeof(T) == 4 ? 128 : 64;  // columns of a tile
  static constexpr int kWidth = sizeof(T) == 4 ? 128 : 64;    // most rows
  static constexpr int kDivisor = 2;                          // elements that hold a Divisor

  static __host__ __device__ int padded(int width) {
    return (width + kBlock - 1) / kBlock * kBlock;
  }
  // Where the rows of a block begin: block f holds 8 rows of 8 (f + 1) elements.
  static __host__ __device__ int start(int block) {
    return kBlock * kBlock * block * (block + 1) / 2;
  }
  static __host__ size_t bytes(int width, int threads) {
    const int rows = padded(width);
    const size_t elements =
        start(rows / kBlock) + kDivisor * size_t(rows) + static_cast<size_t>(rows) * (threads + 1);
    return elements * sizeof(T);
  }
};

template <typename T, bool kTransposed>
__global__ void __launch_bounds__(TileShape<T>::kThreads) tile_kernel(TileSolve<T> t, int tiles) {
  using Shape = TileShape<T>;
  constexpr int B = Shape::kBlock;
  static_assert(sizeof(Divisor<T>) <= Shape::kDivisor * sizeof(T));
  extern __shared__ __align__(16) unsigned char raw[];
  const Systems<T>& p = t.systems;
  const int threads = blockDim.x, tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int warps = threads / 32, step = threads + 1;  // odd: rows fall into different banks
  const int64_t item = blockIdx.x / tiles, lda = p.lda;
  const int skipped = static_cast<int>(blockIdx.x % tiles) * threads;
  const int columns = min(threads, p.nrhs - skipped);
  const int width = t.width, rows = Shape::padded(width);
  const int64_t factor = item % p.lu_batch;
  const T* const lu = p.lu + factor * p.lu_stride + t.first * (lda + 1);
  T* const b = p.b + item * p.b_stride + t.first + skipped * p.ldb;
  const int32_t* const order = t.orders == nullptr ? nullptr : t.orders + factor * width;
  const int sign = p.conjugated ? -1 : 1;

  T* const triangle = reinterpret_cast<T*>(raw);
  Divisor<T>* const divisors = reinterpret_cast<Divisor<T>*>(triangle + Shape::start(rows / B));
  T* const x = triangle + Shape::start(rows / B) + Shape::kDivisor * rows;  // [row][column]
  for (int c = warp; c < columns; c += warps) {
    for (int i = lane; i < rows; i += 32) {
      const int from = order != nullptr && !kTransposed && i < width ? order[i] : i;
      x[i * step + c] = i < width ? b[from + c * p.ldb] : zero<T>();
    }
  }
  for (int pass = 0; pass < 2; ++pass) {
    if (!(pass == 0 ? t.lower : t.upper)) {
      continue;
    }
    const bool unit = kTransposed == (pass == 1);
    __syncthreads();  // the triangle before is no longer read
    for (int line = warp; line < rows; line += warps) {
      for (int along = lane; along < rows; along += 32) {
        // Along a line memory is contiguous: a column of A.
        const int i = kTransposed ? line : along, j = kTransposed ? along : line;
        const int row = pass == 0 ? i : rows - 1 - i, column = pass == 0 ? j : rows - 1 - j;
        const bool there = row < width && column < width;
        if (i >= j || i / B == j / B) {
          const int64_t at = kTransposed ? column + row * lda : row + column * lda;
          const T l = there && i >= j ? conjugate(lu[at], sign) : zero<T>();
          if (i != j) {
            triangle[Shape::start(i / B) + j * B + i % B] = l;
          } else {
            triangle[Shape::start(i / B) + j * B + i % B] = zero<T>();
            divisors[i] = Divisor<T>::of(unit || !there ? one<T>() : l);
          }
        }
      }
    }
    __syncthreads();
    if (tid < columns) {
      T* const column = x + tid + (pass == 0 ? 0 : (rows - 1) * step);
      const int down = pass == 0 ? step : -step;
      for (int first = 0; first < rows; first += B) {
        const T* const l_of = triangle + Shape::start(first / B);
        T y[B];
#pragma unroll
        for (int q = 0; q < B; ++q) {
          y[q] = column[(first + q) * down];
        }
#pragma unroll 2
        for (int j = 0; j < first; ++j) {
          const T value = column[j * down];
          T l[B];
          load_row<T, B>(l, l_of + j * B, 0);
#pragma unroll
          for (int q = 0; q < B; ++q) {
            y[q] = subtract_product(y[q], l[q], value);
          }
        }
#pragma unroll
        for (int j = 0; j < B; ++j) {
          if (!unit) {
            y[j] = quotient(y[j], divisors[first + j]);
          }
          T l[B];
          load_row<T, B>(l, l_of + (first + j) * B, j + 1);
#pragma unroll
          for (int q = j + 1; q < B; ++q) {
            y[q] = subtract_product(y[q], l[q], y[j]);
          }
        }
#pragma unroll
        for (int q = 0; q < B; ++q) {
          column[(first + q) * down] = y[q];
        }
      }
      // Rows of the padding may have become 0 - 0 inf, and the other triangle begins with them.
      for (int i = width; pass == 0 && i < rows; ++i) {
        column[i * step] = zero<T>();
      }
    }
  }
  __syncthreads();
  for (int c = warp; c < columns; c += warps) {
    for (int i = lane; i < width; i += 32) {
      b[(order != nullptr && kTransposed ? order[i] : i) + c * p.ldb] = x[i * step + c];
    }
  }
}

template <typename T>
int tile_width(size_t shared) {
  int width = TileShape<T>::kWidth;
  while (TileShape<T>::bytes(width, TileShape<T>::kThreads) > shared) {
    width /= 2;
  }
  return width;
}

template <typename T>
void launch_tile_solve(const TileSolve<T>& t, cudaStream_t stream) {
  const Systems<T>& p = t.systems;
  const int threads = std::min(TileShape<T>::kThreads, (p.nrhs + 31) / 32 * 32);
  const int tiles = (p.nrhs + threads - 1) / threads;
  const size_t shared = TileShape<T>::bytes(t.width, threads);
  const unsigned blocks = static_cast<unsigned>(p.batch * tiles);
  if (p.transposed) {
    static DynamicShared allowance;
    allowance.allow(tile_kernel<T, true>, shared);
    tile_kernel<T, true><<<blocks, threads, shared, stream>>>(t, tiles);
  } else {
    static DynamicShared allowance;
    allowance.allow(tile_kernel<T, false>, shared);
    tile_kernel<T, false><<<blocks, threads, shared, stream>>>(t, tiles);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace at::native::batched_native
