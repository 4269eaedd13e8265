// Run-time compilation: only its result codes.
#pragma once

typedef enum hiprtcResult {
  HIPRTC_SUCCESS = 0,
  HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7
} hiprtcResult;

extern "C" const char* hiprtcGetErrorString(hiprtcResult result);
