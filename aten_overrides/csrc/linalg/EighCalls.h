#pragma once

// How a batch is cut into calls of a batched routine. Neither CUDA nor ATen is used here.

#include <cstdint>

namespace at::native::eigh_choice {

// How many matrices each call gets so that all calls are of equal size, but for the last, with at
// most `most` in one and fits(matrices) true: the whole batch if it fits, else halved until it
// does. 0 if even one matrix does not fit. `fits` was last asked about what is returned.
template <class Fits>
int64_t matrices_of_equal_calls(int64_t batch, int64_t most, Fits&& fits) {
  int64_t matrices = batch < most ? batch : most;
  while (matrices > 0) {
    const int64_t calls = (batch + matrices - 1) / matrices;
    matrices = (batch + calls - 1) / calls;
    if (fits(matrices)) {
      return matrices;
    }
    matrices /= 2;
  }
  return 0;
}

}  // namespace at::native::eigh_choice
