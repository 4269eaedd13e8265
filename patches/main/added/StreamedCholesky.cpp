#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/cuda/linalg/LoopLanes.h>
#include <ATen/native/cuda/linalg/StreamedCholesky.h>

#if defined(CUDART_VERSION) && !defined(USE_ROCM)

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/LaneParams.h>

namespace at::native::solver_lanes {
namespace {

template <class scalar_t>
constexpr cudaDataType kType = CUDA_R_32F;
template <>
constexpr cudaDataType kType<double> = CUDA_R_64F;
template <>
constexpr cudaDataType kType<c10::complex<float>> = CUDA_C_32F;
template <>
constexpr cudaDataType kType<c10::complex<double>> = CUDA_C_64F;

cublasFillMode_t triangle(bool upper) {
  return upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
}

template <class scalar_t>
void potrf_on(int lanes, const Tensor& input, bool upper, const Tensor& infos) {
  constexpr auto type = kType<scalar_t>;
  const int64_t n = input.size(-1);
  const int64_t stride = matrixStride(input);
  auto* const data = input.data_ptr<scalar_t>();
  auto* const infos_data = infos.data_ptr<int>();

  const LaneParams params(lanes);
  size_t device_bytes = 0;
  size_t host_bytes = 0;
  TORCH_CUSOLVER_CHECK(cusolverDnXpotrf_bufferSize(
      at::cuda::getCurrentCUDASolverDnHandle(),
      params.first(),
      triangle(upper),
      n,
      type,
      data,
      n,
      type,
      &device_bytes,
      &host_bytes));
  const auto device = LaneWorkspace::on_device(device_bytes, lanes);
  const auto host = LaneWorkspace::on_host(host_bytes, lanes);

  for_each_on_lanes(batchCount(input), lanes, [&](const Lane& lane, int64_t item) {
    TORCH_CUSOLVER_CHECK(cusolverDnXpotrf(
        lane.handle,
        params.of(lane),
        triangle(upper),
        n,
        type,
        data + item * stride,
        n,
        type,
        device.of(lane),
        device_bytes,
        host.of(lane),
        host_bytes,
        infos_data + item));
  });
}

}  // namespace

bool cholesky_streamed_cusolver(const Tensor& input, bool upper, const Tensor& infos) {
  if (input.numel() == 0 || at::globalContext().deterministicAlgorithms()) {
    return false;
  }
  const auto batch = batchCount(input);
  const int lanes = loop_lanes(Loop::Potrf, input.size(-1), batch);
  if (lanes < 2 || lanes < batch) {
    return false;
  }
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "cholesky_streamed_cusolver", [&] {
    potrf_on<scalar_t>(lanes, input, upper, infos);
  });
  return true;
}

}  // namespace at::native::solver_lanes

#endif  // defined(CUDART_VERSION) && !defined(USE_ROCM)
