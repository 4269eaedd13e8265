// Loops of independent cuSOLVER calls over a batch, on one stream and dealt out to several, beside
// the vendors' batched routines: for measurements, without ATen. Built and loaded by library.py.
//
// Every lane has a handle, a workspace on the device and on the host, an info and params of its
// own. Lane 0 is the caller's stream. Fork and join are those of CUDASolverLanes.

#include "lanes_decompositions.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

namespace {

using namespace lanes;

// ---- The present problem ----

struct Present {
  lanes_problem problem{};
  std::shared_ptr<void> maker;  // the calls refer to it
  Operation operation;
  std::unique_ptr<DeviceMemory> device;
  std::vector<char> host;
  size_t bytes_a = 0, bytes_b = 0;
};

std::unique_ptr<Present> present;

size_t scalar_bytes(int32_t dtype) {
  constexpr size_t kBytes[] = {4, 8, 8, 16};
  return kBytes[dtype];
}

template <class scalar>
void make(Present& made, const Lane& lane) {
  auto maker = std::make_shared<Maker<scalar>>(made.problem, lane);
  made.operation = maker->make();
  made.maker = maker;
}

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void prepare(const lanes_problem& problem, int lane_count) {
  present.reset();
  if (problem.dtype < 0 || problem.dtype > 3 || lane_count < 1 || lane_count > kMostLanes) {
    throw std::runtime_error("unknown dtype, or a number of lanes beyond 1..16");
  }
  for (int index = 0; index < lane_count; ++index) {
    world().lane(index);
  }
  world().bind(static_cast<cudaStream_t>(problem.stream));
  auto made = std::make_unique<Present>();
  made->problem = problem;
  const Lane& first = world().lane(0);
  switch (problem.dtype) {
    case 0:
      make<float>(*made, first);
      break;
    case 1:
      make<double>(*made, first);
      break;
    case 2:
      make<cuComplex>(*made, first);
      break;
    default:
      make<cuDoubleComplex>(*made, first);
  }
  const Operation& operation = made->operation;
  const size_t info = kAlignment;
  const size_t lane_bytes = aligned(operation.device_bytes) + info;
  const size_t bytes = std::max(
      lane_bytes * static_cast<size_t>(lane_count), aligned(operation.batched_bytes) + info);
  made->device = std::make_unique<DeviceMemory>(bytes);
  const size_t host_bytes = aligned(operation.host_bytes);
  made->host.resize(host_bytes * static_cast<size_t>(lane_count) + 1);
  for (int index = 0; index < lane_count; ++index) {
    Lane& lane = world().lane(index);
    char* const begin = made->device->get() + lane_bytes * static_cast<size_t>(index);
    lane.info = reinterpret_cast<int32_t*>(begin);
    lane.work = begin + info;
    lane.host = made->host.data() + host_bytes * static_cast<size_t>(index);
  }
  const size_t items = static_cast<size_t>(problem.batch * problem.m) * scalar_bytes(problem.dtype);
  made->bytes_a = items * static_cast<size_t>(problem.n);
  made->bytes_b = items * static_cast<size_t>(problem.nrhs);
  present = std::move(made);
}

void restore(cudaStream_t stream) {
  const lanes_problem& problem = present->problem;
  if (problem.source_a != nullptr) {
    CHECKED(cudaMemcpyAsync(
        problem.a, problem.source_a, present->bytes_a, cudaMemcpyDeviceToDevice, stream));
  }
  if (problem.source_b != nullptr) {
    CHECKED(cudaMemcpyAsync(
        problem.b, problem.source_b, present->bytes_b, cudaMemcpyDeviceToDevice, stream));
  }
}

void enqueue(int lane_count, int64_t items) {
  World& w = world();
  const int used = static_cast<int>(std::min<int64_t>(lane_count, items));
  if (used > 1) {
    CHECKED(cudaEventRecord(w.lanes[0].event, w.lanes[0].stream));
    for (int lane = 1; lane < used; ++lane) {
      CHECKED(cudaStreamWaitEvent(w.lanes[static_cast<size_t>(lane)].stream, w.lanes[0].event, 0));
    }
  }
  for (int64_t item = 0; item < items; ++item) {
    present->operation.call(w.lanes[static_cast<size_t>(item % used)], item);
  }
  for (int lane = 1; lane < used; ++lane) {
    const Lane& each = w.lanes[static_cast<size_t>(lane)];
    CHECKED(cudaEventRecord(each.event, each.stream));
    CHECKED(cudaStreamWaitEvent(w.lanes[0].stream, each.event, 0));
  }
}

// lane_count 0: the batched routine.
lanes_times run(int lane_count) {
  World& w = world();
  const cudaStream_t stream = w.lane(0).stream;
  const auto before = std::chrono::steady_clock::now();
  CHECKED(cudaEventRecord(w.start, stream));
  restore(stream);
  if (lane_count == 0) {
    present->operation.batched(w.lane(0));
  } else {
    enqueue(lane_count, present->problem.batch);
  }
  CHECKED(cudaEventRecord(w.end, stream));
  const std::chrono::duration<double, std::milli> host = std::chrono::steady_clock::now() - before;
  CHECKED(cudaEventSynchronize(w.end));
  float device = 0;
  CHECKED(cudaEventElapsedTime(&device, w.start, w.end));
  return {device, host.count()};
}

// Nothing may leave through the C interface.
template <class Body>
int guarded(char* why, int size, Body&& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(why, static_cast<size_t>(size), "%s", error.what());
    (void)cudaGetLastError();
    return 1;
  }
}

}  // namespace

// Gets ready for a problem, with workspaces for so many lanes. Says what a lane needs on the device
// and on the host, and whether there is a batched routine.
extern "C" int lanes_prepare(
    const lanes_problem* problem, int lanes, int64_t* bytes, char* why, int size) {
  return guarded(why, size, [&] {
    prepare(*problem, lanes);
    bytes[0] = static_cast<int64_t>(present->operation.device_bytes);
    bytes[1] = static_cast<int64_t>(present->operation.host_bytes);
    bytes[2] = present->operation.batched ? 1 : 0;
  });
}

// Copies the input and runs all calls on `lanes` lanes; 0: the batched routine.
extern "C" int lanes_run(int lanes, lanes_times* times, char* why, int size) {
  return guarded(why, size, [&] {
    if (present == nullptr || (lanes == 0 && !present->operation.batched)) {
      throw std::runtime_error("no problem was prepared, or it has no batched routine");
    }
    *times = run(lanes);
  });
}

// Copies the input and enqueues the call for the first item (or the batched routine) on the
// caller's stream; `host_ms`: how long the host was in the call itself. Waits for nothing.
extern "C" int lanes_enqueue_one(int batched, double* host_ms, char* why, int size) {
  return guarded(why, size, [&] {
    restore(world().lane(0).stream);
    const auto before = std::chrono::steady_clock::now();
    if (batched != 0) {
      present->operation.batched(world().lane(0));
    } else {
      present->operation.call(world().lane(0), 0);
    }
    const std::chrono::duration<double, std::milli> host =
        std::chrono::steady_clock::now() - before;
    *host_ms = host.count();
  });
}

extern "C" void lanes_release() {
  present.reset();
}
