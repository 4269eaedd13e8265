#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>

#include <ATen/native/cuda/linalg/native/BatchedLU.h>
#include <ATen/native/cuda/linalg/native/Kernels.h>

// The blocked route of the batched LU; only BatchedLU.cpp includes this.
namespace at::native::batched_native {

constexpr int kTallWidth = 8;

inline void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(
        std::string("batched_native LU: ") + call + " failed with " +
        cublasGetStatusString(status));
  }
}

template <typename T>
struct Gemm;
template <>
struct Gemm<float> {
  static constexpr cudaDataType_t type = CUDA_R_32F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  static constexpr float minus = -1, one = 1;
};
template <>
struct Gemm<double> {
  static constexpr cudaDataType_t type = CUDA_R_64F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
  static constexpr double minus = -1, one = 1;
};
template <>
struct Gemm<Complex<float>> {
  static constexpr cudaDataType_t type = CUDA_C_32F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  static constexpr Complex<float> minus{-1, 0}, one{1, 0};
};
template <>
struct Gemm<Complex<double>> {
  static constexpr cudaDataType_t type = CUDA_C_64F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
  static constexpr Complex<double> minus{-1, 0}, one{1, 0};
};

inline int levels_of(int leaf, int outer) {
  int levels = 1;
  for (int width = leaf; width < outer; width *= 2) {
    ++levels;
  }
  return levels;
}

inline int blocks_of(int m, int n, int outer) {
  return (std::min(m, n) + outer - 1) / outer;
}

inline int power_below(int x) {
  int power = 1;
  while (power * 2 <= x) {
    power *= 2;
  }
  return power;
}

// The blocked route: blocks of `outer` columns, each factored by recursion over its column halves
// (Toledo, "Locality of reference in LU decomposition with partial pivoting", 1997), panels of at
// most `leaf` columns at the bottom. Every level of the recursion keeps the row order made since
// its start.
template <typename T>
class BlockedLU {
 public:
  BlockedLU(
      const WholeMatrices<T>& whole,
      const LuPlan& plan,
      int32_t* maps,
      int64_t level_stride,
      size_t shared,
      cublasHandle_t handle,
      cudaStream_t stream)
      : whole_(whole),
        plan_(plan),
        maps_(maps),
        level_stride_(level_stride),
        shared_(shared),
        handle_(handle),
        stream_(stream) {}

  // Panel width for `rows` rows: what fits, cut to a power of two so that halves line up.
  static int leaf_width(int rows, const LuPlan& plan, size_t shared) {
    const int fits = block_lu_width<T>(rows, plan.leaf, shared / plan.resident);
    return fits == 0 ? std::min(kTallWidth, plan.leaf) : power_below(fits);
  }
  // Width of the outer blocks, the same for all: the first panel is the narrowest.
  static int outer_width(int m, const LuPlan& plan, size_t shared) {
    const int leaf = leaf_width(m, plan, shared);
    return std::min(std::max(plan.outer, leaf), leaf << (kMaxLevels - 1));
  }
  // int32 elements of one matrix's maps: those of the levels, and with a finish also the order that
  // each outer block made.
  static int64_t map_elements(int m, int n, const LuPlan& plan, size_t shared) {
    const int outer = outer_width(m, plan, shared);
    const int levels = levels_of(leaf_width(m, plan, shared), outer);
    const int64_t blocks = finish_fits<T>(m, shared) ? blocks_of(m, n, outer) : 0;
    return static_cast<int64_t>(levels) * (m + outer) + blocks * m;
  }

  void run() {
    const int steps = std::min(whole_.m, whole_.n);
    outer_ = outer_width(whole_.m, plan_, shared_);
    const bool finish = whole_.pivot && finish_fits<T>(whole_.m, shared_);
    const int levels = levels_of(leaf_width(whole_.m, plan_, shared_), outer_);
    int32_t* const orders = maps_ + static_cast<int64_t>(levels) * (whole_.m + outer_);
    for (start_ = 0; start_ < steps; start_ += outer_) {
      leaf_ = std::min(outer_, leaf_width(whole_.m - start_, plan_, shared_));
      order_ = finish ? orders + start_ / outer_ * static_cast<int64_t>(whole_.m) : nullptr;
      const int width = std::min(outer_, steps - start_);
      const int next = start_ + width;
      factor(start_, width);
      const int left = whole_.pivot && !finish ? start_ : 0;
      exchange(start_, width, 0, left, next, whole_.n - next);
      update(start_, width, next, whole_.n - next);
    }
    if (finish) {
      launch_finish(
          Finish<T>{whole_, orders, level_stride_, outer_, blocks_of(whole_.m, whole_.n, outer_)},
          stream_);
    }
  }

 private:
  void factor(int first, int width) {
    if (width <= leaf_) {
      panel(first, width);
      return;
    }
    int half = leaf_;
    while (half * 2 < width) {
      half *= 2;
    }
    const int middle = first + half, rest = width - half;
    factor(first, half);
    exchange(first, half, 0, 0, middle, rest);
    update(first, half, middle, rest);
    factor(middle, rest);
    if (whole_.pivot) {
      exchange(middle, rest, first, half, 0, 0);
    }
  }

  Level level(int index, int start, int width) const {
    int32_t* const now = maps_ + index * static_cast<int64_t>(whole_.m + outer_);
    const bool outermost = leaf_ << index >= outer_ && order_ != nullptr;
    return Level{outermost ? order_ : now, now + whole_.m, start, width};
  }

  void panel(int first, int width) {
    Panel<T> p{};
    p.whole = whole_;
    p.first = first;
    p.n = width;
    p.levels = whole_.pivot ? levels_of(leaf_, outer_) : 0;
    p.level_stride = level_stride_;
    for (int l = 0; l < p.levels; ++l) {
      const int nominal = leaf_ << l;
      p.level[l] = level(l, start_ + (first - start_) / nominal * nominal, nominal);
    }
    if (block_lu_width<T>(whole_.m - first, width, shared_) == width) {
      launch_block_lu(p, stream_);
    } else {
      launch_tall_lu(p, stream_);
    }
  }

  void exchange(int start, int width, int left, int left_n, int right, int right_n) {
    int index = 0;
    while (leaf_ << index < width) {
      ++index;
    }
    launch_exchange(
        Exchange<T>{
            whole_, level(index, start, width), level_stride_, left, left_n, right, right_n},
        shared_,
        stream_);
  }

  // A[first + width :, right :] -= A[first + width :, first :] A[first :, right :]
  void update(int first, int width, int right, int right_n) {
    const int below = first + width, rows = whole_.m - below;
    if (rows <= 0 || right_n <= 0) {
      return;
    }
    T* const lower = whole_.a + below + first * whole_.lda;
    T* const upper = whole_.a + first + right * whole_.lda;
    T* const target = whole_.a + below + right * whole_.lda;
    const int lda = static_cast<int>(whole_.lda);
    const auto type = Gemm<T>::type;
    check_cublas(
        cublasGemmStridedBatchedEx(
            handle_,
            CUBLAS_OP_N,
            CUBLAS_OP_N,
            rows,
            right_n,
            width,
            &Gemm<T>::minus,
            lower,
            type,
            lda,
            whole_.stride,
            upper,
            type,
            lda,
            whole_.stride,
            &Gemm<T>::one,
            target,
            type,
            lda,
            whole_.stride,
            static_cast<int>(whole_.batch),
            Gemm<T>::compute,
            CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx");
  }

  WholeMatrices<T> whole_;
  LuPlan plan_;
  int32_t* maps_;
  int64_t level_stride_;
  size_t shared_;
  cublasHandle_t handle_;
  cudaStream_t stream_;
  int32_t* order_ = nullptr;  // the current outer block's row order, if kept for the finish
  int start_ = 0, leaf_ = 0, outer_ = 0;
};

}  // namespace at::native::batched_native
