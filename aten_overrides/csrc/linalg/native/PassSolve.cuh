#pragma once

#include <algorithm>

#include <cuda_pipeline.h>

#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/RowOrder.cuh>
#include <ATen/native/cuda/linalg/native/SolveKernels.h>
#include <ATen/native/cuda/linalg/native/SolveScalar.cuh>

// Few right-hand sides: one block per matrix (and per R right-hand sides), which reads the factor
// once. Both triangles are solved as lower ones over positions: position i is row i for the first,
// row rows - 1 - i for the second. Positions come in blocks of 32. While the first warp solves
// block k, the others sum what the blocks before k contribute to block k + 1, and bring the two
// tiles to shared memory that the first warp needs then; so a barrier a block suffices and no read
// of the factor waits for a result.
namespace at::native::batched_native {

template <typename T, int R>
struct PassSolve {
  static constexpr int kBlock = 32;
  static constexpr int kStep = kBlock + 1;  // of a tile's columns, against bank conflicts
  static constexpr int kTile = kBlock * kStep;
  static constexpr int kRows = sizeof(T) * R > 16 ? 2 : 4;  // of a transposed factor at once
  static constexpr int kAhead = sizeof(T) == 4 ? 16 : sizeof(T) == 8 ? 8 : 4;  // loads in flight

  static __host__ __device__ int64_t padded(int n) {
    return (int64_t{n} + kBlock - 1) / kBlock * kBlock;
  }
  static __host__ size_t bytes(int n, int warps) {
    const int64_t sums = 2 * std::max(1, warps - 1) * R * kBlock;
    const size_t work = (4 * kTile + sums) * sizeof(T);
    return R * padded(n) * sizeof(T) + std::max(work, order_scratch(n) * sizeof(int32_t));
  }
};

// Of doubles nvcc would fit two blocks of 512 threads, by spilling registers.
template <typename T, int R, bool kTransposed>
__global__ void __launch_bounds__(512, sizeof(real_t<T>) == 8 ? 1 : 0)
    pass_kernel(Systems<T> p, int tiles) {
  using Pass = PassSolve<T, R>;
  constexpr int B = Pass::kBlock, S = Pass::kStep;
  constexpr int G = Pass::kRows, A = Pass::kAhead / G;
  extern __shared__ __align__(16) unsigned char raw[];
  const int threads = blockDim.x, tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int warps = threads / 32, workers = max(1, warps - 1);
  const int worker = warps == 1 ? 0 : warp - 1;  // -1: the first warp, which only solves
  const int64_t item = blockIdx.x / tiles, lda = p.lda;
  const int first_column = static_cast<int>(blockIdx.x % tiles) * R;
  const int columns = min(R, p.nrhs - first_column);
  const int n = p.n, blocks = (n + B - 1) / B, rows = blocks * B;
  const int64_t factor = item % p.lu_batch;
  const T* const lu = p.lu + factor * p.lu_stride;
  const int32_t* const pivots = p.pivots + factor * p.pivot_stride;
  T* const b = p.b + item * p.b_stride + first_column * p.ldb;
  const int sign = p.conjugated ? -1 : 1;

  T* const x = reinterpret_cast<T*>(raw);      // [right-hand side][row]
  T* const tiles_of = x + R * int64_t{rows};   // two of (beside the diagonal, on it)
  T* const sums = tiles_of + 4 * Pass::kTile;  // two of [worker][right-hand side][position]
  const int sums_size = workers * R * B;
  int32_t* const scratch = reinterpret_cast<int32_t*>(tiles_of);

  const int32_t* order = nullptr;
  if (!kTransposed) {
    order = find_order(pivots, n, scratch);
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    for (int i = tid; i < rows; i += threads) {
      const bool there = i < n && r < columns;
      x[r * rows + i] = there ? b[(kTransposed ? i : order[i]) + r * p.ldb] : zero<T>();
    }
  }
  __syncthreads();

  // Element (i, j) of the triangle of a pass, by positions.
  const auto row_of = [rows](int pass, int position) {
    return pass == 0 ? position : rows - 1 - position;
  };
  const auto address = [lu, lda](int row, int column) {
    return kTransposed ? lu + column + row * lda : lu + row + column * lda;
  };
  const auto tile = [tiles_of](int phase) { return tiles_of + (phase & 1) * 2 * Pass::kTile; };

  // Brings to shared memory what the first warp needs in `phase`.
  const auto stage = [&](int phase) {
    const int pass = phase / blocks, block = phase - pass * blocks;
    T* const to = tile(phase);
    for (int line = worker; line < 2 * B; line += workers) {
      const bool diagonal = line >= B;
      if (!diagonal && block == 0) {
        continue;
      }
      // Along a line memory is contiguous: a column of A.
      const int i = kTransposed ? line % B : lane, j = kTransposed ? lane : line % B;
      const int row = row_of(pass, block * B + i);
      const int column = row_of(pass, (block - (diagonal ? 0 : 1)) * B + j);
      T* const target = to + (diagonal ? Pass::kTile : 0) + j * S + i;
      if (row < n && column < n && (!diagonal || i >= j)) {
        __pipeline_memcpy_async(target, address(row, column), sizeof(T));
      } else {
        *target = zero<T>();
      }
    }
    __pipeline_commit();
  };

  // Sums what positions before block - 1 contribute to the block of `phase`.
  const auto contribute = [&](int phase) {
    const int pass = phase / blocks, block = phase - pass * blocks;
    T* const to = sums + (phase & 1) * sums_size;
    const int known = (block - 1) * B;
    if (known <= 0) {
      return;
    }
    if (!kTransposed) {
      const int row = row_of(pass, block * B + lane);
      const bool there = row < n;
      T total[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        total[r] = zero<T>();
      }
      for (int j = worker; j < known; j += workers * Pass::kAhead) {
        T l[Pass::kAhead];
#pragma unroll
        for (int a = 0; a < Pass::kAhead; ++a) {
          const int position = j + a * workers, column = row_of(pass, position);
          l[a] = there && position < known && column < n ? *address(row, column) : zero<T>();
        }
#pragma unroll
        for (int a = 0; a < Pass::kAhead; ++a) {
          const int column = row_of(pass, min(j + a * workers, known - 1));
          const int active = j + a * workers < known && column < n;
#pragma unroll
          for (int r = 0; r < R; ++r) {
            subtract_product_if(active, total[r], l[a], x[r * rows + column]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        to[(worker * R + r) * B + lane] = total[r];
      }
    } else {
      // Several rows at once, so that their reads overlap; known is a multiple of 32.
      for (int i = worker; i < B; i += G * workers) {
        int row[G];
        T total[G][R];
#pragma unroll
        for (int g = 0; g < G; ++g) {
          const int position = i + g * workers;
          row[g] = position < B ? row_of(pass, block * B + position) : n;
#pragma unroll
          for (int r = 0; r < R; ++r) {
            total[g][r] = zero<T>();
          }
        }
        for (int base = 0; base < known; base += 32 * A) {
          T l[A][G];
#pragma unroll
          for (int a = 0; a < A; ++a) {
            const int column = row_of(pass, base + a * 32 + lane);
            const bool there = base + a * 32 < known && column < n;
#pragma unroll
            for (int g = 0; g < G; ++g) {
              l[a][g] = there && row[g] < n ? *address(row[g], column) : zero<T>();
            }
          }
#pragma unroll
          for (int a = 0; a < A; ++a) {
            const int column = row_of(pass, min(base + a * 32, known - 32) + lane);
            const int active = base + a * 32 < known && column < n;
#pragma unroll
            for (int r = 0; r < R; ++r) {
              const T value = x[r * rows + column];
#pragma unroll
              for (int g = 0; g < G; ++g) {
                subtract_product_if(active, total[g][r], conjugate(l[a][g], sign), value);
              }
            }
          }
        }
#pragma unroll
        for (int g = 0; g < G; ++g) {
#pragma unroll
          for (int r = 0; r < R; ++r) {
            const T all = warp_sum(total[g][r]);
            if (lane == 0 && i + g * workers < B) {
              to[r * B + i + g * workers] = all;
            }
          }
        }
      }
    }
  };

  // The first warp: a position a lane.
  const auto solve = [&](int phase) {
    const int pass = phase / blocks, block = phase - pass * blocks;
    const bool unit = kTransposed == (pass == 1);
    const T* const beside = tile(phase);
    const T* const diagonal = beside + Pass::kTile;
    const int row = row_of(pass, block * B + lane);
    T v[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      v[r] = x[r * rows + row];
    }
    if (block > 1) {
      const T* const from = sums + (phase & 1) * sums_size;
      for (int w = 0; w < (kTransposed ? 1 : workers); ++w) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          v[r] = sum(v[r], from[(w * R + r) * B + lane]);  // products were subtracted from zero
        }
      }
    }
    if (block > 0) {
      const int before = pass == 0 ? (block - 1) * B : rows - 1 - (block - 1) * B;
      const int step = pass == 0 ? 1 : -1;
#pragma unroll 8
      for (int j = 0; j < B; ++j) {
        const T l = conjugate(beside[j * S + lane], sign);
        const int active = before + step * j < n;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          subtract_product_if(active, v[r], l, x[r * rows + before + step * j]);
        }
      }
    }
    Divisor<T> divisor;
    if (!unit) {
      T own = conjugate(diagonal[lane * S + lane], sign);
      if (row >= n) {
        own = one<T>();
      }
      divisor = Divisor<T>::of(own);
    }
    constexpr int kChunk = 8;
    T l[kChunk], next[kChunk];
#pragma unroll
    for (int q = 0; q < kChunk; ++q) {
      l[q] = diagonal[q * S + lane];
    }
#pragma unroll
    for (int from = 0; from < B; from += kChunk) {
#pragma unroll
      for (int q = 0; q < kChunk && from + kChunk < B; ++q) {
        next[q] = diagonal[(from + kChunk + q) * S + lane];
      }
#pragma unroll
      for (int q = 0; q < kChunk; ++q) {
        const int active = lane > from + q;
        const T factor_of_x = conjugate(l[q], sign);
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const T mine = unit ? v[r] : quotient(v[r], divisor);
          subtract_product_if(active, v[r], factor_of_x, shuffle(mine, from + q, 32));
        }
      }
#pragma unroll
      for (int q = 0; q < kChunk; ++q) {
        l[q] = next[q];
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (row < n) {
        x[r * rows + row] = unit ? v[r] : quotient(v[r], divisor);
      }
    }
  };

  if (worker >= 0) {
    stage(0);
    __pipeline_wait_prior(0);
  }
  for (int phase = 0; phase < 2 * blocks; ++phase) {
    __syncthreads();
    if (worker >= 0 && phase + 1 < 2 * blocks) {
      stage(phase + 1);
      contribute(phase + 1);
      __pipeline_wait_prior(0);
    }
    if (warp == 0) {
      solve(phase);
    }
  }
  __syncthreads();
  if (kTransposed) {
    order = find_order(pivots, n, scratch);
  }
  for (int r = 0; r < columns; ++r) {
    for (int i = tid; i < n; i += threads) {
      b[(kTransposed ? order[i] : i) + r * p.ldb] = x[r * rows + i];
    }
  }
}

template <typename T, int R>
void launch_pass_of(const Systems<T>& p, int warps, cudaStream_t stream) {
  const int tiles = (p.nrhs + R - 1) / R, threads = 32 * warps;
  const size_t shared = PassSolve<T, R>::bytes(p.n, warps);
  const unsigned blocks = static_cast<unsigned>(p.batch * tiles);
  if (p.transposed) {
    static DynamicShared allowance;
    allowance.allow(pass_kernel<T, R, true>, shared);
    pass_kernel<T, R, true><<<blocks, threads, shared, stream>>>(p, tiles);
  } else {
    static DynamicShared allowance;
    allowance.allow(pass_kernel<T, R, false>, shared);
    pass_kernel<T, R, false><<<blocks, threads, shared, stream>>>(p, tiles);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T>
constexpr int kTogether = sizeof(T) == 16 ? 2 : 4;

template <typename T>
int pass_columns(int nrhs) {
  return nrhs == 1 ? 1 : kTogether<T>;
}

template <typename T>
size_t pass_bytes(int n, int together, int warps) {
  return together == 1 ? PassSolve<T, 1>::bytes(n, warps)
                       : PassSolve<T, kTogether<T>>::bytes(n, warps);
}

template <typename T>
void launch_pass(const Systems<T>& p, int together, int warps, cudaStream_t stream) {
  if (together == 1) {
    launch_pass_of<T, 1>(p, warps, stream);
  } else {
    launch_pass_of<T, kTogether<T>>(p, warps, stream);
  }
}

}  // namespace at::native::batched_native
