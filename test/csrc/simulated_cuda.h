#pragma once

// A simulated CUDA runtime, as much of it as the solver lanes use. Nothing is computed: the
// simulation keeps the happens-before order of all launched work as vector clocks and reports what
// CUDA would not allow or what could race. Written after the CUDA documentation of streams, events
// and stream capture.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#define CUDART_VERSION 13000

namespace simulated {
struct Stream;
struct Event;
struct Handle;
}  // namespace simulated

using cudaStream_t = simulated::Stream*;
using cudaEvent_t = simulated::Event*;
using cusolverDnHandle_t = simulated::Handle*;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907,
  cudaErrorUnknown = 999,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cusolverStatus_t { CUSOLVER_STATUS_SUCCESS = 0, CUSOLVER_STATUS_ALLOC_FAILED = 2 };

constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDisableTiming = 2;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, int* graph);
cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaGraphLaunch(int graph, cudaStream_t stream);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle);
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle);
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream);

namespace simulated {

struct Access {
  std::string what;  // any name of a piece of memory
  bool write;
};

// Work on a stream that touches memory. False if CUDA would refuse the launch.
bool launch(cudaStream_t stream, const std::string& name, std::vector<Access> accesses);

// The same on the stream that a handle is set to, with the memory that the library keeps for the
// two.
bool solver_call(
    cusolverDnHandle_t handle,
    cudaStream_t expected,
    const std::string& name,
    std::vector<Access> accesses);

// The state of the calling thread. Threads are told apart by the number that the test gives them.
void enter_thread(int number);
void leave_thread();  // from here on, thread-local objects are destroyed and CUDA must not be
                      // called
int current_device();
void set_device(int device);
cudaStream_t current_stream(int device);
void set_stream(int number);  // of the user's streams on the current device; 0 is the legacy stream
cusolverDnHandle_t current_handle();  // of the thread and device, set to the current stream
void drop_handles_of_thread();  // release_lanes() was called: the handles may go to another thread

// A caching allocator: a block that was freed is given out again on the same stream at once.
std::string allocate(cudaStream_t stream);
void release(cudaStream_t stream, const std::string& block);

// Errors on demand: the n-th call (1: the next) of `function` fails; "any" counts all that can
// fail.
void fail(const std::string& function, int nth, bool for_good);
std::string error_text(int failure);  // what an exception for this failure has to say
struct Failure {
  int number;
  std::string function;
};
std::vector<Failure> take_failures();  // that happened since the last call of this function
int record_failure(const std::string& function);  // one that the test makes itself; its number
void set_handle_capacity(
    int handles);  // more handles than this do not fit in the memory of a device

void violation(const std::string& text);
void warning(const std::string& text);
void on_warning(void (*handler)());  // called for each warning, as a program's own handler would be
std::vector<std::string> violations();
std::vector<std::string> warnings();
std::map<std::string, int> take_call_counts();
int live_handles(int device);  // created by cusolverDnCreate
void forgive();         // the program was told that it cannot wait for its work: take it as done
void end_of_process();  // from here on every CUDA call ends the process with status 70

}  // namespace simulated
