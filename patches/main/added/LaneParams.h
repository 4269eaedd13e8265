#pragma once

// Settings objects of cuSOLVER's 64-bit routines, one for each auxiliary stream.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>

#include <memory>
#include <type_traits>
#include <vector>

namespace at::native::solver_lanes {

class LaneParams {
 public:
  explicit LaneParams(int lanes) {
    for (int lane = 0; lane < lanes; lane++) {
      cusolverDnParams_t params = nullptr;
      TORCH_CUSOLVER_CHECK(cusolverDnCreateParams(&params));
      params_.emplace_back(params);
    }
  }
  cusolverDnParams_t of(const Lane& lane) const {
    return params_[lane.index].get();
  }
  cusolverDnParams_t first() const {
    return params_.front().get();
  }

 private:
  struct Destroy {
    void operator()(cusolverDnParams_t params) const {
      cusolverDnDestroyParams(params);
    }
  };

  std::vector<std::unique_ptr<std::remove_pointer_t<cusolverDnParams_t>, Destroy>> params_;
};

}  // namespace at::native::solver_lanes
