#pragma once

#include <algorithm>

#include <ATen/native/cuda/linalg/native/HostParts.h>

// The blocked route of the batched LU; only BatchedLU.cpp includes this.
namespace at::native::batched_native {

constexpr const char* kLu = "batched_native LU";  // in errors
constexpr int kTallWidth = 8;

// How `steps` columns are cut into outer blocks: the first takes the remainder (and one block more
// when that is less than half a block), so that all trailing sizes are multiples of `outer` away
// from the end.
struct OuterBlocks {
  int first;  // width of the first block; all others have `outer` columns
  int count;
  static OuterBlocks of(int steps, int outer) {
    const int rest = steps % outer;
    const int count = (steps + outer - 1) / outer;
    return steps > outer && rest * 2 < outer
               ? OuterBlocks{rest == 0 ? outer : outer + rest, steps / outer}
               : OuterBlocks{rest == 0 ? outer : rest, count};
  }
};

// Panels that a block of `width` columns is cut into: a remainder of at most a quarter panel joins
// the first one.
inline int leaves_of(int width, int leaf, int slack) {
  return std::max(1, (width + leaf - 1 - slack) / leaf);
}

inline int levels_of(int leaves) {
  int levels = 1;
  for (int covered = 1; covered < leaves; covered *= 2) {
    ++levels;
  }
  return levels;
}

// Rows up to which one block factors a panel faster than a cluster does, as measured on an H200.
template <typename T>
constexpr int kAlone = sizeof(T) == 4 ? 768 : (sizeof(T) == 8 ? 384 : 512);

// Whether so many panels of `rows` rows are more than the device has room for at once.
inline bool many_panels(const LuPlan& plan, int rows, int64_t batch) {
  return batch > plan.room * (rows > 256 ? 1 : 2);
}

// The narrowest panels, in steps of 4 columns, that cut `width` columns into as few as those of
// `most` columns do.
inline int even_width(int width, int most) {
  if (most < 4) {
    return most;
  }
  const int panels = (width + most - 1) / most;
  return std::min(most, ((width + panels - 1) / panels + 3) / 4 * 4);
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

  // Panel width for `rows` rows: what fits, as even as the plan's outer block allows.
  static int leaf_width(int rows, const LuPlan& plan, size_t shared) {
    const int fits = width_of(rows, plan.leaf, plan, shared);
    return fits == 0 ? std::min(kTallWidth, plan.leaf) : even_width(plan.outer, fits);
  }
  // That of the narrowest panels of a matrix: the first, or the first that one block factors after
  // those that clusters share.
  static int narrowest_leaf(int m, const LuPlan& plan, size_t shared) {
    const int first = leaf_width(m, plan, shared);
    return plan.clusters && m > kAlone<T> ? std::min(first, leaf_width(kAlone<T>, plan, shared))
                                          : first;
  }
  // Width of the outer blocks: bounded by the levels that the narrowest panel allows.
  static int outer_width(int m, const LuPlan& plan, size_t shared) {
    const int leaf = narrowest_leaf(m, plan, shared);
    return std::min(std::max(plan.outer, leaf), leaf << (kMaxLevels - 2));
  }
  // int32 elements of one matrix's maps: those of the levels, and with a finish also the order that
  // each outer block made.
  static int64_t map_elements(int m, int n, const LuPlan& plan, size_t shared) {
    const int outer = outer_width(m, plan, shared);
    const OuterBlocks blocks = OuterBlocks::of(std::min(m, n), outer);
    const int levels = most_levels(m, blocks, plan, shared);
    return static_cast<int64_t>(levels) * (m + std::max(blocks.first, outer)) +
           (finish_fits<T>(m, shared) ? static_cast<int64_t>(blocks.count) * m : 0);
  }

  void run() {
    const int steps = std::min(whole_.m, whole_.n);
    const int outer = outer_width(whole_.m, plan_, shared_);
    const OuterBlocks blocks = OuterBlocks::of(steps, outer);
    const bool finish = whole_.pivot && finish_fits<T>(whole_.m, shared_);
    map_size_ = whole_.m + std::max(blocks.first, outer);
    int32_t* const orders =
        maps_ + static_cast<int64_t>(most_levels(whole_.m, blocks, plan_, shared_)) * map_size_;
    const int narrowest = narrowest_leaf(whole_.m, plan_, shared_);
    int start = 0;
    for (int block = 0; block < blocks.count; ++block) {
      const int width = block == 0 ? std::min(blocks.first, steps) : outer;
      const int next = start + width;
      // Never narrower than that for which the levels were counted.
      leaf_ = std::min(width, std::max(narrowest, leaf_width(whole_.m - start, plan_, shared_)));
      slack_ = slack_of(whole_.m - start, leaf_, plan_, shared_);
      order_ = finish ? orders + block * static_cast<int64_t>(whole_.m) : nullptr;
      factor(0, start, width);
      const int left = whole_.pivot && !finish ? start : 0;
      exchange(0, 0, left, next, whole_.n - next);
      update(start, width, next, whole_.n - next);
      start = next;
    }
    if (finish) {
      launch_finish(
          Finish<T>{whole_, orders, level_stride_, blocks.first, outer, blocks.count}, stream_);
    }
  }

 private:
  static int by_cluster(int rows, int wanted, const LuPlan& plan, size_t shared) {
    return plan.clusters && rows > kAlone<T> ? cluster_width<T>(rows, wanted, shared) : 0;
  }
  // A block of columns that begins above kAlone rows may end below, where one block cannot hold
  // panels of the width that it began with.
  bool needs_cluster(int rows, int width) const {
    return plan_.clusters && panel_width<T>(rows, width, shared_) != width &&
           cluster_width<T>(rows, width, shared_) == width;
  }
  // Columns up to `wanted` that a panel of `rows` rows can have; 0: only tall_lu takes it.
  static int width_of(int rows, int wanted, const LuPlan& plan, size_t shared) {
    const int together = by_cluster(rows, wanted, plan, shared);
    return together > 0 ? together : panel_width<T>(rows, wanted, shared / plan.resident);
  }
  static int slack_of(int rows, int leaf, const LuPlan& plan, size_t shared) {
    const int wide = leaf + leaf / 4;
    return width_of(rows, wide, plan, shared) == wide ? leaf / 4 : 0;
  }
  static int most_levels(int m, const OuterBlocks& blocks, const LuPlan& plan, size_t shared) {
    const int leaf = narrowest_leaf(m, plan, shared);
    return levels_of(leaves_of(std::max(blocks.first, outer_width(m, plan, shared)), leaf, 0));
  }

  void factor(int depth, int first, int width) {
    levels_[depth] = level(depth, first, width);
    const int leaves = leaves_of(width, leaf_, slack_);
    if (leaves == 1) {
      panel(depth + 1, first, width);
      return;
    }
    const int rest = leaves / 2 * leaf_, half = width - rest, middle = first + half;
    factor(depth + 1, first, half);
    exchange(depth + 1, 0, 0, middle, rest);
    update(first, half, middle, rest);
    factor(depth + 1, middle, rest);
    if (whole_.pivot) {
      exchange(depth + 1, first, half, 0, 0);
    }
  }

  Level level(int depth, int start, int width) const {
    int32_t* const now = maps_ + depth * static_cast<int64_t>(map_size_);
    return Level{depth == 0 && order_ != nullptr ? order_ : now, now + whole_.m, start, width};
  }

  void panel(int depth, int first, int width) {
    Panel<T> p{};
    p.whole = whole_;
    p.first = first;
    p.n = width;
    p.levels = whole_.pivot ? depth : 0;
    p.level_stride = level_stride_;
    std::copy(levels_, levels_ + p.levels, p.level);
    const int rows = whole_.m - first;
    if (by_cluster(rows, width, plan_, shared_) == width || needs_cluster(rows, width)) {
      launch_cluster_lu(p, stream_);
    } else if (panel_width<T>(rows, width, shared_) == width) {
      launch_panel_lu(p, many_panels(plan_, rows, whole_.batch), stream_);
    } else {
      launch_tall_lu(p, stream_);
    }
  }

  void exchange(int depth, int left, int left_n, int right, int right_n) {
    launch_exchange(
        Exchange<T>{whole_, levels_[depth], level_stride_, left, left_n, right, right_n},
        shared_,
        stream_);
  }

  // A[first + width :, right :] -= A[first + width :, first :] A[first :, right :]
  void update(int first, int width, int right, int right_n) {
    const int rows = whole_.m - first - width;
    if (rows <= 0 || right_n <= 0) {
      return;
    }
    const int below = first + width;
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
        kLu,
        "cublasGemmStridedBatchedEx");
  }

  WholeMatrices<T> whole_;
  LuPlan plan_;
  int32_t* maps_;
  int64_t level_stride_;
  size_t shared_;
  cublasHandle_t handle_;
  cudaStream_t stream_;
  int32_t* order_ = nullptr;       // the current outer block's row order, if kept for the finish
  Level levels_[kMaxLevels] = {};  // of the recursion's open blocks, outermost first
  int leaf_ = 0, slack_ = 0, map_size_ = 0;
};

}  // namespace at::native::batched_native
