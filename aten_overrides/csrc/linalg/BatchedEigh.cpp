#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/cuda/linalg/BatchedEigh.h>

#if defined(CUDART_VERSION) && defined(CUSOLVER_VERSION) && !defined(USE_ROCM)

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <ATen/native/cuda/linalg/EighCalls.h>
#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <algorithm>
#include <limits>

// cuSOLVER has XsyevBatched since 11.7.1, CUDA 12.6 Update 2
#if CUSOLVER_VERSION >= 11701
#define HAS_XSYEV_BATCHED
#endif

namespace at::native::eigh_choice {
namespace {

// Device memory that one call may take as workspace; a larger batch goes in several calls.
constexpr size_t kWorkspaceBytes = size_t{1} << 30;

template <typename scalar_t>
using real_t = typename c10::scalar_value_type<scalar_t>::type;

struct Sizes {
  size_t device;
  size_t host;
};

template <typename scalar_t>
struct Problems {
  scalar_t* a;
  real_t<scalar_t>* values;
  int* infos;
  int64_t batch;
  int64_t n;
  int64_t stride;
  cusolverEigMode_t mode;
  cublasFillMode_t triangle;

  Problems(
      const Tensor& all_values,
      const Tensor& vectors,
      const Tensor& all_infos,
      bool upper,
      bool compute_vectors)
      : a(vectors.data_ptr<scalar_t>()),
        values(all_values.data_ptr<real_t<scalar_t>>()),
        infos(all_infos.data_ptr<int>()),
        batch(batchCount(vectors)),
        n(vectors.size(-1)),
        stride(matrixStride(vectors)),
        mode(compute_vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR),
        triangle(upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER) {}
};

// Runs run(first matrix, matrices, device and host workspace, their sizes) over the batch, in calls
// of equal size. sizes(matrices, sizes) is false for more than cuSOLVER takes at once. Returns
// false, with nothing run, if that is so of one matrix.
template <typename scalar_t, class GetSizes, class Run>
bool in_calls(const Problems<scalar_t>& p, Backend backend, GetSizes&& sizes, Run&& run) {
  Sizes bytes{0, 0};
  c10::DataPtr device;
  const auto fits = [&](int64_t matrices) {
    if (!sizes(matrices, bytes) || (matrices > 1 && bytes.device > kWorkspaceBytes)) {
      return false;
    }
    try {
      device = at::cuda::getCUDADeviceAllocator()->allocate(bytes.device);
    } catch (const c10::OutOfMemoryError&) {
      if (matrices == 1) {
        throw;
      }
      return false;
    }
    return true;
  };
  const Problem problem{p.batch, p.n, p.mode == CUSOLVER_EIG_MODE_VECTOR};
  const int64_t most = matrices_of_equal_calls(p.batch, matrices_per_call(backend, problem), fits);
  if (most == 0) {
    return false;
  }
  const auto host = c10::GetCPUAllocator()->allocate(bytes.host);
  for (int64_t first = 0; first < p.batch; first += most) {
    run(first, std::min(most, p.batch - first), device.get(), host.get(), bytes);
  }
  return true;
}

bool accepted(cusolverStatus_t status) {
  if (status == CUSOLVER_STATUS_INVALID_VALUE) {
    return false;
  }
  TORCH_CUSOLVER_CHECK(status);
  return true;
}

// ---- cuSOLVER's routines by scalar type ----

template <typename scalar_t>
struct Routines;

#define EIGH_ROUTINES(scalar, native, letter, cuda)              \
  template <>                                                    \
  struct Routines<scalar> {                                      \
    static constexpr cudaDataType kType = cuda;                  \
    static native* cast(scalar* data) {                          \
      return reinterpret_cast<native*>(data);                    \
    }                                                            \
    template <class... Args>                                     \
    static cusolverStatus_t jacobi_elements(Args... args) {      \
      return cusolverDn##letter##evjBatched_bufferSize(args...); \
    }                                                            \
    template <class... Args>                                     \
    static cusolverStatus_t jacobi(Args... args) {               \
      return cusolverDn##letter##evjBatched(args...);            \
    }                                                            \
  };

EIGH_ROUTINES(float, float, Ssy, CUDA_R_32F)
EIGH_ROUTINES(double, double, Dsy, CUDA_R_64F)
EIGH_ROUTINES(c10::complex<float>, cuComplex, Che, CUDA_C_32F)
EIGH_ROUTINES(c10::complex<double>, cuDoubleComplex, Zhe, CUDA_C_64F)

#undef EIGH_ROUTINES

// Settings: eigenvalues ascend, else cuSOLVER's own defaults.
class JacobiParams {
 public:
  JacobiParams() {
    TORCH_CUSOLVER_CHECK(cusolverDnCreateSyevjInfo(&params_));
  }
  JacobiParams(const JacobiParams&) = delete;
  JacobiParams& operator=(const JacobiParams&) = delete;
  ~JacobiParams() {
    cusolverDnDestroySyevjInfo(params_);
  }
  syevjInfo_t sorting() const {
    TORCH_CUSOLVER_CHECK(cusolverDnXsyevjSetSortEig(params_, 1));
    return params_;
  }

 private:
  syevjInfo_t params_ = nullptr;
};

template <typename scalar_t>
bool jacobi_batched(const Problems<scalar_t>& p) {
  using R = Routines<scalar_t>;
  const auto handle = at::cuda::getCurrentCUDASolverDnHandle();
  const auto n = static_cast<int>(p.n);  // at most kMostJacobiRows
  const JacobiParams settings;
  const auto params = settings.sorting();
  return in_calls(
      p,
      Backend::JacobiBatchedCusolver,
      [&](int64_t matrices, Sizes& bytes) {
        int elements = -1;
        const bool taken = accepted(R::jacobi_elements(
            handle,
            p.mode,
            p.triangle,
            n,
            R::cast(p.a),
            n,
            p.values,
            &elements,
            params,
            static_cast<int>(matrices)));
        bytes = {elements < 0 ? 0 : static_cast<size_t>(elements) * sizeof(scalar_t), 0};
        return taken && elements >= 0;
      },
      [&](int64_t first, int64_t matrices, void* device, void* /*host*/, const Sizes& bytes) {
        TORCH_CUSOLVER_CHECK(R::jacobi(
            handle,
            p.mode,
            p.triangle,
            n,
            R::cast(p.a + first * p.stride),
            n,
            p.values + first * p.n,
            R::cast(static_cast<scalar_t*>(device)),
            static_cast<int>(bytes.device / sizeof(scalar_t)),
            p.infos + first,
            params,
            static_cast<int>(matrices)));
      });
}

#ifdef HAS_XSYEV_BATCHED

// cuSOLVER 11.7.1 returns wrong eigenvectors unless the workspace is zero, see
// https://github.com/pytorch/pytorch/issues/192483; 11.7.3 is the first known to be right.
bool needs_zeros() {
  static const bool result = [] {
    int version = 0;
    TORCH_CUSOLVER_CHECK(cusolverGetVersion(&version));
    return version < 11703;
  }();
  return result;
}

class Params {
 public:
  Params() {
    TORCH_CUSOLVER_CHECK(cusolverDnCreateParams(&params_));
  }
  Params(const Params&) = delete;
  Params& operator=(const Params&) = delete;
  ~Params() {
    cusolverDnDestroyParams(params_);
  }
  cusolverDnParams_t get() const {
    return params_;
  }

 private:
  cusolverDnParams_t params_ = nullptr;
};

template <typename scalar_t>
bool batched(const Problems<scalar_t>& p) {
  constexpr auto type = Routines<scalar_t>::kType;
  constexpr auto values_type = Routines<real_t<scalar_t>>::kType;
  const auto handle = at::cuda::getCurrentCUDASolverDnHandle();
  const Params params;
  return in_calls(
      p,
      Backend::BatchedCusolver,
      [&](int64_t matrices, Sizes& bytes) {
        return accepted(cusolverDnXsyevBatched_bufferSize(
            handle,
            params.get(),
            p.mode,
            p.triangle,
            p.n,
            type,
            p.a,
            p.n,
            values_type,
            p.values,
            type,
            &bytes.device,
            &bytes.host,
            matrices));
      },
      [&](int64_t first, int64_t matrices, void* device, void* host, const Sizes& bytes) {
        if (needs_zeros()) {
          C10_CUDA_CHECK(
              cudaMemsetAsync(device, 0, bytes.device, at::cuda::getCurrentCUDAStream()));
        }
        TORCH_CUSOLVER_CHECK(cusolverDnXsyevBatched(
            handle,
            params.get(),
            p.mode,
            p.triangle,
            p.n,
            type,
            p.a + first * p.stride,
            p.n,
            values_type,
            p.values + first * p.n,
            type,
            device,
            bytes.device,
            host,
            bytes.host,
            p.infos + first,
            matrices));
      });
}

#endif  // HAS_XSYEV_BATCHED

Dtype dtype_of(const Tensor& vectors) {
  switch (vectors.scalar_type()) {
    case at::kFloat:
      return Dtype::Float;
    case at::kDouble:
      return Dtype::Double;
    case at::kComplexFloat:
      return Dtype::ComplexFloat;
    default:
      return Dtype::ComplexDouble;
  }
}

// Which matrices have a NaN or an infinity in the triangle that is read.
Tensor not_finite(const Tensor& vectors, bool upper) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Tensor rows = vectors.mT();  // columns in memory are rows, so the triangles swap
  const Tensor read = upper ? rows.tril() : rows.triu();
  return read.norm(infinity, {-2, -1}).lt(infinity).logical_not();
}

}  // namespace

Plan plan_eigh(const Tensor& vectors, bool compute_vectors) {
#ifdef HAS_XSYEV_BATCHED
  constexpr bool has_batched = true;
#else
  constexpr bool has_batched = false;
#endif
  const Problem problem{batchCount(vectors), vectors.size(-1), compute_vectors};
  const bool capturing =
      c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  const Facts facts{solver_lanes::limits().lanes, has_batched, /*stock=*/true, capturing};
  Plan plan{choose(dtype_of(vectors), problem, Preference::Default, facts), 1};
  if (plan.backend == Backend::StreamedCusolver) {
    // The loop returns the same bits with any number of streams
    plan.lanes = solver_lanes::available_lanes(problem.batch);
  }
  return plan;
}

bool eigh_batched_cusolver(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors) {
  bool done = false;
#ifdef HAS_XSYEV_BATCHED
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(vectors.scalar_type(), "eigh_batched_cusolver", [&] {
    done = batched(Problems<scalar_t>(values, vectors, infos, upper, compute_vectors));
  });
#endif
  return done;
}

bool eigh_jacobi_batched_cusolver(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors) {
  const Tensor bad = not_finite(vectors, upper);
  bool done = false;
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(
      vectors.scalar_type(), "eigh_jacobi_batched_cusolver", [&] {
        done = jacobi_batched(Problems<scalar_t>(values, vectors, infos, upper, compute_vectors));
      });
  if (done) {
    infos.masked_fill_(bad, vectors.size(-1) + 1);
  }
  return done;
}

}  // namespace at::native::eigh_choice

#endif  // defined(CUDART_VERSION) && defined(CUSOLVER_VERSION) && !defined(USE_ROCM)
