#include <ATen/native/cuda/linalg/native/BlockShapes.cuh>

namespace at::native::batched_native {

template int block_lu_width<Complex<double>>(int, int, size_t);
template void launch_block_lu<Complex<double>>(const Panel<Complex<double>>&, cudaStream_t);

}  // namespace at::native::batched_native
