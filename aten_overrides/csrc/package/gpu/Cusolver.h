#pragma once

// cuSOLVER's LU routines by scalar type. The caller gives the workspace.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/util/complex.h>

namespace aten_overrides::gpu::cusolver {

// The type that cuSOLVER uses for one of c10's.
template <typename scalar_t>
struct Native {
  using type = scalar_t;
};
template <>
struct Native<c10::complex<float>> {
  using type = cuComplex;
};
template <>
struct Native<c10::complex<double>> {
  using type = cuDoubleComplex;
};

template <typename scalar_t>
auto* native(scalar_t* data) {
  return reinterpret_cast<typename Native<scalar_t>::type*>(data);
}

#define ATEN_OVERRIDES_LU(letter, scalar)                                                     \
  inline int getrf_buffer_size(cusolverDnHandle_t handle, int m, int n, scalar* a, int lda) { \
    int elements = 0;                                                                         \
    TORCH_CUSOLVER_CHECK(                                                                     \
        cusolverDn##letter##getrf_bufferSize(handle, m, n, native(a), lda, &elements));       \
    return elements;                                                                          \
  }                                                                                           \
  /* pivots null: without row exchanges */                                                    \
  inline void getrf(                                                                          \
      cusolverDnHandle_t handle,                                                              \
      int m,                                                                                  \
      int n,                                                                                  \
      scalar* a,                                                                              \
      int lda,                                                                                \
      scalar* work,                                                                           \
      int* pivots,                                                                            \
      int* info) {                                                                            \
    TORCH_CUSOLVER_CHECK(                                                                     \
        cusolverDn##letter##getrf(handle, m, n, native(a), lda, native(work), pivots, info)); \
  }                                                                                           \
  inline void getrs(                                                                          \
      cusolverDnHandle_t handle,                                                              \
      cublasOperation_t trans,                                                                \
      int n,                                                                                  \
      int nrhs,                                                                               \
      scalar* a,                                                                              \
      int lda,                                                                                \
      const int* pivots,                                                                      \
      scalar* b,                                                                              \
      int ldb,                                                                                \
      int* info) {                                                                            \
    TORCH_CUSOLVER_CHECK(cusolverDn##letter##getrs(                                           \
        handle, trans, n, nrhs, native(a), lda, pivots, native(b), ldb, info));               \
  }
ATEN_OVERRIDES_LU(S, float)
ATEN_OVERRIDES_LU(D, double)
ATEN_OVERRIDES_LU(C, c10::complex<float>)
ATEN_OVERRIDES_LU(Z, c10::complex<double>)
#undef ATEN_OVERRIDES_LU

}  // namespace aten_overrides::gpu::cusolver
