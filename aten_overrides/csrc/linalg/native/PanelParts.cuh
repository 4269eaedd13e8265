#pragma once

#include <algorithm>

#include <cuda_pipeline.h>

#include <ATen/native/cuda/linalg/native/Kernels.h>
#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// What the panel kernels of BlockLU.cuh and RolledLU.cuh have in common: shared memory, reading the
// panel, solving for the rows of U right of a strip, writing in order. Thread t owns rows t,
// t + blockDim.x, ...
namespace at::native::batched_native {

// What a panel kernel has in shared memory. kSlots: the warps also publish the slot of their
// candidate.
template <typename T, int W, int kMaxThreads, bool kSlots>
struct PanelShared {
  static_assert(W % 2 == 0, "the two buffers of candidate rows alternate by column");
  using Key = key_t_of<T>;
  static constexpr int kWarps = kMaxThreads / 32;
  static constexpr size_t kTagBytes = (kSlots ? 2 : 1) * sizeof(uint32_t);
  static_assert(
      2 * kWarps * (sizeof(Key) + kTagBytes) % 16 == 0, "what follows keys and tags is 16-aligned");
  static constexpr int kPack = 16 / sizeof(T);
  static constexpr int kMail = W + (kPack > 2 ? kPack : 2);  // a row, its pivot's inverse and scale
  static constexpr int kStep = W + kPack;  // row length of U: 16-byte accesses without conflicts

  T* mail;            // [2][kWarps][kMail] the warps' candidates: row, inverse, scale
  Key* keys;          // [2][kWarps] and their keys
  uint32_t* tags;     // [2][kWarps] and position * 32 + warp
  int32_t* slots;     // [2][kWarps] and the slot, with kSlots
  T* lower;           // [W][W] multipliers of the pivot rows, a column contiguous
  T* upper;           // [columns right of the strip][kStep]
  T* matrix;          // [n][ld]
  int32_t* holder;    // [W] slot of each pivot row
  int32_t* slot_at;   // [m] which slot stands at a position
  int32_t* place_at;  // [min(m, n)] where each pivot was found

  static __host__ __device__ int leading(int m) {
    return m | 1;  // odd: a row's elements fall into different banks
  }
  static __host__ size_t bytes(int m, int n) {
    const size_t elements = static_cast<size_t>(2 * kWarps) * kMail + W * W +
                            static_cast<size_t>(std::max(n - W, 0)) * kStep +
                            static_cast<size_t>(n) * leading(m);
    return 2 * kWarps * (sizeof(Key) + kTagBytes) + elements * sizeof(T) +
           (W + static_cast<size_t>(m) + std::min(m, n)) * sizeof(int32_t);
  }
  __device__ PanelShared(unsigned char* base, int m, int n) {
    keys = reinterpret_cast<Key*>(base);
    tags = reinterpret_cast<uint32_t*>(keys + 2 * kWarps);
    slots = reinterpret_cast<int32_t*>(tags + 2 * kWarps);
    mail = reinterpret_cast<T*>(slots + (kSlots ? 2 * kWarps : 0));
    lower = mail + 2 * kWarps * kMail;
    upper = lower + W * W;
    matrix = upper + max(n - W, 0) * kStep;
    holder = reinterpret_cast<int32_t*>(matrix + n * leading(m));
    slot_at = holder + W;
    place_at = slot_at + m;
  }
};

// The same number, but the compiler cannot tell: addresses are computed anew from it instead of
// being kept in W registers from an earlier use.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Reads the panel at `a`; `pos` becomes where each row stands: at its own place.
template <typename T, int R, typename Shared>
__device__ __forceinline__ void read_panel(
    const Panel<T>& p, const Shared& s, const T* a, int m, int n, int ld, int (&pos)[R]) {
  constexpr int kWarps = Shared::kWarps;
  const int threads = blockDim.x, tid = threadIdx.x;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int slot = tid + r * threads;
    pos[r] = slot < m ? slot : -0x40000000;
    if (slot < m) {
#pragma unroll 8
      for (int c = 0; c < n; ++c) {
        __pipeline_memcpy_async(&s.matrix[slot + c * ld], &a[slot + c * p.whole.lda], sizeof(T));
      }
    }
  }
  __pipeline_commit();
  for (int i = tid; i < 2 * kWarps; i += threads) {
    s.keys[i] = 0;  // also of warps that this launch does not have
    s.tags[i] = 0xffffffffu;
  }
  __pipeline_wait_prior(0);  // a thread reads only its own rows before the next barrier
  __syncthreads();
}

// The rows of U right of a strip of `done` columns, from the strip's pivot rows in `lower`, into
// the matrix and into `upper`.
template <int W, typename T, typename Shared>
__device__ __forceinline__ void solve_upper(const Shared& s, T* right, int rest, int done, int ld) {
  constexpr int kStep = Shared::kStep;
  const int threads = blockDim.x, tid = threadIdx.x;
  for (int c = tid; c < rest; c += threads) {  // a column of U per thread
    T y[W];
#pragma unroll
    for (int w = 0; w < W; ++w) {
      y[w] = w < done ? right[s.holder[w] + c * ld] : zero<T>();
    }
#pragma unroll
    for (int v = 0; v < W - 1; ++v) {
      T l[W];
      load_row<T, W>(l, s.lower + v * W, v + 1);
#pragma unroll
      for (int w = v + 1; w < W; ++w) {
        y[w] = subtract_product(y[w], l[w], y[v]);
      }
    }
    store_row<T, W>(s.upper + c * kStep, y, 0);
    const int same_c = opaque(c);
#pragma unroll
    for (int w = 1; w < W; ++w) {
      if (w < done) {
        right[s.holder[w] + same_c * ld] = y[w];
      }
    }
  }
}

// Writes the factored panel to `a` in its rows' order, with pivots and info.
template <typename T, int R, typename Shared>
__device__ __forceinline__ void write_panel(
    const Panel<T>& p, const Shared& s, T* a, int m, int n, int ld, const int (&pos)[R]) {
  const int threads = blockDim.x, tid = threadIdx.x, steps = min(m, n);
  const int64_t item = blockIdx.x;
  constexpr int32_t kNone = 0x7fffffff;
  if (tid == 0) {
    *s.holder = kNone;  // from here on the first zero pivot
  }
  int before[R][kMaxLevels];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int slot = tid + r * threads;
    if (slot < m) {
      s.slot_at[pos[r]] = slot;
#pragma unroll
      for (int l = 0; l < kMaxLevels; ++l) {
        if (l < p.levels) {
          before[r][l] = p.level[l].start == p.first
                             ? p.first + slot
                             : p.level[l].now[item * p.level_stride + p.first + slot];
        }
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int to = tid + r * threads;
    if (to < m) {
      const T* const from = s.matrix + s.slot_at[to];
#pragma unroll 8
      for (int c = 0; c < n; ++c) {
        a[to + c * p.whole.lda] = from[c * ld];
      }
#pragma unroll
      for (int l = 0; l < kMaxLevels; ++l) {
        if (l < p.levels) {
          const Level& level = p.level[l];
          level.now[item * p.level_stride + p.first + pos[r]] = before[r][l];
          const int origin = before[r][l] - level.start;
          if (origin < level.width) {
            level.gone[item * p.level_stride + origin] = p.first + pos[r];
          }
        }
      }
    }
  }
  int32_t* const pivots = p.whole.pivots + item * p.whole.pivot_stride + p.first;
  for (int k = tid; k < steps; k += threads) {
    pivots[k] = p.first + s.place_at[k] + 1;
    if (is_zero(s.matrix[s.slot_at[k] + k * ld])) {
      atomicMin(s.holder, p.first + k + 1);
    }
  }
  __syncthreads();
  if (tid == 0) {
    const int first_zero = *s.holder == kNone ? 0 : *s.holder;
    int32_t& info = p.whole.info[item];
    if (p.first == 0 || (first_zero != 0 && info == 0)) {
      info = first_zero;
    }
  }
}

}  // namespace at::native::batched_native
