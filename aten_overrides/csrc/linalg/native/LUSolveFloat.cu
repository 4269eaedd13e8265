#include <ATen/native/cuda/linalg/native/SolveShapes.cuh>

namespace at::native::batched_native {

BATCHED_NATIVE_SOLVE(float)

}  // namespace at::native::batched_native
