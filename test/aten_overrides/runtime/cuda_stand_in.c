// What of the CUDA runtime has to answer for the stand-in for MAGMA, loaded before the real one:
// a device that is there, on which nothing runs. All else is the real one's, which finds no driver.
#include <stdlib.h>
#include <string.h>

int cudaGetDeviceCount(int* count) {
  *count = 1;
  return 0;
}

int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}

int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return 0;
}

int cudaStreamIsCapturing(void* stream, int* status) {
  (void)stream;
  const char* capturing = getenv("CUDA_STAND_IN_CAPTURES");
  *status = capturing != NULL ? 1 : 0;
  return 0;
}

// The number of an error (700: an illegal access), by which a device stays unusable.
int cudaStreamSynchronize(void* stream) {
  (void)stream;
  const char* error = getenv("CUDA_STAND_IN_ERROR");
  return error != NULL ? atoi(error) : 0;
}

int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  (void)kind;
  (void)stream;
  memcpy(to, from, bytes);
  return 0;
}

// c10's own, which asks the driver first.
int maybe_set_device(signed char device) __asm__("_ZN3c104cuda14MaybeSetDeviceEa");
int maybe_set_device(signed char device) {
  (void)device;
  return 0;
}
