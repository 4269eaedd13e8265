// hipSPARSE: its handle and status.
#pragma once

#include <hip/hip_runtime_api.h>

typedef void* hipsparseHandle_t;
typedef enum { HIPSPARSE_STATUS_SUCCESS = 0 } hipsparseStatus_t;

extern "C" const char* hipsparseGetErrorString(hipsparseStatus_t status);
