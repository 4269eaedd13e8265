#pragma once

#include <algorithm>

#include <cuda_pipeline.h>

#include <ATen/native/cuda/linalg/native/DynamicShared.h>
#include <ATen/native/cuda/linalg/native/SolveKernels.h>
#include <ATen/native/cuda/linalg/native/SolveScalar.cuh>

// Many right-hand sides and one diagonal block of the factor: all rows of 32 or 64 columns lie in
// shared memory. Both triangles are solved as lower ones over positions, as in PassSolve.cuh, 16
// positions at a time: the product with all positions before, then a thread solves a column.
namespace at::native::batched_native {

template <typename T>
struct TileShape {
  static constexpr int kBlock = 16;  // positions
  static constexpr int kThreads = 128;
  static constexpr int kRows = 4;    // of a product that a thread has
  static constexpr int kDepth = 32;  // positions of a piece of the factor
  static constexpr int kPieces = 3;  // in shared memory: one in use, two on their way
  static constexpr int kStep = kBlock + 16 / sizeof(T);  // from position to position of a piece
  static constexpr int kWidth = sizeof(T) == 4 ? 256 : sizeof(T) == 8 ? 192 : 128;  // most rows
  static constexpr int kMostTiles = sizeof(T) == 16 ? 1 : 2;                        // of 32 columns
  static constexpr int kDivisor = 2;  // elements that hold a Divisor

  static __host__ __device__ int padded(int width) {
    return (width + kBlock - 1) / kBlock * kBlock;
  }
  static __host__ __device__ constexpr int columns_step(int tiles) {
    return 32 * tiles + 1;  // odd: rows fall into different banks
  }
  static __host__ size_t bytes(int width, int tiles) {
    const size_t rows = static_cast<size_t>(padded(width));
    const size_t elements = kPieces * kDepth * kStep + kDivisor * rows + rows * columns_step(tiles);
    return elements * sizeof(T);
  }
};

// One triangle of a tile: kPass 0 or 1. C: tiles of 32 columns.
template <typename T, int C, bool kTransposed, int kPass>
struct TileTriangle {
  using Shape = TileShape<T>;
  static constexpr int B = Shape::kBlock, D = Shape::kDepth, Q = Shape::kRows;
  static constexpr bool kUnit = kTransposed == (kPass == 1);
  static constexpr int kStep = Shape::columns_step(C);  // from row to row
  static constexpr int kDown = kPass == 0 ? kStep : -kStep;

  const T* lu;
  int64_t lda;
  int width, rows, sign;
  T* pieces;
  Divisor<T>* divisors;  // by position
  T* x;                  // of position 0

  __device__ __forceinline__ int place(int position) const {
    return kPass == 0 ? position : rows - 1 - position;
  }

  // Pieces are numbered through all blocks: of block k those before its diagonal, D positions each,
  // then the diagonal one.
  static __device__ __forceinline__ int before(int block) {
    return (block * B + D - 1) / D;
  }
  __device__ __forceinline__ T* piece(int number) const {
    return pieces + number % Shape::kPieces * D * Shape::kStep;
  }

  // Begins to bring a piece: [position][row of the block].
  __device__ __forceinline__ void bring(int block, int index, int number) const {
    const int from = index < before(block) ? index * D : block * B;
    const int depth = index < before(block) ? min(D, block * B - from) : B;
    T* const to = piece(number);
    const int tid = threadIdx.x;
#pragma unroll
    for (int done = 0; done < D * B; done += Shape::kThreads) {
      // Along a line memory is contiguous.
      const int at = done + tid;
      const int j = kTransposed ? at % D : at / B, i = kTransposed ? at / D : at % B;
      if (j < depth) {
        const int row = place(block * B + i), column = place(from + j);
        const bool there = row < width && column < width;
        const T* const source = kTransposed ? lu + column + row * lda : lu + row + column * lda;
        __pipeline_memcpy_async(
            to + j * Shape::kStep + i, there ? source : lu, sizeof(T), there ? 0 : sizeof(T));
      }
    }
  }

  __device__ __forceinline__ void solve() const {
    const int blocks = rows / B, tid = threadIdx.x, lane = tid % 32, group = tid / 32;
    for (int i = tid; i < rows; i += Shape::kThreads) {
      const int row = place(i);
      const T own = kUnit || row >= width ? one<T>() : conjugate(lu[row * (lda + 1)], sign);
      divisors[i] = Divisor<T>::of(own);
    }
    // The next piece to bring.
    int block_of = 0, index_of = 0, brought = 0;
    const auto bring_next = [&] {
      if (block_of < blocks) {
        bring(block_of, index_of, brought);
        if (++index_of > before(block_of)) {
          index_of = 0;
          ++block_of;
        }
      }
      ++brought;
      __pipeline_commit();  // empty ones too, so that their number says which have arrived
    };
    bring_next();
    bring_next();
    int number = 0;
    const auto next = [&] {
      __pipeline_wait_prior(1);
      __syncthreads();  // all have the piece, and none reads the one that the next replaces
      bring_next();
      return piece(number++);
    };
    for (int block = 0; block < blocks; ++block) {
      T* const own = x + (block * B + group * Q) * kDown + lane;
      T sums[Q][C];
#pragma unroll
      for (int q = 0; q < Q; ++q) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          sums[q][c] = own[q * kDown + 32 * c];
        }
      }
      for (int from = 0; from < block * B; from += D) {
        const T* const l_of = next() + group * Q;
        const T* const x_of = x + from * kDown + lane;
        if (block * B - from >= D) {
          multiply<D>(sums, l_of, x_of);
        } else {
          multiply<B>(sums, l_of, x_of);
        }
      }
#pragma unroll
      for (int q = 0; q < Q; ++q) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (place(block * B + group * Q + q) < width) {
            own[q * kDown + 32 * c] = sums[q][c];
          }
        }
      }
      const T* const diagonal = next();
      if (tid < 32 * C) {
        column(x + block * B * kDown + tid, diagonal, block * B);
      }
      __syncthreads();
    }
    __pipeline_wait_prior(0);
  }

 private:
  template <int kDeep>
  __device__ __forceinline__ void multiply(T (&sums)[Q][C], const T* l_of, const T* x_of) const {
#pragma unroll 8
    for (int j = 0; j < kDeep; ++j) {
      T l[Q], value[C];
      load_row<T, Q>(l, l_of + j * Shape::kStep, 0);
#pragma unroll
      for (int c = 0; c < C; ++c) {
        value[c] = x_of[j * kDown + 32 * c];
      }
#pragma unroll
      for (int q = 0; q < Q; ++q) {
        l[q] = conjugate(l[q], sign);
#pragma unroll
        for (int c = 0; c < C; ++c) {
          sums[q][c] = subtract_product(sums[q][c], l[q], value[c]);
        }
      }
    }
  }

  __device__ __forceinline__ void column(T* own, const T* diagonal, int first) const {
    T y[B];
#pragma unroll
    for (int i = 0; i < B; ++i) {
      y[i] = own[i * kDown];
    }
#pragma unroll
    for (int j = 0; j < B; ++j) {
      if constexpr (!kUnit) {
        y[j] = quotient(y[j], divisors[first + j]);
      }
      T l[B];
      load_row<T, B>(l, diagonal + j * Shape::kStep, j + 1);
#pragma unroll
      for (int i = j + 1; i < B; ++i) {
        y[i] = subtract_product(y[i], conjugate(l[i], sign), y[j]);
      }
    }
#pragma unroll
    for (int i = 0; i < B; ++i) {
      if (place(first + i) < width) {  // what has no place stays zero
        own[i * kDown] = y[i];
      }
    }
  }
};

template <typename T, int C, bool kTransposed>
__global__ void __launch_bounds__(TileShape<T>::kThreads) tile_kernel(TileSolve<T> t, int tiles) {
  using Shape = TileShape<T>;
  static_assert(sizeof(Divisor<T>) <= Shape::kDivisor * sizeof(T));
  constexpr int kStep = Shape::columns_step(C), kColumns = 32 * C;
  extern __shared__ __align__(16) unsigned char raw[];
  const Systems<T>& p = t.systems;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = Shape::kThreads / 32;
  const int64_t item = blockIdx.x / tiles;
  const int skipped = static_cast<int>(blockIdx.x % tiles) * kColumns;
  const int columns = min(kColumns, p.nrhs - skipped);
  const int width = t.width, rows = Shape::padded(width);
  const int64_t factor = item % p.lu_batch;
  const T* const lu = p.lu + factor * p.lu_stride + t.first * (p.lda + 1);
  T* const b = p.b + item * p.b_stride + t.first + skipped * p.ldb;
  const int32_t* const order = t.orders == nullptr ? nullptr : t.orders + factor * width;
  const int sign = p.conjugated ? -1 : 1;

  T* const pieces = reinterpret_cast<T*>(raw);
  auto* const divisors =
      reinterpret_cast<Divisor<T>*>(pieces + Shape::kPieces * Shape::kDepth * Shape::kStep);
  T* const x = pieces + Shape::kPieces * Shape::kDepth * Shape::kStep +
               Shape::kDivisor * rows;  // [row][column]
#pragma unroll 2
  for (int c = warp; c < kColumns; c += warps) {
#pragma unroll 4
    for (int i = lane; i < rows; i += 32) {
      const bool there = i < width && c < columns;
      const int from = order != nullptr && !kTransposed && there ? order[i] : i;
      x[i * kStep + c] = there ? b[from + c * p.ldb] : zero<T>();
    }
  }
  __syncthreads();
  if (t.lower) {
    TileTriangle<T, C, kTransposed, 0>{lu, p.lda, width, rows, sign, pieces, divisors, x}.solve();
  }
  if (t.upper) {
    TileTriangle<T, C, kTransposed, 1>{
        lu, p.lda, width, rows, sign, pieces, divisors, x + (rows - 1) * kStep}
        .solve();
  }
#pragma unroll 2
  for (int c = warp; c < columns; c += warps) {
#pragma unroll 4
    for (int i = lane; i < width; i += 32) {
      b[(order != nullptr && kTransposed ? order[i] : i) + c * p.ldb] = x[i * kStep + c];
    }
  }
}

template <typename T>
int tile_width(size_t shared) {
  int width = TileShape<T>::kWidth;
  while (TileShape<T>::bytes(width, 1) > shared) {
    width /= 2;
  }
  return width;
}

template <typename T>
int tile_columns(int width, size_t shared) {
  constexpr int most = TileShape<T>::kMostTiles;
  return TileShape<T>::bytes(width, most) <= shared ? most : 1;
}

template <typename T, int C>
void launch_tiles_of(const TileSolve<T>& t, cudaStream_t stream) {
  const Systems<T>& p = t.systems;
  constexpr int threads = TileShape<T>::kThreads;
  const int tiles = (p.nrhs + 32 * C - 1) / (32 * C);
  const size_t shared = TileShape<T>::bytes(t.width, C);
  const unsigned blocks = static_cast<unsigned>(p.batch * tiles);
  if (p.transposed) {
    static DynamicShared allowance;
    allowance.allow(tile_kernel<T, C, true>, shared);
    tile_kernel<T, C, true><<<blocks, threads, shared, stream>>>(t, tiles);
  } else {
    static DynamicShared allowance;
    allowance.allow(tile_kernel<T, C, false>, shared);
    tile_kernel<T, C, false><<<blocks, threads, shared, stream>>>(t, tiles);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <typename T>
void launch_tile_solve(const TileSolve<T>& t, cudaStream_t stream) {
  if constexpr (TileShape<T>::kMostTiles > 1) {
    if (t.tiles > 1) {
      launch_tiles_of<T, 2>(t, stream);
      return;
    }
  }
  launch_tiles_of<T, 1>(t, stream);
}

}  // namespace at::native::batched_native
