#pragma once

#include <ATen/native/cuda/linalg/native/BlockLU.cuh>

// The panel kernel for many rows: as BlockLU.cuh, but one loop body serves all columns of a strip.
// The current column is always x[.][0]: each step's update writes every element one register lower,
// which costs nothing because a multiply-add has a target of its own. Rows that are finished take
// part with whatever they hold; what counts of a pivot row is kept when it is chosen. The next
// pivot's reductions come before the rest of the update, so that they wait behind its arithmetic.
namespace at::native::batched_native {

template <typename T, int R>
struct Candidate {
  key_t_of<T> key;
  uint32_t position;
  T value;
  // The largest element of a thread's rows that stand at or below `from`.
  template <int W>
  static __device__ __forceinline__ Candidate
  of(const T (&x)[R][W], const int (&pos)[R], int from, uint32_t mask) {
    Candidate best{0, 0xffffffffu, zero<T>()};
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const key_t_of<T> key = pos[r] >= from ? pivot_key(x[r][0], mask) : key_t_of<T>(0);
      const uint32_t position = static_cast<uint32_t>(pos[r]);
      if (r == 0 || key > best.key || (key == best.key && position < best.position)) {
        best = Candidate{key, position, x[r][0]};
      }
    }
    return best;
  }
};

template <typename T, int W, int R, int kMaxThreads, int kBlocks>
__global__ void __launch_bounds__(kMaxThreads, kBlocks) rolled_lu_kernel(Panel<T> p) {
  using Shared = PanelShared<T, W, kMaxThreads, true>;
  using Key = typename Shared::Key;
  constexpr int kWarps = Shared::kWarps;
  constexpr int kMail = Shared::kMail;
  constexpr int kStep = Shared::kStep;
  extern __shared__ __align__(16) unsigned char raw[];

  const int m = p.whole.m - p.first, n = p.n, steps = min(m, n);
  const int ld = Shared::leading(m);
  const Shared s(raw, m, n);
  const int threads = blockDim.x, tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int64_t item = blockIdx.x;
  T* const a = p.whole.a + item * p.whole.stride + p.first * (p.whole.lda + 1);

  int pos[R];  // below the current column: a finished pivot row or no row at all
  read_panel(p, s, a, m, n, ld, pos);

  const uint32_t mask =
      p.whole.pivot ? ~0u : 0u;  // without pivoting the first row left is the pivot
  int half = 0;                  // which of the two buffers
  int turn = 0;                  // the warp that keeps the next pivot row
  for (int k0 = 0; k0 < steps; k0 += W) {
    const int done = min(W, steps - k0);
    T x[R][W];  // columns k0 + w on of the thread's rows: moved up by one at each step
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int slot = tid + r * threads;
#pragma unroll
      for (int w = 0; w < W; ++w) {
        x[r][w] = slot < m && k0 + w < n ? s.matrix[slot + (k0 + w) * ld] : zero<T>();
      }
    }
    auto mine = Candidate<T, R>::of(x, pos, 0, mask);
    Divisor<T> own = Divisor<T>::of(mine.value);  // needs no waiting, so every thread does it
    uint32_t leads = warp_argmax(mine.key, mine.position << 5 | lane);
    T* column = s.matrix + tid + k0 * ld;
    // A loop of one step on purpose: unrolled, the compiler moves the update behind the barrier.
#pragma unroll 1
    for (int w = 0; w < done; ++w) {
      T* const mail = s.mail + half * kMail;
      Key* const keys = s.keys + half;
      uint32_t* const tags = s.tags + half;
      int32_t* const slots = s.slots + half;
      // Exactly one lane has the tag that wins: it publishes.
      if ((mine.position << 5 | lane) == leads) {
        T* const row = mail + warp * kMail;
        keys[warp] = mine.key;
        tags[warp] = mine.position << 5 | warp;
        row[W] = own.inverse;
        *reinterpret_cast<real_t<T>*>(row + W + 1) = own.scale;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (R == 1 || static_cast<uint32_t>(pos[r]) == mine.position) {
            store_row<T, W>(row, x[r], 0);
            slots[warp] = tid + r * threads;
          }
        }
      }
      __syncthreads();

      const uint32_t best = warp_argmax(keys[lane % kWarps], tags[lane % kWarps]);
      const int place = static_cast<int>(best >> 5), winner = static_cast<int>(best % 32);
      const T* const row = mail + winner * kMail;
      const Divisor<T> divisor{row[W], *reinterpret_cast<const real_t<T>*>(row + W + 1)};
      T u[W];
      load_row<T, W>(u, row, 0);
      T l[R];
      // Finished and absent rows take part with whatever they hold: nothing of theirs is kept.
#pragma unroll
      for (int r = 0; r < R; ++r) {
        pos[r] = pos[r] == place ? w : (pos[r] == w ? place : pos[r]);
        l[r] = divisor.divide(x[r][0]);
        x[r][0] = subtract_product(x[r][1], l[r], u[1]);
      }
      mine = Candidate<T, R>::of(x, pos, w + 1, mask);
      own = Divisor<T>::of(mine.value);
      leads = warp_argmax(mine.key, mine.position << 5 | lane);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (pos[r] > w) {
          column[r * threads] = l[r];
        }
#pragma unroll
        for (int j = 1; j < W - 1; ++j) {
          x[r][j] = subtract_product(x[r][j + 1], l[r], u[j + 1]);
        }
        x[r][W - 1] = zero<T>();
      }
      column += ld;
      if (warp == turn) {  // the pivot row's elements of U, and its multipliers for the solve
        const int slot = slots[winner], c = lane % W;
        T* const elements = s.matrix + slot + (k0 + c) * ld;
        if (lane < W) {
          if (w + c < W && k0 + w + c < n) {
            elements[w * ld] = row[c];
          }
        } else if (lane < 2 * W && c < w) {
          s.lower[c * W + w] = *elements;
        }
        if (lane == 0) {
          s.holder[w] = slot;
          s.place_at[k0 + w] = k0 + place;
        }
      }
      turn = turn + 1 == threads / 32 ? 0 : turn + 1;
      half = kWarps - half;
    }

    const int rest = n - (k0 + W);
    if (rest > 0) {
      __syncthreads();
      T* const right = s.matrix + (k0 + W) * ld;
      solve_upper<W>(s, right, rest, done, ld);
      __syncthreads();
      if (k0 + W < m) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
#pragma unroll
          for (int w = 0; w < W; ++w) {
            x[r][w] = pos[r] >= W ? s.matrix[tid + r * threads + (k0 + w) * ld] : zero<T>();
          }
        }
#pragma unroll(R >= 4 ? 1 : 4 / R)
        for (int c = 0; c < rest; ++c) {
          T u[W];
          load_row<T, W>(u, s.upper + c * kStep, 0);
          T* const target = right + c * ld;
          T sum[R];
#pragma unroll
          for (int r = 0; r < R; ++r) {
            sum[r] = pos[r] >= W ? target[tid + r * threads] : zero<T>();
          }
#pragma unroll
          for (int w = 0; w < W; ++w) {
#pragma unroll
            for (int r = 0; r < R; ++r) {
              sum[r] = subtract_product(sum[r], x[r][w], u[w]);
            }
          }
#pragma unroll
          for (int r = 0; r < R; ++r) {
            if (pos[r] >= W) {
              target[tid + r * threads] = sum[r];
            }
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      pos[r] -= W;
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    pos[r] += (steps + W - 1) / W * W;  // from here on counted from the panel's first column
  }

  __syncthreads();
  write_panel(p, s, a, m, n, ld, pos);
}

template <typename T, int W_, int R_, int kMaxThreads_, int kBlocks>
struct RolledShape {
  static constexpr int W = W_, R = R_, kMaxThreads = kMaxThreads_;
  static size_t bytes(int m, int n) {
    return PanelShared<T, W, kMaxThreads, true>::bytes(m, n);
  }
  static void launch(const Panel<T>& p, cudaStream_t stream) {
    const int m = p.whole.m - p.first;
    const int threads = ((m + R - 1) / R + 31) / 32 * 32;
    const size_t shared = bytes(m, p.n);
    auto* const kernel = rolled_lu_kernel<T, W, R, kMaxThreads, kBlocks>;
    static DynamicShared allowance;
    allowance.allow(kernel, shared);
    kernel<<<static_cast<unsigned>(p.whole.batch), threads, shared, stream>>>(p);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
};

}  // namespace at::native::batched_native
