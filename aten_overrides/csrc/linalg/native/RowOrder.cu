#include <algorithm>

#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/RowOrder.cuh>
#include <ATen/native/cuda/linalg/native/SolveKernels.h>

namespace at::native::batched_native {

constexpr int kOrderThreads = 256;

__global__ void __launch_bounds__(kOrderThreads)
    order_kernel(const int32_t* pivots, int64_t pivot_stride, int n, int32_t* orders) {
  extern __shared__ __align__(16) unsigned char raw[];
  const int64_t item = blockIdx.x;
  const int32_t* const order =
      find_order(pivots + item * pivot_stride, n, reinterpret_cast<int32_t*>(raw));
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    orders[item * n + i] = order[i];
  }
}

size_t order_bytes(int n) {
  return order_scratch(n) * sizeof(int32_t);
}

void launch_order(
    const int32_t* pivots,
    int64_t pivot_stride,
    int64_t batch,
    int n,
    int32_t* orders,
    cudaStream_t stream) {
  const int threads = std::min(kOrderThreads, (n + 31) / 32 * 32);
  const size_t shared = order_bytes(n);
  static DynamicShared allowance;
  allowance.allow(order_kernel, shared);
  const unsigned blocks = static_cast<unsigned>(batch);
  order_kernel<<<blocks, threads, shared, stream>>>(pivots, pivot_stride, n, orders);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace at::native::batched_native
