#include "LoopRoutines.h"

#include "Wheel.h"

#include <algorithm>

namespace aten_overrides::gpu::loop_routines {
namespace {

#define FOR_EACH_OF_A_TYPE(_, letter, reflectors)   \
  _(cusolverDn##letter##reflectors##gqr_bufferSize) \
  _(cusolverDn##letter##reflectors##gqr)            \
  _(cusolverDn##letter##reflectors##mqr_bufferSize) \
  _(cusolverDn##letter##reflectors##mqr)            \
  _(cusolverDn##letter##sytrf_bufferSize)           \
  _(cusolverDn##letter##sytrf)

#define FOR_EACH_FUNCTION(_)     \
  _(cusolverDnXgeqrf_bufferSize) \
  _(cusolverDnXgeqrf)            \
  _(cusolverDnXpotrf_bufferSize) \
  _(cusolverDnXpotrf)            \
  _(cusolverDnXpotrs)            \
  FOR_EACH_OF_A_TYPE(_, S, or)   \
  FOR_EACH_OF_A_TYPE(_, D, or)   \
  FOR_EACH_OF_A_TYPE(_, C, un)   \
  FOR_EACH_OF_A_TYPE(_, Z, un)

struct Functions {
#define DECLARE(name) decltype(&::name) name = nullptr;
  FOR_EACH_FUNCTION(DECLARE)
#undef DECLARE
  const char* missing = "";

  Functions() {
#define LOOK_UP(name)                                                    \
  this->name = reinterpret_cast<decltype(&::name)>(wheel_symbol(#name)); \
  if (this->name == nullptr) {                                           \
    missing = #name;                                                     \
  }
    FOR_EACH_FUNCTION(LOOK_UP)
#undef LOOK_UP
  }
};

const Functions& functions() {
  static const Functions found;
  return found;
}

template <typename scalar_t>
struct Traits;

#define DEFINE_TRAITS(scalar, cuda, letter, reflectors)                  \
  template <>                                                            \
  struct Traits<scalar> {                                                \
    static constexpr cudaDataType type = cuda;                           \
    static auto orgqr_sizes() {                                          \
      return functions().cusolverDn##letter##reflectors##gqr_bufferSize; \
    }                                                                    \
    static auto orgqr() {                                                \
      return functions().cusolverDn##letter##reflectors##gqr;            \
    }                                                                    \
    static auto ormqr_sizes() {                                          \
      return functions().cusolverDn##letter##reflectors##mqr_bufferSize; \
    }                                                                    \
    static auto ormqr() {                                                \
      return functions().cusolverDn##letter##reflectors##mqr;            \
    }                                                                    \
    static auto sytrf_sizes() {                                          \
      return functions().cusolverDn##letter##sytrf_bufferSize;           \
    }                                                                    \
    static auto sytrf() {                                                \
      return functions().cusolverDn##letter##sytrf;                      \
    }                                                                    \
  };
DEFINE_TRAITS(float, CUDA_R_32F, S, or)
DEFINE_TRAITS(double, CUDA_R_64F, D, or)
DEFINE_TRAITS(c10::complex<float>, CUDA_C_32F, C, un)
DEFINE_TRAITS(c10::complex<double>, CUDA_C_64F, Z, un)
#undef DEFINE_TRAITS

template <typename scalar_t>
const auto* constant(const scalar_t* data) {
  return reinterpret_cast<const typename cusolver::Native<scalar_t>::type*>(data);
}

template <typename scalar_t>
auto* work_of(const Workspace& workspace) {
  return static_cast<typename cusolver::Native<scalar_t>::type*>(workspace.device);
}

template <typename scalar_t>
int elements_of(const Workspace& workspace) {
  return static_cast<int>(workspace.bytes.device / sizeof(scalar_t));
}

template <typename scalar_t>
Sizes sizes_of(int elements) {
  return {static_cast<size_t>(elements) * sizeof(scalar_t), 0};
}

template <typename scalar_t>
cublasOperation_t operation(const Reflectors& shape) {
  constexpr bool complex =
      Traits<scalar_t>::type == CUDA_C_32F || Traits<scalar_t>::type == CUDA_C_64F;
  return !shape.adjoint ? CUBLAS_OP_N : complex ? CUBLAS_OP_C : CUBLAS_OP_T;
}

int leading(int rows) {
  return std::max(1, rows);
}

int rows_of_reflectors(const Reflectors& shape) {
  return leading(shape.side == CUBLAS_SIDE_LEFT ? shape.m : shape.n);
}

int64_t leading(int64_t rows) {
  return std::max<int64_t>(1, rows);
}

}  // namespace

const char* missing() {
  return functions().missing;
}

template <typename scalar_t>
Sizes geqrf_sizes(cusolverDnHandle_t handle, int64_t m, int64_t n, scalar_t* a, scalar_t* tau) {
  constexpr auto type = Traits<scalar_t>::type;
  Sizes sizes{0, 0};
  TORCH_CUSOLVER_CHECK(functions().cusolverDnXgeqrf_bufferSize(
      handle,
      /*params=*/nullptr,  // the default algorithm, as torch asks for it
      m,
      n,
      type,
      a,
      leading(m),
      type,
      tau,
      type,
      &sizes.device,
      &sizes.host));
  return sizes;
}

template <typename scalar_t>
void geqrf(
    cusolverDnHandle_t handle,
    int64_t m,
    int64_t n,
    scalar_t* a,
    scalar_t* tau,
    const Workspace& workspace,
    int* info) {
  constexpr auto type = Traits<scalar_t>::type;
  TORCH_CUSOLVER_CHECK(functions().cusolverDnXgeqrf(
      handle,
      /*params=*/nullptr,
      m,
      n,
      type,
      a,
      leading(m),
      type,
      tau,
      type,
      workspace.device,
      workspace.bytes.device,
      workspace.host,
      workspace.bytes.host,
      info));
}

template <typename scalar_t>
Sizes orgqr_sizes(
    cusolverDnHandle_t handle, const Reflectors& shape, scalar_t* a, const scalar_t* tau) {
  int elements = 0;
  TORCH_CUSOLVER_CHECK(Traits<scalar_t>::orgqr_sizes()(
      handle,
      shape.m,
      shape.n,
      shape.k,
      cusolver::native(a),
      leading(shape.m),
      constant(tau),
      &elements));
  return sizes_of<scalar_t>(elements);
}

template <typename scalar_t>
void orgqr(
    cusolverDnHandle_t handle,
    const Reflectors& shape,
    scalar_t* a,
    const scalar_t* tau,
    const Workspace& workspace,
    int* info) {
  TORCH_CUSOLVER_CHECK(Traits<scalar_t>::orgqr()(
      handle,
      shape.m,
      shape.n,
      shape.k,
      cusolver::native(a),
      leading(shape.m),
      constant(tau),
      work_of<scalar_t>(workspace),
      elements_of<scalar_t>(workspace),
      info));
}

template <typename scalar_t>
Sizes ormqr_sizes(
    cusolverDnHandle_t handle,
    const Reflectors& shape,
    const scalar_t* a,
    const scalar_t* tau,
    scalar_t* c) {
  int elements = 0;
  TORCH_CUSOLVER_CHECK(Traits<scalar_t>::ormqr_sizes()(
      handle,
      shape.side,
      operation<scalar_t>(shape),
      shape.m,
      shape.n,
      shape.k,
      constant(a),
      rows_of_reflectors(shape),
      constant(tau),
      cusolver::native(c),
      leading(shape.m),
      &elements));
  return sizes_of<scalar_t>(elements);
}

template <typename scalar_t>
void ormqr(
    cusolverDnHandle_t handle,
    const Reflectors& shape,
    const scalar_t* a,
    const scalar_t* tau,
    scalar_t* c,
    const Workspace& workspace,
    int* info) {
  TORCH_CUSOLVER_CHECK(Traits<scalar_t>::ormqr()(
      handle,
      shape.side,
      operation<scalar_t>(shape),
      shape.m,
      shape.n,
      shape.k,
      constant(a),
      rows_of_reflectors(shape),
      constant(tau),
      cusolver::native(c),
      leading(shape.m),
      work_of<scalar_t>(workspace),
      elements_of<scalar_t>(workspace),
      info));
}

template <typename scalar_t>
Sizes potrf_sizes(
    cusolverDnHandle_t handle,
    const eigen::Params& params,
    cublasFillMode_t triangle,
    int64_t n,
    scalar_t* a) {
  constexpr auto type = Traits<scalar_t>::type;
  Sizes sizes{0, 0};
  TORCH_CUSOLVER_CHECK(functions().cusolverDnXpotrf_bufferSize(
      handle, params.get(), triangle, n, type, a, leading(n), type, &sizes.device, &sizes.host));
  return sizes;
}

template <typename scalar_t>
void potrf(
    cusolverDnHandle_t handle,
    const eigen::Params& params,
    cublasFillMode_t triangle,
    int64_t n,
    scalar_t* a,
    const Workspace& workspace,
    int* info) {
  constexpr auto type = Traits<scalar_t>::type;
  TORCH_CUSOLVER_CHECK(functions().cusolverDnXpotrf(
      handle,
      params.get(),
      triangle,
      n,
      type,
      a,
      leading(n),
      type,
      workspace.device,
      workspace.bytes.device,
      workspace.host,
      workspace.bytes.host,
      info));
}

template <typename scalar_t>
void potrs(
    cusolverDnHandle_t handle,
    const eigen::Params& params,
    cublasFillMode_t triangle,
    int64_t n,
    int64_t nrhs,
    const scalar_t* a,
    scalar_t* b,
    int* info) {
  constexpr auto type = Traits<scalar_t>::type;
  TORCH_CUSOLVER_CHECK(functions().cusolverDnXpotrs(
      handle, params.get(), triangle, n, nrhs, type, a, leading(n), type, b, leading(n), info));
}

template <typename scalar_t>
Sizes sytrf_sizes(cusolverDnHandle_t handle, int n, scalar_t* a) {
  int elements = 0;
  TORCH_CUSOLVER_CHECK(
      Traits<scalar_t>::sytrf_sizes()(handle, n, cusolver::native(a), leading(n), &elements));
  return sizes_of<scalar_t>(elements);
}

template <typename scalar_t>
void sytrf(
    cusolverDnHandle_t handle,
    cublasFillMode_t triangle,
    int n,
    scalar_t* a,
    int* pivots,
    const Workspace& workspace,
    int* info) {
  TORCH_CUSOLVER_CHECK(Traits<scalar_t>::sytrf()(
      handle,
      triangle,
      n,
      cusolver::native(a),
      leading(n),
      pivots,
      work_of<scalar_t>(workspace),
      elements_of<scalar_t>(workspace),
      info));
}

#define INSTANTIATE(scalar)                                                                   \
  template Sizes geqrf_sizes(cusolverDnHandle_t, int64_t, int64_t, scalar*, scalar*);         \
  template void geqrf(                                                                        \
      cusolverDnHandle_t, int64_t, int64_t, scalar*, scalar*, const Workspace&, int*);        \
  template Sizes orgqr_sizes(cusolverDnHandle_t, const Reflectors&, scalar*, const scalar*);  \
  template void orgqr(                                                                        \
      cusolverDnHandle_t, const Reflectors&, scalar*, const scalar*, const Workspace&, int*); \
  template Sizes ormqr_sizes(                                                                 \
      cusolverDnHandle_t, const Reflectors&, const scalar*, const scalar*, scalar*);          \
  template void ormqr(                                                                        \
      cusolverDnHandle_t,                                                                     \
      const Reflectors&,                                                                      \
      const scalar*,                                                                          \
      const scalar*,                                                                          \
      scalar*,                                                                                \
      const Workspace&,                                                                       \
      int*);                                                                                  \
  template Sizes potrf_sizes(                                                                 \
      cusolverDnHandle_t, const eigen::Params&, cublasFillMode_t, int64_t, scalar*);          \
  template void potrf(                                                                        \
      cusolverDnHandle_t,                                                                     \
      const eigen::Params&,                                                                   \
      cublasFillMode_t,                                                                       \
      int64_t,                                                                                \
      scalar*,                                                                                \
      const Workspace&,                                                                       \
      int*);                                                                                  \
  template void potrs(                                                                        \
      cusolverDnHandle_t,                                                                     \
      const eigen::Params&,                                                                   \
      cublasFillMode_t,                                                                       \
      int64_t,                                                                                \
      int64_t,                                                                                \
      const scalar*,                                                                          \
      scalar*,                                                                                \
      int*);                                                                                  \
  template Sizes sytrf_sizes(cusolverDnHandle_t, int, scalar*);                               \
  template void sytrf(                                                                        \
      cusolverDnHandle_t, cublasFillMode_t, int, scalar*, int*, const Workspace&, int*);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(c10::complex<float>)
INSTANTIATE(c10::complex<double>)
#undef INSTANTIATE

}  // namespace aten_overrides::gpu::loop_routines
