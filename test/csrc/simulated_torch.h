#pragma once

// What CUDASolverLanes uses of ATen and c10, on top of the simulated CUDA runtime.

#include "simulated_cuda.h"

#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

namespace c10 {

using DeviceIndex = int8_t;

template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

namespace utils {
inline std::optional<std::string> get_env(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}
}  // namespace utils

namespace cuda {

using CaptureId_t = unsigned long long;

class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}
  operator cudaStream_t() const {
    return stream_;
  }

 private:
  cudaStream_t stream_;
};

inline DeviceIndex current_device() {
  return static_cast<DeviceIndex>(simulated::current_device());
}

inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  return CUDAStream(simulated::current_stream(device < 0 ? simulated::current_device() : device));
}

class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex device) : previous_(simulated::current_device()) {
    simulated::set_device(device);
  }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() {
    simulated::set_device(previous_);
  }

 private:
  int previous_;
};

class CUDAStreamCaptureModeGuard {
 public:
  explicit CUDAStreamCaptureModeGuard(cudaStreamCaptureMode mode) : mode_(mode) {
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  CUDAStreamCaptureModeGuard(const CUDAStreamCaptureModeGuard&) = delete;
  CUDAStreamCaptureModeGuard& operator=(const CUDAStreamCaptureModeGuard&) = delete;
  ~CUDAStreamCaptureModeGuard() {
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  cudaStreamCaptureMode mode_;
};

inline void check(cudaError_t error) {
  if (error != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error(cudaGetErrorString(error));
  }
}

}  // namespace cuda
}  // namespace c10

namespace at::cuda {

inline cusolverDnHandle_t getCurrentCUDASolverDnHandle() {
  return simulated::current_handle();
}
using c10::cuda::getCurrentCUDAStream;

namespace solver {
inline const char* cusolverGetErrorMessage(cusolverStatus_t status) {
  return status == CUSOLVER_STATUS_ALLOC_FAILED ? "CUSOLVER_STATUS_ALLOC_FAILED" : "unknown";
}
}  // namespace solver

inline void check(cusolverStatus_t status) {
  if (status != CUSOLVER_STATUS_SUCCESS) {
    throw std::runtime_error(cudaGetErrorString(cudaGetLastError()));
  }
}

}  // namespace at::cuda

#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_CLEAR_ERROR() static_cast<void>(cudaGetLastError())
#define C10_CUDA_IGNORE_ERROR(EXPR) \
  do {                              \
    if ((EXPR) != cudaSuccess) {    \
      cudaGetLastError();           \
    }                               \
  } while (0)
#define AT_CUDA_CHECK(EXPR) c10::cuda::check(EXPR)
#define TORCH_CUSOLVER_CHECK(EXPR) at::cuda::check(EXPR)

#define TORCH_WARN(...) simulated::warning(c10::str(__VA_ARGS__))
#define TORCH_WARN_ONCE(...)                                                     \
  do {                                                                           \
    [[maybe_unused]] static const bool warned = (TORCH_WARN(__VA_ARGS__), true); \
  } while (0)
#define TORCH_CHECK(CONDITION, ...)                    \
  do {                                                 \
    if (!(CONDITION)) {                                \
      throw std::runtime_error(c10::str(__VA_ARGS__)); \
    }                                                  \
  } while (0)
#define TORCH_CHECK_VALUE TORCH_CHECK
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
