#pragma once

namespace at {
class Tensor;
}

// LU factorization of a batch by one cuSOLVER call a matrix, on several streams at once.

namespace at::native::solver_lanes {

#if !defined(USE_ROCM)

// Factorizes the matrices of `self` in place, as the loop of getrf calls over the batch does: the
// same routine with the same arguments for each matrix. Returns false, having done nothing, where
// the batch has one matrix or this thread has no auxiliary stream: then the loop is right.
//
// self: (*, m, n), batched column major. pivots: (*, min(m, n)), int32, written if get_pivots.
// infos: (*), int32, one for each matrix, on the device.
bool lu_factor_streamed_cusolver(
    const Tensor& self, const Tensor& pivots, const Tensor& infos, bool get_pivots);

#else

inline bool lu_factor_streamed_cusolver(
    const Tensor& /*self*/,
    const Tensor& /*pivots*/,
    const Tensor& /*infos*/,
    bool /*get_pivots*/) {
  return false;
}

#endif  // !defined(USE_ROCM)

}  // namespace at::native::solver_lanes
