#include <ATen/native/cuda/linalg/native/BlockShapes.cuh>

namespace at::native::batched_native {

template int block_lu_width<float>(int, int, size_t);
template void launch_block_lu<float>(const Panel<float>&, cudaStream_t);

}  // namespace at::native::batched_native
