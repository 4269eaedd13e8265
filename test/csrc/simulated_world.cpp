#include "simulated_world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace simulated {

static bool ended = false;
static thread_local int thread_number = 0;

World& world() {
  static World* const instance = new World;
  return *instance;
}

int this_thread() {
  return thread_number;
}

Thread& me() {
  return world().threads[thread_number];
}

void merge(Clock& into, const Clock& from) {
  for (const auto& [line, count] : from) {
    into[line] = std::max(into[line], count);
  }
}

bool covers(const Clock& clock, int line, uint64_t count) {
  const auto found = clock.find(line);
  return found != clock.end() && found->second >= count;
}

cudaError_t failed(cudaError_t error, const std::string& message) {
  world().message = message;
  return me().last_error = error;
}

bool enter(const char* function, bool can_fail) {
  if (ended) {
    std::fprintf(stderr, "%s called at the end of the process\n", function);
    std::_Exit(70);
  }
  if (me().left) {
    violation(std::string(function) + " called while the thread's objects are destroyed");
  }
  ++world().calls[function];
  if (!can_fail) {
    return true;
  }
  for (auto& plan : world().plans) {
    if (plan.function != "any" && plan.function != function) {
      continue;
    }
    if (--plan.nth == 0 || (plan.nth < 0 && plan.for_good)) {
      failed(cudaErrorUnknown, error_text(record_failure(function)));
      return false;
    }
  }
  return true;
}

bool unsafe_allowed(const char* function, bool creates) {
  bool allowed = true;
  for (auto& capture : world().captures) {
    const bool mine = capture.thread == thread_number;
    const bool forbidden = me().mode == cudaStreamCaptureModeGlobal
                               ? capture.mode == cudaStreamCaptureModeGlobal ||
                                     (mine && capture.mode == cudaStreamCaptureModeThreadLocal)
                               : me().mode == cudaStreamCaptureModeThreadLocal && mine &&
                                     capture.mode != cudaStreamCaptureModeRelaxed;
    if (capture.active && forbidden) {
      capture.invalid = true;
      allowed = false;
    }
  }
  if (!allowed) {
    violation(std::string(function) + " is unsafe while a stream captures");
    failed(cudaErrorStreamCaptureUnsupported, "unsafe during capture");
  }
  const auto current = current_stream(me().device);
  if (creates && current->capture && current->capture->active) {
    violation(std::string(function) + " while the current stream captures");
  }
  return allowed;
}

static void check_conflicts(const Op& op, const std::vector<Op>& others) {
  for (const auto& other : others) {
    if (covers(op.clock, other.line, other.count)) {
      continue;
    }
    for (const auto& mine : op.accesses) {
      for (const auto& theirs : other.accesses) {
        if (mine.what == theirs.what && (mine.write || theirs.write)) {
          violation(op.name + " and " + other.name + " both use " + mine.what + ", in no order");
        }
      }
    }
  }
}

void run(const Op& op) {
  if (op.handle && !op.handle->alive) {
    violation(op.name + " uses a destroyed handle");
  }
  for (const auto& access : op.accesses) {
    auto& earlier = world().log[access.what];
    Op narrow = op;
    narrow.accesses = {access};
    check_conflicts(narrow, earlier);
    // What is in order before a write needs no longer be looked at.
    if (access.write) {
      earlier.clear();
    }
    earlier.push_back(std::move(narrow));
  }
}

static bool enqueue(cudaStream_t stream, Op op) {
  if (!stream->alive) {
    violation(op.name + " on a destroyed stream");
    return false;
  }
  if (stream->device != me().device) {
    violation(op.name + " on a stream of another device");
  }
  if (stream->capture) {
    if (stream->capture->invalid) {
      return false;
    }
    op.line = stream->captured_line;
    op.count = ++stream->captured_clock[op.line];
    op.clock = stream->captured_clock;
    check_conflicts(op, stream->capture->ops);
    stream->capture->ops.push_back(std::move(op));
    return true;
  }
  merge(stream->clock, me().clock);
  op.line = stream->line;
  op.count = ++stream->clock[op.line];
  op.clock = stream->clock;
  run(op);
  return true;
}

void join_capture(cudaStream_t stream, Capture& capture, const Clock& clock) {
  stream->capture = &capture;
  stream->captured_line = ++world().lines;
  stream->captured_clock = clock;
  capture.members.push_back(stream);
}

cudaStream_t new_stream(int device) {
  auto& stream = world().streams.emplace_back();
  stream.device = device;
  stream.line = ++world().lines;
  return &stream;
}

// ---- Work and memory ----

bool launch(cudaStream_t stream, const std::string& name, std::vector<Access> accesses) {
  Lock lock(world().mutex);
  return enqueue(stream, {name, 0, 0, {}, std::move(accesses), nullptr});
}

bool solver_call(
    cusolverDnHandle_t handle,
    cudaStream_t expected,
    const std::string& name,
    std::vector<Access> accesses) {
  Lock lock(world().mutex);
  if (!handle->alive) {
    violation(name + " with a destroyed handle");
    return false;
  }
  if (handle->stream != expected) {
    violation(name + ": the handle is not set to the lane's stream");
  }
  if (handle->owner != thread_number && handle->owner >= 0 &&
      !world().threads[handle->owner].left) {
    violation(name + " with a handle that another thread holds");
  }
  handle->owner = thread_number;
  accesses.push_back(
      {"memory of handle " + std::to_string(handle->number) + " for stream " +
           std::to_string(handle->stream->line),
       true});
  return enqueue(handle->stream, {name, 0, 0, {}, std::move(accesses), handle});
}

std::string allocate(cudaStream_t stream) {
  Lock lock(world().mutex);
  auto& free = world().free_blocks[{stream, stream->capture ? stream->capture->id : 0}];
  if (free.empty()) {
    return "block " + std::to_string(++world().blocks);
  }
  auto block = free.back();
  free.pop_back();
  return block;
}

void release(cudaStream_t stream, const std::string& block) {
  Lock lock(world().mutex);
  world().free_blocks[{stream, stream->capture ? stream->capture->id : 0}].push_back(block);
}

// ---- Threads ----

void enter_thread(int number) {
  Lock lock(world().mutex);
  thread_number = number;
  world().threads[number];
}

void leave_thread() {
  Lock lock(world().mutex);
  me().left = true;
}

int current_device() {
  Lock lock(world().mutex);
  return me().device;
}

void set_device(int device) {
  Lock lock(world().mutex);
  me().device = device;
}

cudaStream_t current_stream(int device) {
  Lock lock(world().mutex);
  auto& stream = me().streams[device];
  if (!stream) {
    auto& legacy = world().user_streams[{device, 0}];
    legacy = legacy ? legacy : new_stream(device);
    stream = legacy;
  }
  return stream;
}

void set_stream(int number) {
  Lock lock(world().mutex);
  auto& stream = world().user_streams[{me().device, number}];
  stream = stream ? stream : new_stream(me().device);
  me().streams[me().device] = stream;
}

cusolverDnHandle_t current_handle() {
  Lock lock(world().mutex);
  auto& handle = me().handles[me().device];
  if (!handle) {
    handle = &world().handles.emplace_back();
    handle->device = me().device;
    handle->number = static_cast<int>(world().handles.size());
  }
  handle->stream = current_stream(me().device);
  return handle;
}

void drop_handles_of_thread() {
  Lock lock(world().mutex);
  for (auto& handle : world().handles) {
    if (handle.auxiliary && handle.owner == thread_number) {
      handle.owner = -1;
    }
  }
}

// ---- Errors on demand, reports ----

void fail(const std::string& function, int nth, bool for_good) {
  Lock lock(world().mutex);
  world().plans.push_back({function, nth, for_good});
}

std::string error_text(int failure) {
  return "failure " + std::to_string(failure) + " on demand";
}

int record_failure(const std::string& function) {
  Lock lock(world().mutex);
  world().failures.push_back({++world().failures_total, function});
  return world().failures_total;
}

std::vector<Failure> take_failures() {
  Lock lock(world().mutex);
  return std::exchange(world().failures, {});
}

void set_handle_capacity(int handles) {
  Lock lock(world().mutex);
  world().handle_capacity = handles;
}

void violation(const std::string& text) {
  Lock lock(world().mutex);
  world().violations.push_back(text);
}

void warning(const std::string& text) {
  void (*handler)() = nullptr;
  {
    Lock lock(world().mutex);
    world().warnings.push_back(text);
    handler = world().warning_handler;
  }
  if (handler) {
    handler();
  }
}

void on_warning(void (*handler)()) {
  Lock lock(world().mutex);
  world().warning_handler = handler;
}

std::vector<std::string> violations() {
  Lock lock(world().mutex);
  return world().violations;
}

std::vector<std::string> warnings() {
  Lock lock(world().mutex);
  return world().warnings;
}

std::map<std::string, int> take_call_counts() {
  Lock lock(world().mutex);
  return std::exchange(world().calls, {});
}

int live_handles(int device) {
  Lock lock(world().mutex);
  return static_cast<int>(
      std::count_if(world().handles.begin(), world().handles.end(), [device](const Handle& handle) {
        return handle.auxiliary && handle.alive && handle.device == device;
      }));
}

void forgive() {
  Lock lock(world().mutex);
  for (const auto& stream : world().streams) {
    merge(me().clock, stream.clock);
  }
}

void end_of_process() {
  ended = true;
}

}  // namespace simulated
