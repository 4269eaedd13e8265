#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <ATen/native/cuda/linalg/native/WarpReduce.cuh>

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

__device__ __forceinline__ float absolute(float x) {
  return fabsf(x);
}
__device__ __forceinline__ double absolute(double x) {
  return fabs(x);
}

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
    Complex<Real> c, Complex<Real> a, Complex<Real> b) {
  Complex<Real> r;
  r.re = subtract_product(subtract_product(c.re, a.re, b.re), -a.im, b.im);
  r.im = subtract_product(subtract_product(c.im, a.re, b.im), a.im, b.re);
  return r;
}

// c -= a * b where `active` is not 0, as a predicated instruction: a branch would keep the compiler
// from interleaving independent elements, a select would cost an instruction more.
__device__ __forceinline__ void subtract_product_if(int active, float& c, float a, float b) {
  asm("{ .reg .pred p; setp.ne.s32 p, %1, 0; @p fma.rn.f32 %0, %2, %3, %0; }"
      : "+f"(c)
      : "r"(active), "f"(-a), "f"(b));
}
__device__ __forceinline__ void subtract_product_if(int active, double& c, double a, double b) {
  asm("{ .reg .pred p; setp.ne.s32 p, %1, 0; @p fma.rn.f64 %0, %2, %3, %0; }"
      : "+d"(c)
      : "r"(active), "d"(-a), "d"(b));
}
template <typename Real>
__device__ __forceinline__ void subtract_product_if(
    int active, Complex<Real>& c, Complex<Real> a, Complex<Real> b) {
  subtract_product_if(active, c.re, a.re, b.re);
  subtract_product_if(active, c.im, a.re, b.im);
  subtract_product_if(active, c.re, -a.im, b.im);
  subtract_product_if(active, c.im, a.im, b.re);
}

template <typename T>
__device__ __forceinline__ T select(bool first, T a, T b) {
  if constexpr (RealOf<T>::complex) {
    return T{first ? a.re : b.re, first ? a.im : b.im};
  } else {
    return first ? a : b;
  }
}

// What pivoting compares for complex elements: |re| + |im| as in LAPACK's icamax and izamax.
template <typename Real>
__device__ __forceinline__ Real magnitude(Complex<Real> x) {
  return absolute(x.re) + absolute(x.im);
}

// Magnitudes as odd unsigned integers in the same order: the bits without the sign. NaN lies above
// everything (so that it becomes the pivot and reaches the whole trailing matrix), 0 stays free for
// "no candidate". `mask` is all ones, or 0 to make all candidates equal.
__device__ __forceinline__ uint32_t key_of(float x, uint32_t mask) {
  return (__float_as_uint(x) << 1 & mask) | 1u;
}
__device__ __forceinline__ uint64_t key_of(double x, uint32_t mask) {
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(x)) << 1;
  return (bits & (static_cast<uint64_t>(mask) << 32 | mask)) | 1u;
}

template <typename T>
__device__ __forceinline__ auto pivot_key(T x, uint32_t mask) {
  if constexpr (RealOf<T>::complex) {
    return key_of(magnitude(x), mask);
  } else {
    return key_of(x, mask);
  }
}
template <typename T>
using key_t_of = std::conditional_t<sizeof(real_t<T>) == 8, uint64_t, uint32_t>;

constexpr unsigned kFullWarp = 0xffffffffu;

// Among the lanes that hold the largest key the smallest tag, on every lane. With the position in
// the tag's upper bits that is LAPACK's rule for ties. Straight-line on purpose: a rare branch for
// ties makes the compiler keep registers alive for it in every unrolled column.
__device__ __forceinline__ uint32_t warp_argmax(uint32_t key, uint32_t tag) {
  const bool leads = key == __reduce_max_sync(kFullWarp, key);
  return __reduce_min_sync(kFullWarp, leads ? tag : 0xffffffffu);
}
__device__ __forceinline__ uint32_t warp_argmax(uint64_t key, uint32_t tag) {
  const uint32_t high = static_cast<uint32_t>(key >> 32);
  bool leads = high == __reduce_max_sync(kFullWarp, high);
  const uint32_t low = leads ? static_cast<uint32_t>(key) : 0u;
  const uint32_t best_low = __reduce_max_sync(kFullWarp, low);  // by all lanes, so not behind &&
  leads = leads && low == best_low;
  return __reduce_min_sync(kFullWarp, leads ? tag : 0xffffffffu);
}

template <typename T>
__device__ __forceinline__ T shuffle(T x, int lane, int width) {
  if constexpr (RealOf<T>::complex) {
    return T{__shfl_sync(kFullWarp, x.re, lane, width), __shfl_sync(kFullWarp, x.im, lane, width)};
  } else {
    return __shfl_sync(kFullWarp, x, lane, width);
  }
}

// 2^(-exponent of x - 1), kept inside the normal numbers: brings x into [0.5, 1) without rounding,
// so that a numerator overflows with it only where the quotient does.
__device__ __forceinline__ float scale_to_one(float x) {
  const int field = 253 - static_cast<int>((__float_as_uint(x) >> 23) & 0xffu);
  return __uint_as_float(static_cast<uint32_t>(max(field, 1)) << 23);
}
__device__ __forceinline__ double scale_to_one(double x) {
  const int field = 2045 - ((__double2hiint(x) >> 20) & 0x7ff);
  return __hiloint2double(max(field, 1) << 20, 0);
}

// 1 / x for x near 1 (see scale_to_one), 0 or infinite: the hardware's estimate and Newton steps.
// No call to a slow path, around which the compiler would have to spill.
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

// 1 / x for x far from the ends of the range.
__device__ __forceinline__ float quick_reciprocal(float x) {
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(x));
  return __fmaf_rn(estimate, __fmaf_rn(-x, estimate, 1.0f), estimate);
}
__device__ __forceinline__ double quick_reciprocal(double x) {
  double estimate;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(estimate) : "d"(x));
#pragma unroll
  for (int step = 0; step < 3; ++step) {
    estimate = __fma_rn(estimate, __fma_rn(-x, estimate, 1.0), estimate);
  }
  return estimate;
}

// Division of a column by its pivot: times one reciprocal, both scaled by a power of two so that
// neither denormal nor huge pivots lose accuracy. A zero pivot leaves zeros as they are and, met
// only without pivoting, turns the rest into inf or NaN.
template <typename T>
struct Divisor {
  using Real = real_t<T>;
  T inverse;
  Real scale;

  static __device__ __forceinline__ Divisor of(T p) {
    Divisor d;
    if constexpr (RealOf<T>::complex) {
      const Real re = absolute(p.re), im = absolute(p.im);
      d.scale = scale_to_one(re > im ? re : im);
      const T q{p.re * d.scale, p.im * d.scale};
      const Real norm = reciprocal(q.re * q.re + q.im * q.im);
      d.inverse = is_zero(p) ? T{norm, norm} : T{q.re * norm, -q.im * norm};
    } else {
      d.scale = scale_to_one(p);
      d.inverse = reciprocal(p * d.scale);
    }
    return d;
  }

  // By a real pivot of this magnitude, the largest of its column: when it is zero all are, and
  // stay.
  static __device__ __forceinline__ Divisor of_largest(Real size) {
    constexpr Real huge = sizeof(Real) == 4 ? Real(0x1p100) : Real(0x1p900), tiny = 1 / huge;
    Divisor d;
    d.scale = size < tiny ? huge : (size > huge ? tiny : Real(1));
    const Real inverse = quick_reciprocal(size * d.scale);
    d.inverse = size == 0 ? Real(1) : (isinf(size) ? Real(0) : inverse);
    return d;
  }
  // A complex zero pivot, when it is the largest: all below are zeros and stay.
  __device__ __forceinline__ void leave_zeros() {
    const bool zero_pivot = isinf(inverse.re);
    inverse = T{zero_pivot ? Real(1) : inverse.re, zero_pivot ? Real(0) : inverse.im};
    scale = zero_pivot ? Real(1) : scale;
  }
  __device__ __forceinline__ T multiply(T x) const {
    if constexpr (RealOf<T>::complex) {
      const T y{x.re * scale, x.im * scale};
      return T{y.re * inverse.re - y.im * inverse.im, y.re * inverse.im + y.im * inverse.re};
    } else {
      return (x * scale) * inverse;
    }
  }

  __device__ __forceinline__ T divide(T x) const {
    if constexpr (RealOf<T>::complex) {
      const T y{x.re * scale, x.im * scale};
      const T q{y.re * inverse.re - y.im * inverse.im, y.re * inverse.im + y.im * inverse.re};
      return is_zero(x) && isinf(inverse.re) ? x : q;
    } else {
      const T q = (x * scale) * inverse;
      return is_zero(x) && isinf(inverse) ? x : q;
    }
  }
};

// 16 bytes of elements, and moves of what of W contiguous elements lies at or after `from` (a
// constant after unrolling).
template <typename T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T value[size];
};
template <typename T, int W>
__device__ __forceinline__ void load_row(T (&to)[W], const T* from_row, int from) {
  constexpr int V = Pack<T>::size;
  static_assert(W % V == 0, "rows are moved in 16-byte pieces");
#pragma unroll
  for (int j = 0; j < W; j += V) {
    if (j + V > from) {
      const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(from_row + j);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        to[j + v] = pack.value[v];
      }
    }
  }
}
template <typename T, int W>
__device__ __forceinline__ void store_row(T* to_row, const T (&values)[W], int from) {
  constexpr int V = Pack<T>::size;
#pragma unroll
  for (int j = 0; j < W; j += V) {
    if (j + V > from) {
      Pack<T> pack;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        pack.value[v] = values[j + v];
      }
      *reinterpret_cast<Pack<T>*>(to_row + j) = pack;
    }
  }
}

}  // namespace at::native::batched_native
