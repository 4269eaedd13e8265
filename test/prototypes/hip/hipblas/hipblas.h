// The part of hipBLAS that ATen's linear algebra names.
#pragma once

#include <any_arguments.h>
#include <hip/hip_complex.h>
#include <hip/hip_runtime_api.h>
#include <hip/library_types.h>

typedef void* hipblasHandle_t;
typedef enum { HIPBLAS_STATUS_SUCCESS = 0, HIPBLAS_STATUS_EXECUTION_FAILED = 5 } hipblasStatus_t;
typedef enum { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112, HIPBLAS_OP_C = 113 } hipblasOperation_t;
typedef enum { HIPBLAS_FILL_MODE_UPPER = 121, HIPBLAS_FILL_MODE_LOWER = 122 } hipblasFillMode_t;
typedef enum { HIPBLAS_DIAG_NON_UNIT = 131, HIPBLAS_DIAG_UNIT = 132 } hipblasDiagType_t;
typedef enum { HIPBLAS_SIDE_LEFT = 141, HIPBLAS_SIDE_RIGHT = 142 } hipblasSideMode_t;
typedef enum { HIPBLAS_POINTER_MODE_HOST, HIPBLAS_POINTER_MODE_DEVICE } hipblasPointerMode_t;
typedef enum { HIPBLAS_DEFAULT_MATH = 0 } hipblasMath_t;

HIP_ANY_ARGUMENTS(hipblasStatus_t, hipblasGetMathMode)
HIP_ANY_ARGUMENTS(hipblasStatus_t, hipblasSetMathMode)
HIP_ANY_ARGUMENTS(hipblasStatus_t, hipblasGetPointerMode)
HIP_ANY_ARGUMENTS(hipblasStatus_t, hipblasSetPointerMode)
