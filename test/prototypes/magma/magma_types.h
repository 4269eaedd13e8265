// Prototypes of the part of MAGMA that ATen's CUDA linalg library uses, written from MAGMA's public
// reference (LP64: 32-bit integers). Declarations only: the functions themselves come from MAGMA,
// here from the copy inside a wheel's libtorch_cuda_linalg.so, which exports them.
#pragma once

#if defined(USE_ROCM) || defined(HAVE_HIP)
#include <hip/hip_complex.h>
#include <hip/hip_runtime_api.h>
#include <hipblas/hipblas.h>
#include <hipsparse/hipsparse.h>
typedef hipFloatComplex magmaFloatComplex;
typedef hipDoubleComplex magmaDoubleComplex;
#else
#include <cuComplex.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusparse.h>
typedef cuFloatComplex magmaFloatComplex;
typedef cuDoubleComplex magmaDoubleComplex;
#endif

typedef int magma_int_t;
typedef int magma_device_t;
struct magma_queue;
typedef struct magma_queue* magma_queue_t;

// The oldest release whose interface is declared here; the 2.6.0 and 2.11.0 wheels carry 2.6.1 or
// newer.
#define MAGMA_VERSION_MAJOR 2
#define MAGMA_VERSION_MINOR 6
#define MAGMA_VERSION_MICRO 1

// The values are those of the CBLAS standard, continued by PLASMA for the job letters.
typedef enum { MagmaNoTrans = 111, MagmaTrans = 112, MagmaConjTrans = 113 } magma_trans_t;
typedef enum { MagmaUpper = 121, MagmaLower = 122 } magma_uplo_t;
typedef enum { MagmaNonUnit = 131, MagmaUnit = 132 } magma_diag_t;
typedef enum { MagmaLeft = 141, MagmaRight = 142 } magma_side_t;
typedef enum {
  MagmaNoVec = 301,
  MagmaVec = 302,
  MagmaIVec = 303,
  MagmaAllVec = 304,
  MagmaSomeVec = 305,
  MagmaOverwriteVec = 306
} magma_vec_t;
