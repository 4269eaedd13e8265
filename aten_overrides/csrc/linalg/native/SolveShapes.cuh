#pragma once

#include <ATen/native/cuda/linalg/native/PassSolve.cuh>
#include <ATen/native/cuda/linalg/native/PermuteRows.cuh>
#include <ATen/native/cuda/linalg/native/SmallSolve.cuh>
#include <ATen/native/cuda/linalg/native/TileSolve.cuh>

// All kernels of the solve for one type.
#define BATCHED_NATIVE_SOLVE(T)                                                             \
  template void launch_small<T>(const Systems<T>&, cudaStream_t);                           \
  template int pass_columns<T>(int);                                                        \
  template size_t pass_bytes<T>(int, int, int);                                             \
  template void launch_pass<T>(const Systems<T>&, int, int, cudaStream_t);                  \
  template size_t permute_bytes<T>(int);                                                    \
  template void launch_permute<T>(const Systems<T>&, const int32_t*, size_t, cudaStream_t); \
  template int tile_width<T>(size_t);                                                       \
  template int tile_columns<T>(int, size_t);                                                \
  template void launch_tile_solve<T>(const TileSolve<T>&, cudaStream_t);
