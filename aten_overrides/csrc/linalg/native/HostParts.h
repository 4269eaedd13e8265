#pragma once

#include <stdexcept>
#include <string>

#include <ATen/native/cuda/linalg/native/BatchedLU.h>
#include <ATen/native/cuda/linalg/native/Kernels.h>
#include <ATen/native/cuda/linalg/native/LaunchCheck.h>

// What the host sides of the batched LU and of its solve have in common. `who` begins an error.
namespace at::native::batched_native {

inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

inline size_t shared_limit() {
  return static_cast<size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
}

template <typename Use>
auto with_scalar(Scalar scalar, const char* who, Use&& use) {
  switch (scalar) {
    case Scalar::Float:
      return use(float{});
    case Scalar::Double:
      return use(double{});
    case Scalar::ComplexFloat:
      return use(Complex<float>{});
    case Scalar::ComplexDouble:
      return use(Complex<double>{});
  }
  throw std::invalid_argument(std::string(who) + ": unknown scalar type");
}

inline void check_cublas(cublasStatus_t status, const char* who, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(
        std::string(who) + ": " + call + " failed with " + cublasGetStatusString(status));
  }
}

template <typename T>
struct Gemm;
template <>
struct Gemm<float> {
  static constexpr cudaDataType_t type = CUDA_R_32F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  static constexpr float minus = -1, one = 1;
};
template <>
struct Gemm<double> {
  static constexpr cudaDataType_t type = CUDA_R_64F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
  static constexpr double minus = -1, one = 1;
};
template <>
struct Gemm<Complex<float>> {
  static constexpr cudaDataType_t type = CUDA_C_32F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  static constexpr Complex<float> minus{-1, 0}, one{1, 0};
};
template <>
struct Gemm<Complex<double>> {
  static constexpr cudaDataType_t type = CUDA_C_64F;
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
  static constexpr Complex<double> minus{-1, 0}, one{1, 0};
};

// The handle may allow TF32 or take scalars from the device; our products need neither.
class HandleModes {
 public:
  HandleModes(cublasHandle_t handle, const char* who) : handle_(handle) {
    check_cublas(cublasGetMathMode(handle, &math_), who, "cublasGetMathMode");
    check_cublas(cublasGetPointerMode(handle, &pointer_), who, "cublasGetPointerMode");
    check_cublas(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), who, "cublasSetMathMode");
    check_cublas(
        cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST), who, "cublasSetPointerMode");
  }
  ~HandleModes() {
    cublasSetMathMode(handle_, math_);
    cublasSetPointerMode(handle_, pointer_);
  }
  HandleModes(const HandleModes&) = delete;
  HandleModes& operator=(const HandleModes&) = delete;

 private:
  cublasHandle_t handle_;
  cublasMath_t math_;
  cublasPointerMode_t pointer_;
};

}  // namespace at::native::batched_native
