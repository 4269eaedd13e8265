#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/cuda/linalg/LoopLanes.h>
#include <ATen/native/cuda/linalg/StreamedQR.h>

#if defined(CUDART_VERSION) && !defined(USE_ROCM)

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/MiscUtils.h>
#include <ATen/native/cuda/linalg/LaneParams.h>

#include <algorithm>

namespace at::native::solver_lanes {
namespace {

// cuSOLVER's routines by scalar type; the prefix is the part of their names before gqr and mqr.
template <class scalar_t>
struct Routines;

#define STREAMED_QR(prefix, scalar, native, datatype)                    \
  template <>                                                            \
  struct Routines<scalar> {                                              \
    static constexpr cudaDataType kType = datatype;                      \
    static native* cast(scalar* data) {                                  \
      return reinterpret_cast<native*>(data);                            \
    }                                                                    \
    static const native* cast(const scalar* data) {                      \
      return reinterpret_cast<const native*>(data);                      \
    }                                                                    \
    template <class... Args>                                             \
    static void orgqr_elements(Args... args) {                           \
      TORCH_CUSOLVER_CHECK(cusolverDn##prefix##gqr_bufferSize(args...)); \
    }                                                                    \
    template <class... Args>                                             \
    static void orgqr(Args... args) {                                    \
      TORCH_CUSOLVER_CHECK(cusolverDn##prefix##gqr(args...));            \
    }                                                                    \
    template <class... Args>                                             \
    static void ormqr_elements(Args... args) {                           \
      TORCH_CUSOLVER_CHECK(cusolverDn##prefix##mqr_bufferSize(args...)); \
    }                                                                    \
    template <class... Args>                                             \
    static void ormqr(Args... args) {                                    \
      TORCH_CUSOLVER_CHECK(cusolverDn##prefix##mqr(args...));            \
    }                                                                    \
  };

STREAMED_QR(Sor, float, float, CUDA_R_32F)
STREAMED_QR(Dor, double, double, CUDA_R_64F)
STREAMED_QR(Cun, c10::complex<float>, cuComplex, CUDA_C_32F)
STREAMED_QR(Zun, c10::complex<double>, cuDoubleComplex, CUDA_C_64F)

#undef STREAMED_QR

template <class scalar_t>
void geqrf_on(int lanes, const Tensor& input, const Tensor& tau) {
  constexpr auto type = Routines<scalar_t>::kType;
  const int64_t m = input.size(-2);
  const int64_t n = input.size(-1);
  const int64_t lda = std::max<int64_t>(1, m);
  const int64_t input_stride = matrixStride(input);
  const int64_t tau_stride = tau.size(-1);
  auto* const input_data = input.data_ptr<scalar_t>();
  auto* const tau_data = tau.data_ptr<scalar_t>();

  const LaneParams params(lanes);
  size_t device_bytes = 0;
  size_t host_bytes = 0;
  TORCH_CUSOLVER_CHECK(cusolverDnXgeqrf_bufferSize(
      at::cuda::getCurrentCUDASolverDnHandle(),
      params.first(),
      m,
      n,
      type,
      input_data,
      lda,
      type,
      tau_data,
      type,
      &device_bytes,
      &host_bytes));
  // For each stream: workspaces, and an info, which only reports an invalid argument
  const auto device = LaneWorkspace::on_device(device_bytes, lanes);
  const auto host = LaneWorkspace::on_host(host_bytes, lanes);
  const auto info = LaneWorkspace::on_device(sizeof(int), lanes);

  for_each_on_lanes(batchCount(input), lanes, [&](const Lane& lane, int64_t item) {
    TORCH_CUSOLVER_CHECK(cusolverDnXgeqrf(
        lane.handle,
        params.of(lane),
        m,
        n,
        type,
        input_data + item * input_stride,
        lda,
        type,
        tau_data + item * tau_stride,
        type,
        device.of(lane),
        device_bytes,
        host.of(lane),
        host_bytes,
        info.of<int>(lane)));
  });
}

template <class scalar_t>
void orgqr_on(int lanes, const Tensor& self, const Tensor& tau) {
  using R = Routines<scalar_t>;
  const auto m = cuda_int_cast(self.size(-2), "m");
  const auto n = cuda_int_cast(self.size(-1), "n");
  const auto k = cuda_int_cast(tau.size(-1), "k");
  const auto lda = std::max<int>(1, m);
  const int64_t self_stride = matrixStride(self);
  auto* const self_data = self.data_ptr<scalar_t>();
  const auto* const tau_data = tau.const_data_ptr<scalar_t>();

  int elements = 0;
  R::orgqr_elements(
      at::cuda::getCurrentCUDASolverDnHandle(),
      m,
      n,
      k,
      R::cast(self_data),
      lda,
      R::cast(tau_data),
      &elements);
  const auto device = LaneWorkspace::on_device(sizeof(scalar_t) * elements, lanes);
  const auto info = LaneWorkspace::on_device(sizeof(int), lanes);

  for_each_on_lanes(batchCount(self), lanes, [&](const Lane& lane, int64_t item) {
    R::orgqr(
        lane.handle,
        m,
        n,
        k,
        R::cast(self_data + item * self_stride),
        lda,
        R::cast(tau_data + item * k),
        R::cast(device.of<scalar_t>(lane)),
        elements,
        info.of<int>(lane));
  });
}

template <class scalar_t>
void ormqr_on(
    int lanes,
    const Tensor& input,
    const Tensor& tau,
    const Tensor& other,
    bool left,
    bool transpose) {
  using R = Routines<scalar_t>;
  const auto side = left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
  const auto adjoint = input.is_complex() ? CUBLAS_OP_C : CUBLAS_OP_T;
  const auto trans = transpose ? adjoint : CUBLAS_OP_N;
  const auto m = cuda_int_cast(other.size(-2), "m");
  const auto n = cuda_int_cast(other.size(-1), "n");
  const auto k = cuda_int_cast(tau.size(-1), "k");
  const auto lda = std::max<int>(1, left ? m : n);
  const auto ldc = std::max<int>(1, m);
  const int64_t input_stride = matrixStride(input);
  const int64_t other_stride = matrixStride(other);
  const auto* const input_data = input.const_data_ptr<scalar_t>();
  const auto* const tau_data = tau.const_data_ptr<scalar_t>();
  auto* const other_data = other.data_ptr<scalar_t>();

  int elements = 0;
  R::ormqr_elements(
      at::cuda::getCurrentCUDASolverDnHandle(),
      side,
      trans,
      m,
      n,
      k,
      R::cast(input_data),
      lda,
      R::cast(tau_data),
      R::cast(const_cast<const scalar_t*>(other_data)),
      ldc,
      &elements);
  const auto device = LaneWorkspace::on_device(sizeof(scalar_t) * elements, lanes);
  const auto info = LaneWorkspace::on_device(sizeof(int), lanes);

  for_each_on_lanes(batchCount(input), lanes, [&](const Lane& lane, int64_t item) {
    R::ormqr(
        lane.handle,
        side,
        trans,
        m,
        n,
        k,
        R::cast(input_data + item * input_stride),
        lda,
        R::cast(tau_data + item * k),
        R::cast(other_data + item * other_stride),
        ldc,
        R::cast(device.of<scalar_t>(lane)),
        elements,
        info.of<int>(lane));
  });
}

}  // namespace

bool geqrf_streamed_cusolver(const Tensor& input, const Tensor& tau) {
  const int lanes =
      input.numel() == 0 ? 1 : loop_lanes(Loop::Geqrf, tau.size(-1), batchCount(input));
  if (lanes < 2) {
    return false;
  }
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "geqrf_streamed_cusolver", [&] {
    geqrf_on<scalar_t>(lanes, input, tau);
  });
  return true;
}

bool orgqr_streamed_cusolver(const Tensor& self, const Tensor& tau) {
  // Without reflectors the loop's function writes the identity itself
  const bool trivial = self.numel() == 0 || tau.size(-1) == 0;
  const int lanes = trivial ? 1 : loop_lanes(Loop::Orgqr, tau.size(-1), batchCount(self));
  if (lanes < 2) {
    return false;
  }
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(
      self.scalar_type(), "orgqr_streamed_cusolver", [&] { orgqr_on<scalar_t>(lanes, self, tau); });
  return true;
}

bool ormqr_streamed_cusolver(
    const Tensor& input, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  const bool trivial = input.numel() == 0 || other.numel() == 0 || tau.size(-1) == 0;
  const int lanes = trivial ? 1 : loop_lanes(Loop::Ormqr, tau.size(-1), batchCount(input));
  if (lanes < 2) {
    return false;
  }
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "ormqr_streamed_cusolver", [&] {
    ormqr_on<scalar_t>(lanes, input, tau, other, left, transpose);
  });
  return true;
}

}  // namespace at::native::solver_lanes

#endif  // defined(CUDART_VERSION) && !defined(USE_ROCM)
