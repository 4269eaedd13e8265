#pragma once

#include <cstdint>

#include <cuda_runtime.h>

// Blocks of a cluster (compute capability 9.0) that write into each other's shared memory.
// Elsewhere the code compiles, does nothing and is not launched: clusters_usable() in
// ClusterLaunch.h.
namespace at::native::batched_native {

#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 900 || __CUDACC_VER_MAJOR__ < 12)
constexpr bool kHasClusters = false;
__device__ __forceinline__ void* cluster_map(void* here, int) {
  return here;
}
__device__ __forceinline__ void cluster_meet() {}
__device__ __forceinline__ void start_signal(uint64_t*, int) {}
__device__ __forceinline__ void signals_started() {}
__device__ __forceinline__ void give_signal(uint64_t*, int) {}
__device__ __forceinline__ void await_signal(uint64_t*, int) {}
#else
constexpr bool kHasClusters = true;

// Where block `rank` of the cluster has what this one has at `here`, in shared memory.
__device__ __forceinline__ void* cluster_map(void* here, int rank) {
  return __cluster_map_shared_rank(here, rank);
}
// All threads of all blocks.
__device__ __forceinline__ void cluster_meet() {
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
// A signal is complete, and its next use begins, when `count` threads of the cluster have given it.
__device__ __forceinline__ void start_signal(uint64_t* here, int count) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(here));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void signals_started() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// To block `rank`; what this thread wrote before (and others, if they met it since) is seen by who
// awaits the signal.
__device__ __forceinline__ void give_signal(uint64_t* here, int rank) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(here));
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" ::"r"(at),
      "r"(rank)
      : "memory");
}
// The signal's use number `use`, counted from 0: only its parity matters.
__device__ __forceinline__ void await_signal(uint64_t* here, int use) {
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(here));
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; "
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(at), "r"(use % 2)
        : "memory");
  }
}
#endif

}  // namespace at::native::batched_native
