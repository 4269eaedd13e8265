// The part of hipSOLVER that CUDASolver.cpp names once it is hipified.
#pragma once

#include <any_arguments.h>
#include <hip/hip_complex.h>
#include <hip/hip_runtime_api.h>
#include <hipblas/hipblas.h>

typedef void* hipsolverHandle_t;
typedef hipsolverHandle_t hipsolverDnHandle_t;
typedef struct hipsolverParams* hipsolverDnParams_t;
typedef struct hipsolverGesvdjInfo* hipsolverGesvdjInfo_t;
typedef struct hipsolverSyevjInfo* hipsolverSyevjInfo_t;
typedef hipblasOperation_t hipsolverOperation_t;
typedef hipblasFillMode_t hipsolverFillMode_t;
typedef hipblasSideMode_t hipsolverSideMode_t;
typedef enum {
  HIPSOLVER_STATUS_SUCCESS = 0,
  HIPSOLVER_STATUS_NOT_INITIALIZED = 1,
  HIPSOLVER_STATUS_INVALID_VALUE = 3
} hipsolverStatus_t;
typedef enum {
  HIPSOLVER_EIG_MODE_NOVECTOR = 201,
  HIPSOLVER_EIG_MODE_VECTOR = 202
} hipsolverEigMode_t;

#define HIPSOLVER_OP_N HIPBLAS_OP_N
#define HIPSOLVER_OP_T HIPBLAS_OP_T
#define HIPSOLVER_OP_C HIPBLAS_OP_C
#define HIPSOLVER_FILL_MODE_LOWER HIPBLAS_FILL_MODE_LOWER
#define HIPSOLVER_FILL_MODE_UPPER HIPBLAS_FILL_MODE_UPPER
#define HIPSOLVER_SIDE_LEFT HIPBLAS_SIDE_LEFT
#define HIPSOLVER_SIDE_RIGHT HIPBLAS_SIDE_RIGHT

#define HIPSOLVER_FUNCTION(name) HIP_ANY_ARGUMENTS(hipsolverStatus_t, hipsolver##name)
#define HIPSOLVER_SIZED(name) HIPSOLVER_FUNCTION(name) HIPSOLVER_FUNCTION(name##_bufferSize)
#define HIPSOLVER_ALL(name)  \
  HIPSOLVER_SIZED(DnS##name) \
  HIPSOLVER_SIZED(DnD##name) HIPSOLVER_SIZED(DnC##name) HIPSOLVER_SIZED(DnZ##name)
#define HIPSOLVER_REAL(name) HIPSOLVER_SIZED(DnS##name) HIPSOLVER_SIZED(DnD##name)
#define HIPSOLVER_COMPLEX(name) HIPSOLVER_SIZED(DnC##name) HIPSOLVER_SIZED(DnZ##name)

HIPSOLVER_FUNCTION(DnCreate)
HIPSOLVER_FUNCTION(DnDestroy)
HIPSOLVER_FUNCTION(DnSetStream)
HIPSOLVER_FUNCTION(DnCreateGesvdjInfo)
HIPSOLVER_FUNCTION(DnDestroyGesvdjInfo)
HIPSOLVER_FUNCTION(DnXgesvdjSetMaxSweeps)
HIPSOLVER_FUNCTION(DnXgesvdjSetSortEig)
HIPSOLVER_FUNCTION(DnXgesvdjSetTolerance)
HIPSOLVER_FUNCTION(DnCreateSyevjInfo)
HIPSOLVER_FUNCTION(DnDestroySyevjInfo)
HIPSOLVER_FUNCTION(DnXsyevjSetSortEig)
HIPSOLVER_ALL(geqrf)
HIPSOLVER_ALL(getrf)
HIPSOLVER_ALL(getrs)
HIPSOLVER_ALL(gesvd)
HIPSOLVER_ALL(gesvdaStridedBatched)
HIPSOLVER_ALL(gesvdj)
HIPSOLVER_ALL(gesvdjBatched)
HIPSOLVER_ALL(potrf)
HIPSOLVER_ALL(potrfBatched)
HIPSOLVER_ALL(potrs)
HIPSOLVER_ALL(potrsBatched)
HIPSOLVER_ALL(sytrf)
HIPSOLVER_REAL(orgqr)
HIPSOLVER_REAL(ormqr)
HIPSOLVER_REAL(syevd)
HIPSOLVER_REAL(syevj)
HIPSOLVER_REAL(syevjBatched)
HIPSOLVER_COMPLEX(ungqr)
HIPSOLVER_COMPLEX(unmqr)
HIPSOLVER_COMPLEX(heevd)
HIPSOLVER_COMPLEX(heevj)
HIPSOLVER_COMPLEX(heevjBatched)

#undef HIPSOLVER_FUNCTION
#undef HIPSOLVER_SIZED
#undef HIPSOLVER_ALL
#undef HIPSOLVER_REAL
#undef HIPSOLVER_COMPLEX
