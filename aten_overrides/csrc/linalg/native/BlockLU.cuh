#pragma once

#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/LaunchCheck.h>
#include <ATen/native/cuda/linalg/native/PanelParts.cuh>

// One block per matrix (or per panel of a larger matrix): read once into shared memory, factored
// there, written once. Thread t owns rows t, t + blockDim.x, ...; W columns at a time live in
// registers. Rows never move before the end: `pos` says where a row stands, counted from the
// strip's first column. One barrier a column: each warp publishes its best row together with its
// key, so that whoever wins, its row is already there; two buffers keep the next column's writers
// away from this column's readers.
namespace at::native::batched_native {

template <typename T, int W, int R, int kMaxThreads, int kBlocks>
__global__ void __launch_bounds__(kMaxThreads, kBlocks) block_lu_kernel(Panel<T> p) {
  using Shared = PanelShared<T, W, kMaxThreads, false>;
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
  for (int k0 = 0; k0 < steps; k0 += W) {
    T x[R][W];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int slot = tid + r * threads;
#pragma unroll
      for (int w = 0; w < W; ++w) {
        x[r][w] = slot < m && k0 + w < n ? s.matrix[slot + (k0 + w) * ld] : zero<T>();
      }
    }

#pragma unroll
    for (int w = 0; w < W; ++w) {
      if (w >= steps - k0) {
        continue;
      }
      T* const mail = s.mail + w % 2 * kWarps * kMail;

      Key key = 0;
      uint32_t mine = 0xffffffffu;
      T value = zero<T>();
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const Key other = pos[r] >= w ? pivot_key(x[r][w], mask) : Key(0);
        const uint32_t other_pos = static_cast<uint32_t>(pos[r]);
        if (r == 0 || other > key || (other == key && other_pos < mine)) {
          key = other;
          mine = other_pos;
          value = x[r][w];
        }
      }
      const Divisor<T> own = Divisor<T>::of(value);  // needs no waiting, so every thread does it
      // Exactly one lane has the tag that wins: it publishes. A tag is position and lane, then
      // warp.
      const uint32_t tag = mine << 5 | lane;
      if (tag == warp_argmax(key, tag)) {
        s.keys[w % 2 * kWarps + warp] = key;
        s.tags[w % 2 * kWarps + warp] = mine << 5 | warp;
        T* const row = mail + warp * kMail;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (R == 1 || static_cast<uint32_t>(pos[r]) == mine) {
            store_row<T, W>(row, x[r], w);
          }
        }
        row[W] = own.inverse;
        *reinterpret_cast<real_t<T>*>(row + W + 1) = own.scale;
      }
      __syncthreads();

      const int other = w % 2 * kWarps + lane % kWarps;
      const uint32_t best = warp_argmax(s.keys[other], s.tags[other]);
      const int place = static_cast<int>(best >> 5);
      const T* const row = mail + best % 32 * kMail;
      const Divisor<T> divisor{row[W], *reinterpret_cast<const real_t<T>*>(row + W + 1)};
      T u[W];
      load_row<T, W>(u, row, w);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (pos[r] == place) {
          pos[r] = w;
          s.place_at[k0 + w] = k0 + place;
        } else if (pos[r] == w) {
          pos[r] = place;
        }
        const int active = pos[r] > w;
        x[r][w] = select(active, divisor.divide(x[r][w]), x[r][w]);
#pragma unroll
        for (int j = w + 1; j < W; ++j) {
          subtract_product_if(active, x[r][j], x[r][w], u[j]);
        }
      }
    }

    const int done = min(W, steps - k0);
    const int same_ld = opaque(ld), same_k0 = opaque(k0);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int slot = tid + r * threads;
      if (slot < m) {
#pragma unroll
        for (int w = 0; w < W; ++w) {
          if (same_k0 + w < n) {
            s.matrix[slot + (same_k0 + w) * same_ld] = x[r][w];
          }
        }
        if (pos[r] >= 0 && pos[r] < done) {
          s.holder[pos[r]] = slot;
#pragma unroll
          for (int w = 0; w < W; ++w) {
            s.lower[w * W + pos[r]] = x[r][w];
          }
        }
      }
    }

    const int rest = n - (k0 + W);
    if (rest > 0) {
      __syncthreads();
      T* const right = s.matrix + (k0 + W) * ld;
      solve_upper<W>(s, right, rest, done, ld);
      __syncthreads();
      if (k0 + W < m) {
#pragma unroll(R >= 4 ? 1 : 4 / R)
        for (int c = 0; c < rest; ++c) {
          T u[W];
          load_row<T, W>(u, s.upper + c * kStep, 0);
          T* const column = right + c * ld;
          T sum[R];
#pragma unroll
          for (int r = 0; r < R; ++r) {
            const int slot = tid + r * threads;
            sum[r] = slot < m ? column[slot] : zero<T>();  // a row of its own, or none
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
              column[tid + r * threads] = sum[r];
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

// The shapes that are built: W columns in registers, R rows a thread, at most kMaxThreads threads
// and registers for kBlocks blocks on a multiprocessor.
template <typename T, int W_, int R_, int kMaxThreads_, int kBlocks>
struct BlockShape {
  static constexpr int W = W_, R = R_, kMaxThreads = kMaxThreads_;
  static size_t bytes(int m, int n) {
    return PanelShared<T, W, kMaxThreads, false>::bytes(m, n);
  }
  static void launch(const Panel<T>& p, cudaStream_t stream) {
    const int m = p.whole.m - p.first;
    const int threads = ((m + R - 1) / R + 31) / 32 * 32;
    const size_t shared = bytes(m, p.n);
    auto* const kernel = block_lu_kernel<T, W, R, kMaxThreads, kBlocks>;
    static DynamicShared allowance;
    allowance.allow(kernel, shared);
    kernel<<<static_cast<unsigned>(p.whole.batch), threads, shared, stream>>>(p);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
};

}  // namespace at::native::batched_native
