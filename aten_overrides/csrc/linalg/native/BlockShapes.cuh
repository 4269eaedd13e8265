#pragma once

#include <ATen/native/cuda/linalg/native/BlockLU.cuh>
#include <ATen/native/cuda/linalg/native/RolledLU.cuh>

// Which kernel factors a panel of so many rows, as measured on an H200 (NOTES.md): the unrolled one
// up to 256 rows, above that the rolled one, whose rows overlap better when a thread has several.
namespace at::native::batched_native {

// Calls `use` with the shape for panels of `rows` rows; returns false when there is none.
template <typename T, typename Use>
bool with_block_shape(int rows, Use&& use) {
  constexpr int words = sizeof(T) / 4;  // registers an element
  constexpr int W = words == 4 ? 8 : 16;
  if (rows <= 64) {
    use(BlockShape < T, W, 1, 64, words == 1 ? 12 : 8 > {});
  } else if (rows <= 256) {
    use(BlockShape < T, W, 2, 128, words == 1 ? 5 : 3 > {});
  } else if (rows <= 512) {
    use(RolledShape < T, W, 2, 256, words == 1 ? 2 : 1 > {});
  } else if (rows <= 1024) {
    use(RolledShape<T, 16 / words, 2, 512, 1>{});
  } else if (rows <= 2048) {
    if constexpr (words == 1) {
      use(RolledShape<T, 8, 4, 512, 1>{});
    } else {
      use(BlockShape<T, 16 / words, 4, 512, 1>{});
    }
  } else if (rows <= 4096) {
    use(BlockShape < T, words == 1 ? 4 : 2, 8, 512, 1 > {});
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
  with_block_shape<T>(p.whole.m - p.first, [&](auto shape) { shape.launch(p, stream); });
}

}  // namespace at::native::batched_native
