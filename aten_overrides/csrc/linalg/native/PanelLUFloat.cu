#include <ATen/native/cuda/linalg/native/PanelShapes.cuh>

namespace at::native::batched_native {

template int panel_width<float>(int, int, size_t);
template void launch_panel_lu<float>(const Panel<float>&, bool, cudaStream_t);
template int cluster_width<float>(int, int, size_t);
template void launch_cluster_lu<float>(const Panel<float>&, cudaStream_t);

}  // namespace at::native::batched_native
