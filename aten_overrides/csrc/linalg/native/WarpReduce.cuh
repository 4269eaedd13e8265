#pragma once

// PyTorch is compiled for GPUs older than compute capability 8.0 too, which have no instruction for
// reductions over a warp. The kernels do not run there (Usable.h), but have to compile.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800

namespace at::native::batched_native {

__device__ __forceinline__ unsigned __reduce_max_sync(unsigned lanes, unsigned x) {
  for (int step = 16; step > 0; step /= 2) {
    const unsigned other = __shfl_xor_sync(lanes, x, step);
    x = x < other ? other : x;
  }
  return x;
}

__device__ __forceinline__ unsigned __reduce_min_sync(unsigned lanes, unsigned x) {
  return ~__reduce_max_sync(lanes, ~x);
}

}  // namespace at::native::batched_native

#endif
