#pragma once

#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// The row order that a factorisation's exchanges make, found by a block without doing them one
// after the other: n dependent steps would take longer than the solve of a small batch.
namespace at::native::batched_native {

// int32 elements of shared memory that find_order needs.
constexpr int64_t order_scratch(int64_t n) {
  return 3 * n;
}

// Returns where in `scratch` the order is: order[i] is the row that stands at i in the end. Step i
// exchanges rows i and pivots[i] - 1. To be called by all threads of the block; ends with a
// barrier.
//
// A pivot never lies above its step, so position i is final after step i. What step j moves to its
// pivot is what stood at j by then: the root of j, where j's parent is the last step before j with
// pivot j, if there is one. The row that ends at i is the root of the last step before i with the
// same pivot, or else the pivot itself.
__device__ inline int32_t* find_order(const int32_t* pivots, int n, int32_t* scratch) {
  const int threads = blockDim.x, tid = threadIdx.x, lane = tid % 32;
  int32_t* const same = scratch;  // step -> the step before with the same pivot, or -1
  int32_t* from = scratch + n;    // pivot -> the last step with it; then parents
  int32_t* to = scratch + 2 * int64_t{n};
  for (int i = tid; i < n; i += threads) {
    from[i] = -1;
    to[i] = pivots[i] - 1;
  }
  __syncthreads();
  if (tid < 32) {
    const unsigned below = (1u << lane) - 1;
    bool plain = true;
    for (int base = 0; base < n; base += 32) {
      const int step = base + lane;
      const bool valid = step < n;
      const int pivot = valid ? to[step] : -1 - lane;
      plain = plain && (!valid || (pivot >= step && pivot < n));
      const bool known = valid && pivot >= 0 && pivot < n;
      const unsigned equal = __match_any_sync(kFullWarp, pivot);
      const int nearest = 31 - __clz(static_cast<int>(equal & below));
      const int before = nearest >= 0 ? base + nearest : known ? from[pivot] : -1;
      const bool last = (equal >> lane) == 1;
      if (valid) {
        same[step] = before;
      }
      __syncwarp();
      if (known && last) {
        from[pivot] = step;
      }
      __syncwarp();
    }
    // Pivots that no factorisation gives, in range or not: one exchange after the other.
    if (__ballot_sync(kFullWarp, plain) != kFullWarp && lane == 0) {
      for (int i = 0; i < n; ++i) {
        to[i] = i;
      }
      for (int i = 0; i < n; ++i) {
        const int pivot = pivots[i] - 1;
        if (pivot >= 0 && pivot < n) {
          const int32_t row = to[i];
          to[i] = to[pivot];
          to[pivot] = row;
        }
      }
      for (int i = 0; i < n; ++i) {
        same[i] = -2 - to[i];
      }
    }
  }
  __syncthreads();
  if (same[0] <= -2) {
    __syncthreads();
    for (int i = tid; i < n; i += threads) {
      from[i] = -2 - same[i];
    }
    __syncthreads();
    return from;
  }
  for (int i = tid; i < n; i += threads) {
    const int step = from[i] == i ? same[i] : from[i];
    to[i] = step < 0 ? i : step;
  }
  __syncthreads();
  for (int span = 1; span < n; span *= 2) {
    int32_t* const old = to;
    to = from;
    from = old;
    for (int i = tid; i < n; i += threads) {
      to[i] = from[from[i]];
    }
    __syncthreads();
  }
  for (int i = tid; i < n; i += threads) {
    from[i] = same[i] < 0 ? pivots[i] - 1 : to[same[i]];
  }
  __syncthreads();
  return from;
}

}  // namespace at::native::batched_native
