#pragma once

// The interface's structures, and the streams with their handles.

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// What a call works on; matrices of a batch follow one another, column by column.
struct lanes_problem {
  int32_t op, dtype;
  int64_t batch, m, n, nrhs;
  void* a;               // batch x (m x n)
  void* b;               // right-hand sides batch x (m x nrhs), or U
  void* c;               // tau, singular values or eigenvalues
  void* d;               // V or the eigenvectors
  const void* source_a;  // copied to `a` before each call; null: `a` is read only
  const void* source_b;  // likewise for `b`
  int32_t* pivots;
  int32_t* infos;
  void* stream;
};

// What a run took: the device between the events around copy and calls, the host to enqueue them.
struct lanes_times {
  double device_ms, host_ms;
};

namespace lanes {

constexpr int kMostLanes = 16;
constexpr size_t kAlignment = 256;

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

inline void check(cusolverStatus_t status, const char* what) {
  if (status != CUSOLVER_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(what) + ": cuSOLVER status " + std::to_string(status));
  }
}

inline void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(what) + ": cuBLAS status " + std::to_string(status));
  }
}

#define CHECKED(call) check(call, #call)

// ---- Memory, streams and handles ----

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    CHECKED(cudaMalloc(&data_, std::max<size_t>(bytes, 1)));
  }
  ~DeviceMemory() {
    cudaFree(data_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  char* get() const {
    return static_cast<char*>(data_);
  }

 private:
  void* data_ = nullptr;
};

struct Lane {
  cudaStream_t stream = nullptr;
  cusolverDnHandle_t handle = nullptr;
  cusolverDnParams_t params = nullptr;
  gesvdjInfo_t jacobi = nullptr;
  cudaEvent_t event = nullptr;
  // Of the present problem.
  char* work = nullptr;
  char* host = nullptr;
  int32_t* info = nullptr;
};

struct World {
  std::vector<Lane> lanes;
  cublasHandle_t cublas = nullptr;
  cudaEvent_t start = nullptr, end = nullptr;

  Lane& lane(int index) {
    while (static_cast<int>(lanes.size()) <= index) {
      Lane made;
      if (!lanes.empty()) {
        CHECKED(cudaStreamCreateWithFlags(&made.stream, cudaStreamNonBlocking));
      }
      CHECKED(cusolverDnCreate(&made.handle));
      CHECKED(cusolverDnSetStream(made.handle, made.stream));
      CHECKED(cusolverDnCreateParams(&made.params));
      CHECKED(cusolverDnCreateGesvdjInfo(&made.jacobi));
      CHECKED(cudaEventCreateWithFlags(&made.event, cudaEventDisableTiming));
      lanes.push_back(made);
    }
    return lanes[static_cast<size_t>(index)];
  }

  void bind(cudaStream_t stream) {
    Lane& first = lane(0);
    first.stream = stream;
    CHECKED(cusolverDnSetStream(first.handle, stream));
    if (cublas == nullptr) {
      CHECKED(cublasCreate(&cublas));
      CHECKED(cudaEventCreate(&start));
      CHECKED(cudaEventCreate(&end));
    }
    CHECKED(cublasSetStream(cublas, stream));
  }
};

inline World& world() {
  static World* const instance = new World;  // the end of the process frees all
  return *instance;
}

}  // namespace lanes
