#pragma once

#include <ATen/native/cuda/linalg/native/Kernels.h>
#include <ATen/native/cuda/linalg/native/LaunchCheck.h>
#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// Panels too tall for shared memory: one block per matrix, column by column in global memory, rows
// exchanged as they are found. Its level maps follow the same exchanges.
namespace at::native::batched_native {

constexpr int kTallThreads = 1024;

template <typename T>
__global__ void __launch_bounds__(kTallThreads) tall_lu_kernel(Panel<T> p) {
  using Key = key_t_of<T>;
  __shared__ Key keys[kTallThreads / 32];
  __shared__ uint32_t places[kTallThreads / 32];
  const int m = p.whole.m - p.first, n = p.n, steps = min(m, n);
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int64_t item = blockIdx.x, lda = p.whole.lda;
  T* const a = p.whole.a + item * p.whole.stride + p.first * (lda + 1);
  int32_t* const pivots = p.whole.pivots + item * p.whole.pivot_stride + p.first;

  int first_zero = 0;
  for (int k = 0; k < steps; ++k) {
    uint32_t place = k;
    if (p.whole.pivot) {
      Key key = 0;
      uint32_t mine = 0xffffffffu;
      for (int i = k + tid; i < m; i += kTallThreads) {
        const Key other = pivot_key(a[i + k * lda], ~0u);
        if (other > key) {
          key = other;
          mine = i;
        }
      }
      if (warp_argmax(key, mine) == mine && (key != 0 || lane == 0)) {
        keys[warp] = key;
        places[warp] = mine;
      }
      __syncthreads();
      place = warp_argmax(keys[lane], places[lane]);
      for (int c = tid; c < n && place != static_cast<uint32_t>(k); c += kTallThreads) {
        const T upper = a[k + c * lda];
        a[k + c * lda] = a[place + c * lda];
        a[place + c * lda] = upper;
      }
    }
    __syncthreads();
    const T pivot = a[k + k * lda];
    if (tid == 0) {
      pivots[k] = p.first + static_cast<int32_t>(place) + 1;
      if (first_zero == 0 && is_zero(pivot)) {
        first_zero = p.first + k + 1;
      }
    }
    const Divisor<T> divisor = Divisor<T>::of(pivot);
    for (int i = k + 1 + tid; i < m; i += kTallThreads) {
      const T multiplier = divisor.divide(a[i + k * lda]);
      a[i + k * lda] = multiplier;
      for (int c = k + 1; c < n; ++c) {
        a[i + c * lda] = subtract_product(a[i + c * lda], multiplier, a[k + c * lda]);
      }
    }
    __syncthreads();
  }

  for (int l = 0; l < p.levels; ++l) {
    const Level& level = p.level[l];
    int32_t* const now = level.now + item * p.level_stride;
    int32_t* const gone = level.gone + item * p.level_stride;
    if (level.start == p.first) {
      for (int i = tid; i < m; i += kTallThreads) {
        now[p.first + i] = p.first + i;
        if (i < level.width) {
          gone[i] = p.first + i;
        }
      }
    }
    __syncthreads();
    if (tid == 0 && p.whole.pivot) {
      for (int k = 0; k < steps; ++k) {
        const int one = p.first + k, two = pivots[k] - 1;
        const int32_t moved = now[one];
        now[one] = now[two];
        now[two] = moved;
        for (const int row : {one, two}) {
          const int origin = now[row] - level.start;
          if (origin < level.width) {
            gone[origin] = row;
          }
        }
      }
    }
  }
  if (tid == 0) {
    int32_t& info = p.whole.info[item];
    if (p.first == 0) {
      info = first_zero;
    } else if (first_zero != 0 && info == 0) {
      info = first_zero;
    }
  }
}

template <typename T>
void launch_tall_lu(const Panel<T>& p, cudaStream_t stream) {
  tall_lu_kernel<T><<<static_cast<unsigned>(p.whole.batch), kTallThreads, 0, stream>>>(p);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace at::native::batched_native
