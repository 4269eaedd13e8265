#include <ATen/native/cuda/linalg/LoopLanes.h>

#if defined(CUDART_VERSION) && !defined(USE_ROCM)

#include <atomic>

namespace at::native::solver_lanes {
namespace {

std::atomic<bool>& streams_always() {
  static std::atomic<bool> instance{false};
  return instance;
}

}  // namespace

int loop_lanes(Loop loop, int64_t n, int64_t batch) {
  const bool wanted =
      streams_gain(loop, n, batch) || streams_always().load(std::memory_order_relaxed);
  return wanted ? available_lanes(batch) : 1;
}

void set_streams_always(bool always) {
  streams_always().store(always, std::memory_order_relaxed);
}

}  // namespace at::native::solver_lanes

#endif  // defined(CUDART_VERSION) && !defined(USE_ROCM)
