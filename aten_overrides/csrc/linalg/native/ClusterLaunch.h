#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include <cuda_runtime_api.h>

#include <ATen/native/cuda/linalg/native/LaunchCheck.h>

namespace at::native::batched_native {

// Whether `kernel` can be launched as clusters on the current device: that has them and the code
// that runs was compiled for it.
template <typename Kernel>
bool clusters_usable(Kernel* kernel) {
#if CUDART_VERSION >= 12010
  // By device; 0: not asked yet, 1: no, 2: yes.
  static std::array<std::atomic<signed char>, 64> known{};
  int device = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  const bool kept = device >= 0 && static_cast<size_t>(device) < known.size();
  signed char found = kept ? known[device].load(std::memory_order_relaxed) : 0;
  if (found == 0) {
    int there = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&there, cudaDevAttrClusterLaunch, device));
    cudaFuncAttributes attributes{};
    C10_CUDA_CHECK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
    // Code for 8.0 can reach a newer device as PTX; kHasClusters was false for it.
    found = there != 0 && attributes.ptxVersion >= 90 ? 2 : 1;
    if (kept) {
      known[device].store(found, std::memory_order_relaxed);
    }
  }
  return found == 2;
#else
  (void)kernel;
  return false;
#endif
}

// `blocks`, a multiple of `cluster`, as clusters of so many.
template <typename Argument>
void launch_clusters(
    void (*kernel)(Argument),
    const Argument& argument,
    unsigned blocks,
    unsigned cluster,
    unsigned threads,
    size_t shared,
    cudaStream_t stream) {
#if CUDART_VERSION >= 12010
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim.x = blocks;
  config.blockDim.x = threads;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, argument));
#endif
}

}  // namespace at::native::batched_native
