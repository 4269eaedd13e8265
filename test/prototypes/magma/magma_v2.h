// Function prototypes; see magma_types.h. One macro declares a routine for the four precisions, so
// that a mistake cannot hide in one of them. Device pointers are named d*, arrays of them d*_array.
#pragma once

#include "magma_types.h"

#ifdef __cplusplus
extern "C" {
#endif

magma_int_t magma_init(void);
void magma_version(magma_int_t* major, magma_int_t* minor, magma_int_t* micro);
const char* magma_strerror(magma_int_t error);

// Queues. The three below are macros in MAGMA too, which add the place of the call.
#if defined(USE_ROCM) || defined(HAVE_HIP)
void magma_queue_create_from_hip_internal(
    magma_device_t device,
    hipStream_t stream,
    hipblasHandle_t blas,
    hipsparseHandle_t sparse,
    magma_queue_t* queue,
    const char* function,
    const char* file,
    int line);
#define magma_queue_create_from_hip(device, stream, blas, sparse, queue) \
  magma_queue_create_from_hip_internal(                                  \
      device, stream, blas, sparse, queue, __func__, __FILE__, __LINE__)
#else
void magma_queue_create_from_cuda_internal(
    magma_device_t device,
    cudaStream_t stream,
    cublasHandle_t blas,
    cusparseHandle_t sparse,
    magma_queue_t* queue,
    const char* function,
    const char* file,
    int line);
#define magma_queue_create_from_cuda(device, stream, blas, sparse, queue) \
  magma_queue_create_from_cuda_internal(                                  \
      device, stream, blas, sparse, queue, __func__, __FILE__, __LINE__)
cublasHandle_t magma_queue_get_cublas_handle(magma_queue_t queue);
#endif
void magma_queue_destroy_internal(
    magma_queue_t queue, const char* function, const char* file, int line);
#define magma_queue_destroy(queue) magma_queue_destroy_internal(queue, __func__, __FILE__, __LINE__)
void magma_queue_sync_internal(
    magma_queue_t queue, const char* function, const char* file, int line);
#define magma_queue_sync(queue) magma_queue_sync_internal(queue, __func__, __FILE__, __LINE__)

// What has one form for all four precisions; T is the element.
#define MAGMA_PROTOTYPES(p, T)                                                                  \
  magma_int_t magma_##p##getrf_gpu(                                                             \
      magma_int_t m,                                                                            \
      magma_int_t n,                                                                            \
      T* dA,                                                                                    \
      magma_int_t ldda,                                                                         \
      magma_int_t* ipiv,                                                                        \
      magma_int_t* info);                                                                       \
  magma_int_t magma_##p##getrf_nopiv_gpu(                                                       \
      magma_int_t m, magma_int_t n, T* dA, magma_int_t ldda, magma_int_t* info);                \
  magma_int_t magma_##p##getrf_batched(                                                         \
      magma_int_t m,                                                                            \
      magma_int_t n,                                                                            \
      T** dA_array,                                                                             \
      magma_int_t ldda,                                                                         \
      magma_int_t** dipiv_array,                                                                \
      magma_int_t* info_array,                                                                  \
      magma_int_t batch,                                                                        \
      magma_queue_t queue);                                                                     \
  magma_int_t magma_##p##getrf_nopiv_batched(                                                   \
      magma_int_t m,                                                                            \
      magma_int_t n,                                                                            \
      T** dA_array,                                                                             \
      magma_int_t ldda,                                                                         \
      magma_int_t* info_array,                                                                  \
      magma_int_t batch,                                                                        \
      magma_queue_t queue);                                                                     \
  magma_int_t magma_##p##getrs_gpu(                                                             \
      magma_trans_t trans,                                                                      \
      magma_int_t n,                                                                            \
      magma_int_t nrhs,                                                                         \
      T* dA,                                                                                    \
      magma_int_t ldda,                                                                         \
      magma_int_t* ipiv,                                                                        \
      T* dB,                                                                                    \
      magma_int_t lddb,                                                                         \
      magma_int_t* info);                                                                       \
  magma_int_t magma_##p##getrs_batched(                                                         \
      magma_trans_t trans,                                                                      \
      magma_int_t n,                                                                            \
      magma_int_t nrhs,                                                                         \
      T** dA_array,                                                                             \
      magma_int_t ldda,                                                                         \
      magma_int_t** dipiv_array,                                                                \
      T** dB_array,                                                                             \
      magma_int_t lddb,                                                                         \
      magma_int_t batch,                                                                        \
      magma_queue_t queue);                                                                     \
  magma_int_t magma_##p##potrf_gpu(                                                             \
      magma_uplo_t uplo, magma_int_t n, T* dA, magma_int_t ldda, magma_int_t* info);            \
  magma_int_t magma_##p##potrf_batched(                                                         \
      magma_uplo_t uplo,                                                                        \
      magma_int_t n,                                                                            \
      T** dA_array,                                                                             \
      magma_int_t ldda,                                                                         \
      magma_int_t* info_array,                                                                  \
      magma_int_t batch,                                                                        \
      magma_queue_t queue);                                                                     \
  magma_int_t magma_##p##potrs_gpu(                                                             \
      magma_uplo_t uplo,                                                                        \
      magma_int_t n,                                                                            \
      magma_int_t nrhs,                                                                         \
      T* dA,                                                                                    \
      magma_int_t ldda,                                                                         \
      T* dB,                                                                                    \
      magma_int_t lddb,                                                                         \
      magma_int_t* info);                                                                       \
  magma_int_t magma_##p##potrs_batched(                                                         \
      magma_uplo_t uplo,                                                                        \
      magma_int_t n,                                                                            \
      magma_int_t nrhs,                                                                         \
      T** dA_array,                                                                             \
      magma_int_t ldda,                                                                         \
      T** dB_array,                                                                             \
      magma_int_t lddb,                                                                         \
      magma_int_t batch,                                                                        \
      magma_queue_t queue);                                                                     \
  void magmablas_##p##trsm_batched(                                                             \
      magma_side_t side,                                                                        \
      magma_uplo_t uplo,                                                                        \
      magma_trans_t trans,                                                                      \
      magma_diag_t diag,                                                                        \
      magma_int_t m,                                                                            \
      magma_int_t n,                                                                            \
      T alpha,                                                                                  \
      T** dA_array,                                                                             \
      magma_int_t ldda,                                                                         \
      T** dB_array,                                                                             \
      magma_int_t lddb,                                                                         \
      magma_int_t batch,                                                                        \
      magma_queue_t queue);                                                                     \
  magma_int_t magma_get_##p##geqrf_nb(magma_int_t m, magma_int_t n);                            \
  magma_int_t magma_##p##geqrf_gpu(                                                             \
      magma_int_t m, magma_int_t n, T* dA, magma_int_t ldda, T* tau, T* dT, magma_int_t* info); \
  magma_int_t magma_##p##geqrf2_gpu(                                                            \
      magma_int_t m, magma_int_t n, T* dA, magma_int_t ldda, T* tau, magma_int_t* info);        \
  magma_int_t magma_##p##gels_gpu(                                                              \
      magma_trans_t trans,                                                                      \
      magma_int_t m,                                                                            \
      magma_int_t n,                                                                            \
      magma_int_t nrhs,                                                                         \
      T* dA,                                                                                    \
      magma_int_t ldda,                                                                         \
      T* dB,                                                                                    \
      magma_int_t lddb,                                                                         \
      T* hwork,                                                                                 \
      magma_int_t lwork,                                                                        \
      magma_int_t* info);

MAGMA_PROTOTYPES(s, float)
MAGMA_PROTOTYPES(d, double)
MAGMA_PROTOTYPES(c, magmaFloatComplex)
MAGMA_PROTOTYPES(z, magmaDoubleComplex)

// What differs between real and complex: T is the element.
#define MAGMA_REAL_PROTOTYPES(p, T) \
  magma_int_t magma_##p##sytrf_gpu( \
      magma_uplo_t uplo,            \
      magma_int_t n,                \
      T* dA,                        \
      magma_int_t ldda,             \
      magma_int_t* ipiv,            \
      magma_int_t* info);           \
  magma_int_t magma_##p##syevd_gpu( \
      magma_vec_t jobz,             \
      magma_uplo_t uplo,            \
      magma_int_t n,                \
      T* dA,                        \
      magma_int_t ldda,             \
      T* w,                         \
      T* wA,                        \
      magma_int_t ldwa,             \
      T* work,                      \
      magma_int_t lwork,            \
      magma_int_t* iwork,           \
      magma_int_t liwork,           \
      magma_int_t* info);           \
  magma_int_t magma_##p##geev(      \
      magma_vec_t jobvl,            \
      magma_vec_t jobvr,            \
      magma_int_t n,                \
      T* A,                         \
      magma_int_t lda,              \
      T* wr,                        \
      T* wi,                        \
      T* VL,                        \
      magma_int_t ldvl,             \
      T* VR,                        \
      magma_int_t ldvr,             \
      T* work,                      \
      magma_int_t lwork,            \
      magma_int_t* info);           \
  magma_int_t magma_##p##gesdd(     \
      magma_vec_t jobz,             \
      magma_int_t m,                \
      magma_int_t n,                \
      T* A,                         \
      magma_int_t lda,              \
      T* s,                         \
      T* U,                         \
      magma_int_t ldu,              \
      T* VT,                        \
      magma_int_t ldvt,             \
      T* work,                      \
      magma_int_t lwork,            \
      magma_int_t* iwork,           \
      magma_int_t* info);

MAGMA_REAL_PROTOTYPES(s, float)
MAGMA_REAL_PROTOTYPES(d, double)

// T is the element and R the matching real type.
#define MAGMA_COMPLEX_PROTOTYPES(p, T, R) \
  magma_int_t magma_##p##hetrf_gpu(       \
      magma_uplo_t uplo,                  \
      magma_int_t n,                      \
      T* dA,                              \
      magma_int_t ldda,                   \
      magma_int_t* ipiv,                  \
      magma_int_t* info);                 \
  magma_int_t magma_##p##heevd_gpu(       \
      magma_vec_t jobz,                   \
      magma_uplo_t uplo,                  \
      magma_int_t n,                      \
      T* dA,                              \
      magma_int_t ldda,                   \
      R* w,                               \
      T* wA,                              \
      magma_int_t ldwa,                   \
      T* work,                            \
      magma_int_t lwork,                  \
      R* rwork,                           \
      magma_int_t lrwork,                 \
      magma_int_t* iwork,                 \
      magma_int_t liwork,                 \
      magma_int_t* info);                 \
  magma_int_t magma_##p##geev(            \
      magma_vec_t jobvl,                  \
      magma_vec_t jobvr,                  \
      magma_int_t n,                      \
      T* A,                               \
      magma_int_t lda,                    \
      T* w,                               \
      T* VL,                              \
      magma_int_t ldvl,                   \
      T* VR,                              \
      magma_int_t ldvr,                   \
      T* work,                            \
      magma_int_t lwork,                  \
      R* rwork,                           \
      magma_int_t* info);                 \
  magma_int_t magma_##p##gesdd(           \
      magma_vec_t jobz,                   \
      magma_int_t m,                      \
      magma_int_t n,                      \
      T* A,                               \
      magma_int_t lda,                    \
      R* s,                               \
      T* U,                               \
      magma_int_t ldu,                    \
      T* VT,                              \
      magma_int_t ldvt,                   \
      T* work,                            \
      magma_int_t lwork,                  \
      R* rwork,                           \
      magma_int_t* iwork,                 \
      magma_int_t* info);

MAGMA_COMPLEX_PROTOTYPES(c, magmaFloatComplex, float)
MAGMA_COMPLEX_PROTOTYPES(z, magmaDoubleComplex, double)

#undef MAGMA_PROTOTYPES
#undef MAGMA_REAL_PROTOTYPES
#undef MAGMA_COMPLEX_PROTOTYPES

#ifdef __cplusplus
}
#endif
