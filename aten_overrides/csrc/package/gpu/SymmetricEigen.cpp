#include "SymmetricEigen.h"

#include "Wheel.h"

#include <limits>

namespace aten_overrides::gpu::eigen {
namespace {

// ---- Looking up ----

using XsyevBatchedSizes = cusolverStatus_t (*)(
    cusolverDnHandle_t,
    cusolverDnParams_t,
    cusolverEigMode_t,
    cublasFillMode_t,
    int64_t n,
    cudaDataType a_type,
    const void* a,
    int64_t lda,
    cudaDataType values_type,
    const void* values,
    cudaDataType compute_type,
    size_t* device_bytes,
    size_t* host_bytes,
    int64_t batch);
using XsyevBatched = cusolverStatus_t (*)(
    cusolverDnHandle_t,
    cusolverDnParams_t,
    cusolverEigMode_t,
    cublasFillMode_t,
    int64_t n,
    cudaDataType a_type,
    void* a,
    int64_t lda,
    cudaDataType values_type,
    void* values,
    cudaDataType compute_type,
    void* device,
    size_t device_bytes,
    void* host,
    size_t host_bytes,
    int* infos,
    int64_t batch);

// The others are in the headers of every supported CUDA.
#define FOR_EACH_REQUIRED_FUNCTION(_)   \
  _(cusolverDnCreateParams)             \
  _(cusolverDnDestroyParams)            \
  _(cusolverDnCreateSyevjInfo)          \
  _(cusolverDnDestroySyevjInfo)         \
  _(cusolverDnXsyevjSetSortEig)         \
  _(cusolverDnXsyevd_bufferSize)        \
  _(cusolverDnXsyevd)                   \
  _(cusolverDnSsyevjBatched_bufferSize) \
  _(cusolverDnDsyevjBatched_bufferSize) \
  _(cusolverDnCheevjBatched_bufferSize) \
  _(cusolverDnZheevjBatched_bufferSize) \
  _(cusolverDnSsyevjBatched)            \
  _(cusolverDnDsyevjBatched)            \
  _(cusolverDnCheevjBatched)            \
  _(cusolverDnZheevjBatched)

template <typename Function>
void look_up(const char* name, Function& function) {
  function = reinterpret_cast<Function>(wheel_symbol(name));
}

struct Functions {
#define DECLARE(name) decltype(&::name) name = nullptr;
  FOR_EACH_REQUIRED_FUNCTION(DECLARE)
#undef DECLARE
  XsyevBatchedSizes syev_batched_sizes = nullptr;
  XsyevBatched syev_batched = nullptr;
  const char* missing = "";
  int version = 0;

  Functions() {
#define LOOK_UP(name)          \
  look_up(#name, this->name);  \
  if (this->name == nullptr) { \
    missing = #name;           \
  }
    FOR_EACH_REQUIRED_FUNCTION(LOOK_UP)
#undef LOOK_UP
    look_up("cusolverDnXsyevBatched_bufferSize", syev_batched_sizes);
    look_up("cusolverDnXsyevBatched", syev_batched);
    cusolverStatus_t (*get_version)(int*) = nullptr;
    look_up("cusolverGetVersion", get_version);
    if (get_version != nullptr && get_version(&version) != CUSOLVER_STATUS_SUCCESS) {
      version = 0;
    }
  }
};

const Functions& functions() {
  static const Functions found;
  return found;
}

// ---- By scalar type ----

template <typename scalar_t>
struct Traits;

#define DEFINE_TRAITS(scalar, cuda, letter)                         \
  template <>                                                       \
  struct Traits<scalar> {                                           \
    static constexpr cudaDataType type = cuda;                      \
    static auto jacobi_sizes() {                                    \
      return functions().cusolverDn##letter##evjBatched_bufferSize; \
    }                                                               \
    static auto jacobi() {                                          \
      return functions().cusolverDn##letter##evjBatched;            \
    }                                                               \
  };
DEFINE_TRAITS(float, CUDA_R_32F, Ssy)
DEFINE_TRAITS(double, CUDA_R_64F, Dsy)
DEFINE_TRAITS(c10::complex<float>, CUDA_C_32F, Che)
DEFINE_TRAITS(c10::complex<double>, CUDA_C_64F, Zhe)
#undef DEFINE_TRAITS

template <typename scalar_t>
constexpr cudaDataType values_type = Traits<real_t<scalar_t>>::type;

int64_t leading(int64_t n) {
  return n > 1 ? n : 1;
}

int as_int(int64_t value) {
  TORCH_INTERNAL_ASSERT(value <= std::numeric_limits<int>::max());
  return static_cast<int>(value);
}

bool accepted(cusolverStatus_t status) {
  if (status == CUSOLVER_STATUS_INVALID_VALUE) {
    return false;
  }
  TORCH_CUSOLVER_CHECK(status);
  return true;
}

}  // namespace

const char* missing() {
  return functions().missing;
}

bool has_syev_batched() {
  return functions().syev_batched != nullptr && functions().syev_batched_sizes != nullptr;
}

int cusolver_version() {
  return functions().version;
}

Params::Params() {
  TORCH_CUSOLVER_CHECK(functions().cusolverDnCreateParams(&params_));
}

Params::~Params() {
  functions().cusolverDnDestroyParams(params_);
}

JacobiParams::JacobiParams() {
  TORCH_CUSOLVER_CHECK(functions().cusolverDnCreateSyevjInfo(&params_));
  // It is cuSOLVER's default too; torch says it, so that no default can change it.
  const auto status = functions().cusolverDnXsyevjSetSortEig(params_, 1);
  if (status != CUSOLVER_STATUS_SUCCESS) {
    functions().cusolverDnDestroySyevjInfo(params_);
    TORCH_CUSOLVER_CHECK(status);
  }
}

JacobiParams::~JacobiParams() {
  functions().cusolverDnDestroySyevjInfo(params_);
}

template <typename scalar_t>
bool syev_batched_sizes(
    const Call& call,
    const Params& params,
    const scalar_t* a,
    const real_t<scalar_t>* values,
    int64_t batch,
    Sizes& sizes) {
  sizes = {0, 0};
  return accepted(functions().syev_batched_sizes(
      call.handle,
      params.get(),
      call.mode,
      call.triangle,
      call.n,
      Traits<scalar_t>::type,
      a,
      leading(call.n),
      values_type<scalar_t>,
      values,
      Traits<scalar_t>::type,
      &sizes.device,
      &sizes.host,
      batch));
}

template <typename scalar_t>
cusolverStatus_t syev_batched(
    const Call& call,
    const Params& params,
    scalar_t* a,
    real_t<scalar_t>* values,
    const Workspace& workspace,
    int* infos,
    int64_t batch) {
  return functions().syev_batched(
      call.handle,
      params.get(),
      call.mode,
      call.triangle,
      call.n,
      Traits<scalar_t>::type,
      a,
      leading(call.n),
      values_type<scalar_t>,
      values,
      Traits<scalar_t>::type,
      workspace.device,
      workspace.bytes.device,
      workspace.host,
      workspace.bytes.host,
      infos,
      batch);
}

template <typename scalar_t>
bool syevj_batched_sizes(
    const Call& call,
    const JacobiParams& params,
    const scalar_t* a,
    const real_t<scalar_t>* values,
    int64_t batch,
    Sizes& sizes) {
  int elements = -1;
  const bool fits = accepted(Traits<scalar_t>::jacobi_sizes()(
      call.handle,
      call.mode,
      call.triangle,
      as_int(call.n),
      static_cast<const typename cusolver::Native<scalar_t>::type*>(static_cast<const void*>(a)),
      as_int(leading(call.n)),
      values,
      &elements,
      params.get(),
      as_int(batch)));
  if (!fits || elements < 0) {
    return false;
  }
  sizes = {static_cast<size_t>(elements) * sizeof(scalar_t), 0};
  return true;
}

template <typename scalar_t>
cusolverStatus_t syevj_batched(
    const Call& call,
    const JacobiParams& params,
    scalar_t* a,
    real_t<scalar_t>* values,
    const Workspace& workspace,
    int* infos,
    int64_t batch) {
  return Traits<scalar_t>::jacobi()(
      call.handle,
      call.mode,
      call.triangle,
      as_int(call.n),
      cusolver::native(a),
      as_int(leading(call.n)),
      values,
      static_cast<typename cusolver::Native<scalar_t>::type*>(workspace.device),
      static_cast<int>(workspace.bytes.device / sizeof(scalar_t)),
      infos,
      params.get(),
      as_int(batch));
}

template <typename scalar_t>
void syevd_sizes(
    const Call& call, const scalar_t* a, const real_t<scalar_t>* values, Sizes& sizes) {
  sizes = {0, 0};
  TORCH_CUSOLVER_CHECK(functions().cusolverDnXsyevd_bufferSize(
      call.handle,
      /*params=*/nullptr,  // the default algorithm, as torch asks for it
      call.mode,
      call.triangle,
      call.n,
      Traits<scalar_t>::type,
      a,
      leading(call.n),
      values_type<scalar_t>,
      values,
      Traits<scalar_t>::type,
      &sizes.device,
      &sizes.host));
}

template <typename scalar_t>
void syevd(
    const Call& call,
    scalar_t* a,
    real_t<scalar_t>* values,
    const Workspace& workspace,
    int* info) {
  TORCH_CUSOLVER_CHECK(functions().cusolverDnXsyevd(
      call.handle,
      /*params=*/nullptr,
      call.mode,
      call.triangle,
      call.n,
      Traits<scalar_t>::type,
      a,
      leading(call.n),
      values_type<scalar_t>,
      values,
      Traits<scalar_t>::type,
      workspace.device,
      workspace.bytes.device,
      workspace.host,
      workspace.bytes.host,
      info));
}

#define INSTANTIATE(scalar)                                                                     \
  template bool syev_batched_sizes(                                                             \
      const Call&, const Params&, const scalar*, const real_t<scalar>*, int64_t, Sizes&);       \
  template cusolverStatus_t syev_batched(                                                       \
      const Call&, const Params&, scalar*, real_t<scalar>*, const Workspace&, int*, int64_t);   \
  template bool syevj_batched_sizes(                                                            \
      const Call&, const JacobiParams&, const scalar*, const real_t<scalar>*, int64_t, Sizes&); \
  template cusolverStatus_t syevj_batched(                                                      \
      const Call&,                                                                              \
      const JacobiParams&,                                                                      \
      scalar*,                                                                                  \
      real_t<scalar>*,                                                                          \
      const Workspace&,                                                                         \
      int*,                                                                                     \
      int64_t);                                                                                 \
  template void syevd_sizes(const Call&, const scalar*, const real_t<scalar>*, Sizes&);         \
  template void syevd(const Call&, scalar*, real_t<scalar>*, const Workspace&, int*);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(c10::complex<float>)
INSTANTIATE(c10::complex<double>)
#undef INSTANTIATE

}  // namespace aten_overrides::gpu::eigen
