#pragma once

#include <ATen/native/cuda/linalg/native/PanelParts.cuh>
#include <ATen/native/cuda/linalg/native/PivotSearch.cuh>

// A strip of W columns, factored by the first P warps of a block, the leaders, with R rows a lane
// in registers: x[r] is row (r * P + warp) * 32 + lane. Rows never move before the end: `pos` says
// where a lane's rows stand, counted from the strip's first column.
namespace at::native::batched_native {

// The leaders, or the other warps, wait for each other. compute-sanitizer's racecheck does not
// follow barriers of some of a block's warps and reports what they order: for it alone,
// BATCHED_NATIVE_WHOLE_BARRIERS makes all warps take part.
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

template <int P, int kThreads>
__device__ __forceinline__ void helpers_meet() {
#ifdef BATCHED_NATIVE_WHOLE_BARRIERS
  __syncthreads();
#else
  asm volatile("bar.sync 2, %0;" ::"n"(kThreads - P * 32) : "memory");
#endif
}
// The leaders' meeting that goes with the helpers' one.
template <int P>
__device__ __forceinline__ void leaders_meet_apart() {
#ifdef BATCHED_NATIVE_WHOLE_BARRIERS
  __syncthreads();
#else
  leaders_meet<P>();
#endif
}

// Factors columns k0 .. k0 + done, which `x` holds, and puts them into the matrix, all but the
// pivot rows: those go to `half` of s.tops.
template <int W, int R, int P, typename T, typename Shared>
__device__ __forceinline__ void factor_strip(
    const Shared& s,
    bool pivot,
    int k0,
    int done,
    int half,
    uint32_t (&pos)[R],
    uint32_t (&mask)[R],
    T (&x)[R][W]) {
  using Key = typename Shared::Key;
  constexpr int kRow = Shared::kRow, ld = Shared::kLeading;
  constexpr bool kReal = !RealOf<T>::complex;  // the pivot's magnitude is all but its sign
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  T* const tops = s.tops + half * (W * kRow);
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
    T* const candidates = P == 1 ? tops + w * kRow : s.mail + w * P * kRow;
    T* const own = candidates + warp * kRow;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (pos[r] == place) {  // one lane, one row
        store_row<T, W>(own, x[r], 0);
        (P == 1 ? s.top_slots[half * W + w] : s.slots[w * P + warp]) = (r * P + warp) * 32 + lane;
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
          const bool better =
              (key[q + step] > key[q]) | ((key[q + step] == key[q]) & (there[q + step] < there[q]));
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
    if (pivot) {
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
        s.top_slots[half * W + w] = s.slots[w * P + winner];
      }
    }
    if (P > 1 && tid < W) {
      tops[w * kRow + tid] = row[tid];
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

// By the leaders: their rows of W columns of the matrix.
template <int W, int R, int P, typename Shared, typename T>
__device__ __forceinline__ void read_strip(const Shared& s, int k0, T (&x)[R][W]) {
  const T* const columns = s.matrix + k0 * Shared::kLeading + threadIdx.x;
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int w = 0; w < W; ++w) {
      x[r][w] = columns[r * P * 32 + w * Shared::kLeading];
    }
  }
}

// Rows of the next strip that a leader can have in registers beside the R of the present one.
template <typename T, int W, int R, int kRegisters>
__host__ __device__ constexpr int rows_at_once(int rows) {
  constexpr int each = W * sizeof(T) / 4, others = 56;
  return rows == 0 || (R % rows == 0 && (R + rows) * each + others <= kRegisters)
             ? rows
             : rows_at_once<T, W, R, kRegisters>(rows - 1);
}

// rows -= l U' for U' = the next strip's columns of U, of which V rows from `at` are done.
template <int W, int K, int V, typename T, typename Shared>
__device__ __forceinline__ void subtract_upper(
    const Shared& s, int at, const T (&l)[K][V], T (&rows)[K][W]) {
#pragma unroll
  for (int w = 0; w < W; ++w) {
    const Pack<T> u = *reinterpret_cast<const Pack<T>*>(s.upper + w * Shared::kStep + at);
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int r = 0; r < K; ++r) {
        rows[r][w] = subtract_product(rows[r][w], l[r][v], u.value[v]);
      }
    }
  }
}

// By the leaders: the columns of the next strip brought up to date, into `x`. On entry `x` holds
// the multipliers of the present strip, which are in the matrix as well.
template <int W, int R, int P, int kRegisters, typename T, typename Shared>
__device__ __forceinline__ void next_strip(
    const Shared& s, T* right, int half, int rest, const uint32_t (&pos)[R], T (&x)[R][W]) {
  constexpr int ld = Shared::kLeading, V = Pack<T>::size;
  constexpr int kAtOnce = rows_at_once<T, W, R, kRegisters>(R), kRows = kAtOnce == 0 ? R : kAtOnce;
  if (threadIdx.x < W) {
    solve_upper<true, W>(s, right, half, threadIdx.x, min(rest, W), W, W);
  }
  leaders_meet_apart<P>();
  const T* const rows = right + threadIdx.x;
#pragma unroll
  for (int first = 0; first < R; first += kRows) {
    T y[kRows][W];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool active = pos[first + r] != kGone;
#pragma unroll
      for (int w = 0; w < W; ++w) {
        y[r][w] = active ? rows[(first + r) * P * 32 + w * ld] : zero<T>();
      }
    }
#pragma unroll
    for (int at = 0; at < W; at += V) {
      T l[kRows][V];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const bool active = pos[first + r] != kGone;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if constexpr (kAtOnce > 0) {
            l[r][v] = x[first + r][at + v];
          } else {
            l[r][v] = active ? rows[(first + r) * P * 32 + (at + v - W) * ld] : zero<T>();
          }
        }
      }
      subtract_upper<W, kRows, V>(s, at, l, y);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int w = 0; w < W; ++w) {
        x[first + r][w] = y[r][w];
      }
    }
  }
}

}  // namespace at::native::batched_native
