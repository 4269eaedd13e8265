#pragma once

#include <algorithm>

#include <ATen/native/cuda/linalg/native/LaunchCheck.h>
#include <ATen/native/cuda/linalg/native/SolveKernels.h>
#include <ATen/native/cuda/linalg/native/SolveScalar.cuh>

// Matrices of at most 32 rows: part of a warp for each, a row of A (or of its transpose) in every
// lane's registers, both triangles from there.
namespace at::native::batched_native {

constexpr int kSmallThreads = 128;
constexpr int kSmallColumns = 8;  // of one part of a warp

template <typename T, int L, bool kTransposed>
__global__ void __launch_bounds__(kSmallThreads) small_kernel(Systems<T> p, int tiles) {
  const int lane = threadIdx.x % L, n = p.n;
  const int64_t group = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / L;
  const int64_t item = group / tiles;
  const bool valid = item < p.batch && lane < n;
  const int64_t factor = item % p.lu_batch, lda = p.lda;
  const int first = static_cast<int>(group % tiles) * kSmallColumns;
  const int columns = item < p.batch ? min(kSmallColumns, p.nrhs - first) : 0;
  const int sign = p.conjugated ? -1 : 1;
  const T* const lu = p.lu + factor * p.lu_stride;

  T m[L];
  T own = one<T>();
#pragma unroll
  for (int j = 0; j < L; ++j) {
    m[j] = zero<T>();
    if (valid && j < n) {
      m[j] = conjugate(kTransposed ? lu[j + lane * lda] : lu[lane + j * lda], sign);
      own = j == lane ? m[j] : own;
    }
  }
  const Divisor<T> divisor = Divisor<T>::of(own);
  // Lanes without a row stay zero: their 0 - 0 inf would be NaN for the rows of the other triangle.
  const int position = valid ? lane : -1;
  const int pivot = valid ? p.pivots[factor * p.pivot_stride + lane] - 1 : lane;
  int row = lane;
  for (int i = 0; i < n; ++i) {
    const int asked = __shfl_sync(kFullWarp, pivot, i, L);
    const int other = asked >= 0 && asked < n ? asked : i;
    const int here = __shfl_sync(kFullWarp, row, i, L);
    const int there = __shfl_sync(kFullWarp, row, other, L);
    row = lane == i ? there : lane == other ? here : row;
  }

  T* const b = p.b + item * p.b_stride + first * p.ldb;
  for (int c = 0; c < kSmallColumns; ++c) {
    const bool mine = valid && c < columns;
    if (__ballot_sync(kFullWarp, mine) == 0) {
      break;
    }
    T x = mine ? b[(kTransposed ? lane : row) + c * p.ldb] : zero<T>();
#pragma unroll
    for (int j = 0; j < L; ++j) {
      const T value = kTransposed ? quotient(x, divisor) : x;
      subtract_product_if(position > j, x, m[j], shuffle(value, j, L));
    }
    x = kTransposed ? quotient(x, divisor) : x;
#pragma unroll
    for (int j = L - 1; j >= 0; --j) {
      const T value = kTransposed ? x : quotient(x, divisor);
      subtract_product_if(lane < j, x, m[j], shuffle(value, j, L));
    }
    x = kTransposed ? x : quotient(x, divisor);
    if (mine) {
      b[(kTransposed ? row : lane) + c * p.ldb] = x;
    }
  }
}

template <typename T, int L>
void launch_small_of(const Systems<T>& p, cudaStream_t stream) {
  const int tiles = (p.nrhs + kSmallColumns - 1) / kSmallColumns;
  const int64_t per_block = kSmallThreads / L;
  const unsigned blocks = static_cast<unsigned>((p.batch * tiles + per_block - 1) / per_block);
  const int threads = kSmallThreads;
  if (p.transposed) {
    small_kernel<T, L, true><<<blocks, threads, 0, stream>>>(p, tiles);
  } else {
    small_kernel<T, L, false><<<blocks, threads, 0, stream>>>(p, tiles);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T>
void launch_small(const Systems<T>& p, cudaStream_t stream) {
  if (p.n <= 8) {
    launch_small_of<T, 8>(p, stream);
  } else if (p.n <= 16) {
    launch_small_of<T, 16>(p, stream);
  } else {
    launch_small_of<T, 32>(p, stream);
  }
}

}  // namespace at::native::batched_native
