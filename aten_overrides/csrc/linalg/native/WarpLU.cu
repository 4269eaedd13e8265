#include <ATen/native/cuda/linalg/native/WarpLU.cuh>

namespace at::native::batched_native {

template void launch_warp_lu<float>(const WholeMatrices<float>&, cudaStream_t);
template void launch_warp_lu<double>(const WholeMatrices<double>&, cudaStream_t);
template void launch_warp_lu<Complex<float>>(const WholeMatrices<Complex<float>>&, cudaStream_t);
template void launch_warp_lu<Complex<double>>(const WholeMatrices<Complex<double>>&, cudaStream_t);

}  // namespace at::native::batched_native
