// What device code and its launches need; here only host code is compiled.
#pragma once

#include <hip/hip_runtime_api.h>
#include <hip/library_types.h>

#define __host__
#define __device__
#define __global__
#define __shared__
#define __launch_bounds__(...)
