#pragma once

namespace at {
class Tensor;
}

// Cholesky factorizations, and solutions with the factors, by one cuSOLVER call a matrix, on
// several streams at once. Each returns false, having done nothing, where LoopThresholds.h has the
// loop off or this thread has too few auxiliary streams: then what is there is right.

namespace at::native::solver_lanes {

#if !defined(USE_ROCM)

// Xpotrf in place of potrfBatched, where each matrix gets a stream of its own. Not with
// deterministic algorithms: the bits are others.
// input: (*, n, n), batched column major, overwritten. infos: one for each matrix, written.
bool cholesky_streamed_cusolver(const Tensor& input, bool upper, const Tensor& infos);

// Xpotrs, as the loop over the batch calls it.
// b: (*, n, k), batched column major, overwritten by the solutions. factors: (*, n, n), batched
// column major.
bool cholesky_solve_streamed_cusolver(const Tensor& b, const Tensor& factors, bool upper);

#else

inline bool cholesky_streamed_cusolver(
    const Tensor& /*input*/, bool /*upper*/, const Tensor& /*infos*/) {
  return false;
}

inline bool cholesky_solve_streamed_cusolver(
    const Tensor& /*b*/, const Tensor& /*factors*/, bool /*upper*/) {
  return false;
}

#endif  // !defined(USE_ROCM)

}  // namespace at::native::solver_lanes
