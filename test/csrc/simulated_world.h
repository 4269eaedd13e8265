#pragma once

// The state behind simulated_cuda.h, for its two implementation files.

#include "simulated_cuda.h"

#include <deque>
#include <mutex>
#include <utility>

namespace simulated {

// How far each line of execution has got: what happens before a moment. A line is a stream, or a
// stream within one capture, or within one replay of a graph.
using Clock = std::map<int, uint64_t>;

struct Capture;

struct Stream {
  int device = 0;
  int line = 0;
  bool alive = true;
  Clock clock;
  Capture* capture = nullptr;  // while it takes part in one
  int captured_line = 0;
  Clock captured_clock;
};

struct Event {
  int device = 0;
  bool alive = true;
  bool recorded = false;
  Capture* capture = nullptr;
  Clock clock;
};

struct Handle {
  int device = 0;
  int number = 0;
  bool alive = true;
  bool auxiliary = false;  // created by cusolverDnCreate
  cudaStream_t stream = nullptr;
  int owner = -1;  // the thread that used it last
};

struct Op {
  std::string name;
  int line = 0;
  uint64_t count = 0;
  Clock clock;
  std::vector<Access> accesses;
  cusolverDnHandle_t handle = nullptr;
};

struct Capture {
  unsigned long long id = 0;
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  int thread = 0;
  bool active = true;
  bool invalid = false;
  std::vector<cudaStream_t> members;
  std::vector<Op> ops;
};

struct Thread {
  int device = 0;
  bool left = false;
  std::map<int, cudaStream_t> streams;
  std::map<int, cusolverDnHandle_t> handles;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  cudaError_t last_error = cudaSuccess;
  Clock clock;  // of what the host has waited for
};

struct Plan {
  std::string function;
  int nth;
  bool for_good;
};

struct World {
  std::recursive_mutex mutex;
  int lines = 0;
  unsigned long long captures_begun = 0;
  std::deque<Stream> streams;
  std::deque<Event> events;
  std::deque<Handle> handles;
  std::deque<Capture> captures;
  std::map<int, Thread> threads;
  std::map<std::pair<int, int>, cudaStream_t> user_streams;
  std::map<std::string, std::vector<Op>> log;  // eager work and replays, by the memory it touches
  Clock last_replay;
  std::map<std::pair<cudaStream_t, unsigned long long>, std::vector<std::string>> free_blocks;
  int blocks = 0;
  std::vector<Plan> plans;
  std::vector<Failure> failures;
  int failures_total = 0;
  int handle_capacity = 1 << 20;
  std::vector<std::string> violations;
  std::vector<std::string> warnings;
  void (*warning_handler)() = nullptr;
  std::map<std::string, int> calls;
  std::string message;
};

World& world();
Thread& me();
int this_thread();

using Lock = std::lock_guard<std::recursive_mutex>;

void merge(Clock& into, const Clock& from);
bool covers(const Clock& clock, int line, uint64_t count);

// Sets the thread's last error.
cudaError_t failed(cudaError_t error, const std::string& message);

// Bookkeeping at the head of each runtime function; false if the call is to fail.
bool enter(const char* function, bool can_fail = true);

// False for a call that is refused, at the cost of the capture, because it is unsafe while a stream
// captures and the thread has not declared otherwise. What creates is not to be called at all while
// the current stream captures.
bool unsafe_allowed(const char* function, bool creates);

// Executes work: reports what it races with.
void run(const Op& op);

void join_capture(cudaStream_t stream, Capture& capture, const Clock& clock);
cudaStream_t new_stream(int device);

}  // namespace simulated
