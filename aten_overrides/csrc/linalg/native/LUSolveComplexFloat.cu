#include <ATen/native/cuda/linalg/native/SolveShapes.cuh>

namespace at::native::batched_native {

BATCHED_NATIVE_SOLVE(Complex<float>)

}  // namespace at::native::batched_native
