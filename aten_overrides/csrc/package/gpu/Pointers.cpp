#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "Pointers.h"

#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/arange.h>

namespace aten_overrides::gpu {

at::Tensor matrix_pointers(const at::Tensor& matrices) {
  // Some columns of each matrix lie as far apart as the whole matrices.
  const bool spread = matrices.dim() == 3 && matrices.size(0) > 1;
  const int64_t step =
      (spread ? matrices.stride(0) : at::native::matrixStride(matrices)) * matrices.element_size();
  const auto first = reinterpret_cast<int64_t>(matrices.data_ptr());
  return at::arange(
      first,
      first + at::native::batchCount(matrices) * step,
      step,
      matrices.options().dtype(at::kLong));
}

}  // namespace aten_overrides::gpu
