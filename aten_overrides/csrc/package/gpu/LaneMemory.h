#pragma once

// What calls of cuSOLVER that are dealt out to streams need once for every stream.

#include "SymmetricEigen.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace aten_overrides::gpu {

// A workspace of each kind and an info for every stream, which only reports a wrong argument. From
// the current stream before the lanes are forked, and released after they were joined.
class LaneMemory {
 public:
  LaneMemory(const eigen::Sizes& bytes, int lane_count)
      : bytes_(bytes),
        device_step_(aligned(bytes.device) + kAlignment),
        host_step_(aligned(bytes.host)),
        device_(at::cuda::getCUDADeviceAllocator()->allocate(
            device_step_ * static_cast<size_t>(lane_count))),
        host_(c10::GetCPUAllocator()->allocate(host_step_ * static_cast<size_t>(lane_count))) {}

  eigen::Workspace of(const at::native::solver_lanes::Lane& lane) const {
    const auto index = static_cast<size_t>(lane.index);
    return {
        static_cast<char*>(device_.get()) + index * device_step_ + kAlignment,
        static_cast<char*>(host_.get()) + index * host_step_,
        bytes_};
  }

  int* info(const at::native::solver_lanes::Lane& lane) const {
    const auto index = static_cast<size_t>(lane.index);
    return reinterpret_cast<int*>(static_cast<char*>(device_.get()) + index * device_step_);
  }

 private:
  static constexpr size_t kAlignment = 256;

  static size_t aligned(size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  eigen::Sizes bytes_;
  size_t device_step_;
  size_t host_step_;
  c10::DataPtr device_;
  c10::DataPtr host_;
};

// Settings objects, one for every stream.
class LaneParams {
 public:
  explicit LaneParams(int lane_count) {
    for (int lane = 0; lane < lane_count; ++lane) {
      params_.push_back(std::make_unique<eigen::Params>());
    }
  }
  const eigen::Params& of(const at::native::solver_lanes::Lane& lane) const {
    return *params_[static_cast<size_t>(lane.index)];
  }
  const eigen::Params& first() const {
    return *params_.front();
  }

 private:
  std::vector<std::unique_ptr<eigen::Params>> params_;
};

}  // namespace aten_overrides::gpu
