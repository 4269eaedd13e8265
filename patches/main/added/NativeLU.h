#pragma once

namespace at {
class Tensor;
}

namespace at::native {

#if !defined(USE_ROCM)

// LU factorization of a batch of matrices by PyTorch's own kernels in native/, in place: with the
// preference "native" wherever they take the problem, by default where they were measured to be
// faster than the libraries and no other kernel of PyTorch's takes it. Returns false, having done
// nothing, for everything else.
//
// input: (*, m, n), batched column major. pivots: (*, min(m, n)), int32, written: the trivial
// permutation without compute_pivots. infos: (*), int32, written. All on the device.
bool lu_factor_native(
    const Tensor& input, const Tensor& pivots, const Tensor& infos, bool compute_pivots);

#else

inline bool lu_factor_native(
    const Tensor& /*input*/,
    const Tensor& /*pivots*/,
    const Tensor& /*infos*/,
    bool /*compute_pivots*/) {
  return false;
}

#endif  // !defined(USE_ROCM)

}  // namespace at::native
