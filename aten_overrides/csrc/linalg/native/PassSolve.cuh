#pragma once

#include <algorithm>

#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/PassParts.cuh>
#include <ATen/native/cuda/linalg/native/RowOrder.cuh>
#include <ATen/native/cuda/linalg/native/SolveKernels.h>

// Few right-hand sides: one block per matrix (and per R right-hand sides), which reads the factor
// once. Both triangles are solved as lower ones over positions: position i is row i for the first,
// row rows - 1 - i for the second. Positions come in blocks of 32. While the first warp solves
// block k, the others, the workers, sum what the blocks before k contribute to block k + 1, and
// bring the two tiles to shared memory that the first warp needs then; so a barrier a block
// suffices. What a worker reads of the factor depends on no result, so it reads a round ahead.
namespace at::native::batched_native {

// Of doubles nvcc would fit two blocks, by spilling registers.
template <typename T, int R, bool kTransposed>
__global__ void __launch_bounds__(32 * kPassWarps, sizeof(real_t<T>) == 8 ? 1 : 0)
    pass_kernel(Systems<T> p, int tiles) {
  using Pass = PassSolve<T, R>;
  extern __shared__ __align__(16) unsigned char raw[];
  const int threads = blockDim.x, tid = threadIdx.x, warp = tid / 32;
  const int warps = threads / 32, workers = max(1, warps - 1);
  const int worker = warps == 1 ? 0 : warp - 1;  // -1: the first warp, which only solves
  const int64_t item = blockIdx.x / tiles;
  const int first_column = static_cast<int>(blockIdx.x % tiles) * R;
  const int columns = min(R, p.nrhs - first_column);
  const int n = p.n, blocks = (n + Pass::kBlock - 1) / Pass::kBlock, rows = blocks * Pass::kBlock;
  const int64_t factor = item % p.lu_batch;
  const int32_t* const pivots = p.pivots + factor * p.pivot_stride;
  T* const b = p.b + item * p.b_stride + first_column * p.ldb;
  const int sign = p.conjugated ? -1 : 1;

  T* const x = reinterpret_cast<T*>(raw);  // [right-hand side][row]
  const int stages = Pass::stages(warps);
  T* const tiles_of = x + R * int64_t{rows};  // of each stage: beside the diagonal, on it
  T* const sums =
      tiles_of + 2 * stages * Pass::kTile;  // two of [worker][right-hand side][position]
  int32_t* const scratch = reinterpret_cast<int32_t*>(tiles_of);

  const Triangles<T, kTransposed> a{p.lu + factor * p.lu_stride, p.lda, n, rows, blocks};
  PassWorker<T, R, kTransposed> work(a, x, sums, worker, workers, sign);
  if (worker >= 0) {
    work.load();
  }
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
  __syncthreads();  // the row order lies where the tiles will
  const auto tile = [tiles_of, stages](int phase) {
    return tiles_of + phase % stages * 2 * Pass::kTile;
  };
  const auto wait = [stages] {
    if (stages == 2) {
      __pipeline_wait_prior(0);
    } else {
      __pipeline_wait_prior(1);
    }
  };
  if (worker >= 0) {
    for (int phase = 0; phase < stages - 1; ++phase) {
      work.stage(phase, tile(phase));
    }
    wait();
  }
  for (int phase = 0; phase < 2 * blocks; ++phase) {
    __syncthreads();
    if (worker >= 0) {
      work.stage(phase + stages - 1, tile(phase + stages - 1));
      work.contribute(phase + 1);
      wait();
    }
    if (warp == 0) {
      const int pass = phase < blocks ? 0 : 1, block = phase - pass * blocks;
      if (kTransposed == (pass == 1)) {
        PassBlock<T, R, kTransposed, true>::solve(a, x, sums, tile(phase), workers, sign, block);
      } else {
        PassBlock<T, R, kTransposed, false>::solve(a, x, sums, tile(phase), workers, sign, block);
      }
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
