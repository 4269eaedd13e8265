// For tests: the device's size, and what another thread does between this thread's preparations of
// a launch and the launch.
#include <cuda_runtime_api.h>

namespace {
void nothing() {}
}  // namespace

extern "C" {

// The device has so many multiprocessors from now on.
__attribute__((visibility("default"))) void simulated_set_multiprocessors(int count) {
  simulated::multiprocessors = count;
}

// Calls `call` just before launch number `after` (0: the next one) from now, once.
__attribute__((visibility("default"))) void simulated_interrupt(void (*call)(), int after) {
  simulated::interrupt = call;
  simulated::before_interrupt = after;
}

// How many launches before it are still to come, -1 when it was called.
__attribute__((visibility("default"))) int simulated_interrupt_left() {
  return simulated::interrupt != nullptr ? simulated::before_interrupt : -1;
}

// The error of a launch with `shared` bytes after `allowed` (if not 0) were set for its kernel.
__attribute__((visibility("default"))) int simulated_try_launch(int shared, int allowed) {
  simulated::allowed.erase(simulated::address(nothing));
  if (allowed != 0) {
    const cudaError_t error = cudaFuncSetAttribute(
        simulated::address(nothing), cudaFuncAttributeMaxDynamicSharedMemorySize, allowed);
    if (error != cudaSuccess) {
      return error;
    }
  }
  simulated_launch(simulated::address(nothing), 1, 32, shared, nothing);
  return cudaGetLastError();
}

}  // extern "C"
