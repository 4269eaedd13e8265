#include <ATen/native/cuda/linalg/native/Usable.h>

#include <array>
#include <atomic>
#include <cstddef>

#include <ATen/native/cuda/linalg/native/LaunchCheck.h>

namespace at::native::batched_native {

namespace {

constexpr int kOldest = 80;  // code for older ones is there only because PyTorch supports them

// Stands for all kernels: they are compiled for the same architectures.
__global__ void probe_kernel() {}

bool find() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&probe_kernel)) !=
      cudaSuccess) {
    (void)cudaGetLastError();  // an answer, not an error
    return false;
  }
  return attributes.binaryVersion >= kOldest;
}

}  // namespace

bool usable() {
  // By device; 0: not asked yet, 1: no, 2: yes.
  static std::array<std::atomic<signed char>, 64> known{};
  int device = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  if (static_cast<std::size_t>(device) >= known.size()) {
    return find();
  }
  auto& state = known[static_cast<std::size_t>(device)];
  signed char found = state.load(std::memory_order_relaxed);
  if (found == 0) {
    found = find() ? 2 : 1;
    state.store(found, std::memory_order_relaxed);
  }
  return found == 2;
}

}  // namespace at::native::batched_native
