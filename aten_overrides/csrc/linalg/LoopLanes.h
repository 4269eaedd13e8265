#pragma once

// What a loop of cuSOLVER calls over a batch needs to run on auxiliary streams, besides
// CUDASolverLanes.h: how many lanes it gets, and memory that exists once for each of them.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <ATen/native/cuda/linalg/LoopThresholds.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <cstdint>

namespace at::native::solver_lanes {

#if !defined(USE_ROCM)

// available_lanes(batch) where LoopThresholds.h says that streams gain, else 1.
int loop_lanes(Loop loop, int64_t n, int64_t batch);

// For measurements: whether all loops use auxiliary streams, whatever the thresholds say.
void set_streams_always(bool always);

#else

inline int loop_lanes(Loop /*loop*/, int64_t /*n*/, int64_t /*batch*/) {
  return 1;
}

#endif  // !defined(USE_ROCM)

// A workspace for each lane. It is allocated on the current stream, and released there after the
// join, as CUDASolverLanes.h asks for.
class LaneWorkspace {
 public:
  // As aligned as allocations are.
  LaneWorkspace(c10::Allocator& allocator, size_t bytes, int lanes)
      : stride_((bytes + kAlignment - 1) / kAlignment * kAlignment),
        memory_(allocator.allocate(stride_ * static_cast<size_t>(lanes))) {}

  static LaneWorkspace on_device(size_t bytes, int lanes) {
    return {*at::cuda::getCUDADeviceAllocator(), bytes, lanes};
  }

  static LaneWorkspace on_host(size_t bytes, int lanes) {
    return {*c10::GetCPUAllocator(), bytes, lanes};
  }

  template <class T = void>
  T* of(const Lane& lane) const {
    char* const start = static_cast<char*>(memory_.get());
    return reinterpret_cast<T*>(start + stride_ * static_cast<size_t>(lane.index));
  }

 private:
  static constexpr size_t kAlignment = 256;

  size_t stride_;
  c10::DataPtr memory_;
};

}  // namespace at::native::solver_lanes
