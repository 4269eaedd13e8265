#pragma once

#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// The search for a column's pivot among the rows of a warp, several to a lane.
namespace at::native::batched_native {

constexpr uint32_t kGone = 0x3fffffffu;  // position of a row that is a pivot row already, or absent
constexpr uint32_t kNowhere = kGone - 1;  // and of no row

// The 32-bit pieces of a magnitude, the upper first, in the order of the numbers; NaN above all.
__device__ __forceinline__ uint32_t magnitude_piece(float x, int) {
  return __float_as_uint(x) & 0x7fffffffu;
}
__device__ __forceinline__ uint32_t magnitude_piece(double x, int piece) {
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(x));
  return piece == 0 ? static_cast<uint32_t>(bits >> 32) & 0x7fffffffu : static_cast<uint32_t>(bits);
}

// A warp's candidate for a column: the largest magnitude among its rows, of equal ones the first.
template <typename T, int R>
struct PivotSearch {
  using Real = real_t<T>;
  static constexpr int kPieces = sizeof(Real) / 4;
  uint32_t top[kPieces];
  uint32_t place;  // on all lanes
  uint32_t mine;   // where this lane's best row stands
  T value;         // and its element

  template <int W>
  __device__ __forceinline__
  PivotSearch(const T (&x)[R][W], int w, const uint32_t (&pos)[R], const uint32_t (&mask)[R]) {
    Real size[R];
    bool leads[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if constexpr (RealOf<T>::complex) {
        size[r] = magnitude(x[r][w]);
      } else {
        size[r] = x[r][w];
      }
      leads[r] = true;
    }
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      uint32_t best = 0;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const uint32_t bits = magnitude_piece(size[r], piece) & mask[r];
        best = max(best, leads[r] ? bits : 0u);
      }
      top[piece] = __reduce_max_sync(kFullWarp, best);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        leads[r] = leads[r] & ((magnitude_piece(size[r], piece) & mask[r]) == top[piece]);
      }
    }
    mine = kNowhere;
    value = x[0][w];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const bool better = leads[r] & (pos[r] < mine);
      mine = better ? pos[r] : mine;
      value = select(better, x[r][w], value);
    }
    place = __reduce_min_sync(kFullWarp, mine);
  }

  __device__ __forceinline__ Real size() const {
    if constexpr (kPieces == 1) {
      return __uint_as_float(top[0]);
    } else {
      return __hiloint2double(static_cast<int>(top[0]), static_cast<int>(top[1]));
    }
  }
  __device__ __forceinline__ key_t_of<T> key() const {
    if constexpr (kPieces == 1) {
      return top[0];
    } else {
      return static_cast<uint64_t>(top[0]) << 32 | top[1];
    }
  }
};

}  // namespace at::native::batched_native
