#pragma once

namespace at {
class Tensor;
}

// QR factorizations and products with Q by one cuSOLVER call a matrix, on several streams at once.
// Each does what the loop of calls over the batch does: the same routine with the same arguments
// for each matrix. Each returns false, having done nothing, where LoopThresholds.h has the loop off
// or this thread has no auxiliary stream: then the loop is right.

namespace at::native::solver_lanes {

#if !defined(USE_ROCM)

// input: (*, m, n), batched column major, overwritten. tau: (*, min(m, n)), written.
bool geqrf_streamed_cusolver(const Tensor& input, const Tensor& tau);

// self: (*, m, n) with m >= n, batched column major: reflectors below the diagonal, then Q.
// tau: (*, k) with k <= n.
bool orgqr_streamed_cusolver(const Tensor& self, const Tensor& tau);

// other: (*, m, n), batched column major, overwritten by its product with Q or Q^H.
bool ormqr_streamed_cusolver(
    const Tensor& input, const Tensor& tau, const Tensor& other, bool left, bool transpose);

#else

inline bool geqrf_streamed_cusolver(const Tensor& /*input*/, const Tensor& /*tau*/) {
  return false;
}

inline bool orgqr_streamed_cusolver(const Tensor& /*self*/, const Tensor& /*tau*/) {
  return false;
}

inline bool ormqr_streamed_cusolver(
    const Tensor& /*input*/,
    const Tensor& /*tau*/,
    const Tensor& /*other*/,
    bool /*left*/,
    bool /*transpose*/) {
  return false;
}

#endif  // !defined(USE_ROCM)

}  // namespace at::native::solver_lanes
