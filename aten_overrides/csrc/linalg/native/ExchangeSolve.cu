#include <ATen/native/cuda/linalg/native/ExchangeSolve.cuh>
#include <ATen/native/cuda/linalg/native/TallLU.cuh>

namespace at::native::batched_native {

template void launch_exchange<float>(const Exchange<float>&, cudaStream_t);
template void launch_exchange<double>(const Exchange<double>&, cudaStream_t);
template void launch_exchange<Complex<float>>(const Exchange<Complex<float>>&, cudaStream_t);
template void launch_exchange<Complex<double>>(const Exchange<Complex<double>>&, cudaStream_t);

template void launch_tall_lu<float>(const Panel<float>&, cudaStream_t);
template void launch_tall_lu<double>(const Panel<double>&, cudaStream_t);
template void launch_tall_lu<Complex<float>>(const Panel<Complex<float>>&, cudaStream_t);
template void launch_tall_lu<Complex<double>>(const Panel<Complex<double>>&, cudaStream_t);

} // namespace at::native::batched_native
