#include "Wheel.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/util/Exception.h>

#include <dlfcn.h>

#include <cstring>

// Calls of these names in our sources end in the functions below, which are hidden: see Wheel.h.

namespace aten_overrides::gpu {
namespace {

using CurrentHandle = cusolverDnHandle_t (*)();
CurrentHandle current_handle = nullptr;
void* wheel_library = nullptr;

// name, parameters, arguments
#define FOR_EACH_CUSOLVER_FUNCTION(_)                                                        \
  _(cusolverDnCreate, (cusolverDnHandle_t * handle), (handle))                               \
  _(cusolverDnDestroy, (cusolverDnHandle_t handle), (handle))                                \
  _(cusolverDnSetStream, (cusolverDnHandle_t handle, cudaStream_t stream), (handle, stream)) \
  FOR_EACH_LU_FUNCTION(_, S, float)                                                          \
  FOR_EACH_LU_FUNCTION(_, D, double)                                                         \
  FOR_EACH_LU_FUNCTION(_, C, cuComplex)                                                      \
  FOR_EACH_LU_FUNCTION(_, Z, cuDoubleComplex)

#define FOR_EACH_LU_FUNCTION(_, letter, scalar)                                \
  _(cusolverDn##letter##getrf_bufferSize,                                      \
    (cusolverDnHandle_t handle, int m, int n, scalar* a, int lda, int* lwork), \
    (handle, m, n, a, lda, lwork))                                             \
  _(cusolverDn##letter##getrf,                                                 \
    (cusolverDnHandle_t handle,                                                \
     int m,                                                                    \
     int n,                                                                    \
     scalar* a,                                                                \
     int lda,                                                                  \
     scalar* work,                                                             \
     int* pivots,                                                              \
     int* info),                                                               \
    (handle, m, n, a, lda, work, pivots, info))                                \
  _(cusolverDn##letter##getrs,                                                 \
    (cusolverDnHandle_t handle,                                                \
     cublasOperation_t trans,                                                  \
     int n,                                                                    \
     int nrhs,                                                                 \
     const scalar* a,                                                          \
     int lda,                                                                  \
     const int* pivots,                                                        \
     scalar* b,                                                                \
     int ldb,                                                                  \
     int* info),                                                               \
    (handle, trans, n, nrhs, a, lda, pivots, b, ldb, info))

#define DECLARE_POINTER(name, parameters, arguments)  \
  using name##_type = cusolverStatus_t(*) parameters; \
  name##_type name##_pointer = nullptr;
FOR_EACH_CUSOLVER_FUNCTION(DECLARE_POINTER)
#undef DECLARE_POINTER

// A library of this name that is in the process already is the one that torch's loader gets,
// wherever it came from; another copy loaded beside it would take the entries.
void* find_loaded(const char* path) {
  if (path == nullptr) {
    return nullptr;
  }
  const char* slash = std::strrchr(path, '/');
  for (const char* name : {slash != nullptr ? slash + 1 : path, path}) {
    if (void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {
      return library;
    }
  }
  dlerror();
  return nullptr;
}

}  // namespace

std::string load_wheel_linalg(const char* path) {
  // As torch's lazy loader does it. The handle is kept: functions of the library stay in use.
  void* library = find_loaded(path);
  if (library == nullptr) {
    library = dlopen(path != nullptr ? path : "libtorch_cuda.so", RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char* error = dlerror();
    return std::string("torch's linalg library does not load: ") +
           (error ? error : "no reason given");
  }
  wheel_library = library;
  std::string missing;
  const auto look_up = [&](const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr) {
      missing += missing.empty() ? name : std::string(", ") + name;
    }
    return symbol;
  };
  current_handle =
      reinterpret_cast<CurrentHandle>(look_up("_ZN2at4cuda28getCurrentCUDASolverDnHandleEv"));
#define LOOK_UP(name, parameters, arguments) \
  name##_pointer = reinterpret_cast<name##_type>(look_up(#name));
  FOR_EACH_CUSOLVER_FUNCTION(LOOK_UP)
#undef LOOK_UP
  if (!missing.empty()) {
    return "torch's linalg library and the cuSOLVER that it uses lack " + missing;
  }
  return {};
}

void* wheel_symbol(const char* name) {
  TORCH_INTERNAL_ASSERT(wheel_library != nullptr);
  return dlsym(wheel_library, name);
}

bool wheel_linalg_loaded(const char* path) {
  if (path == nullptr) {
    return true;
  }
  void* library = find_loaded(path);
  if (library != nullptr) {
    dlclose(library);
  }
  return library != nullptr;
}

}  // namespace aten_overrides::gpu

#define FORWARD(name, parameters, arguments)                \
  extern "C" cusolverStatus_t CUSOLVERAPI name parameters { \
    return aten_overrides::gpu::name##_pointer arguments;   \
  }
FOR_EACH_CUSOLVER_FUNCTION(FORWARD)

namespace at::cuda {

cusolverDnHandle_t getCurrentCUDASolverDnHandle() {
  TORCH_INTERNAL_ASSERT(aten_overrides::gpu::current_handle != nullptr);
  return aten_overrides::gpu::current_handle();
}

}  // namespace at::cuda
