#pragma once

#include <algorithm>

#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/SolveKernels.h>
#include <ATen/native/cuda/linalg/native/SolveScalar.cuh>

// Row exchanges of right-hand sides by a row order: a warp moves a column through shared memory.
namespace at::native::batched_native {

constexpr int kPermuteWarps = 8;

template <typename T>
__global__ void __launch_bounds__(32 * kPermuteWarps)
    permute_kernel(Systems<T> p, const int32_t* orders, int tiles) {
  extern __shared__ __align__(16) unsigned char raw[];
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t item = blockIdx.x / tiles;
  const int column = static_cast<int>(blockIdx.x % tiles) * warps + warp;
  if (column >= p.nrhs) {
    return;
  }
  const int32_t* const order = orders + item % p.lu_batch * p.n;
  T* const x = reinterpret_cast<T*>(raw) + static_cast<int64_t>(warp) * p.n;
  T* const b = p.b + item * p.b_stride + column * p.ldb;
#pragma unroll 4
  for (int i = lane; i < p.n; i += 32) {
    x[p.transposed ? order[i] : i] = b[i];
  }
  __syncwarp();
#pragma unroll 4
  for (int i = lane; i < p.n; i += 32) {
    b[i] = x[p.transposed ? i : order[i]];
  }
}

template <typename T>
size_t permute_bytes(int n) {
  return n * sizeof(T);
}

template <typename T>
void launch_permute(
    const Systems<T>& p, const int32_t* orders, size_t shared, cudaStream_t stream) {
  const size_t each = permute_bytes<T>(p.n);
  // As many columns as leave room for several blocks.
  const int warps = static_cast<int>(std::max<size_t>(
      1, std::min<size_t>({kPermuteWarps, shared / 4 / each, static_cast<size_t>(p.nrhs)})));
  const int tiles = (p.nrhs + warps - 1) / warps;
  const int threads = 32 * warps;
  const size_t used = warps * each;
  static DynamicShared allowance;
  allowance.allow(permute_kernel<T>, used);
  const unsigned blocks = static_cast<unsigned>(p.batch * tiles);
  permute_kernel<T><<<blocks, threads, used, stream>>>(p, orders, tiles);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace at::native::batched_native
