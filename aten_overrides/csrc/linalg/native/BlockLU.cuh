#pragma once

#include <algorithm>

#include <cuda_pipeline.h>

#include <ATen/native/cuda/linalg/native/Kernels.h>
#include <ATen/native/cuda/linalg/native/LaunchCheck.h>
#include <ATen/native/cuda/linalg/native/Scalar.cuh>

// One block per matrix (or per panel of a larger matrix): read once into shared memory, factored
// there, written once. Thread t owns rows t, t + blockDim.x, ...; W columns at a time live in
// registers. Rows never move before the end: `pos` says where a row stands. One barrier a column:
// each warp publishes its best row together with its key, so that whoever wins, its row is already
// there; two buffers keep the next column's writers away from this column's readers.
namespace at::native::batched_native {

template <typename T, int W, int R, int kMaxThreads>
struct BlockLU {
  static_assert(W % 2 == 0, "the two buffers of candidate rows alternate by column");
  static constexpr int kWarps = kMaxThreads / 32;
  static constexpr int kStep = W + 16 / sizeof(T); // row length of U: 16-byte accesses without conflicts
  using Key = key_t_of<T>;

  T* rows; // [2][kWarps][W] the warps' candidate rows
  T* lower; // [W][W] multipliers of the pivot rows
  T* upper; // [columns right of the strip][kStep]
  T* matrix; // [n][ld]
  Key* keys; // [2][kWarps]
  uint32_t* places; // [2][kWarps]
  int32_t* holder; // [W] slot of each pivot row
  int32_t* slot_at; // [m] which slot stands at a position

  static __host__ __device__ int leading(int m) {
    return m | 1; // odd: a row's elements fall into different banks
  }
  static __host__ size_t bytes(int m, int n) {
    const size_t elements = static_cast<size_t>(2 * kWarps + W) * W +
        static_cast<size_t>(std::max(n - W, 0)) * kStep + static_cast<size_t>(n) * leading(m);
    return elements * sizeof(T) + 2 * kWarps * (sizeof(Key) + sizeof(uint32_t)) +
        (W + static_cast<size_t>(m)) * sizeof(int32_t) + 16;
  }
  __device__ BlockLU(unsigned char* base, int m, int n) {
    rows = reinterpret_cast<T*>(base);
    lower = rows + 2 * kWarps * W;
    upper = lower + W * W;
    matrix = upper + max(n - W, 0) * kStep;
    const size_t used = static_cast<size_t>(matrix + n * leading(m) - rows) * sizeof(T);
    keys = reinterpret_cast<Key*>(base + (used + 7) / 8 * 8);
    places = reinterpret_cast<uint32_t*>(keys + 2 * kWarps);
    holder = reinterpret_cast<int32_t*>(places + 2 * kWarps);
    slot_at = holder + W;
  }
};

template <typename T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T value[size];
};

// Move what of W contiguous elements lies at or after `from` (a constant after unrolling), 16 bytes
// at a time.
template <typename T, int W>
__device__ __forceinline__ void load_row(T (&to)[W], const T* from_row, int from) {
  constexpr int V = Pack<T>::size;
  static_assert(W % V == 0, "rows are moved in 16-byte pieces");
#pragma unroll
  for (int j = 0; j < W; j += V) {
    if (j + V > from) {
      const Pack<T> pack = *reinterpret_cast<const Pack<T>*>(from_row + j);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        to[j + v] = pack.value[v];
      }
    }
  }
}
template <typename T, int W>
__device__ __forceinline__ void store_row(T* to_row, const T (&values)[W], int from) {
  constexpr int V = Pack<T>::size;
#pragma unroll
  for (int j = 0; j < W; j += V) {
    if (j + V > from) {
      Pack<T> pack;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        pack.value[v] = values[j + v];
      }
      *reinterpret_cast<Pack<T>*>(to_row + j) = pack;
    }
  }
}

template <typename T, int W, int R, int kMaxThreads>
__global__ void __launch_bounds__(kMaxThreads) block_lu_kernel(Panel<T> p) {
  using Shared = BlockLU<T, W, R, kMaxThreads>;
  using Key = typename Shared::Key;
  constexpr int kWarps = Shared::kWarps;
  constexpr int kStep = Shared::kStep;
  extern __shared__ __align__(16) unsigned char raw[];

  const int m = p.whole.m - p.first, n = p.n, steps = min(m, n);
  const int ld = Shared::leading(m);
  const Shared s(raw, m, n);
  const int threads = blockDim.x, tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int warps = threads / 32;
  const int64_t item = blockIdx.x;
  T* const a = p.whole.a + item * p.whole.stride + p.first * (p.whole.lda + 1);
  int32_t* const pivots = p.whole.pivots + item * p.whole.pivot_stride + p.first;

  int pos[R]; // -1: no such row; below the current column: a finished pivot row
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int slot = tid + r * threads;
    pos[r] = slot < m ? slot : -1;
    if (slot < m) {
      for (int c = 0; c < n; ++c) {
        __pipeline_memcpy_async(&s.matrix[slot + c * ld], &a[slot + c * p.whole.lda], sizeof(T));
      }
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0); // a thread reads only its own rows before the next barrier

  int first_zero = 0;
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
      const int k = k0 + w;
      if (k >= steps) {
        continue;
      }
      const int buffer = w % 2;
      const T* row = nullptr;
      uint32_t place = k;
      if (p.whole.pivot) {
        Key key = 0;
        uint32_t mine = 0xffffffffu;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const Key other = pos[r] >= k ? pivot_key(x[r][w]) : Key(0);
          const uint32_t other_pos = static_cast<uint32_t>(pos[r]);
          if (other > key || (other == key && other_pos < mine)) {
            key = other;
            mine = other_pos;
          }
        }
        Key best;
        uint32_t best_pos;
        warp_argmax(key, mine, best, best_pos);
        if (best != 0 && key == best && mine == best_pos) {
          T* const mail = s.rows + (buffer * kWarps + warp) * W;
#pragma unroll
          for (int r = 0; r < R; ++r) {
            if (R == 1 || static_cast<uint32_t>(pos[r]) == mine) {
              store_row<T, W>(mail, x[r], w);
            }
          }
        }
        if (lane == 0) {
          s.keys[buffer * kWarps + warp] = best;
          s.places[buffer * kWarps + warp] = best_pos;
        }
        __syncthreads();
        const bool counted = lane < warps;
        const Key their_key = counted ? s.keys[buffer * kWarps + lane] : Key(0);
        const uint32_t their_pos = counted ? s.places[buffer * kWarps + lane] : 0xffffffffu;
        warp_argmax(their_key, their_pos, best, place);
        const unsigned winners =
            __ballot_sync(kFullWarp, their_key == best && their_pos == place);
        row = s.rows + (buffer * kWarps + __ffs(winners) - 1) * W;
      } else {
        T* const mail = s.rows + buffer * kWarps * W;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          if (pos[r] == k) {
            store_row<T, W>(mail, x[r], w);
          }
        }
        __syncthreads();
        row = mail;
      }

      T u[W];
      load_row<T, W>(u, row, w);
      if (tid == 0) {
        pivots[k] = p.first + static_cast<int32_t>(place) + 1;
        if (first_zero == 0 && is_zero(u[w])) {
          first_zero = p.first + k + 1;
        }
      }
      const Divisor<T> divisor(u[w]);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        if (static_cast<uint32_t>(pos[r]) == place) {
          pos[r] = k;
        } else if (pos[r] == k) {
          pos[r] = static_cast<int>(place);
        }
        if (pos[r] > k) {
          x[r][w] = divisor.divide(x[r][w]);
#pragma unroll
          for (int j = w + 1; j < W; ++j) {
            x[r][j] = subtract_product(x[r][j], x[r][w], u[j]);
          }
        }
      }
    }

    const int done = min(W, steps - k0);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int slot = tid + r * threads;
      if (slot < m) {
#pragma unroll
        for (int w = 0; w < W; ++w) {
          if (k0 + w < n) {
            s.matrix[slot + (k0 + w) * ld] = x[r][w];
          }
        }
        if (pos[r] >= k0 && pos[r] < k0 + done) {
          s.holder[pos[r] - k0] = slot;
          store_row<T, W>(s.lower + (pos[r] - k0) * W, x[r], 0);
        }
      }
    }

    const int rest = n - (k0 + W);
    if (rest > 0) {
      __syncthreads();
      T* const right = s.matrix + (k0 + W) * ld;
      for (int c = tid; c < rest; c += threads) { // a column of U per thread
        T y[W];
#pragma unroll
        for (int w = 0; w < W; ++w) {
          y[w] = w < done ? right[s.holder[w] + c * ld] : zero<T>();
        }
#pragma unroll
        for (int w = 1; w < W; ++w) {
          if (w < done) {
#pragma unroll
            for (int v = 0; v < w; ++v) {
              y[w] = subtract_product(y[w], s.lower[w * W + v], y[v]);
            }
            right[s.holder[w] + c * ld] = y[w];
          }
        }
        store_row<T, W>(s.upper + c * kStep, y, 0);
      }
      __syncthreads();
      if (k0 + W < m) {
#pragma unroll 2
        for (int c = 0; c < rest; ++c) {
          T u[W];
          load_row<T, W>(u, s.upper + c * kStep, 0);
#pragma unroll
          for (int r = 0; r < R; ++r) {
            if (pos[r] >= k0 + W) {
              T* const element = right + tid + r * threads + c * ld;
              T value = *element;
#pragma unroll
              for (int w = 0; w < W; ++w) {
                value = subtract_product(value, x[r][w], u[w]);
              }
              *element = value;
            }
          }
        }
      }
    }
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
#pragma unroll 4
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
  if (tid == 0) {
    int32_t& info = p.whole.info[item];
    if (p.first == 0) {
      info = first_zero;
    } else if (first_zero != 0 && info == 0) {
      info = first_zero;
    }
  }
}

// The shapes that are built: W columns in registers, R rows a thread, at most `threads` threads.
template <typename T, int W_, int R_, int kMaxThreads_>
struct BlockShape {
  static constexpr int W = W_, R = R_, kMaxThreads = kMaxThreads_;
  static size_t bytes(int m, int n) {
    return BlockLU<T, W, R, kMaxThreads>::bytes(m, n);
  }
  static void launch(const Panel<T>& p, cudaStream_t stream) {
    const int m = p.whole.m - p.first;
    const int threads = ((m + R - 1) / R + 31) / 32 * 32;
    const size_t shared = bytes(m, p.n);
    auto* const kernel = block_lu_kernel<T, W, R, kMaxThreads>;
    if (shared > 48 * 1024) {
      C10_CUDA_CHECK(cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
    }
    kernel<<<static_cast<unsigned>(p.whole.batch), threads, shared, stream>>>(p);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
};

// Calls `use` with the shape for panels of `rows` rows; returns false when there is none.
template <typename T, typename Use>
bool with_block_shape(int rows, Use&& use) {
  constexpr int words = sizeof(T) / 4; // registers an element
  if (rows <= 256) {
    use(BlockShape<T, words == 4 ? 8 : 16, 1, 256>{});
  } else if (rows <= 1024) {
    use(BlockShape<T, 16 / words, 2, 512>{});
  } else if (rows <= 2048) {
    use(BlockShape<T, 16 / words, 4, 512>{});
  } else if (rows <= 4096) {
    use(BlockShape<T, 8 / words, 8, 512>{});
  } else {
    return false;
  }
  return true;
}

template <typename T>
int block_lu_width(int rows, int wanted, size_t shared) {
  int width = 0;
  with_block_shape<T>(rows, [&](auto shape) {
    for (int n = wanted; n > 0 && width == 0; n = n > shape.W ? (n - 1) / shape.W * shape.W : 0) {
      if (shape.bytes(rows, n) <= shared) {
        width = n;
      }
    }
  });
  return width;
}

template <typename T>
void launch_block_lu(const Panel<T>& p, cudaStream_t stream) {
  with_block_shape<T>(
      p.whole.m - p.first, [&](auto shape) { shape.launch(p, stream); });
}

} // namespace at::native::batched_native
