#include "simulated_world.h"

#include <set>
#include <utility>

using namespace simulated;

// ---- Streams ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  Lock lock(world().mutex);
  if (!enter("cudaStreamCreateWithFlags") || !unsafe_allowed("cudaStreamCreateWithFlags", true)) {
    return me().last_error;
  }
  if (flags != cudaStreamNonBlocking) {
    violation("a stream that blocks the legacy stream was created");
  }
  *stream = new_stream(me().device);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Lock lock(world().mutex);
  if (!enter("cudaStreamDestroy") || !unsafe_allowed("cudaStreamDestroy", false)) {
    return me().last_error;
  }
  if (stream->capture || !stream->alive) {
    violation("a stream was destroyed twice or while it captures");
  }
  stream->alive = false;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock(world().mutex);
  if (!enter("cudaStreamSynchronize")) {
    return me().last_error;
  }
  if (stream->capture) {
    stream->capture->invalid = true;
    return failed(cudaErrorStreamCaptureUnsupported, "synchronised a capturing stream");
  }
  merge(me().clock, stream->clock);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Lock lock(world().mutex);
  if (!enter("cudaStreamWaitEvent")) {
    return me().last_error;
  }
  if (!stream->alive || !event->alive || !event->recorded || stream->device != event->device) {
    violation("cudaStreamWaitEvent: destroyed, never recorded, or of different devices");
    return failed(cudaErrorInvalidResourceHandle, "invalid resource handle");
  }
  if (event->capture && !event->capture->active) {
    violation("cudaStreamWaitEvent: the event was recorded in a capture that has ended");
    return failed(cudaErrorCapturedEvent, "event of an ended capture");
  }
  if ((stream->capture && stream->capture->invalid) ||
      (event->capture && event->capture->invalid)) {
    return failed(cudaErrorStreamCaptureInvalidated, "capture invalidated");
  }
  if (stream->capture) {
    if (stream->capture != event->capture) {
      stream->capture->invalid = true;
      violation("cudaStreamWaitEvent: a capture would depend on work outside it");
      return failed(cudaErrorStreamCaptureIsolation, "capture isolation");
    }
    merge(stream->captured_clock, event->clock);
  } else if (event->capture) {
    join_capture(stream, *event->capture, event->clock);
  } else {
    merge(stream->clock, event->clock);
  }
  return cudaSuccess;
}

// ---- Captures and graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  Lock lock(world().mutex);
  enter("cudaStreamBeginCapture", false);
  if (stream->capture) {
    return failed(cudaErrorInvalidValue, "the stream captures already");
  }
  auto& capture = world().captures.emplace_back();
  capture.id = ++world().captures_begun;
  capture.origin = stream;
  capture.mode = mode;
  capture.thread = this_thread();
  join_capture(stream, capture, {});
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, int* graph) {
  Lock lock(world().mutex);
  enter("cudaStreamEndCapture", false);
  auto* const capture = stream->capture;
  if (!capture || capture->origin != stream) {
    return failed(cudaErrorInvalidValue, "not the origin of a capture");
  }
  bool joined = true;
  for (auto* const member : capture->members) {
    for (const auto& [line, count] : member->captured_clock) {
      joined = joined && covers(stream->captured_clock, line, count);
    }
    member->capture = nullptr;
  }
  capture->active = false;
  if (capture->invalid) {
    return failed(cudaErrorStreamCaptureInvalidated, "capture invalidated");
  }
  if (!joined) {
    return failed(cudaErrorStreamCaptureUnjoined, "capture unjoined");
  }
  *graph = static_cast<int>(capture->id);
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id) {
  Lock lock(world().mutex);
  if (!enter("cudaStreamGetCaptureInfo")) {
    return me().last_error;
  }
  if (!stream->alive) {
    violation("cudaStreamGetCaptureInfo: destroyed stream");
  }
  if (!stream->capture) {
    *status = cudaStreamCaptureStatusNone;
  } else {
    *status = stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
    *id = stream->capture->id;
  }
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  Lock lock(world().mutex);
  enter("cudaThreadExchangeStreamCaptureMode", false);
  std::swap(*mode, me().mode);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(int graph, cudaStream_t stream) {
  Lock lock(world().mutex);
  enter("cudaGraphLaunch", false);
  const auto& capture = world().captures.at(static_cast<size_t>(graph - 1));
  merge(stream->clock, me().clock);
  // Graphs may share memory, so whoever replays them puts the replays in order.
  merge(stream->clock, world().last_replay);
  std::map<int, int> lines;
  const Clock before = stream->clock;
  for (auto op : capture.ops) {
    Clock clock = before;
    for (const auto& [line, count] : op.clock) {
      auto& replayed = lines[line];
      replayed = replayed ? replayed : ++world().lines;
      clock[replayed] = count;
    }
    op.line = lines.at(op.line);
    op.clock = clock;
    op.name += " (replayed)";
    run(op);
    merge(stream->clock, clock);
  }
  world().last_replay = stream->clock;
  return cudaSuccess;
}

// ---- Events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  Lock lock(world().mutex);
  if (!enter("cudaEventCreateWithFlags") || !unsafe_allowed("cudaEventCreateWithFlags", true)) {
    return me().last_error;
  }
  *event = &world().events.emplace_back();
  (*event)->device = me().device;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Lock lock(world().mutex);
  if (!enter("cudaEventDestroy") || !unsafe_allowed("cudaEventDestroy", false)) {
    return me().last_error;
  }
  if (!event->alive) {
    violation("an event was destroyed twice");
  }
  event->alive = false;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Lock lock(world().mutex);
  if (!enter("cudaEventRecord")) {
    return me().last_error;
  }
  if (!stream->alive || !event->alive || stream->device != event->device) {
    violation("cudaEventRecord: destroyed, or of different devices");
    return failed(cudaErrorInvalidResourceHandle, "invalid resource handle");
  }
  if (stream->capture && stream->capture->invalid) {
    return failed(cudaErrorStreamCaptureInvalidated, "capture invalidated");
  }
  event->recorded = true;
  event->capture = stream->capture;
  event->clock = stream->capture ? stream->captured_clock : stream->clock;
  return cudaSuccess;
}

// ---- Errors ----

cudaError_t cudaGetLastError() {
  Lock lock(world().mutex);
  return std::exchange(me().last_error, cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t) {
  Lock lock(world().mutex);
  // Like the real texts these live for good.
  static std::set<std::string> texts;
  return texts.insert(world().message).first->c_str();
}

// ---- cuSOLVER ----

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
  Lock lock(world().mutex);
  if (!enter("cusolverDnCreate") || !unsafe_allowed("cusolverDnCreate", true)) {
    return CUSOLVER_STATUS_ALLOC_FAILED;
  }
  if (live_handles(me().device) >= world().handle_capacity) {
    failed(cudaErrorMemoryAllocation, "out of memory");
    return CUSOLVER_STATUS_ALLOC_FAILED;
  }
  *handle = &world().handles.emplace_back();
  (*handle)->device = me().device;
  (*handle)->number = static_cast<int>(world().handles.size());
  (*handle)->auxiliary = true;
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
  Lock lock(world().mutex);
  // Destruction frees memory; whether it can fail is of no interest, nobody could do anything.
  enter("cusolverDnDestroy", false);
  unsafe_allowed("cusolverDnDestroy", false);
  if (!handle->alive || !handle->auxiliary) {
    violation("a handle was destroyed twice, or one that belongs to others");
  }
  if (handle->device != me().device) {
    violation("a handle was destroyed while another device is current");
  }
  for (const auto& [what, ops] : world().log) {
    for (const auto& op : ops) {
      if (op.handle == handle && !covers(me().clock, op.line, op.count)) {
        violation("a handle was destroyed while " + op.name + " may still run");
      }
    }
  }
  handle->alive = false;
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
  Lock lock(world().mutex);
  if (!enter("cusolverDnSetStream")) {
    return CUSOLVER_STATUS_ALLOC_FAILED;
  }
  if (!handle->alive || !stream->alive || handle->device != stream->device) {
    violation("cusolverDnSetStream: destroyed, or of different devices");
  }
  handle->stream = stream;
  return CUSOLVER_STATUS_SUCCESS;
}
