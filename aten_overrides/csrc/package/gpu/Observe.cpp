#include "Observe.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace aten_overrides::gpu {
namespace {

std::atomic<uint64_t> counters[kOps][kRoutes];

// ---- Log ----

std::atomic<aten_overrides_gpu_log> log_function{nullptr};
std::atomic<int> log_level{0};

// A fallback is told once per operation and reason. Reasons are static strings, so few pointers.
struct Told {
  std::mutex mutex;
  std::vector<std::pair<int, const char*>> reasons;

  bool is_new(int op, const char* reason) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const auto& [known_op, known_reason] : reasons) {
      if (known_op == op && known_reason == reason) {
        return false;
      }
    }
    reasons.emplace_back(op, reason);
    return true;
  }
};
Told told;

void log(const aten_overrides_gpu_call& call) {
  const int level = log_level.load(std::memory_order_relaxed);
  if (level <= 0 ||
      (level == 1 && (call.reason == nullptr || !told.is_new(call.op, call.reason)))) {
    return;
  }
  if (const auto function = log_function.load()) {
    function(&call);
  }
}

// ---- Profile ----

struct Events {
  cudaEvent_t before = nullptr;
  cudaEvent_t after = nullptr;

  // Null on failure: the call is then kept without a time.
  static std::unique_ptr<Events> create() {
    auto events = std::make_unique<Events>();
    if (C10_CUDA_ERROR_HANDLED(cudaEventCreate(&events->before)) != cudaSuccess ||
        C10_CUDA_ERROR_HANDLED(cudaEventCreate(&events->after)) != cudaSuccess) {
      C10_CUDA_CLEAR_ERROR();
      return nullptr;
    }
    return events;
  }

  ~Events() {
    for (const auto event : {before, after}) {
      if (event != nullptr) {
        C10_CUDA_IGNORE_ERROR(cudaEventDestroy(event));
      }
    }
  }
};

struct Kept {
  aten_overrides_gpu_call call;
  std::unique_ptr<Events> events;
  c10::DeviceIndex device = -1;
  bool ended = false;
};

struct Profile {
  std::atomic<bool> on{false};
  std::mutex mutex;
  std::vector<Kept> kept;  // guarded by mutex, like all that follows
  int64_t capacity = 0;
  int64_t dropped = 0;
  uint64_t session = 0;
};

Profile& profile() {
  static Profile* const instance =
      new Profile;  // calls of other threads may outlast static objects
  return *instance;
}

bool record(cudaEvent_t event) {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  if (C10_CUDA_ERROR_HANDLED(cudaEventRecord(event, stream)) != cudaSuccess) {
    C10_CUDA_CLEAR_ERROR();
    return false;
  }
  return true;
}

[[noreturn]] void refuse_fallback(const aten_overrides_gpu_call& call) {
  TORCH_CHECK(
      false,
      "aten_overrides, strict: ",
      op_name(call.op),
      " of ",
      call.batch,
      " matrices ",
      call.m,
      " x ",
      call.n,
      " was to run on ",
      route_name(call.wanted),
      ", which is not possible here (",
      call.reason,
      "); ",
      route_name(call.route),
      " would be the next choice. Remove the cause, or enable without strict=True.");
}

}  // namespace

Observed::Observed(const aten_overrides_gpu_call& call) {
  if (call.reason != nullptr && strict()) {
    refuse_fallback(call);
  }
  counters[call.op][call.route].fetch_add(1, std::memory_order_relaxed);
  if (log_level.load(std::memory_order_relaxed) > 0) {
    log(call);
  }
  if (!profile().on.load(std::memory_order_relaxed)) {
    return;
  }
  Kept kept{call, nullptr};
  kept.call.ms = -1;
  try {
    kept.device = c10::cuda::current_device();
    // An event recorded in a capture has no time.
    const bool capturing =
        c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    kept.call.capturing = capturing ? 1 : 0;
    if (!capturing) {
      kept.events = Events::create();
      if (kept.events && !record(kept.events->before)) {
        kept.events.reset();
      }
    }
  } catch (const c10::Error&) {
    kept.events.reset();  // what is wrong with the device is for the operation itself to say
  }
  const std::lock_guard<std::mutex> lock(profile().mutex);
  if (static_cast<int64_t>(profile().kept.size()) >= profile().capacity) {
    ++profile().dropped;
    return;
  }
  kept_ = static_cast<int64_t>(profile().kept.size());
  session_ = profile().session;
  profile().kept.push_back(std::move(kept));
}

Observed::~Observed() {
  if (kept_ < 0) {
    return;
  }
  const std::lock_guard<std::mutex> lock(profile().mutex);
  if (profile().session != session_) {
    return;  // taken since
  }
  Kept& kept = profile().kept[static_cast<size_t>(kept_)];
  kept.ended = !kept.events || record(kept.events->after);
}

uint64_t count(int op, int route) {
  return op >= 0 && op < kOps && route >= 0 && route < kRoutes
             ? counters[op][route].load(std::memory_order_relaxed)
             : 0;
}

void set_log(aten_overrides_gpu_log log, int level) {
  log_level.store(0);
  log_function.store(log);
  log_level.store(log != nullptr ? level : 0);
}

void profile_start(int64_t capacity) {
  const std::lock_guard<std::mutex> lock(profile().mutex);
  profile().kept.clear();
  profile().kept.reserve(static_cast<size_t>(std::min<int64_t>(capacity, 4096)));
  profile().capacity = capacity;
  profile().dropped = 0;
  ++profile().session;
  profile().on.store(true);
}

void profile_stop() {
  profile().on.store(false);
}

int64_t profile_take(aten_overrides_gpu_call* calls, int64_t size, int64_t* dropped) {
  std::vector<Kept> taken;
  {
    const std::lock_guard<std::mutex> lock(profile().mutex);
    taken.swap(profile().kept);
    *dropped = profile().dropped;
    profile().dropped = 0;
    ++profile().session;
  }
  int64_t place = 0;
  for (Kept& kept : taken) {
    if (kept.events && kept.ended) {
      const c10::cuda::CUDAGuard guard(kept.device);
      float ms = -1;
      if (C10_CUDA_ERROR_HANDLED(cudaEventSynchronize(kept.events->after)) == cudaSuccess &&
          C10_CUDA_ERROR_HANDLED(
              cudaEventElapsedTime(&ms, kept.events->before, kept.events->after)) == cudaSuccess) {
        kept.call.ms = ms;
      } else {
        C10_CUDA_CLEAR_ERROR();
      }
    }
    if (place < size) {
      calls[place++] = kept.call;
    }
  }
  return static_cast<int64_t>(taken.size());
}

}  // namespace aten_overrides::gpu
