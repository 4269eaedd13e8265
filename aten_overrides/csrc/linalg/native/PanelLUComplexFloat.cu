#include <ATen/native/cuda/linalg/native/PanelShapes.cuh>

namespace at::native::batched_native {

template int panel_width<Complex<float>>(int, int, size_t);
template void launch_panel_lu<Complex<float>>(const Panel<Complex<float>>&, bool, cudaStream_t);
template int cluster_width<Complex<float>>(int, int, size_t);
template void launch_cluster_lu<Complex<float>>(const Panel<Complex<float>>&, cudaStream_t);

}  // namespace at::native::batched_native
