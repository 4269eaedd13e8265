#pragma once

// Our own LU kernels (linalg/native), where the build has them.

#include "Plan.h"

#include <ATen/core/Tensor.h>

namespace aten_overrides::gpu {

// Whether the kernels can run on the current device. Asks no driver for more than its version, so
// it may be called during a capture; never raises.
choice::Native native_state();

// Compute capabilities that the kernels were compiled for, as "80,90"; empty: not built.
const char* native_architectures();

// LU factorization of a batch in place, pivots and infos included. Only where native_state() is
// Usable.
void lu_factor_batched_native(
    const at::Tensor& input,
    const at::Tensor& pivots,
    const at::Tensor& infos,
    bool compute_pivots);

}  // namespace aten_overrides::gpu
