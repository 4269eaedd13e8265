#pragma once

#include <type_traits>

#include <ATen/native/cuda/linalg/native/PanelParts.cuh>
#include <ATen/native/cuda/linalg/native/PivotSearch.cuh>

// A strip of W columns, factored by the first P warps of a block, the leaders, with R rows a lane
// in registers: x[r] is row (r * P + warp) * 32 + lane of the block. Rows never move before the
// end: `pos` says where a lane's rows stand, counted from the strip's first column.
//
// In a cluster each block does this with its slice of the rows. The leaders of all blocks meet at
// every column, by signals. A block's signals, two of each so that one's next use cannot begin
// before all have left the last:
//   0, 1  the leaders' candidates for a column, odd and even ones, are in `mail`
//   2, 3  the next strip's rows of U, of odd and even strips, are in `tails`
//   4, 5  the other columns' rows of U likewise
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

// One leader's candidate for column w, from `staged`, to all blocks; then waits for theirs. `use`:
// columns before this one.
template <typename Shared, typename T>
__device__ __forceinline__ void send_candidate(
    const Shared& s, int leader, int w, int use, const T* staged) {
  constexpr int C = Shared::kBlocks, kAll = Shared::kCandidates;
  constexpr int kChunks = Shared::kRecord * sizeof(T) / 16;
  const int lane = threadIdx.x % 32;
  uint64_t* const signal = &s.signals[use % 2];
  if (threadIdx.x == 0) {
    expect_bytes(signal, kAll * kChunks * 16);
  }
  T* const record = s.mail + (w * kAll + leader) * Shared::kRecord;
  __syncwarp();
#pragma unroll
  for (int first = 0; first < C * kChunks; first += 32) {
    const int i = first + lane, chunk = i % kChunks;
    if (i < C * kChunks) {
      const uint4 piece = reinterpret_cast<const uint4*>(staged)[chunk];
      send(reinterpret_cast<uint4*>(record) + chunk, piece, i / kChunks, signal);
    }
  }
  await_signal(signal, use / 2);
}

// What follows a candidate's row.
template <typename T>
struct alignas(16) Tail {
  key_t_of<T> key;
  uint32_t place;
  int32_t slot;
};
template <typename T>
__device__ __forceinline__ void store_tail(T* to, key_t_of<T> key, uint32_t place, int slot) {
  *reinterpret_cast<Tail<T>*>(to) = Tail<T>{key, place, slot};
}

// An element as one piece.
template <typename T>
using piece_of = std::
    conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 8, uint64_t, uint4>>;

// The pivot rows of a strip that this block has, columns from .. to right of it, to all blocks; by
// `threads` of its threads, of which this is number `index`.
template <int W, typename Shared, typename T>
__device__ __forceinline__ void send_tails(
    const Shared& s,
    const T* right,
    int half,
    int from,
    int to,
    int index,
    int threads,
    uint64_t* signal) {
  using Piece = piece_of<T>;
  if (index == 0) {
    expect_bytes(signal, max(0, to - from) * W * static_cast<int>(sizeof(T)));
  }
  for (int c = from + index / W; c < to; c += threads / W) {
    const int w = index % W, slot = s.top_slots[half * W + w];
    if (slot >= 0) {
      const Piece piece = *reinterpret_cast<const Piece*>(&right[slot + c * Shared::kLeading]);
      T* const tail = &s.tails[(half * W + w) * s.tail_step + c];
#pragma unroll
      for (int rank = 0; rank < Shared::kBlocks; ++rank) {
        send(reinterpret_cast<Piece*>(tail), piece, rank, signal);
      }
    }
  }
}

// Factors columns k0 .. k0 + done, which `x` holds, and puts them into the matrix, all but the
// pivot rows: those go to `half` of s.tops. `rank`: of the block in its cluster. `first_zero`, in
// a cluster: the first column with a zero pivot, from 1, kept by thread 0.
template <int W, int R, int P, typename T, typename Shared>
__device__ __forceinline__ void factor_strip(
    const Shared& s,
    bool pivot,
    int k0,
    int done,
    int half,
    uint32_t (&pos)[R],
    uint32_t (&mask)[R],
    T (&x)[R][W],
    int rank,
    int& first_zero) {
  constexpr int C = Shared::kBlocks, kAll = Shared::kCandidates;
  using Key = typename Shared::Key;
  constexpr int kRow = Shared::kRow, kRecord = Shared::kRecord, ld = Shared::kLeading;
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
    T* const candidates = kAll == 1 ? tops + w * kRow : s.mail + w * kAll * kRecord;
    const int leader = rank * P + warp;
    T* const own = C == 1 ? candidates + leader * kRecord : s.staged + warp * kRecord;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (pos[r] == place) {  // one lane, one row
        store_row<T, W>(own, x[r], 0);
        const int slot = (r * P + warp) * 32 + lane;
        if constexpr (C == 1) {
          (kAll == 1 ? s.top_slots[half * W + w] : s.slots[w * kAll + leader]) = slot;
        } else {
          store_tail(own + kRow, search.key(), place, slot);
        }
      }
    }
    if (kReal ? kAll > 1 && lane == 0 : search.mine == place) {
      own[W] = divisor.inverse;
      *reinterpret_cast<real_t<T>*>(own + W + 1) = divisor.scale;
    }
    if constexpr (C > 1) {
      if (place == kNowhere && lane == 0) {
        store_tail(own + kRow, typename Shared::Key(0), place, 0);
      }
    } else if constexpr (kAll > 1) {
      if (lane == 0) {
        s.keys[w * kAll + leader] = search.key();
        s.places[w * kAll + leader] = place;
      }
    }
    if constexpr (C == 1) {
      leaders_meet<P>();
    } else {
      send_candidate(s, leader, w, k0 + w, own);
    }
    int winner = 0;
    if constexpr (C > 1) {
      static_assert(kAll <= 32, "a lane compares one candidate");
      const Tail<T> tail =
          *reinterpret_cast<const Tail<T>*>(candidates + lane % kAll * kRecord + kRow);
      const uint32_t best = warp_argmax(tail.key, tail.place << 5 | lane % kAll);
      place = best >> 5;
      winner = static_cast<int>(best % 32);
    } else if constexpr (kAll >= 8) {  // a reduction is shorter than comparing so many one by one
      const int q = w * kAll + lane % kAll;
      const uint32_t best = warp_argmax(s.keys[q], s.places[q] << 5 | lane % kAll);
      place = best >> 5;
      winner = static_cast<int>(best % 32);
    } else if constexpr (kAll > 1) {
      Key key[kAll];
      uint32_t there[kAll];
      int who[kAll];
#pragma unroll
      for (int q = 0; q < kAll; ++q) {
        key[q] = s.keys[w * kAll + q];
        there[q] = s.places[w * kAll + q];
        who[q] = q;
      }
#pragma unroll
      for (int step = 1; step < kAll; step *= 2) {
#pragma unroll
        for (int q = 0; q + step < kAll; q += 2 * step) {
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
    const T* const row = candidates + winner * kRecord;
    T u[W];
    load_row<T, W>(u, row, w);
    if constexpr (!kReal || kAll > 1) {
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
      if constexpr (kAll > 1) {
        if constexpr (C == 1) {
          s.top_slots[half * W + w] = s.slots[w * kAll + winner];
        } else {
          const auto* const tail = reinterpret_cast<const Tail<T>*>(row + kRow);
          s.top_slots[half * W + w] = winner / P == rank ? tail->slot : -1;
        }
      }
      if (C > 1 && first_zero == 0 && is_zero(u[w])) {
        first_zero = k0 + w + 1;
      }
    }
    if (kAll > 1 && tid < W) {
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
// the multipliers of the present strip, number `strip`, which are in the matrix as well.
template <int W, int R, int P, int kRegisters, typename T, typename Shared>
__device__ __forceinline__ void next_strip(
    const Shared& s, T* right, int strip, int rest, const uint32_t (&pos)[R], T (&x)[R][W]) {
  const int half = strip % 2;
  constexpr int ld = Shared::kLeading, V = Pack<T>::size;
  constexpr int kAtOnce = rows_at_once<T, W, R, kRegisters>(R), kRows = kAtOnce == 0 ? R : kAtOnce;
  if constexpr (Shared::kBlocks > 1) {
    send_tails<W>(s, right, half, 0, min(rest, W), threadIdx.x, 32 * P, &s.signals[2 + half]);
    if (threadIdx.x < 32) {
      await_signal(&s.signals[2 + half], strip / 2);
    }
  }
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
