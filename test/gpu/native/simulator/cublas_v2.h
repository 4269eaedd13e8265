// The few cuBLAS entries that the batched LU uses, as plain loops.
#pragma once

#include <cuda_runtime_api.h>

#include <complex>

using cublasHandle_t = void*;
using cublasStatus_t = int;
using cublasMath_t = int;
using cublasPointerMode_t = int;
enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum { CUBLAS_DEFAULT_MATH, CUBLAS_POINTER_MODE_HOST, CUBLAS_GEMM_DEFAULT };
enum { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cudaDataType_t { CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F };

inline const char* cublasGetStatusString(cublasStatus_t) {
  return "simulated";
}
inline cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  *mode = 0;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetPointerMode(cublasHandle_t, cublasPointerMode_t* mode) {
  *mode = 0;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetPointerMode(cublasHandle_t, cublasPointerMode_t) {
  return CUBLAS_STATUS_SUCCESS;
}

inline float simulated_conjugate(float x) {
  return x;
}
inline double simulated_conjugate(double x) {
  return x;
}
template <typename Real>
std::complex<Real> simulated_conjugate(std::complex<Real> x) {
  return std::conj(x);
}

template <typename T>
void simulated_gemm(
    int operation,
    int m,
    int n,
    int k,
    const T* a,
    int64_t lda,
    const T* b,
    int64_t ldb,
    T* c,
    int64_t ldc) {
  for (int j = 0; j < n; ++j) {
    for (int l = 0; l < k; ++l) {
      for (int i = 0; i < m; ++i) {
        const T plain = operation == CUBLAS_OP_N ? a[i + l * lda] : a[l + i * lda];
        const T element = operation == CUBLAS_OP_C ? simulated_conjugate(plain) : plain;
        c[i + j * ldc] -= element * b[l + j * ldb];
      }
    }
  }
}

// C -= A B, A perhaps transposed; the scalars -1 and 1 are taken for granted.
inline cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t,
    int operation,
    int,
    int m,
    int n,
    int k,
    const void*,
    const void* a,
    cudaDataType_t type,
    int lda,
    long long stride_a,
    const void* b,
    cudaDataType_t,
    int ldb,
    long long stride_b,
    const void*,
    void* c,
    cudaDataType_t,
    int ldc,
    long long stride_c,
    int batch,
    cublasComputeType_t,
    int) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    for (int64_t item = 0; item < batch; ++item) {
      simulated_gemm(
          operation,
          m,
          n,
          k,
          static_cast<const T*>(a) + item * stride_a,
          lda,
          static_cast<const T*>(b) + item * stride_b,
          ldb,
          static_cast<T*>(c) + item * stride_c,
          ldc);
    }
  };
  switch (type) {
    case CUDA_R_32F:
      run(float{});
      break;
    case CUDA_R_64F:
      run(double{});
      break;
    case CUDA_C_32F:
      run(std::complex<float>{});
      break;
    case CUDA_C_64F:
      run(std::complex<double>{});
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}
