#pragma once

#include <ATen/native/cuda/linalg/native/ClusterLaunch.h>
#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/LaunchCheck.h>
#include <ATen/native/cuda/linalg/native/StripLU.cuh>

// One block per matrix (or per panel of a larger matrix): read once into shared memory, factored
// there, written once. W columns at a time, a strip, are factored by the first P warps, the
// leaders, with R rows a lane in registers; then all warps update the columns to the right of the
// strip. Where a block has warps besides, the leaders bring only the next strip's columns up to
// date, in registers, and go on to its pivots, while the others update the columns after it.
//
// The time of a panel is the chain from one pivot to the next: a search, its result's way to all
// rows, a division, an update. Few warps keep it short: one leader needs no block barrier in it,
// and what is done once a warp (reductions, reading the pivot row) is not repeated by warps that
// share its scheduler. Rows never move before the end: a leader's `pos` says where its rows stand.
namespace at::native::batched_native {

// The largest of 1..most that divides `rows`.
__host__ __device__ constexpr int fitting_rows(int rows, int most) {
  return rows % most == 0 ? most : fitting_rows(rows, most - 1);
}

// By kHelpers warps, of which this is number `helper`: columns `skipped` and up of those right of
// the strip, minus the strip's rows times the rows of U.
template <int W, int kRows, int kHelpers, typename T, typename Shared>
__device__ __forceinline__ void update_right(
    const Shared& s, T* right, int helper, int m, int k0, int skipped, int rest) {
  constexpr int kStep = Shared::kStep, ld = Shared::kLeading;
  constexpr int kColumns = W < 4 || sizeof(T) == 16 ? 2 : 4;
  // Tiles of kRows rows a lane, 32 apart, and kColumns columns. A warp has one row of tiles, or
  // several when there are more than warps, and every groups-th column of them.
  const int row_tiles = max(1, (m + 32 * kRows - 1) / (32 * kRows));
  const int groups = max(1, kHelpers / row_tiles);
  const int group = groups == 1 ? 0 : helper / row_tiles;
  const int first_tile = group < groups ? helper - group * row_tiles : row_tiles;
  const int next_tile = groups == 1 ? kHelpers : row_tiles;
  const int lane = threadIdx.x % 32;
  for (int tile = first_tile; tile < row_tiles; tile += next_tile) {
    const T* const rows = s.matrix + tile * (32 * kRows) + lane;
    bool active[kRows];
    T l[kRows][W];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      active[r] = s.final_of[tile * (32 * kRows) + lane + r * 32] < 0;
#pragma unroll
      for (int w = 0; w < W; ++w) {
        l[r][w] = rows[r * 32 + (k0 + w) * ld];
      }
    }
    const int first = skipped + group * kColumns;
    T* target = right + tile * (32 * kRows) + lane + first * ld;
    const T* upper = s.upper + first * kStep;
    for (int c = first; c < rest; c += groups * kColumns) {
      T sum[kRows][kColumns];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          sum[r][j] = target[r * 32 + j * ld];
        }
      }
      constexpr int V = Pack<T>::size;
#pragma unroll
      for (int at = 0; at < W; at += V) {
        Pack<T> u[kColumns];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          u[j] = *reinterpret_cast<const Pack<T>*>(upper + j * kStep + at);
        }
#pragma unroll
        for (int v = 0; v < V; ++v) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j) {
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
              sum[r][j] = subtract_product(sum[r][j], l[r][at + v], u[j].value[v]);
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (active[r]) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j) {
            target[r * 32 + j * ld] = sum[r][j];
          }
        }
      }
      target += groups * (kColumns * ld);
      upper += groups * (kColumns * kStep);
    }
  }
}

// C: blocks of a cluster, each with a slice of kRows rows; then at least as many rows as columns.
template <typename T, int W, int R, int P, int kThreads, int kBlocks, int C = 1>
__global__ void __launch_bounds__(kThreads, kBlocks) panel_lu_kernel(Panel<T> p) {
  if constexpr (C > 1 && !kHasClusters) {
    return;
  }
  constexpr int kRows = 32 * R * P;
  using Shared = PanelShared<T, W, P, kRows, C>;
  constexpr int ld = Shared::kLeading;
  // The warps that update: those beside the leaders, or all when there are none, or when many
  // blocks on a multiprocessor hide each other's updates anyway.
#ifdef BATCHED_NATIVE_WHOLE_BARRIERS
  constexpr bool kApart = true;
#else
  constexpr bool kApart = kBlocks < 7;
#endif
  constexpr bool kAhead = P * 32 < kThreads && kApart;
  constexpr int kFirstHelper = kAhead ? P : 0, kHelpers = kThreads / 32 - kFirstHelper;
  constexpr int kTile = sizeof(T) == 16 ? 1 : fitting_rows(R * P, sizeof(T) == 4 ? 4 : 2);
  constexpr int kRegisters = kThreads * kBlocks > 256 ? 65536 / (kThreads * kBlocks) : 255;
  extern __shared__ __align__(16) unsigned char raw[];

  const int rank = C == 1 ? 0 : static_cast<int>(blockIdx.x % C), above = rank * kRows;
  const int whole_m = p.whole.m - p.first, n = p.n, steps = min(whole_m, n);
  const int m = C == 1 ? whole_m : max(0, min(kRows, whole_m - above));
  // Not the array itself, whose address would be looked up anew for every column.
  const Shared s(raw + opaque(0), whole_m, n);
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int64_t item = blockIdx.x / C;
  T* const a = p.whole.a + item * p.whole.stride + p.first * (p.whole.lda + 1) + above;
  if (C > 1 && tid == 0) {
    for (int i = 0; i < Shared::kSignals; ++i) {
      start_signal(&s.signals[i]);
    }
    signals_started();
  }

  // The leaders begin with the first strip, the helpers fetch the other columns meanwhile.
  for (int c = W + warp - kFirstHelper; c < n && warp >= kFirstHelper; c += kHelpers) {
#pragma unroll 4
    for (int i = lane; i < m; i += 32) {
      __pipeline_memcpy_async(&s.matrix[i + c * ld], &a[i + c * p.whole.lda], sizeof(T));
    }
  }
  __pipeline_commit();
  for (int i = tid; i < kRows; i += kThreads) {
    s.final_of[i] = i < m ? -1 : 0;
  }
  if constexpr (C > 1) {
    cluster_meet();  // the signals are started
  }

  // What the helpers do with a strip that is done, but for the last one.
  const auto help = [&](int k0, int skipped) {
    const int half = k0 / W % 2, rest = n - (k0 + W);
    T* const right = s.matrix + (k0 + W) * ld;
    if constexpr (C > 1) {
      const int index = tid - kFirstHelper * 32;
      send_tails<W>(s, right, half, skipped, rest, index, kHelpers * 32, &s.signals[4 + half]);
    }
    place_tops<W>(s, k0, half, W, kThreads - 1 - tid, kHelpers * 32);  // the first ones solve
    if constexpr (C > 1) {
      await_signal(&s.signals[4 + half], k0 / W / 2);
    }
    solve_upper<true, W>(s, right, half, tid - kFirstHelper * 32 + skipped, rest, kHelpers * 32, W);
    if constexpr (kAhead) {
      helpers_meet<P, kThreads>();
    } else {
      __syncthreads();
    }
    update_right<W, kTile, kHelpers>(s, right, warp - kFirstHelper, m, k0, skipped, rest);
  };
  static_assert(C == 1 || kAhead, "send_tails is by the helpers");
  int first_zero = 0;
  if (!kAhead || warp < P) {
    const bool leads = P * 32 == kThreads || warp < P;
    uint32_t pos[R], mask[R];
    T x[R][W];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int slot = (r * P + warp) * 32 + lane;
      pos[r] = leads && slot < m ? above + slot : kGone;
      // Without pivoting all are equal and the first row left is the pivot row.
      mask[r] = slot < m && p.whole.pivot ? 0xffffffffu : 0u;
    }
    const auto read_first = [&] {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const int slot = (r * P + warp) * 32 + lane;
#pragma unroll
        for (int w = 0; w < W; ++w) {
          x[r][w] = slot < m && w < n ? a[slot + w * p.whole.lda] : zero<T>();
        }
      }
    };
    if constexpr (kAhead) {
      read_first();
    }
    for (int k0 = 0;;) {
      if (leads) {
        if constexpr (!kAhead) {
          if (k0 == 0) {
            read_first();
          } else {
            read_strip<W, R, P>(s, k0, x);
          }
        }
        factor_strip<W, R, P>(
            s, p.whole.pivot, k0, min(W, steps - k0), k0 / W % 2, pos, mask, x, rank, first_zero);
      }
      if constexpr (!kAhead) {
        __pipeline_wait_prior(0);
      }
      __syncthreads();
      if (k0 + W >= steps) {
        break;
      }
      if constexpr (kAhead) {
        T* const right = s.matrix + (k0 + W) * ld;
        next_strip<W, R, P, kRegisters>(s, right, k0 / W, n - (k0 + W), pos, x);
        k0 += W;
      } else {
        help(k0, 0);
        __syncthreads();
        k0 += W;
      }
    }
    // Rows that never became a pivot row stand below the others.
    const int behind = (steps + W - 1) / W * W;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (pos[r] != kGone) {
        s.final_of[(r * P + warp) * 32 + lane] = static_cast<int16_t>(pos[r] + behind);
      }
    }
  } else {
    __pipeline_wait_prior(0);
    for (int k0 = 0;; k0 += W) {
#ifdef BATCHED_NATIVE_WHOLE_BARRIERS
      for (int w = 0; C == 1 && P > 1 && w < min(W, steps - k0); ++w) {
        leaders_meet<P>();
      }
#endif
      __syncthreads();
      if (k0 + W >= steps) {
        break;
      }
      help(k0, W);
    }
  }
  // The last strip: the rows may end inside it, with columns left to its right.
  const int k0 = (steps - 1) / W * W, half = k0 / W % 2, rest = n - (k0 + W);
  place_tops<W>(s, k0, half, steps - k0, kThreads - 1 - tid, kThreads);
  if (C == 1 && rest > 0) {
    T* const right = s.matrix + (k0 + W) * ld;
    solve_upper<false, W>(s, right, half, tid, rest, kThreads, steps - k0);
  }
  __syncthreads();
  constexpr int kEach = (kRows + kThreads - 1) / kThreads;
  if constexpr (C == 1) {
    write_panel<kEach>(p, s, a, m, n);
  } else {
    write_slice<kEach>(p, s, a - above, item, above, m, first_zero);
  }
}

// The shapes that are built: W columns a strip, R rows a lane of each of P leaders, kThreads
// threads in all and registers for kBlocks blocks on a multiprocessor.
template <typename T, int W_, int R, int P, int kThreads, int kBlocks, int C = 1>
struct PanelShape {
  static_assert(P * 32 <= kThreads, "the leaders are warps of the block");
  static constexpr int W = W_;
  static constexpr int kRows = 32 * R * P;
  static size_t bytes(int m, int n) {
    return PanelShared<T, W, P, kRows, C>::bytes(m, n);
  }
  static bool usable() {
    static ClustersUsable clusters;
    return C == 1 || clusters.ask(panel_lu_kernel<T, W, R, P, kThreads, kBlocks, C>, C, kThreads);
  }
  static void launch(const Panel<T>& p, cudaStream_t stream) {
    const size_t shared = bytes(p.whole.m - p.first, p.n);
    auto* const kernel = panel_lu_kernel<T, W, R, P, kThreads, kBlocks, C>;
    static DynamicShared allowance;
    allowance.allow(kernel, shared);
    const unsigned blocks = static_cast<unsigned>(p.whole.batch) * C;
    if constexpr (C == 1) {
      kernel<<<blocks, kThreads, shared, stream>>>(p);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    } else {
      launch_clusters(kernel, p, blocks, C, kThreads, shared, stream);
    }
  }
};

}  // namespace at::native::batched_native
