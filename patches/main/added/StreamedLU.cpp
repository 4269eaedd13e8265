#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <ATen/native/cuda/linalg/StreamedLU.h>

#if defined(CUDART_VERSION) && !defined(USE_ROCM)

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/MiscUtils.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#else
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#endif

#include <algorithm>
#include <limits>

namespace at::native::solver_lanes {
namespace {

#define STREAMED_GETRF(letter, scalar, native)                                      \
  int getrf_elements(cusolverDnHandle_t handle, int m, int n, scalar* a, int lda) { \
    int elements = 0;                                                               \
    TORCH_CUSOLVER_CHECK(cusolverDn##letter##getrf_bufferSize(                      \
        handle, m, n, reinterpret_cast<native*>(a), lda, &elements));               \
    return elements;                                                                \
  }                                                                                 \
  /* pivots null: without row exchanges */                                          \
  void getrf(                                                                       \
      cusolverDnHandle_t handle,                                                    \
      int m,                                                                        \
      int n,                                                                        \
      scalar* a,                                                                    \
      int lda,                                                                      \
      scalar* work,                                                                 \
      int* pivots,                                                                  \
      int* info) {                                                                  \
    TORCH_CUSOLVER_CHECK(cusolverDn##letter##getrf(                                 \
        handle,                                                                     \
        m,                                                                          \
        n,                                                                          \
        reinterpret_cast<native*>(a),                                               \
        lda,                                                                        \
        reinterpret_cast<native*>(work),                                            \
        pivots,                                                                     \
        info));                                                                     \
  }

STREAMED_GETRF(S, float, float)
STREAMED_GETRF(D, double, double)
STREAMED_GETRF(C, c10::complex<float>, cuComplex)
STREAMED_GETRF(Z, c10::complex<double>, cuDoubleComplex)

#undef STREAMED_GETRF

}  // namespace

bool lu_factor_streamed_cusolver(
    const Tensor& self, const Tensor& pivots, const Tensor& infos, bool get_pivots) {
  if (self.numel() == 0) {
    return false;
  }
  const auto batch_size = batchCount(self);
  const int lanes = available_lanes(batch_size);
  if (lanes < 2) {
    return false;
  }
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(self.scalar_type(), "lu_factor_streamed_cusolver", [&] {
    const auto m = cuda_int_cast(self.size(-2), "m");
    const auto n = cuda_int_cast(self.size(-1), "n");
    const auto lda = std::max<int>(1, m);
    const auto self_stride = matrixStride(self);
    auto* const self_data = self.data_ptr<scalar_t>();
    auto* const infos_data = infos.data_ptr<int>();
    auto* const pivots_data = get_pivots ? pivots.data_ptr<int>() : nullptr;
    const int64_t pivots_stride = get_pivots ? pivots.size(-1) : 0;

    // All matrices have one shape, and the calls on a stream follow one another: a workspace per
    // stream. They start at multiples of 256 bytes, as allocations do.
    const int64_t bytes =
        static_cast<int64_t>(sizeof(scalar_t)) *
        getrf_elements(at::cuda::getCurrentCUDASolverDnHandle(), m, n, self_data, lda);
    const int64_t lane_bytes = (bytes + 255) / 256 * 256;
    const auto workspace = at::cuda::getCUDADeviceAllocator()->allocate(lane_bytes * lanes);
    auto* const work = static_cast<char*>(workspace.get());

    for_each_on_lanes(batch_size, lanes, [&](const Lane& lane, int64_t item) {
      getrf(
          lane.handle,
          m,
          n,
          self_data + item * self_stride,
          lda,
          reinterpret_cast<scalar_t*>(work + lane_bytes * lane.index),
          get_pivots ? pivots_data + item * pivots_stride : nullptr,
          infos_data + item);
    });
  });

  if (!get_pivots) {
    // Without row exchanges cuSOLVER writes NaN where the other back ends write 0, see
    // https://github.com/pytorch/pytorch/issues/53879
    if (self.is_complex()) {
      self.copy_(at::where(self.eq(self), self, at::scalar_tensor(0., self.options())));
    } else {
      constexpr double infinity = std::numeric_limits<double>::infinity();
      at::nan_to_num_(const_cast<Tensor&>(self), 0, infinity, -infinity);
    }
  }
  return true;
}

}  // namespace at::native::solver_lanes

#endif  // defined(CUDART_VERSION) && !defined(USE_ROCM)
