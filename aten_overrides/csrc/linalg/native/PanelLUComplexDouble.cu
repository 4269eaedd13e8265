#include <ATen/native/cuda/linalg/native/PanelShapes.cuh>

namespace at::native::batched_native {

template int panel_width<Complex<double>>(int, int, size_t);
template void launch_panel_lu<Complex<double>>(const Panel<Complex<double>>&, bool, cudaStream_t);
template int cluster_width<Complex<double>>(int, int, size_t);
template void launch_cluster_lu<Complex<double>>(const Panel<Complex<double>>&, cudaStream_t);

}  // namespace at::native::batched_native
