#pragma once

// Every launch is followed by C10_CUDA_KERNEL_LAUNCH_CHECK(). Inside PyTorch that is c10's macro; a
// build without torch (the GPU tests) defines BATCHED_NATIVE_NO_TORCH and gets an exception
// instead.
#ifndef BATCHED_NATIVE_NO_TORCH
#include <c10/cuda/CUDAException.h>
#else
#include <cuda_runtime_api.h>
#include <stdexcept>
#include <string>

namespace at::native::batched_native {

inline void check_cuda(cudaError_t error, const char* file, int line) {
  if (error != cudaSuccess) {
    throw std::runtime_error(
        std::string("batched_native: CUDA reported ") + cudaGetErrorString(error) + " at " + file +
        ":" + std::to_string(line));
  }
}

}  // namespace at::native::batched_native

#define C10_CUDA_KERNEL_LAUNCH_CHECK() \
  ::at::native::batched_native::check_cuda(cudaGetLastError(), __FILE__, __LINE__)
#define C10_CUDA_CHECK(EXPR) ::at::native::batched_native::check_cuda((EXPR), __FILE__, __LINE__)
#endif
