#pragma once

#include <ATen/native/cuda/linalg/native/Kernels.h>
#include <ATen/native/cuda/linalg/native/LaunchCheck.h>
#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// Matrices of at most 32 rows and columns: N lanes factor one matrix, lane i holds row i in
// registers (register-resident LU after Villa, Fatica, Gawande and Tumeo, "Power/performance
// trade-offs of small batched LU based solvers on GPUs", 2013). Rows never move: `pos` says where a
// row stands, the exchange happens when the matrix is written.
namespace at::native::batched_native {

constexpr int kWarpLUThreads = 128;

// The lane, among the N that share a matrix, whose row becomes the pivot row.
template <typename T, int N>
__device__ __forceinline__ int group_leader(key_t_of<T> key, uint32_t pos) {
  if constexpr (N == 32) {
    const uint32_t best = warp_argmax(key, pos << 5 | (threadIdx.x % 32));
    return static_cast<int>(best % 32);
  } else {
    uint32_t best_pos = pos;
#pragma unroll
    for (int step = N / 2; step > 0; step /= 2) {
      const auto other = __shfl_xor_sync(kFullWarp, key, step, N);
      const uint32_t other_pos = __shfl_xor_sync(kFullWarp, best_pos, step, N);
      if (other > key || (other == key && other_pos < best_pos)) {
        key = other;
        best_pos = other_pos;
      }
    }
    const unsigned holders = __ballot_sync(kFullWarp, pos == best_pos);
    return __ffs(holders >> (threadIdx.x % 32 / N * N)) - 1;
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kWarpLUThreads) warp_lu_kernel(WholeMatrices<T> p) {
  const int lane = threadIdx.x % N;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * (kWarpLUThreads / N) + threadIdx.x / N;
  const bool present = item < p.batch;  // absent groups run along on zeros: shuffles need all lanes
  const int m = p.m, n = p.n, steps = min(m, n);
  T* __restrict__ matrix = p.a + (present ? item : 0) * p.stride;

  T a[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    a[j] = present && lane < m && j < n ? matrix[lane + j * p.lda] : zero<T>();
  }
  int pos = lane < m ? lane : -1;
  const uint32_t mask = p.pivot ? ~0u : 0u;  // without pivoting the first row left is the pivot
  int my_pivot = 0;
  int first_zero = 0;

#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k >= steps) {
      continue;
    }
    const key_t_of<T> key = pos >= k ? pivot_key(a[k], mask) : 0;
    const int source = group_leader<T, N>(key, static_cast<uint32_t>(pos));
    const int place = __shfl_sync(kFullWarp, pos, source, N);
    const Divisor<T> mine = Divisor<T>::of(a[k]);  // meanwhile, by every lane
    const T pivot = shuffle(a[k], source, N);
    const Divisor<T> divisor{shuffle(mine.inverse, source, N), shuffle(mine.scale, source, N)};
    if (lane == source) {
      pos = k;
    } else if (pos == k) {
      pos = place;
    }
    if (lane == k) {
      my_pivot = place + 1;
    }
    if (first_zero == 0 && is_zero(pivot)) {
      first_zero = k + 1;
    }
    const bool below = pos > k;
    if (below) {
      a[k] = divisor.divide(a[k]);
    }
#pragma unroll
    for (int j = k + 1; j < N; ++j) {
      const T u = shuffle(a[j], source, N);
      if (below) {
        a[j] = subtract_product(a[j], a[k], u);
      }
    }
  }

  if (present) {
    if (pos >= 0) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (j < n) {
          matrix[pos + j * p.lda] = a[j];
        }
      }
    }
    if (lane < steps) {
      p.pivots[item * p.pivot_stride + lane] = my_pivot;
    }
    if (lane == 0) {
      p.info[item] = first_zero;
    }
  }
}

template <typename T, int N>
void launch_warp_lu_of(const WholeMatrices<T>& p, cudaStream_t stream) {
  constexpr int per_block = kWarpLUThreads / N;
  const int64_t blocks = (p.batch + per_block - 1) / per_block;
  warp_lu_kernel<T, N><<<static_cast<unsigned>(blocks), kWarpLUThreads, 0, stream>>>(p);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T>
void launch_warp_lu(const WholeMatrices<T>& p, cudaStream_t stream) {
  const int size = p.m > p.n ? p.m : p.n;
  if (size <= 8) {
    launch_warp_lu_of<T, 8>(p, stream);
  } else if (size <= 16) {
    launch_warp_lu_of<T, 16>(p, stream);
  } else {
    launch_warp_lu_of<T, 32>(p, stream);
  }
}

}  // namespace at::native::batched_native
