// A stand-in for the CUDA runtime that runs one block, or one cluster of blocks, at a time on the
// host: every thread is a fibre, barriers and warp operations switch between them. Only what the LU
// kernels use. It checks what a GPU leaves undefined: all 32 lanes must meet in the same warp
// operation, all threads in a barrier.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

using std::isinf;
using std::max;
using std::min;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __align__(n)
#define __shared__ static

using cudaStream_t = void*;
using cudaError_t = int;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
enum cudaDeviceAttr {
  cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrClusterLaunch
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
struct cudaFuncAttributes {
  size_t sharedSizeBytes;
  int binaryVersion;
  int ptxVersion;
};
#define CUDART_VERSION 13000

namespace simulated {
constexpr int kMostShared = 232448;         // of a block, when the kernel allows it
constexpr int kShared = 48 * 1024;          // when it does not say
inline std::map<const void*, int> allowed;  // by kernel
inline int multiprocessors = 132;           // few make a small batch a large one
inline cudaError_t last_error = cudaSuccess;
// Called once, just before a launch, as if another thread came between; so many launches go first.
inline void (*interrupt)() = nullptr;
inline int before_interrupt = 0;
template <typename Kernel>
const void* address(Kernel* kernel) {
  return reinterpret_cast<const void*>(kernel);
}
}  // namespace simulated

inline const char* cudaGetErrorString(cudaError_t) {
  return "invalid argument";
}
inline cudaError_t cudaGetLastError() {
  return std::exchange(simulated::last_error, cudaSuccess);
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? simulated::multiprocessors
           : attribute == cudaDevAttrClusterLaunch     ? 1
                                                       : simulated::kMostShared;
  return cudaSuccess;
}
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->sharedSizeBytes = 0;
  attributes->binaryVersion = 90;
  attributes->ptxVersion = 90;
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute, int value) {
  if (value < 0 || value > simulated::kMostShared) {
    return cudaErrorInvalidValue;
  }
  simulated::allowed[simulated::address(kernel)] = value;
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}

namespace simulated {

struct Index {
  unsigned x = 0;
};

struct Meeting {  // of the threads of a warp or a block
  int arrived = 0;
  uint64_t generation = 0;
  const char* what = nullptr;
  uint64_t given[2][32] = {};
};

struct Fibre {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
};

struct Signal {  // an mbarrier
  int threads = 1, bytes = 0;
  uint64_t phase = 0;
};

struct Block {
  std::map<uint32_t, Signal> signals;  // by place in shared memory
  std::vector<Fibre> fibres;
  std::vector<Meeting> warps;
  Meeting all;
  Meeting named[16];  // barriers of some threads only
  std::vector<unsigned char> shared;
  unsigned index = 0;
  int current = 0;
};

inline std::vector<Block>* cluster = nullptr;  // the blocks that run now
inline Block* block = nullptr;                 // that of the current thread
inline Meeting cluster_meeting;
inline ucontext_t scheduler;
inline std::function<void()> body;
inline uint64_t progress = 0;

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "simulated device: %s\n", what);
  std::abort();
}

inline void pause() {
  swapcontext(&block->fibres[block->current].context, &scheduler);
}

inline int meet(Meeting& meeting, int size, const char* what, int place, uint64_t value) {
  if (meeting.arrived > 0 && meeting.what != what && std::strcmp(meeting.what, what) != 0) {
    fail("threads of one warp are in different operations");
  }
  const uint64_t mine = meeting.generation;
  meeting.what = what;
  if (place >= 0) {
    meeting.given[mine % 2][place] = value;
  }
  ++progress;
  if (++meeting.arrived == size) {
    meeting.arrived = 0;
    ++meeting.generation;
  } else {
    while (meeting.generation == mine) {
      pause();
    }
  }
  return static_cast<int>(mine % 2);
}

template <typename T>
uint64_t bits(T value) {
  uint64_t packed = 0;
  std::memcpy(&packed, &value, sizeof(T));
  return packed;
}
template <typename T>
T value_of(uint64_t packed) {
  T value;
  std::memcpy(&value, &packed, sizeof(T));
  return value;
}

inline const uint64_t* exchange(const char* what, uint64_t value) {
  const int warp = block->current / 32;
  const int which = meet(block->warps[warp], 32, what, block->current % 32, value);
  return block->warps[warp].given[which];
}

}  // namespace simulated

inline simulated::Index threadIdx, blockIdx, blockDim;

inline void simulated_entry() {
  simulated::body();
  simulated::block->fibres[simulated::block->current].done = true;
  ++simulated::progress;
  simulated::pause();
}

// Runs `body` for every thread of every block, in order of clusters of `size` blocks. More shared
// memory than the kernel allows at this moment is the error of a launch: nothing runs.
inline void simulated_launch(
    const void* kernel,
    unsigned grid,
    int threads,
    size_t shared,
    const std::function<void()>& body,
    unsigned size = 1) {
  if (simulated::interrupt != nullptr && simulated::before_interrupt-- == 0) {
    std::exchange(simulated::interrupt, nullptr)();
  }
  if (threads % 32 != 0 || threads > 1024 || shared > simulated::kMostShared || grid % size != 0 ||
      size > 8) {
    simulated::fail("launch out of bounds");
  }
  const auto allowed = simulated::allowed.find(kernel);
  if (shared > static_cast<size_t>(
                   allowed == simulated::allowed.end() ? simulated::kShared : allowed->second)) {
    simulated::last_error = cudaErrorInvalidValue;
    return;
  }
  simulated::body = body;
  blockDim.x = static_cast<unsigned>(threads);
  for (unsigned first = 0; first < grid; first += size) {
    std::vector<simulated::Block> cluster(size);
    simulated::cluster = &cluster;
    for (unsigned rank = 0; rank < size; ++rank) {
      simulated::Block& block = cluster[rank];
      block.index = first + rank;
      block.fibres.resize(threads);
      block.warps.resize(threads / 32);
      block.shared.assign(shared + 64, 0xff);  // NaN, as a reminder to write before reading
      for (auto& fibre : block.fibres) {
        constexpr size_t kStack = 64 * 1024;
        fibre.stack = std::make_unique<char[]>(kStack);
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = fibre.stack.get();
        fibre.context.uc_stack.ss_size = kStack;
        makecontext(&fibre.context, simulated_entry, 0);
      }
    }
    for (bool running = true; running;) {
      running = false;
      const uint64_t before = simulated::progress;
      for (auto& block : cluster) {
        simulated::block = &block;
        blockIdx.x = block.index;
        for (int t = 0; t < threads; ++t) {
          if (!block.fibres[t].done) {
            running = true;
            block.current = t;
            threadIdx.x = static_cast<unsigned>(t);
            swapcontext(&simulated::scheduler, &block.fibres[t].context);
          }
        }
      }
      if (running && simulated::progress == before) {
        simulated::fail("threads wait for each other for ever");
      }
    }
    for (const auto& block : cluster) {
      for (size_t i = shared; i < shared + 64; ++i) {
        if (block.shared[i] != 0xff) {
          simulated::fail("a write past the shared memory");
        }
      }
    }
  }
}

struct cudaLaunchAttribute {
  int id;
  struct {
    struct {
      unsigned x, y, z;
    } clusterDim;
  } val;
};
enum { cudaLaunchAttributeClusterDimension };
struct cudaLaunchConfig_t {
  simulated::Index gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int* count, Kernel*, const cudaLaunchConfig_t*) {
  *count = 1;
  return cudaSuccess;
}
template <typename Argument>
cudaError_t cudaLaunchKernelEx(
    const cudaLaunchConfig_t* config, void (*kernel)(Argument), const Argument& argument) {
  simulated_launch(
      simulated::address(kernel),
      config->gridDim.x,
      static_cast<int>(config->blockDim.x),
      config->dynamicSmemBytes,
      [&] { kernel(argument); },
      config->attrs[0].val.clusterDim.x);
  return cudaGetLastError();
}
inline unsigned char* simulated_shared() {
  return simulated::block->shared.data();
}

inline void __syncthreads() {
  simulated::meet(
      simulated::block->all,
      static_cast<int>(simulated::block->fibres.size()),
      "__syncthreads",
      -1,
      0);
}
inline void __syncwarp() {
  simulated::exchange("__syncwarp", 0);
}
// bar.sync of some of a block's threads.
inline void simulated_barrier(int index, int threads) {
  simulated::meet(simulated::block->named[index], threads, "bar.sync", -1, 0);
}
// Clusters. Places in shared memory are counted from its beginning.
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline size_t __cvta_generic_to_shared(const void* here) {
  return static_cast<const unsigned char*>(here) - simulated::block->shared.data();
}
inline void __cluster_barrier_arrive() {}
inline void __cluster_barrier_wait() {
  simulated::meet(
      simulated::cluster_meeting,
      static_cast<int>(simulated::cluster->size() * simulated::block->fibres.size()),
      "cluster barrier",
      -1,
      0);
}
inline void simulated_start_signal(uint32_t at) {
  simulated::block->signals[at] = {};
}
// `threads` and `bytes` that a signal waits for, which may be negative: some came before.
inline void simulated_count(simulated::Block& block, uint32_t at, int threads, int bytes) {
  if (block.signals.find(at) == block.signals.end()) {
    simulated::fail("a signal before it was started");
  }
  ++simulated::progress;
  simulated::Signal& signal = block.signals[at];
  signal.threads -= threads;
  signal.bytes += bytes;
  if (signal.threads == 0 && signal.bytes == 0) {
    signal.threads = 1;
    ++signal.phase;
  }
}
inline void simulated_expect(uint32_t at, int bytes) {
  simulated_count(*simulated::block, at, 1, bytes);
}
template <typename Piece>
void simulated_send(uint32_t to, const Piece& piece, int rank, uint32_t with) {
  simulated::Block& block = (*simulated::cluster)[rank];
  if (to % sizeof(Piece) != 0 || to + sizeof(Piece) > block.shared.size()) {
    simulated::fail("a piece sent to a wrong place");
  }
  std::memcpy(block.shared.data() + to, &piece, sizeof(Piece));
  simulated_count(block, with, 0, -static_cast<int>(sizeof(Piece)));
}
inline uint32_t simulated_await(uint32_t at, int parity) {
  const simulated::Signal& signal = simulated::block->signals[at];
  if (static_cast<int>(signal.phase % 2) == parity) {
    simulated::pause();
  }
  return static_cast<int>(signal.phase % 2) != parity ? 1 : 0;
}
inline uint32_t __reduce_max_sync(unsigned, uint32_t x) {
  const uint64_t* all = simulated::exchange("__reduce_max_sync", x);
  return static_cast<uint32_t>(*std::max_element(all, all + 32));
}
inline uint32_t __reduce_min_sync(unsigned, uint32_t x) {
  const uint64_t* all = simulated::exchange("__reduce_min_sync", x);
  return static_cast<uint32_t>(*std::min_element(all, all + 32));
}
inline unsigned __ballot_sync(unsigned, bool x) {
  const uint64_t* all = simulated::exchange("__ballot_sync", x);
  unsigned mask = 0;
  for (int lane = 0; lane < 32; ++lane) {
    mask |= static_cast<unsigned>(all[lane]) << lane;
  }
  return mask;
}
inline unsigned __match_any_sync(unsigned, int x) {
  const uint64_t* all = simulated::exchange("__match_any_sync", simulated::bits(x));
  unsigned mask = 0;
  for (int lane = 0; lane < 32; ++lane) {
    mask |= static_cast<unsigned>(all[lane] == simulated::bits(x)) << lane;
  }
  return mask;
}
template <typename T>
T __shfl_sync(unsigned, T x, int source, int width) {
  const int lane = simulated::block->current % 32;
  const uint64_t* all = simulated::exchange("__shfl_sync", simulated::bits(x));
  return simulated::value_of<T>(all[lane / width * width + source % width]);
}
template <typename T>
T __shfl_xor_sync(unsigned, T x, int step, int width) {
  const int lane = simulated::block->current % 32;
  const uint64_t* all = simulated::exchange("__shfl_xor_sync", simulated::bits(x));
  return simulated::value_of<T>(all[lane / width * width + ((lane % width) ^ step)]);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline int __ffs(unsigned x) {
  return __builtin_ffs(static_cast<int>(x));
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fmaf(a, b, c);
}
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline uint32_t __float_as_uint(float x) {
  return static_cast<uint32_t>(simulated::bits(x));
}
inline float __uint_as_float(uint32_t x) {
  return simulated::value_of<float>(x);
}
inline long long __double_as_longlong(double x) {
  return static_cast<long long>(simulated::bits(x));
}
inline int __double2hiint(double x) {
  return static_cast<int>(simulated::bits(x) >> 32);
}
inline double __hiloint2double(int high, int low) {
  return simulated::value_of<double>(
      static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low));
}
inline int atomicMin(int* to, int value) {
  const int before = *to;
  *to = std::min(before, value);
  return before;
}
