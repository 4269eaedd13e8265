#pragma once

#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// What the solves need of elements besides Scalar.cuh.
namespace at::native::batched_native {

template <typename T>
__device__ __forceinline__ T one() {
  if constexpr (RealOf<T>::complex) {
    return T{real_t<T>(1), real_t<T>(0)};
  } else {
    return T(1);
  }
}

template <typename T>
__device__ __forceinline__ T sum(T a, T b) {
  if constexpr (RealOf<T>::complex) {
    return T{a.re + b.re, a.im + b.im};
  } else {
    return a + b;
  }
}

// The conjugate where `sign` is -1, the number itself where it is 1.
template <typename T>
__device__ __forceinline__ T conjugate(T a, int sign) {
  if constexpr (RealOf<T>::complex) {
    a.im *= static_cast<real_t<T>>(sign);
  }
  return a;
}

// x over the divisor's number as IEEE has it: 0 / 0 is NaN, unlike Divisor::divide.
template <typename T>
__device__ __forceinline__ T quotient(T x, const Divisor<T>& divisor) {
  if constexpr (RealOf<T>::complex) {
    const T y{x.re * divisor.scale, x.im * divisor.scale}, z = divisor.inverse;
    return T{y.re * z.re - y.im * z.im, y.re * z.im + y.im * z.re};
  } else {
    return (x * divisor.scale) * divisor.inverse;
  }
}

template <typename T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if constexpr (RealOf<T>::complex) {
      x.re += __shfl_xor_sync(kFullWarp, x.re, step, 32);
      x.im += __shfl_xor_sync(kFullWarp, x.im, step, 32);
    } else {
      x += __shfl_xor_sync(kFullWarp, x, step, 32);
    }
  }
  return x;
}

}  // namespace at::native::batched_native
