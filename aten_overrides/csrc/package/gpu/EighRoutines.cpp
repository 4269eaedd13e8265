#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "EighRoutines.h"

#include "Eigh.h"
#include "Parts.h"
#include "SymmetricEigen.h"

#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace aten_overrides::gpu {
namespace {

using at::Tensor;
using eigen::Sizes;
using eigen::Workspace;
namespace lanes = at::native::solver_lanes;

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
// `sizes(matrices, bytes)` is false for more than cuSOLVER takes at once; 0 matrices if it refuses
// even one.
template <class GetSizes>
Chunk fitting(int64_t most, size_t budget, GetSizes&& sizes) {
  Chunk chunk{most, {0, 0}};
  for (;;) {
    if (!sizes(chunk.matrices, chunk.bytes)) {
      chunk.matrices /= 2;
      if (chunk.matrices < 1) {
        return {0, {0, 0}};
      }
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

// Runs run(first matrix, matrices, workspace) over the batch, with one workspace; false from it:
// the routine refused so many. Returns how many matrices are done, the first of the batch.
template <class GetSizes, class Run>
int64_t in_chunks(int64_t batch, int64_t most, GetSizes&& sizes, Run&& run) {
  auto budget = static_cast<size_t>(workspace_mib.load(std::memory_order_relaxed)) << 20;
  auto& allocator = *at::cuda::getCUDADeviceAllocator();
  c10::DataPtr device;
  Chunk chunk{most, {0, 0}};
  for (;;) {
    chunk = fitting(chunk.matrices, budget, sizes);
    if (chunk.matrices < 1) {
      return 0;
    }
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
  return in_parts(batch, chunk.matrices, [&](int64_t start, int64_t matrices) {
    return run(start, matrices, workspace);
  });
}

// Whether a routine that returns this status has not begun.
bool refused(cusolverStatus_t status) {
  switch (status) {
    case CUSOLVER_STATUS_ALLOC_FAILED:
    case CUSOLVER_STATUS_INVALID_VALUE:
    case CUSOLVER_STATUS_ARCH_MISMATCH:
    case CUSOLVER_STATUS_NOT_SUPPORTED:
      return true;
    default:
      return false;
  }
}

// The limits of the batched routines are documented nowhere, and torch's own call with 262144
// matrices ends with an internal error, which may leave the matrices half done. So calls with more
// than this many keep a copy of them.
constexpr int64_t kCopiedFrom = 1025;

// Runs routine() on some of the matrices, which it overwrites. True if they are done, false if they
// are as before and fewer of them may do; an error if neither can be had.
template <typename scalar_t, class Routine>
bool attempt(const Data<scalar_t>& data, int64_t start, int64_t matrices, Routine&& routine) {
  const auto stream = at::cuda::getCurrentCUDAStream();
  scalar_t* const a = data.a + start * data.stride;
  const auto bytes = static_cast<size_t>(matrices * data.stride) * sizeof(scalar_t);
  c10::DataPtr copy;
  if (matrices >= kCopiedFrom) {
    try {
      copy = at::cuda::getCUDADeviceAllocator()->allocate(bytes);
    } catch (const c10::OutOfMemoryError&) {
      return false;
    }
    C10_CUDA_CHECK(cudaMemcpyAsync(copy.get(), a, bytes, cudaMemcpyDeviceToDevice, stream));
  }
  const cusolverStatus_t status = routine();
  if (status == CUSOLVER_STATUS_SUCCESS) {
    return true;
  }
  if (copy.get() == nullptr) {
    if (!refused(status)) {
      TORCH_CUSOLVER_CHECK(status);
    }
    return false;
  }
  (void)cudaGetLastError();  // of a launch that failed: the status has told
  C10_CUDA_CHECK(cudaMemcpyAsync(a, copy.get(), bytes, cudaMemcpyDeviceToDevice, stream));
  return false;
}

void zero_if_needed(const Workspace& workspace) {
  if (eigen::cusolver_version() < kAnyWorkspaceFrom) {
    C10_CUDA_CHECK(cudaMemsetAsync(
        workspace.device, 0, workspace.bytes.device, at::cuda::getCurrentCUDAStream()));
  }
}

// Runs a batched routine in calls of at most `most` matrices, each as an attempt:
// routine(matrices, values, workspace, infos, count). Returns how many matrices are done.
template <typename scalar_t, class GetSizes, class Routine>
int64_t in_attempts(const Data<scalar_t>& data, int64_t most, GetSizes&& sizes, Routine&& routine) {
  return in_chunks(
      data.batch,
      most,
      std::forward<GetSizes>(sizes),
      [&](int64_t start, int64_t matrices, const Workspace& workspace) {
        return attempt(data, start, matrices, [&] {
          return routine(
              data.a + start * data.stride,
              data.values + start * data.n,
              workspace,
              data.infos + start,
              matrices);
        });
      });
}

}  // namespace

int64_t eigh_batched_cusolver(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors,
    int64_t most) {
  int64_t done = 0;
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(vectors.scalar_type(), "eigh_batched_cusolver", [&] {
    const Data<scalar_t> data(values, vectors, infos);
    const auto call =
        call_of(at::cuda::getCurrentCUDASolverDnHandle(), data.n, upper, compute_vectors);
    const eigen::Params params;
    done = in_attempts(
        data,
        most,
        [&](int64_t matrices, Sizes& bytes) {
          return eigen::syev_batched_sizes(call, params, data.a, data.values, matrices, bytes);
        },
        [&](auto* a, auto* w, const Workspace& workspace, int* info, int64_t matrices) {
          zero_if_needed(workspace);
          return eigen::syev_batched(call, params, a, w, workspace, info, matrices);
        });
  });
  return done;
}

int64_t eigh_jacobi_batched_cusolver(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors,
    int64_t most) {
  int64_t done = 0;
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(
      vectors.scalar_type(), "eigh_jacobi_batched_cusolver", [&] {
        const Data<scalar_t> data(values, vectors, infos);
        const auto call =
            call_of(at::cuda::getCurrentCUDASolverDnHandle(), data.n, upper, compute_vectors);
        const eigen::JacobiParams params;
        done = in_attempts(
            data,
            most,
            [&](int64_t matrices, Sizes& bytes) {
              return eigen::syevj_batched_sizes(call, params, data.a, data.values, matrices, bytes);
            },
            [&](auto* a, auto* w, const Workspace& workspace, int* info, int64_t matrices) {
              return eigen::syevj_batched(call, params, a, w, workspace, info, matrices);
            });
      });
  return done;
}

namespace {

// ---- One call per matrix ----

size_t aligned(size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

}  // namespace

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

int64_t eigh_workspace_mib(int64_t mib) {
  if (mib >= 0) {
    workspace_mib.store(std::max<int64_t>(mib, 1));
  }
  return workspace_mib.load();
}

}  // namespace aten_overrides::gpu
