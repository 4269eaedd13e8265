#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <ATen/native/cuda/linalg/native/Kernels.h>

// Element types and the few operations that an LU kernel needs from them.
namespace at::native::batched_native {

template <typename T>
struct RealOf {
  using type = T;
  static constexpr bool complex = false;
};
template <typename Real>
struct RealOf<Complex<Real>> {
  using type = Real;
  static constexpr bool complex = true;
};
template <typename T>
using real_t = typename RealOf<T>::type;

template <typename T>
__device__ __forceinline__ T zero() {
  if constexpr (RealOf<T>::complex) {
    return T{real_t<T>(0), real_t<T>(0)};
  } else {
    return T(0);
  }
}

template <typename T>
__device__ __forceinline__ bool is_zero(T x) {
  if constexpr (RealOf<T>::complex) {
    return x.re == 0 && x.im == 0;
  } else {
    return x == 0;
  }
}

// c - a * b
__device__ __forceinline__ float subtract_product(float c, float a, float b) {
  return __fmaf_rn(-a, b, c);
}
__device__ __forceinline__ double subtract_product(double c, double a, double b) {
  return __fma_rn(-a, b, c);
}
template <typename Real>
__device__ __forceinline__ Complex<Real> subtract_product(
    Complex<Real> c,
    Complex<Real> a,
    Complex<Real> b) {
  Complex<Real> r;
  r.re = subtract_product(subtract_product(c.re, a.re, b.re), -a.im, b.im);
  r.im = subtract_product(subtract_product(c.im, a.re, b.im), a.im, b.re);
  return r;
}

// The magnitude that pivoting compares: |x|, for complex |re| + |im| as in LAPACK's icamax/izamax.
template <typename T>
__device__ __forceinline__ real_t<T> magnitude(T x) {
  if constexpr (RealOf<T>::complex) {
    return fabs(x.re) + fabs(x.im);
  } else {
    return fabs(x);
  }
}

// Magnitudes as unsigned integers in the same order, NaN above everything (so that a NaN becomes the
// pivot and reaches the whole trailing matrix), 0 kept free for "no candidate".
template <typename Real>
struct PivotKey;
template <>
struct PivotKey<float> {
  using type = uint32_t;
  __device__ static type of(float magnitude) {
    return (__float_as_uint(magnitude) & 0x7fffffffu) + 1u;
  }
};
template <>
struct PivotKey<double> {
  using type = uint64_t;
  __device__ static type of(double magnitude) {
    return (static_cast<uint64_t>(__double_as_longlong(magnitude)) & 0x7fffffffffffffffull) + 1ull;
  }
};
template <typename T>
using key_t_of = typename PivotKey<real_t<T>>::type;

template <typename T>
__device__ __forceinline__ key_t_of<T> pivot_key(T x) {
  return PivotKey<real_t<T>>::of(magnitude(x));
}

constexpr unsigned kFullWarp = 0xffffffffu;

__device__ __forceinline__ uint32_t warp_max(uint32_t key) {
  return __reduce_max_sync(kFullWarp, key);
}
__device__ __forceinline__ uint64_t warp_max(uint64_t key) {
  const uint32_t high = static_cast<uint32_t>(key >> 32);
  const uint32_t best_high = __reduce_max_sync(kFullWarp, high);
  const uint32_t low = high == best_high ? static_cast<uint32_t>(key) : 0u;
  const uint32_t best_low = __reduce_max_sync(kFullWarp, low);
  return (static_cast<uint64_t>(best_high) << 32) | best_low;
}

// Among the lanes that hold the largest key, the smallest position: LAPACK's rule for ties.
template <typename Key>
__device__ __forceinline__ void warp_argmax(Key key, uint32_t pos, Key& best, uint32_t& best_pos) {
  best = warp_max(key);
  best_pos = __reduce_min_sync(kFullWarp, key == best ? pos : 0xffffffffu);
}

template <typename T>
__device__ __forceinline__ T shuffle(T x, int lane, int width) {
  if constexpr (RealOf<T>::complex) {
    return T{
        __shfl_sync(kFullWarp, x.re, lane, width), __shfl_sync(kFullWarp, x.im, lane, width)};
  } else {
    return __shfl_sync(kFullWarp, x, lane, width);
  }
}

// 2^(-exponent of x), kept inside the normal numbers: brings x near 1 without rounding.
__device__ __forceinline__ float scale_to_one(float x) {
  const int field = 254 - static_cast<int>((__float_as_uint(x) >> 23) & 0xffu);
  return __uint_as_float(static_cast<uint32_t>(max(field, 1)) << 23);
}
__device__ __forceinline__ double scale_to_one(double x) {
  const int field = 2046 - ((__double2hiint(x) >> 20) & 0x7ff);
  return __hiloint2double(max(field, 1) << 20, 0);
}

// 1 / x for x near 1 (see scale_to_one), 0 or infinite: the hardware's estimate and Newton steps. No
// call to a slow path, around which the compiler would have to spill.
__device__ __forceinline__ float reciprocal(float x) {
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  const float refined = __fmaf_rn(estimate, __fmaf_rn(-x, estimate, 1.0f), estimate);
  return estimate == 0.0f || isinf(estimate) ? estimate : refined;
}
__device__ __forceinline__ double reciprocal(double x) {
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(static_cast<float>(x)));
  double refined = estimate;
#pragma unroll
  for (int step = 0; step < 3; ++step) {
    refined = __fma_rn(refined, __fma_rn(-x, refined, 1.0), refined);
  }
  return estimate == 0.0f || isinf(estimate) ? estimate : refined;
}

// Division of a column by its pivot: times one reciprocal, both scaled by a power of two so that
// neither denormal nor huge pivots lose accuracy. A zero pivot leaves zeros as they are and, met only
// without pivoting, turns the rest into inf or NaN.
template <typename T>
struct Divisor {
  using Real = real_t<T>;
  Real scale;
  T inverse;
  bool null;

  __device__ __forceinline__ explicit Divisor(T p) : null(is_zero(p)) {
    if constexpr (RealOf<T>::complex) {
      scale = scale_to_one(fmax(fabs(p.re), fabs(p.im)));
      const T q{p.re * scale, p.im * scale};
      const Real norm = reciprocal(q.re * q.re + q.im * q.im);
      inverse = T{q.re * norm, -q.im * norm};
    } else {
      scale = scale_to_one(p);
      inverse = reciprocal(p * scale);
    }
  }

  __device__ __forceinline__ T divide(T x) const {
    T q;
    if constexpr (RealOf<T>::complex) {
      const T y{x.re * scale, x.im * scale};
      q = T{y.re * inverse.re - y.im * inverse.im, y.re * inverse.im + y.im * inverse.re};
    } else {
      q = (x * scale) * inverse;
    }
    return null && is_zero(x) ? x : q;
  }
};

} // namespace at::native::batched_native
