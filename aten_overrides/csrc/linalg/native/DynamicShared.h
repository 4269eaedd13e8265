#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include <cuda_runtime_api.h>

#include <ATen/native/cuda/linalg/native/LaunchCheck.h>

namespace at::native::batched_native {

// Lets a kernel's launches take more dynamic shared memory than the 48 KB that are allowed without
// asking. The allowance belongs to the kernel on a device, not to the launch: a thread that set
// what its own launch needs could lower it between another thread's set and launch. So every call
// sets the same value, the most that the kernel can be given on the device. It is set each time,
// not once, since a context made later (after a reset, a green one) starts anew.
//
// A static object in the template that launches: one for each instance of the kernel.
class DynamicShared {
 public:
  template <typename Kernel>
  void allow(Kernel* kernel, size_t bytes) {
    if (bytes <= kWithoutAsking) {
      return;
    }
    int device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    const bool kept = device >= 0 && static_cast<size_t>(device) < most_.size();
    // Two threads that ask at once find the same.
    int most = kept ? most_[device].load(std::memory_order_relaxed) : 0;
    if (most == 0) {
      most = find(kernel, device);
      if (kept) {
        most_[device].store(most, std::memory_order_relaxed);
      }
    }
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  }

 private:
  static constexpr size_t kWithoutAsking = 48 * 1024;

  template <typename Kernel>
  static int find(Kernel* kernel, int device) {
    int block = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    cudaFuncAttributes attributes{};
    C10_CUDA_CHECK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
    return block - static_cast<int>(attributes.sharedSizeBytes);
  }

  std::array<std::atomic<int>, 64> most_{};  // by device; 0: not asked yet, or beyond: each time
};

}  // namespace at::native::batched_native
