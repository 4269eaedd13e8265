#pragma once

#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/LaunchCheck.h>
#include <ATen/native/cuda/linalg/native/PanelParts.cuh>
#include <ATen/native/cuda/linalg/native/PivotSearch.cuh>

// One block per matrix (or per panel of a larger matrix): read once into shared memory, factored
// there, written once. W columns at a time, a strip, are factored by the first P warps, the
// leaders, with R rows a lane in registers; then all warps update the columns to the right of the
// strip.
//
// The time of a panel is the chain from one pivot to the next: a search, its result's way to all
// rows, a division, an update. Few warps keep it short: one leader needs no block barrier in it,
// and what is done once a warp (reductions, reading the pivot row) is not repeated by warps that
// share its scheduler. Rows never move before the end: a leader's `pos` says where its rows stand.
namespace at::native::batched_native {

// The leaders wait for each other. compute-sanitizer's racecheck does not follow barriers of some
// of a block's warps and reports what they order: for it alone, BATCHED_NATIVE_WHOLE_BARRIERS makes
// all warps take part.
template <int P>
__device__ __forceinline__ void leaders_meet() {
  if constexpr (P == 1) {
    __syncwarp();
  } else {
#ifdef BATCHED_NATIVE_WHOLE_BARRIERS
    __syncthreads();
#else
    asm volatile("bar.sync 1, %0;" ::"n"(P * 32) : "memory");
#endif
  }
}

// The largest of 1..most that divides `rows`.
__host__ __device__ constexpr int fitting_rows(int rows, int most) {
  return rows % most == 0 ? most : fitting_rows(rows, most - 1);
}

template <typename T, int W, int R, int P, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) panel_lu_kernel(Panel<T> p) {
  using Shared = PanelShared<T, W, P, 32 * R * P>;
  using Key = typename Shared::Key;
  constexpr int kRow = Shared::kRow, kStep = Shared::kStep, ld = Shared::kLeading;
  constexpr bool kReal = !RealOf<T>::complex;  // the pivot's magnitude is all but its sign
  extern __shared__ __align__(16) unsigned char raw[];

  const int m = p.whole.m - p.first, n = p.n, steps = min(m, n);
  // Not the array itself, whose address would be looked up anew for every column.
  const Shared s(raw + opaque(0), m, n);
  const int threads = blockDim.x, tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int warps = threads / 32;
  const int64_t item = blockIdx.x;
  T* const a = p.whole.a + item * p.whole.stride + p.first * (p.whole.lda + 1);

  for (int c = warp; c < n; c += warps) {
#pragma unroll 4
    for (int i = lane; i < m; i += 32) {
      __pipeline_memcpy_async(&s.matrix[i + c * ld], &a[i + c * p.whole.lda], sizeof(T));
    }
  }
  __pipeline_commit();
  for (int i = tid; i < 32 * R * P; i += threads) {
    s.final_of[i] = i < m ? -1 : 0;
  }
  uint32_t pos[R], mask[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int slot = (r * P + warp) * 32 + lane;
    pos[r] = slot < m ? slot : kGone;
    // Without pivoting all are equal and the first row left is the pivot row.
    mask[r] = slot < m && p.whole.pivot ? 0xffffffffu : 0u;
  }
  // The update's tiles: kRows rows a lane, 32 apart, and kColumns columns. A warp has one row of
  // tiles, or several when there are more than warps, and every groups-th column of them.
  constexpr int kRows = sizeof(T) == 16 ? 1 : fitting_rows(R * P, sizeof(T) == 4 ? 4 : 2);
  constexpr int kColumns = W < 4 || sizeof(T) == 16 ? 2 : 4;
  const int row_tiles = (m + 32 * kRows - 1) / (32 * kRows);
  const int groups = max(1, warps / row_tiles);
  const int group = groups == 1 ? 0 : warp / row_tiles;
  const int first_tile = group < groups ? warp - group * row_tiles : row_tiles;
  const int next_tile = groups == 1 ? warps : row_tiles;
  __pipeline_wait_prior(0);
  __syncthreads();

  for (int k0 = 0; k0 < steps; k0 += W) {
    const int done = min(W, steps - k0);
    if (warp < P) {
      T x[R][W];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const int slot = (r * P + warp) * 32 + lane;
#pragma unroll
        for (int w = 0; w < W; ++w) {
          x[r][w] = s.matrix[slot + (k0 + w) * ld];
        }
      }
#pragma unroll
      for (int w = 0; w < W; ++w) {
        if (w >= done) {
          continue;
        }
        const PivotSearch<T, R> search(x, w, pos, mask);
        uint32_t place = search.place;
        Divisor<T> divisor;
        if constexpr (kReal) {
          divisor = Divisor<T>::of_largest(search.size());
        } else {
          divisor = Divisor<T>::of(search.value);  // each lane that of its own best row
        }
        T* const candidates = s.mail + w * P * kRow;
        T* const own = candidates + warp * kRow;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (pos[r] == place) {  // one lane, one row
            store_row<T, W>(own, x[r], 0);
            s.slots[w * P + warp] = (r * P + warp) * 32 + lane;
          }
        }
        if (kReal ? P > 1 && lane == 0 : search.mine == place) {
          own[W] = divisor.inverse;
          *reinterpret_cast<real_t<T>*>(own + W + 1) = divisor.scale;
        }
        if constexpr (P > 1) {
          if (lane == 0) {
            s.keys[w * P + warp] = search.key();
            s.places[w * P + warp] = place;
          }
        }
        leaders_meet<P>();
        int winner = 0;
        if constexpr (P >= 8) {  // a reduction is shorter than comparing so many one by one
          const int q = w * P + lane % P;
          const uint32_t best = warp_argmax(s.keys[q], s.places[q] << 5 | lane % P);
          place = best >> 5;
          winner = static_cast<int>(best % 32);
        } else if constexpr (P > 1) {
          Key key[P];
          uint32_t there[P];
          int who[P];
#pragma unroll
          for (int q = 0; q < P; ++q) {
            key[q] = s.keys[w * P + q];
            there[q] = s.places[w * P + q];
            who[q] = q;
          }
#pragma unroll
          for (int step = 1; step < P; step *= 2) {
#pragma unroll
            for (int q = 0; q + step < P; q += 2 * step) {
              // Without short circuits, which would become branches.
              const bool better = (key[q + step] > key[q]) |
                                  ((key[q + step] == key[q]) & (there[q + step] < there[q]));
              key[q] = better ? key[q + step] : key[q];
              there[q] = better ? there[q + step] : there[q];
              who[q] = better ? who[q + step] : who[q];
            }
          }
          place = there[0];
          winner = who[0];
        }
        const T* const row = candidates + winner * kRow;
        T u[W];
        load_row<T, W>(u, row, w);
        if constexpr (!kReal || P > 1) {
          divisor = Divisor<T>{row[W], *reinterpret_cast<const real_t<T>*>(row + W + 1)};
        }
        T l[R];
        if (p.whole.pivot) {
          if constexpr (kReal) {
            divisor.inverse = u[w] < 0 ? -divisor.inverse : divisor.inverse;
          } else {
            divisor.leave_zeros();
          }
#pragma unroll
          for (int r = 0; r < R; ++r) {
            l[r] = divisor.multiply(x[r][w]);
          }
        } else {
          if constexpr (kReal) {
            divisor = Divisor<T>::of(u[w]);
          }
#pragma unroll
          for (int r = 0; r < R; ++r) {
            l[r] = divisor.divide(x[r][w]);
          }
        }
        // Finished and absent rows take part with whatever they hold: nothing of theirs is kept.
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const bool is_pivot = pos[r] == place;
          pos[r] = is_pivot ? kGone : (pos[r] == w ? place : pos[r]);
          mask[r] = is_pivot ? 0u : mask[r];
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
          x[r][w] = l[r];
#pragma unroll
          for (int j = w + 1; j < W; ++j) {
            x[r][j] = subtract_product(x[r][j], l[r], u[j]);
          }
        }
        if (tid == 0) {
          s.place_at[k0 + w] = k0 + static_cast<int>(place);
          if constexpr (P > 1) {
            s.won[w] = winner;
          }
        }
      }
      T* const strip = s.matrix + opaque(k0) * ld + warp * 32 + lane;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (pos[r] != kGone) {
#pragma unroll
          for (int w = 0; w < W; ++w) {
            strip[r * P * 32 + w * ld] = x[r][w];
          }
          pos[r] -= W;
        }
      }
    }
#ifdef BATCHED_NATIVE_WHOLE_BARRIERS
    for (int w = 0; P > 1 && warp >= P && w < done; ++w) {
      leaders_meet<P>();
    }
#endif
    __syncthreads();

    const int rest = n - (k0 + W);
    T* const right = s.matrix + (k0 + W) * ld;
    for (int i = threads - 1 - tid; i < done * W; i += threads) {  // not by those who solve
      const int w = i / W, c = i % W, at = s.winner(w);
      s.matrix[s.slots[at] + (k0 + c) * ld] = s.mail[at * kRow + c];
      if (c == 0) {
        s.final_of[s.slots[at]] = k0 + w;
      }
    }
    if (rest <= 0) {
      break;
    }
    if (done < W) {  // the rows end inside the strip
      solve_upper<false, W>(s, right, rest, done);
      break;
    }
    solve_upper<true, W>(s, right, rest, done);
    if (k0 + W >= m) {
      break;
    }
    __syncthreads();

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
      T* target = right + tile * (32 * kRows) + lane + group * (kColumns * ld);
      const T* upper = s.upper + group * (kColumns * kStep);
      for (int c = group * kColumns; c < rest; c += groups * kColumns) {
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
        for (int first = 0; first < W; first += V) {
          Pack<T> u[kColumns];
#pragma unroll
          for (int j = 0; j < kColumns; ++j) {
            u[j] = *reinterpret_cast<const Pack<T>*>(upper + j * kStep + first);
          }
#pragma unroll
          for (int v = 0; v < V; ++v) {
#pragma unroll
            for (int j = 0; j < kColumns; ++j) {
#pragma unroll
              for (int r = 0; r < kRows; ++r) {
                sum[r][j] = subtract_product(sum[r][j], l[r][first + v], u[j].value[v]);
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
    __syncthreads();
  }
  __syncthreads();

  // Rows that never became a pivot row stand below the others.
  if (warp < P) {
    const int behind = (steps + W - 1) / W * W;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (pos[r] != kGone) {
        s.final_of[(r * P + warp) * 32 + lane] = static_cast<int>(pos[r]) + behind;
      }
    }
  }
  __syncthreads();
  write_panel<(32 * R * P + kThreads - 1) / kThreads>(p, s, a, m, n);
}

// The shapes that are built: W columns a strip, R rows a lane of each of P leaders, kThreads
// threads in all and registers for kBlocks blocks on a multiprocessor.
template <typename T, int W_, int R, int P, int kThreads, int kBlocks>
struct PanelShape {
  static_assert(P * 32 <= kThreads, "the leaders are warps of the block");
  static constexpr int W = W_;
  static constexpr int kRows = 32 * R * P;
  static size_t bytes(int m, int n) {
    return PanelShared<T, W, P, kRows>::bytes(m, n);
  }
  static void launch(const Panel<T>& p, cudaStream_t stream) {
    const size_t shared = bytes(p.whole.m - p.first, p.n);
    auto* const kernel = panel_lu_kernel<T, W, R, P, kThreads, kBlocks>;
    static DynamicShared allowance;
    allowance.allow(kernel, shared);
    kernel<<<static_cast<unsigned>(p.whole.batch), kThreads, shared, stream>>>(p);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
};

}  // namespace at::native::batched_native
