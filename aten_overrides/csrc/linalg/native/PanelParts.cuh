#pragma once

#include <algorithm>

#include <cuda_pipeline.h>

#include <ATen/native/cuda/linalg/native/Clusters.cuh>
#include <ATen/native/cuda/linalg/native/Kernels.h>
#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// What the panel kernel of PanelLU.cuh has in shared memory, and its steps without a pivot search:
// reading the panel, solving for the rows of U right of a strip, writing in order.
namespace at::native::batched_native {

// What the kernel has in shared memory; kMost: rows that it has room for. Room of kMost rows makes
// addresses constants, and rows and columns are padded so that no access needs a condition.
//
// A cluster of C blocks has a slice of kMost rows in each. Then `mail` has the candidates of all
// blocks' leaders, and the rows of U reach all blocks before they are solved for, in `tails`.
template <typename T, int W, int P, int kMost, int C = 1>
struct PanelShared {
  static constexpr int kBlocks = C, kCandidates = C * P;
  using Key = key_t_of<T>;
  static constexpr int kPack = 16 / sizeof(T);
  static constexpr int kRow = W + (kPack > 2 ? kPack : 2);  // a row, its pivot's inverse and scale
  static constexpr int kStep = W + kPack;     // row length of U: 16-byte accesses without conflicts
  static constexpr int kLeading = kMost + 1;  // odd: a row's elements fall into different banks

  // One leader's candidates are the pivot rows. In a cluster a candidate goes from `staged` to the
  // `mail` of all blocks, with its magnitude, place and slot behind it, 16 bytes.
  static constexpr int kMail = kCandidates == 1 ? 0 : W * kCandidates, kStaged = C == 1 ? 0 : P;
  static constexpr int kRecord = kRow + (C == 1 ? 0 : kPack);
  static_assert(C * kMost < 32768, "rows are counted in 16 bits");

  T* mail;             // [W][kCandidates][kRecord] the leaders' candidates for a column's pivot row
  T* staged;           // [kStaged][kRecord]
  Key* keys;           // [W][kCandidates] their magnitudes
  uint32_t* places;    // [W][kCandidates] where they stand, counted from the strip's first column
  int32_t* slots;      // [W][kCandidates] and the row of `matrix` that holds them
  T* tops;             // [2][W][kRow] the pivot rows of a strip and of the one before it
  int32_t* top_slots;  // [2][W] the rows of `matrix` that hold them; -1: another block has it
  int32_t* first_zero;
  T* upper;  // [columns right of the strip][kStep]
  T* tails;  // [2][W][tail_step]
  int tail_step;
  uint64_t* signals;  // kSignals, see StripLU.cuh
  T* matrix;          // [columns][kLeading]
  int32_t* place_at;  // [min(m, n)] where each pivot was found
  int16_t* final_of;  // [kMost] where a row of `matrix` belongs; negative until it is a pivot row
  int16_t* slot_at;   // [m] the inverse; not in a cluster

  static constexpr int kSignals = C == 1 ? 0 : 6;
  static __host__ __device__ int columns(int n) {
    return (n + W - 1) / W * W;
  }
  static __host__ size_t bytes(int m, int n) {
    const size_t elements = static_cast<size_t>(kMail + kStaged) * kRecord +
                            static_cast<size_t>(2 * W) * kRow +
                            static_cast<size_t>(columns(n) - W) * (kStep + (C == 1 ? 0 : 2 * W)) +
                            static_cast<size_t>(columns(n)) * kLeading;
    return elements * sizeof(T) + 8 + (C == 1 ? kMail : 0) * (sizeof(Key) + 8) +
           kSignals * sizeof(uint64_t) +
           (2 * W + 1 + static_cast<size_t>(std::min(m, n))) * sizeof(int32_t) +
           (kMost + static_cast<size_t>(C == 1 ? m : 0)) * sizeof(int16_t);
  }
  __device__ PanelShared(unsigned char* base, int m, int n) {
    mail = reinterpret_cast<T*>(base);
    staged = mail + kMail * kRecord;
    tops = staged + kStaged * kRecord;
    upper = tops + 2 * W * kRow;
    tails = upper + (columns(n) - W) * kStep;
    tail_step = columns(n) - W;
    matrix = tails + (C == 1 ? 0 : 2 * W * tail_step);
    signals = reinterpret_cast<uint64_t*>(
        reinterpret_cast<unsigned char*>(matrix) +
        (static_cast<size_t>(columns(n)) * kLeading * sizeof(T) + 7) / 8 * 8);
    keys = reinterpret_cast<Key*>(signals + kSignals);
    places = reinterpret_cast<uint32_t*>(keys + (C == 1 ? kMail : 0));
    slots = reinterpret_cast<int32_t*>(places + (C == 1 ? kMail : 0));
    top_slots = slots + (C == 1 ? kMail : 0);
    first_zero = top_slots + 2 * W;
    place_at = first_zero + 1;
    final_of = reinterpret_cast<int16_t*>(place_at + min(m, n));
    slot_at = final_of + kMost;
  }
};

// The same number, but the compiler cannot tell: addresses are computed anew from it instead of
// being kept in W registers from an earlier use.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// The pivot rows' elements in the strip itself, into the matrix, and where these rows belong.
template <int W, typename Shared>
__device__ __forceinline__ void place_tops(
    const Shared& s, int k0, int half, int done, int from, int step) {
  for (int i = from; i < done * W; i += step) {
    const int w = i / W, c = i % W, slot = s.top_slots[half * W + w];
    if (Shared::kBlocks > 1 && slot < 0) {
      continue;
    }
    s.matrix[slot + (k0 + c) * Shared::kLeading] = s.tops[(half * W + w) * Shared::kRow + c];
    if (c == 0) {
      s.final_of[slot] = static_cast<int16_t>(k0 + w);
    }
  }
}

// The rows of U right of a strip, a column per thread, into the matrix and into `upper`: columns
// from, from + step, ... up to `rest`. `half`: which of the two sets of pivot rows is the strip's.
template <bool kWhole, int W, typename T, typename Shared>
__device__ __forceinline__ void solve_upper(
    const Shared& s, T* right, int half, int from, int rest, int step, int done) {
  constexpr int ld = Shared::kLeading;
  const int32_t* const slots = s.top_slots + half * W;
  const T* const tops = s.tops + half * (W * Shared::kRow);
  for (int c = from; c < rest; c += step) {
    T y[W];
    int slot[W];
#pragma unroll
    for (int w = 0; w < W; ++w) {
      slot[w] = kWhole || w < done ? slots[w] : 0;
    }
#pragma unroll
    for (int w = 0; w < W; ++w) {
      if constexpr (Shared::kBlocks > 1) {
        y[w] = s.tails[(half * W + w) * s.tail_step + c];
      } else {
        y[w] = kWhole || w < done ? right[slot[w] + c * ld] : zero<T>();
      }
    }
#pragma unroll
    for (int w = 1; w < W; ++w) {
      if (kWhole || w < done) {
        T l[W];
        load_row<T, W>(l, tops + w * Shared::kRow, 0);
#pragma unroll
        for (int v = 0; v < w; ++v) {
          y[w] = subtract_product(y[w], l[v], y[v]);
        }
      }
    }
    store_row<T, W>(s.upper + c * Shared::kStep, y, 0);
#pragma unroll
    for (int w = 1; w < W; ++w) {
      if ((kWhole || w < done) && (Shared::kBlocks == 1 || slot[w] >= 0)) {
        right[slot[w] + c * ld] = y[w];
      }
    }
  }
}

// Writes the factored panel to `a` in its rows' order, with pivots, info and the levels' orders.
// kRows: rows of a thread.
template <int kRows, typename T, typename Shared>
__device__ __forceinline__ void write_panel(
    const Panel<T>& p, const Shared& s, T* a, int m, int n) {
  constexpr int ld = Shared::kLeading;
  const int threads = blockDim.x, tid = threadIdx.x, steps = min(m, n);
  const int64_t item = blockIdx.x;
  constexpr int32_t kNone = 0x7fffffff;
  if (tid == 0) {
    *s.first_zero = kNone;
  }
  for (int i = tid; i < m; i += threads) {
    s.slot_at[s.final_of[i]] = i;
  }
  __syncthreads();
  int before[kRows][kMaxLevels];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int to = tid + r * threads;
    if (to < m) {
      const int from = p.first + s.slot_at[to];
#pragma unroll
      for (int l = 0; l < kMaxLevels; ++l) {
        if (l < p.levels) {
          before[r][l] =
              p.level[l].start == p.first ? from : p.level[l].now[item * p.level_stride + from];
        }
      }
    }
  }
  for (int c = tid / 32; c < n; c += threads / 32) {
#pragma unroll 4
    for (int i = tid % 32; i < m; i += 32) {
      a[i + c * p.whole.lda] = s.matrix[s.slot_at[i] + c * ld];
    }
  }
  int32_t* const pivots = p.whole.pivots + item * p.whole.pivot_stride + p.first;
  for (int k = tid; k < steps; k += threads) {
    pivots[k] = p.first + s.place_at[k] + 1;
    if (is_zero(s.matrix[s.slot_at[k] + k * ld])) {
      atomicMin(s.first_zero, p.first + k + 1);
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int to = tid + r * threads;
    if (to < m) {
#pragma unroll
      for (int l = 0; l < kMaxLevels; ++l) {
        if (l < p.levels) {
          const Level& level = p.level[l];
          level.now[item * p.level_stride + p.first + to] = before[r][l];
          const int origin = before[r][l] - level.start;
          if (origin < level.width) {
            level.gone[item * p.level_stride + origin] = p.first + to;
          }
        }
      }
    }
  }
  if (tid == 0) {
    const int first_zero = *s.first_zero == kNone ? 0 : *s.first_zero;
    int32_t& info = p.whole.info[item];
    if (p.first == 0 || (first_zero != 0 && info == 0)) {
      info = first_zero;
    }
  }
}

// The same of a slice in a cluster: `a` is the panel, whose rows `above` .. `above` + m are here.
// All blocks of the cluster have to call it, and none leaves before all are done with its memory.
template <int kRows, typename T, typename Shared>
__device__ __forceinline__ void write_slice(
    const Panel<T>& p, const Shared& s, T* a, int64_t item, int above, int m, int first_zero) {
  constexpr int ld = Shared::kLeading;
  const int threads = blockDim.x, tid = threadIdx.x;
  int before[kRows][kMaxLevels];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int slot = tid + r * threads;
    if (slot < m) {
      const int from = p.first + above + slot;
#pragma unroll
      for (int l = 0; l < kMaxLevels; ++l) {
        if (l < p.levels) {
          before[r][l] =
              p.level[l].start == p.first ? from : p.level[l].now[item * p.level_stride + from];
        }
      }
    }
  }
  for (int c = tid / 32; c < p.n; c += threads / 32) {
#pragma unroll 4
    for (int i = tid % 32; i < m; i += 32) {  // most rows stay where they are
      a[s.final_of[i] + c * p.whole.lda] = s.matrix[i + c * ld];
    }
  }
  cluster_meet();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int slot = tid + r * threads;
    if (slot < m) {
      const int to = p.first + s.final_of[slot];
#pragma unroll
      for (int l = 0; l < kMaxLevels; ++l) {
        if (l < p.levels) {
          const Level& level = p.level[l];
          level.now[item * p.level_stride + to] = before[r][l];
          const int origin = before[r][l] - level.start;
          if (origin < level.width) {
            level.gone[item * p.level_stride + origin] = to;
          }
        }
      }
    }
  }
  if (above == 0) {
    int32_t* const pivots = p.whole.pivots + item * p.whole.pivot_stride + p.first;
    for (int k = tid; k < p.n; k += threads) {
      pivots[k] = p.first + s.place_at[k] + 1;
    }
    int32_t& info = p.whole.info[item];
    if (tid == 0 && (p.first == 0 || (first_zero != 0 && info == 0))) {
      info = first_zero == 0 ? 0 : p.first + first_zero;
    }
  }
}

}  // namespace at::native::batched_native
