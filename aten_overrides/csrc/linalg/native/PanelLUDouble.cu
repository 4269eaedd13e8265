#include <ATen/native/cuda/linalg/native/PanelShapes.cuh>

namespace at::native::batched_native {

template int panel_width<double>(int, int, size_t);
template void launch_panel_lu<double>(const Panel<double>&, bool, cudaStream_t);
template int cluster_width<double>(int, int, size_t);
template void launch_cluster_lu<double>(const Panel<double>&, cudaStream_t);

}  // namespace at::native::batched_native
