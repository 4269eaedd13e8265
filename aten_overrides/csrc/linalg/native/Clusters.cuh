#pragma once

#include <cstdint>

#include <cuda_runtime.h>

// Blocks of a cluster (compute capability 9.0) that write into each other's shared memory.
// Elsewhere the code compiles, does nothing and is not launched: clusters_usable() in
// ClusterLaunch.h.
namespace at::native::batched_native {

#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ < 900 || __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1201)
constexpr bool kHasClusters = false;
__device__ __forceinline__ void cluster_meet() {}
__device__ __forceinline__ void start_signal(uint64_t*) {}
__device__ __forceinline__ void signals_started() {}
__device__ __forceinline__ void expect_bytes(uint64_t*, int) {}
__device__ __forceinline__ void await_signal(uint64_t*, int) {}
template <typename Piece>
__device__ __forceinline__ void send(Piece*, Piece, int, uint64_t*) {}
#else
constexpr bool kHasClusters = true;

__device__ __forceinline__ uint32_t place_of(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
// All threads of all blocks.
__device__ __forceinline__ void cluster_meet() {
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
// A signal counts the bytes that were sent with it to this block: it is complete, and its next use
// begins, when one thread here has said how many to expect and all have come.
__device__ __forceinline__ void start_signal(uint64_t* here) {
  const uint32_t at = place_of(here);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
}
__device__ __forceinline__ void signals_started() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void expect_bytes(uint64_t* here, int bytes) {
  const uint32_t at = place_of(here);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
}
// Writes a piece to where block `rank` has `to`, and counts it with that block's signal. Nothing
// has to be waited for here: the count follows the data.
__device__ __forceinline__ void send(uint32_t* to, uint32_t piece, int rank, uint64_t* with) {
  const uint32_t at = place_of(to), signal = place_of(with);
  asm volatile(
      "{ .reg .b32 there, its; mapa.shared::cluster.u32 there, %0, %2; "
      "mapa.shared::cluster.u32 its, %3, %2; "
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, [its]; }" ::"r"(at),
      "r"(piece),
      "r"(rank),
      "r"(signal)
      : "memory");
}
__device__ __forceinline__ void send(uint64_t* to, uint64_t piece, int rank, uint64_t* with) {
  const uint32_t at = place_of(to), signal = place_of(with);
  asm volatile(
      "{ .reg .b32 there, its; mapa.shared::cluster.u32 there, %0, %2; "
      "mapa.shared::cluster.u32 its, %3, %2; "
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [there], %1, [its]; }" ::"r"(at),
      "l"(piece),
      "r"(rank),
      "r"(signal)
      : "memory");
}
__device__ __forceinline__ void send(uint4* to, uint4 piece, int rank, uint64_t* with) {
  const uint32_t at = place_of(to), signal = place_of(with);
  asm volatile(
      "{ .reg .b32 there, its; mapa.shared::cluster.u32 there, %0, %5; "
      "mapa.shared::cluster.u32 its, %6, %5; "
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [there], {%1, %2, %3, %4}, "
      "[its]; }" ::"r"(at),
      "r"(piece.x),
      "r"(piece.y),
      "r"(piece.z),
      "r"(piece.w),
      "r"(rank),
      "r"(signal)
      : "memory");
}
// The signal's use number `use`, counted from 0: only its parity matters.
__device__ __forceinline__ void await_signal(uint64_t* here, int use) {
  const uint32_t at = place_of(here);
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
