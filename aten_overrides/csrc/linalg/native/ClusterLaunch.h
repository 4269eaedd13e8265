#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include <cuda_runtime.h>

#include <ATen/native/cuda/linalg/native/LaunchCheck.h>

namespace at::native::batched_native {

#if CUDART_VERSION >= 12010
inline cudaLaunchConfig_t as_clusters(
    cudaLaunchAttribute& attribute,
    unsigned blocks,
    unsigned cluster,
    unsigned threads,
    size_t shared) {
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim.x = blocks;
  config.blockDim.x = threads;
  config.dynamicSmemBytes = shared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return config;
}
#endif

// Whether a kernel can be launched as clusters on the current device: that has them, finds room for
// at least one with all the shared memory that a block can have (a slice of a GPU may not), and the
// code that runs was compiled for it.
//
// A static object in the template that asks: one for each instance of the kernel.
class ClustersUsable {
 public:
  template <typename Argument>
  bool ask(void (*kernel)(Argument), unsigned cluster, unsigned threads) {
    int device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    const bool kept = device >= 0 && static_cast<size_t>(device) < known_.size();
    signed char found = kept ? known_[device].load(std::memory_order_relaxed) : 0;
    if (found == 0) {
      found = find(kernel, device, cluster, threads) ? 2 : 1;
      if (kept) {
        known_[device].store(found, std::memory_order_relaxed);
      }
    }
    return found == 2;
  }

 private:
  template <typename Argument>
  static bool find(void (*kernel)(Argument), int device, unsigned cluster, unsigned threads) {
#if CUDART_VERSION >= 12010
    const void* const address = reinterpret_cast<const void*>(kernel);
    int there = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&there, cudaDevAttrClusterLaunch, device));
    cudaFuncAttributes attributes{};
    C10_CUDA_CHECK(cudaFuncGetAttributes(&attributes, address));
    // Code for 8.0 can reach a newer device as PTX; kHasClusters was false for it.
    if (there == 0 || attributes.ptxVersion < 90) {
      return false;
    }
    int most = 0, clusters = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    most -= static_cast<int>(attributes.sharedSizeBytes);
    C10_CUDA_CHECK(
        cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    cudaLaunchAttribute attribute{};
    const cudaLaunchConfig_t config = as_clusters(attribute, cluster, cluster, threads, most);
    if (cudaOccupancyMaxActiveClusters(&clusters, address, &config) != cudaSuccess) {
      (void)cudaGetLastError();  // an answer, not an error
      return false;
    }
    return clusters > 0;
#else
    return false;
#endif
  }

  std::array<std::atomic<signed char>, 64> known_{};  // by device; 0: not asked yet, 1: no, 2: yes
};

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
  cudaLaunchConfig_t config = as_clusters(attribute, blocks, cluster, threads, shared);
  config.stream = stream;
  C10_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, argument));
#endif
}

}  // namespace at::native::batched_native
