#pragma once

namespace at {
class Tensor;
}

// Cholesky factorizations by one cuSOLVER call a matrix, on several streams at once.

namespace at::native::solver_lanes {

#if !defined(USE_ROCM)

// Xpotrf in place of potrfBatched, where each matrix gets a stream of its own. Not with
// deterministic algorithms: the bits are others. Returns false, having done nothing, where
// LoopThresholds.h has it off or this thread has too few auxiliary streams: then potrfBatched is
// right.
//
// input: (*, n, n), batched column major, overwritten. infos: (*), int32, written.
bool cholesky_streamed_cusolver(const Tensor& input, bool upper, const Tensor& infos);

#else

inline bool cholesky_streamed_cusolver(
    const Tensor& /*input*/, bool /*upper*/, const Tensor& /*infos*/) {
  return false;
}

#endif  // !defined(USE_ROCM)

}  // namespace at::native::solver_lanes
