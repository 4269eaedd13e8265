#include <ATen/native/cuda/linalg/native/BlockShapes.cuh>

namespace at::native::batched_native {

template int block_lu_width<double>(int, int, size_t);
template void launch_block_lu<double>(const Panel<double>&, cudaStream_t);

}  // namespace at::native::batched_native
