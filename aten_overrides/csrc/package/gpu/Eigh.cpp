#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "Eigh.h"

#include "Kernels.h"
#include "Observe.h"
#include "Pointers.h"
#include "SymmetricEigen.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <type_traits>

namespace aten_overrides::gpu {
namespace {

using at::Tensor;
using eigen::Sizes;
using eigen::Workspace;
namespace lanes = at::native::solver_lanes;

static_assert(std::is_same_v<at::native::linalg_eigh_fn, decltype(&eigh_kernel)>);

constexpr int64_t kWorkspaceAlignment = 256;

// Of cuSOLVER 11.7.3, the first whose XsyevBatched is right whatever its workspace holds; 11.7.1
// returns wrong complex64 eigenvectors unless it is zero (upstream 192483).
constexpr int kAnyWorkspaceFrom = 11703;

std::atomic<int64_t> workspace_mib{1024};

// The matrices of an operation, as scalars of one type.
template <typename scalar_t>
struct Data {
  scalar_t* a;
  eigen::real_t<scalar_t>* values;
  int* infos;
  int64_t batch;
  int64_t n;
  int64_t stride;  // between matrices

  Data(const Tensor& all_values, const Tensor& vectors, const Tensor& all_infos)
      : a(vectors.data_ptr<scalar_t>()),
        values(all_values.data_ptr<eigen::real_t<scalar_t>>()),
        infos(all_infos.data_ptr<int>()),
        batch(at::native::batchCount(vectors)),
        n(vectors.size(-1)),
        stride(at::native::matrixStride(vectors)) {}
};

eigen::Call call_of(cusolverDnHandle_t handle, int64_t n, bool upper, bool compute_vectors) {
  return {
      handle,
      compute_vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR,
      upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER,
      n};
}

// ---- One call for many matrices ----

// How many matrices a call gets, and the workspace for so many.
struct Chunk {
  int64_t matrices;
  Sizes bytes;
};

// At most `most` matrices, as many as fit into `budget` bytes of device memory, at least one.
// `sizes(matrices, bytes)` is false for more than cuSOLVER takes at once.
template <class GetSizes>
Chunk fitting(int64_t most, size_t budget, GetSizes&& sizes) {
  Chunk chunk{most, {0, 0}};
  for (;;) {
    if (!sizes(chunk.matrices, chunk.bytes)) {
      TORCH_CHECK(
          chunk.matrices > 1,
          "linalg.eigh: cuSOLVER's batched routine refuses a single matrix of this size; use "
          "torch.backends.cuda.preferred_linalg_library(\"magma\"), or disable the overrides");
      chunk.matrices = (chunk.matrices + 1) / 2;
      continue;
    }
    if (chunk.matrices <= 1 || chunk.bytes.device <= budget) {
      return chunk;
    }
    const double share = static_cast<double>(budget) / static_cast<double>(chunk.bytes.device);
    const auto fewer = static_cast<int64_t>(share * static_cast<double>(chunk.matrices));
    chunk.matrices = std::clamp<int64_t>(fewer, 1, chunk.matrices - 1);
  }
}

// Runs run(first matrix, matrices, workspace) over the whole batch, with one workspace.
template <class GetSizes, class Run>
void in_chunks(int64_t batch, int64_t most, GetSizes&& sizes, Run&& run) {
  auto budget = static_cast<size_t>(workspace_mib.load(std::memory_order_relaxed)) << 20;
  auto& allocator = *at::cuda::getCUDADeviceAllocator();
  c10::DataPtr device;
  Chunk chunk{most, {0, 0}};
  for (;;) {
    chunk = fitting(chunk.matrices, budget, sizes);
    // Calls of equal size, rather than a small one at the end.
    const int64_t calls = (batch + chunk.matrices - 1) / chunk.matrices;
    const int64_t even = (batch + calls - 1) / calls;
    if (Sizes bytes{}; even < chunk.matrices && sizes(even, bytes)) {
      chunk = {even, bytes};
    }
    try {
      device = allocator.allocate(chunk.bytes.device);
      break;
    } catch (const c10::OutOfMemoryError&) {
      if (chunk.matrices <= 1) {
        throw;
      }
      budget = chunk.bytes.device / 2;
      chunk.matrices /= 2;
    }
  }
  const auto host = c10::GetCPUAllocator()->allocate(chunk.bytes.host);
  const Workspace workspace{device.get(), host.get(), chunk.bytes};
  for (int64_t start = 0; start < batch; start += chunk.matrices) {
    run(start, std::min(chunk.matrices, batch - start), workspace);
  }
}

void zero_if_needed(const Workspace& workspace) {
  if (eigen::cusolver_version() < kAnyWorkspaceFrom) {
    C10_CUDA_CHECK(cudaMemsetAsync(
        workspace.device, 0, workspace.bytes.device, at::cuda::getCurrentCUDAStream()));
  }
}

void eigh_batched_cusolver(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors,
    int64_t most) {
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(vectors.scalar_type(), "eigh_batched_cusolver", [&] {
    const Data<scalar_t> data(values, vectors, infos);
    const auto call =
        call_of(at::cuda::getCurrentCUDASolverDnHandle(), data.n, upper, compute_vectors);
    const eigen::Params params;
    in_chunks(
        data.batch,
        most,
        [&](int64_t matrices, Sizes& bytes) {
          return eigen::syev_batched_sizes(call, params, data.a, data.values, matrices, bytes);
        },
        [&](int64_t start, int64_t matrices, const Workspace& workspace) {
          zero_if_needed(workspace);
          eigen::syev_batched(
              call,
              params,
              data.a + start * data.stride,
              data.values + start * data.n,
              workspace,
              data.infos + start,
              matrices);
        });
  });
}

void eigh_jacobi_batched_cusolver(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors,
    int64_t most) {
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(
      vectors.scalar_type(), "eigh_jacobi_batched_cusolver", [&] {
        const Data<scalar_t> data(values, vectors, infos);
        const auto call =
            call_of(at::cuda::getCurrentCUDASolverDnHandle(), data.n, upper, compute_vectors);
        const eigen::JacobiParams params;
        in_chunks(
            data.batch,
            most,
            [&](int64_t matrices, Sizes& bytes) {
              return eigen::syevj_batched_sizes(call, params, data.a, data.values, matrices, bytes);
            },
            [&](int64_t start, int64_t matrices, const Workspace& workspace) {
              eigen::syevj_batched(
                  call,
                  params,
                  data.a + start * data.stride,
                  data.values + start * data.n,
                  workspace,
                  data.infos + start,
                  matrices);
            });
      });
}

// ---- One call per matrix ----

size_t aligned(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

void eigh_cusolver(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors,
    int lane_count) {
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(vectors.scalar_type(), "eigh_cusolver", [&] {
    const Data<scalar_t> data(values, vectors, infos);
    Sizes bytes{};
    eigen::syevd_sizes(
        call_of(at::cuda::getCurrentCUDASolverDnHandle(), data.n, upper, compute_vectors),
        data.a,
        data.values,
        bytes);
    // A workspace of each kind per stream; the calls on a stream follow one another.
    const auto count = static_cast<size_t>(lane_count);
    const size_t device_bytes = aligned(bytes.device);
    const size_t host_bytes = aligned(bytes.host);
    const auto device = at::cuda::getCUDADeviceAllocator()->allocate(device_bytes * count);
    const auto host = c10::GetCPUAllocator()->allocate(host_bytes * count);
    lanes::for_each_on_lanes(data.batch, lane_count, [&](const lanes::Lane& lane, int64_t item) {
      const auto index = static_cast<size_t>(lane.index);
      eigen::syevd(
          call_of(lane.handle, data.n, upper, compute_vectors),
          data.a + item * data.stride,
          data.values + item * data.n,
          {static_cast<char*>(device.get()) + index * device_bytes,
           static_cast<char*>(host.get()) + index * host_bytes,
           bytes},
          data.infos + item);
    });
  });
}

// ---- The wheel's own ----

// It hands the whole batch to XsyevBatched for small n, which takes so many matrices only.
void eigh_stock(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors,
    bool in_chunks) {
  const auto stock = stock_eigh();
  const int64_t batch = at::native::batchCount(vectors);
  if (!in_chunks || batch <= eigh::kMostMatrices) {
    stock(values, vectors, infos, upper, compute_vectors);
    return;
  }
  const Tensor all_values = values.flatten(0, -2);
  const Tensor all_vectors = vectors.flatten(0, -3);
  const Tensor all_infos = infos.flatten();
  for (int64_t start = 0; start < batch; start += eigh::kMostMatrices) {
    const int64_t count = std::min(eigh::kMostMatrices, batch - start);
    stock(
        all_values.narrow(0, start, count),
        all_vectors.narrow(0, start, count),
        all_infos.narrow(0, start, count),
        upper,
        compute_vectors);
  }
}

// torch raises where info is not 0. A routine that answers a NaN with NaN and info 0 would be
// silent where another raises (upstream 59779), so NaN among the eigenvalues is a failure to
// converge in each: info n + 1, as syevjBatched says it.
void mark_nan(const Tensor& values, const Tensor& infos) {
  const Tensor largest = values.amax(-1);  // NaN if there is one
  infos.masked_fill_(largest.ne(largest), values.size(-1) + 1);
}

// ---- The plan ----

constexpr const char* kInCapture =
    "Xsyevd works in host memory, which a CUDA graph capture forbids";
constexpr const char* kFewerLanes = "fewer auxiliary streams are usable than were asked for";
constexpr const char* kNoRoutines = "the cuSOLVER of this torch lacks a routine that is needed";

bool may_not_be_captured(Route route) {
  return route == Route::LoopedCusolver || route == Route::StreamedCusolver ||
         route == Route::Stock;
}

Route route_of_eigh(eigh::Backend backend) {
  switch (backend) {
    case eigh::Backend::BatchedCusolver:
      return Route::BatchedCusolver;
    case eigh::Backend::JacobiBatchedCusolver:
      return Route::JacobiBatchedCusolver;
    case eigh::Backend::LoopedCusolver:
      return Route::LoopedCusolver;
    case eigh::Backend::StreamedCusolver:
      return Route::StreamedCusolver;
    case eigh::Backend::Stock:
      break;
  }
  return Route::Stock;
}

// The back end behind a route that eigh has; Stock for the others.
eigh::Backend backend_of(Route route) {
  for (int backend = 0; backend < eigh::kBackends; ++backend) {
    if (route_of_eigh(static_cast<eigh::Backend>(backend)) == route) {
      return static_cast<eigh::Backend>(backend);
    }
  }
  return eigh::Backend::Stock;
}

Plan plan_eigh(
    int op, choice::Dtype dtype, const eigh::Problem& problem, choice::Preference preference) {
  Plan plan{Route::Stock, Route::Stock, nullptr, 1, -1};
  if (preference == choice::Preference::Magma) {
    return plan;  // as without us, including its errors
  }
  if (*eigen::missing() != '\0') {
    plan.reason = kNoRoutines;
    return plan;
  }
  eigh::Facts facts{
      lanes::limits().lanes, eigen::has_syev_batched(), /*stock=*/true, /*capturing=*/false};
  const int forced = forced_route(op);
  if (forced >= 0) {
    plan.wanted = static_cast<Route>(forced);
    plan.route = route_of_eigh(backend_of(plan.wanted));  // Stock for a route of other operations
    const auto answer = eigh::feasible(problem, backend_of(plan.route), facts);
    if (!answer.ok) {
      plan.reason = answer.reason;
      plan.route = Route::LoopedCusolver;
    }
  } else {
    plan.route = plan.wanted = choose_eigh_route(dtype, problem, preference, facts);
    if (may_not_be_captured(plan.route)) {
      plan.capturing =
          c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
      if (plan.capturing != 0) {
        facts.capturing = true;
        plan.reason = kInCapture;
        plan.route = choose_eigh_route(dtype, problem, preference, facts);
      }
    }
  }
  if (plan.route == Route::StreamedCusolver) {
    const char* why = nullptr;
    plan.lanes = lanes::available_lanes(problem.batch, &why);
    if (plan.lanes < std::min<int64_t>(facts.lanes, problem.batch)) {
      plan.reason = why != nullptr ? why : kFewerLanes;
    }
    if (plan.lanes < 2) {
      plan.route = Route::LoopedCusolver;
    }
  }
  return plan;
}

void run_eigh(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors,
    bool mark) {
  choice::Dtype dtype{};
  if (!choice_dtype(vectors.scalar_type(), dtype) || vectors.numel() == 0) {
    stock_eigh()(values, vectors, infos, upper, compute_vectors);
    return;
  }
  const eigh::Problem problem{at::native::batchCount(vectors), vectors.size(-1), compute_vectors};
  const auto preference = choice_preference(at::globalContext().linalgPreferredBackend());
  const int op = compute_vectors ? kEighOp : kEigvalshOp;
  const Plan plan = plan_eigh(op, dtype, problem, preference);
  const Observed observed(
      {problem.batch,
       problem.n,
       problem.n,
       0,
       -1,
       plan.reason,
       op,
       static_cast<int32_t>(dtype),
       static_cast<int32_t>(preference),
       static_cast<int32_t>(plan.route),
       static_cast<int32_t>(plan.wanted),
       plan.lanes,
       1,
       plan.capturing});
  const int64_t most = eigh::matrices_per_call(backend_of(plan.route), problem);
  switch (plan.route) {
    case Route::BatchedCusolver:
      eigh_batched_cusolver(values, vectors, infos, upper, compute_vectors, most);
      break;
    case Route::JacobiBatchedCusolver:
      eigh_jacobi_batched_cusolver(values, vectors, infos, upper, compute_vectors, most);
      break;
    case Route::LoopedCusolver:
    case Route::StreamedCusolver:
      eigh_cusolver(values, vectors, infos, upper, compute_vectors, plan.lanes);
      break;
    default:
      eigh_stock(
          values, vectors, infos, upper, compute_vectors, preference != choice::Preference::Magma);
      return;
  }
  if (mark) {
    mark_nan(values, infos);
  }
}

}  // namespace

Route choose_eigh_route(
    choice::Dtype dtype,
    const eigh::Problem& problem,
    choice::Preference preference,
    const eigh::Facts& facts) {
  const auto known = preference == choice::Preference::Native
                         ? eigh::Preference::Default  // no kernel of ours does this
                         : static_cast<eigh::Preference>(preference);
  return route_of_eigh(eigh::choose(dtype, problem, known, facts));
}

int64_t eigh_workspace_mib(int64_t mib) {
  if (mib >= 0) {
    workspace_mib.store(std::max<int64_t>(mib, 1));
  }
  return workspace_mib.load();
}

void eigh_kernel(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors) {
  run_eigh(values, vectors, infos, upper, compute_vectors, /*mark=*/true);
}

void eigh_unmarked(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors) {
  run_eigh(values, vectors, infos, upper, compute_vectors, /*mark=*/false);
}

}  // namespace aten_overrides::gpu
