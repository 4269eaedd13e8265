#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/cuda/linalg/SolverLanes.h>

#include <algorithm>
#include <array>
#include <cstdint>

// Auxiliary streams for loops of independent cuSOLVER calls. Use:
//
//   const int lanes = solver_lanes::available_lanes(batch_size);
//   auto work = allocator.allocate(sizeof(scalar_t) * lwork * lanes);
//   solver_lanes::for_each_on_lanes(batch_size, lanes, [&](const auto& lane, int64_t i) {
//     cusolverDnSgetrf(lane.handle, ..., work_data + lwork * lane.index, ...);
//   });
//
// What the caller must keep to:
// - Whatever a call writes besides its own item (device and host workspace, info slot, params
//   object) exists once per lane and is chosen by lane.index. Items do not overlap.
// - All of it is allocated on the current stream before for_each_on_lanes and freed after it. The
//   fork puts the lanes after the allocation and the join puts the release after the lanes, so no
//   recordStream is needed and nothing is allocated on a lane while it is captured.
// - The body enqueues on lane.stream only, to which lane.handle is bound. It uses neither tensor
//   operations nor anything else that goes to the current stream, and keeps neither of the two.
// - available_lanes and for_each_on_lanes see the same current device and stream.
//
// On ROCm there is always one lane, the current stream.

namespace at::native::solver_lanes {

struct Lane {
  cusolverDnHandle_t handle;  // bound to stream
  cudaStream_t stream;
  int index;  // 0 .. lanes - 1; 0 is the current stream with the current handle
};

#if !defined(USE_ROCM)

// The largest number of lanes that can be asked for.
constexpr int kMaxLanes = 16;

// What a cuSOLVER handle is counted as. On an H200 (cuSOLVER 12.0.4) each further one takes 96 MiB
// of device memory.
constexpr int64_t kHandleMiB = 100;

struct Limits {
  int lanes;           // per call, the current stream included; 0 or 1: no auxiliary streams
  int64_t memory_mib;  // for the handles of all threads together, per device
};

// At first from the environment, read once: TORCH_LINALG_STREAMS (default 4) and
// TORCH_LINALG_STREAMS_MEMORY_MIB (default 512).
Limits limits();

// Raises ValueError for negative values; lanes beyond kMaxLanes are cut to it. The memory limit
// holds for handles still to be created; those that exist stay, see release_lanes().
void set_limits(const Limits& limits);

// How many lanes a loop over `items` calls may use now, by this thread on the current device: from
// 1 to min(items, limits().lanes). Missing handles are created here, within the limits and never
// while the current stream captures; once they exist, no lock is taken. If the answer is 1,
// `reason` is set to a text of static duration that says why, otherwise to nullptr.
int available_lanes(int64_t items, const char** reason = nullptr);

// Handles of auxiliary streams that exist on a device, over all threads.
int created_lanes(c10::DeviceIndex device);

// Destroys the auxiliary streams of this thread and of threads that have ended, on all devices,
// after waiting for their work. Those once used in a capture stay: a graph may still replay calls
// that use the handle's own memory.
void release_lanes();

// The device policy of fork_join, for the lanes of this thread on the current device.
class CUDALanes {
 public:
  explicit CUDALanes(int lanes);

  const Lane& operator[](int lane) const {
    return lanes_[lane];
  }

  void record(int lane);
  void wait(int lane, int recorded);
  void drain(int lane) noexcept;

 private:
  std::array<Lane, kMaxLanes> lanes_{};
  std::array<cudaEvent_t, kMaxLanes> events_{};
};

// Runs body(lane, item) for every item in [0, items), spread over `lanes` lanes, as many as
// available_lanes() returned: see fork_join, and above for what the body may do.
template <class Body>
void for_each_on_lanes(int64_t items, int lanes, Body&& body) {
  if (items <= 0) {
    return;
  }
  CUDALanes device(static_cast<int>(std::min<int64_t>(lanes, items)));
  fork_join(device, lanes, items, [&](int lane, int64_t item) { body(device[lane], item); });
}

#else

inline int available_lanes(int64_t /*items*/, const char** reason = nullptr) {
  if (reason) {
    *reason = "auxiliary streams are not used on ROCm";
  }
  return 1;
}

template <class Body>
void for_each_on_lanes(int64_t items, int /*lanes*/, Body&& body) {
  if (items <= 0) {
    return;
  }
  const Lane current{at::cuda::getCurrentCUDASolverDnHandle(), at::cuda::getCurrentCUDAStream(), 0};
  for (int64_t item = 0; item < items; ++item) {
    body(current, item);
  }
}

#endif  // !defined(USE_ROCM)

}  // namespace at::native::solver_lanes
