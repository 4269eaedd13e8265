#include <ATen/native/cuda/linalg/native/ExchangeSolve.cuh>
#include <ATen/native/cuda/linalg/native/TallLU.cuh>

namespace at::native::batched_native {

template void launch_exchange<float>(const Exchange<float>&, size_t, cudaStream_t);
template void launch_exchange<double>(const Exchange<double>&, size_t, cudaStream_t);
template void launch_exchange<Complex<float>>(
    const Exchange<Complex<float>>&, size_t, cudaStream_t);
template void launch_exchange<Complex<double>>(
    const Exchange<Complex<double>>&, size_t, cudaStream_t);

template bool finish_fits<float>(int, size_t);
template bool finish_fits<double>(int, size_t);
template bool finish_fits<Complex<float>>(int, size_t);
template bool finish_fits<Complex<double>>(int, size_t);

template void launch_finish<float>(const Finish<float>&, cudaStream_t);
template void launch_finish<double>(const Finish<double>&, cudaStream_t);
template void launch_finish<Complex<float>>(const Finish<Complex<float>>&, cudaStream_t);
template void launch_finish<Complex<double>>(const Finish<Complex<double>>&, cudaStream_t);

template void launch_tall_lu<float>(const Panel<float>&, cudaStream_t);
template void launch_tall_lu<double>(const Panel<double>&, cudaStream_t);
template void launch_tall_lu<Complex<float>>(const Panel<Complex<float>>&, cudaStream_t);
template void launch_tall_lu<Complex<double>>(const Panel<Complex<double>>&, cudaStream_t);

}  // namespace at::native::batched_native
