#include <ATen/native/cuda/linalg/CUDASolverLanes.h>

#if defined(CUDART_VERSION) && !defined(USE_ROCM)

#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <c10/util/env.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace at::native::solver_lanes {
namespace {

constexpr const char* kOff = "auxiliary streams are turned off";
constexpr const char* kFewCalls = "there are fewer than two calls to spread";
constexpr const char* kOverLimit = "the memory limit allows no further cuSOLVER handle";
constexpr const char* kNotCreated = "no auxiliary stream with a cuSOLVER handle could be created";
constexpr const char* kCapturing =
    "the auxiliary streams do not exist yet and are not created while the current stream captures";
constexpr const char* kOtherCapture = "the auxiliary streams belong to another stream capture";
constexpr const char* kUnknownCapture =
    "the capture of the current stream is invalid, or its state cannot be told";

// ---- Limits ----

int64_t from_environment(const char* name, int64_t fallback) {
  const auto text = c10::utils::get_env(name);
  if (!text.has_value() || text->empty()) {
    return fallback;
  }
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text->c_str(), &end, 10);
  if (errno != 0 || *end != '\0' || value < 0) {
    TORCH_WARN(name, "=", *text, " is not a number >= 0; using ", fallback, ".");
    return fallback;
  }
  return value;
}

int clamp_lanes(int64_t lanes) {
  return static_cast<int>(std::min<int64_t>(lanes, kMaxLanes));
}

struct Settings {
  std::atomic<int> lanes{clamp_lanes(from_environment("TORCH_LINALG_STREAMS", 4))};
  std::atomic<int64_t> memory_mib{from_environment("TORCH_LINALG_STREAMS_MEMORY_MIB", 512)};
};

Settings& settings() {
  static Settings instance;
  return instance;
}

// ---- Streams with handles: created, lent to threads, taken back ----

struct AuxiliaryStream {
  cudaStream_t eager = nullptr;
  // Captured calls have a stream of their own. Should cuSOLVER keep memory per handle and stream, a
  // graph that replays them does not share it with calls that are launched meanwhile. And while a
  // capture is under way, calls that take no part in it can use the lane all the same.
  cudaStream_t captured = nullptr;
  cusolverDnHandle_t handle = nullptr;
  cudaStream_t bound = nullptr;  // the one of the two that handle is set to
  cudaEvent_t joined = nullptr;
  cudaEvent_t forked = nullptr;  // of a set only the first is used, for the current stream
  bool in_graph = false;         // a graph may hold calls made with handle
};

// As in CusolverDnHandlePool.cpp a thread keeps what it was given and gives it back when it ends,
// but here the number of handles is limited: whoever gets none still works, on the current stream.
struct Pool {
  struct PerDevice {
    std::vector<AuxiliaryStream> idle;
    int created = 0;
  };

  std::mutex mutex;
  std::map<c10::DeviceIndex, PerDevice> devices;  // guarded by mutex
  // Counts the events after which a thread that came away short may find more.
  std::atomic<uint64_t> generation{1};

  void give_back(c10::DeviceIndex device, std::vector<AuxiliaryStream>& streams) {
    // grow() has reserved the room: this runs in a destructor and must not throw.
    auto& idle = devices[device].idle;
    idle.insert(idle.end(), streams.begin(), streams.end());
    streams.clear();
    ++generation;
  }
};

// Leaked, as the pool of cuBLAS handles is: when static objects are destroyed, other threads may
// still use their handles, and the driver or libcusolver may be gone. The end of the process frees
// them all. To destroy them in order, call release_lanes() while CUDA is alive.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

// A thread's streams on one device.
struct StreamSet {
  std::vector<AuxiliaryStream> streams;
  // The pool's generation when this set could not be filled, and why. Tried again when it changes.
  uint64_t short_since = 0;
  const char* short_reason = nullptr;
};

class ThreadStreams {
 public:
  ThreadStreams() = default;
  ThreadStreams(const ThreadStreams&) = delete;
  ThreadStreams& operator=(const ThreadStreams&) = delete;

  ~ThreadStreams() {
    // No CUDA call: at the end of the process the driver may be gone. Work that is still queued on
    // a stream is no obstacle, the next user's calls come after it. A thread that holds none takes
    // no lock: after fork() nobody may be left to release it.
    const bool holds = std::any_of(
        sets_.begin(), sets_.end(), [](const StreamSet& set) { return !set.streams.empty(); });
    if (holds) {
      std::lock_guard<std::mutex> guard(pool().mutex);
      give_back();
    }
  }

  StreamSet& on(c10::DeviceIndex device) {
    const auto index = static_cast<size_t>(device);
    if (index >= sets_.size()) {
      sets_.resize(index + 1);
    }
    return sets_[index];
  }

  // With the pool's mutex held.
  void give_back() {
    for (size_t device = 0; device < sets_.size(); ++device) {
      if (!sets_[device].streams.empty()) {
        pool().give_back(static_cast<c10::DeviceIndex>(device), sets_[device].streams);
      }
    }
  }

 private:
  std::vector<StreamSet> sets_;
};

ThreadStreams& thread_streams() {
  thread_local ThreadStreams instance;
  return instance;
}

void destroy(const AuxiliaryStream& lane) noexcept {
  if (lane.handle) {
    cusolverDnDestroy(lane.handle);
  }
  for (const auto event : {lane.joined, lane.forked}) {
    if (event) {
      C10_CUDA_IGNORE_ERROR(cudaEventDestroy(event));
    }
  }
  for (const auto stream : {lane.eager, lane.captured}) {
    if (stream) {
      C10_CUDA_IGNORE_ERROR(cudaStreamDestroy(stream));
    }
  }
}

// Returns what failed, nullptr on success. No exception: to find no memory is not an error here.
const char* create(AuxiliaryStream& lane) {
  auto error = cudaSuccess;
  for (auto* stream : {&lane.eager, &lane.captured}) {
    if (error == cudaSuccess) {
      error = C10_CUDA_ERROR_HANDLED(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    }
  }
  for (auto* event : {&lane.joined, &lane.forked}) {
    if (error == cudaSuccess) {
      error = C10_CUDA_ERROR_HANDLED(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
  }
  auto status = CUSOLVER_STATUS_SUCCESS;
  if (error == cudaSuccess) {
    status = cusolverDnCreate(&lane.handle);
    if (status == CUSOLVER_STATUS_SUCCESS) {
      status = cusolverDnSetStream(lane.handle, lane.eager);
      lane.bound = lane.eager;
    }
  }
  if (error == cudaSuccess && status == CUSOLVER_STATUS_SUCCESS) {
    return nullptr;
  }
  destroy(lane);
  // cuSOLVER's own failed calls too: the next launch check must not find them.
  C10_CUDA_CLEAR_ERROR();
  return error != cudaSuccess ? cudaGetErrorString(error)
                              : at::cuda::solver::cusolverGetErrorMessage(status);
}

// Fills the set up to `count` streams, or as far as limits and memory allow.
void grow(StreamSet& set, c10::DeviceIndex device, size_t count) {
  const char* failure = nullptr;
  {
    // cusolverDnCreate allocates memory. While another thread captures in global mode, that would
    // fail and invalidate the other's capture. It takes no part in it, so relaxed mode is right.
    c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    std::lock_guard<std::mutex> guard(pool().mutex);
    auto& shared = pool().devices[device];
    set.streams.reserve(count);
    set.short_since = 0;
    while (set.streams.size() < count) {
      if (!shared.idle.empty()) {
        set.streams.push_back(shared.idle.back());
        shared.idle.pop_back();
        continue;
      }
      if ((shared.created + 1) * kHandleMiB > settings().memory_mib) {
        set.short_reason = kOverLimit;
        set.short_since = pool().generation;
        break;
      }
      shared.idle.reserve(shared.created + 1);
      AuxiliaryStream lane;
      failure = create(lane);
      if (failure) {
        set.short_reason = kNotCreated;
        set.short_since = pool().generation;
        break;
      }
      ++shared.created;
      set.streams.push_back(lane);
    }
  }
  // After the lock: a warning may take Python's lock.
  if (failure) {
    TORCH_WARN_ONCE(
        "Could not create an auxiliary stream with its cuSOLVER handle (",
        failure,
        "). Loops of cuSOLVER calls continue on the streams there are: slower, but right. A handle "
        "takes about ",
        kHandleMiB,
        " MiB of device memory; TORCH_LINALG_STREAMS=0 turns auxiliary streams off.");
  }
}

// The id of the capture that a stream takes part in, 0 for none (never an id), nothing when it is
// invalid or cannot be told, as for the legacy stream while a blocking stream captures.
std::optional<c10::cuda::CaptureId_t> capture_of(cudaStream_t stream) {
  auto status = cudaStreamCaptureStatusNone;
  c10::cuda::CaptureId_t id = 0;
  // The three-argument form exists from CUDA 11 to 13, whatever function it stands for.
  if (C10_CUDA_ERROR_HANDLED(cudaStreamGetCaptureInfo(stream, &status, &id)) != cudaSuccess) {
    C10_CUDA_CLEAR_ERROR();
    return std::nullopt;
  }
  switch (status) {
    case cudaStreamCaptureStatusNone:
      return 0;
    case cudaStreamCaptureStatusActive:
      return id;
    default:
      return std::nullopt;
  }
}

}  // namespace

Limits limits() {
  return {settings().lanes, settings().memory_mib};
}

void set_limits(const Limits& limits) {
  TORCH_CHECK_VALUE(
      limits.lanes >= 0 && limits.memory_mib >= 0,
      "Limits of auxiliary streams must not be negative, got lanes=",
      limits.lanes,
      " and memory_mib=",
      limits.memory_mib,
      ". Use lanes=0 to turn them off.");
  settings().lanes = clamp_lanes(limits.lanes);
  settings().memory_mib = limits.memory_mib;
  ++pool().generation;
}

int available_lanes(int64_t items, const char** reason) {
  const char* unused = nullptr;
  const char*& why = reason ? *reason : unused;
  why = nullptr;

  const auto wanted = std::min<int64_t>(settings().lanes, items);
  if (wanted < 2) {
    why = items < 2 ? kFewCalls : kOff;
    return 1;
  }
  const auto device = c10::cuda::current_device();
  const auto capture = capture_of(c10::cuda::getCurrentCUDAStream(device));
  if (!capture.has_value()) {
    why = kUnknownCapture;
    return 1;
  }
  auto& set = thread_streams().on(device);
  auto auxiliary = static_cast<size_t>(wanted - 1);
  if (set.streams.size() < auxiliary) {
    // No more than this call uses: so whatever a capture may use later has been used before.
    if (*capture == 0 && set.short_since != pool().generation) {
      grow(set, device, auxiliary);
    }
    auxiliary = set.streams.size();
    if (auxiliary == 0) {
      why = *capture == 0 ? set.short_reason : kCapturing;
      return 1;
    }
  }
  for (size_t lane = 0; *capture != 0 && lane < auxiliary; ++lane) {
    // A stream stays in the capture that it joined to its end, and cannot be in two.
    const auto other = capture_of(set.streams[lane].captured);
    if (other != 0 && other != capture) {
      why = kOtherCapture;
      return 1;
    }
  }
  return static_cast<int>(auxiliary) + 1;
}

int created_lanes(c10::DeviceIndex device) {
  std::lock_guard<std::mutex> guard(pool().mutex);
  const auto found = pool().devices.find(device);
  return found == pool().devices.end() ? 0 : found->second.created;
}

void release_lanes() {
  // Freeing memory is as unsafe for captures of other threads as allocating it, see grow().
  c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  std::lock_guard<std::mutex> guard(pool().mutex);
  thread_streams().give_back();
  for (auto& [device, shared] : pool().devices) {
    const c10::cuda::CUDAGuard device_guard(device);
    std::vector<AuxiliaryStream> kept;
    kept.reserve(shared.idle.size());
    for (const auto& lane : shared.idle) {
      if (lane.in_graph ||
          C10_CUDA_ERROR_HANDLED(cudaStreamSynchronize(lane.eager)) != cudaSuccess) {
        C10_CUDA_CLEAR_ERROR();
        kept.push_back(lane);
        continue;
      }
      destroy(lane);
      --shared.created;
    }
    std::copy(kept.begin(), kept.end(), shared.idle.begin());
    shared.idle.resize(kept.size());
  }
  ++pool().generation;
}

CUDALanes::CUDALanes(int lanes) {
  const auto current = c10::cuda::getCurrentCUDAStream();
  lanes_[0] = {at::cuda::getCurrentCUDASolverDnHandle(), current, 0};
  if (lanes < 2) {
    return;
  }
  auto& streams = thread_streams().on(c10::cuda::current_device()).streams;
  TORCH_INTERNAL_ASSERT(
      static_cast<size_t>(lanes - 1) <= streams.size() && lanes <= kMaxLanes,
      "for_each_on_lanes: asked for ",
      lanes,
      " lanes, this thread has ",
      streams.size(),
      " auxiliary streams on the current device; pass what available_lanes() returned");
  const auto capture = capture_of(current);
  TORCH_CHECK(capture.has_value(), "for_each_on_lanes: ", kUnknownCapture);
  const bool capturing = *capture != 0;
  events_[0] = streams.front().forked;
  for (int lane = 1; lane < lanes; ++lane) {
    auto& mine = streams[lane - 1];
    const auto stream = capturing ? mine.captured : mine.eager;
    if (mine.bound != stream) {
      TORCH_CUSOLVER_CHECK(cusolverDnSetStream(mine.handle, stream));
      mine.bound = stream;
    }
    mine.in_graph |= capturing;
    lanes_[lane] = {mine.handle, stream, lane};
    events_[lane] = mine.joined;
  }
}

void CUDALanes::record(int lane) {
  AT_CUDA_CHECK(cudaEventRecord(events_[lane], lanes_[lane].stream));
}

void CUDALanes::wait(int lane, int recorded) {
  AT_CUDA_CHECK(cudaStreamWaitEvent(lanes_[lane].stream, events_[recorded], 0));
}

void CUDALanes::drain(int lane) noexcept {
  // During a capture this fails as well and the capture is lost, which its end reports.
  const auto error = C10_CUDA_ERROR_HANDLED(cudaStreamSynchronize(lanes_[lane].stream));
  if (error == cudaSuccess) {
    return;
  }
  C10_CUDA_CLEAR_ERROR();
  try {
    TORCH_WARN(
        "An auxiliary stream of a linear algebra call could neither be joined to the current "
        "stream nor waited for: ",
        cudaGetErrorString(error));
  } catch (...) {
    // A warning turned into an error: the failed join itself is being raised.
  }
}

}  // namespace at::native::solver_lanes

#endif  // defined(CUDART_VERSION) && !defined(USE_ROCM)
