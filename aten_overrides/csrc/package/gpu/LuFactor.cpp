// LU factorization of a batch in place, by the route that the plan names.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "Cusolver.h"
#include "Kernels.h"
#include "Magma.h"
#include "MagmaLimits.h"
#include "NativeLu.h"
#include "Observe.h"
#include "Pointers.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDABlas.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/util/Exception.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace aten_overrides::gpu {
namespace {

using at::Tensor;
namespace lanes = at::native::solver_lanes;

constexpr int64_t kWorkspaceAlignment = 256;

void lu_factor_batched_cublas(
    const Tensor& input, const Tensor& pivots, const Tensor& infos, bool compute_pivots) {
  const int n = checked_int(input.size(-1), "n");
  const int64_t batch = at::native::batchCount(input);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "lu_factor_batched_cublas", [&] {
    const Tensor pointers = matrix_pointers(input);
    auto* matrices = reinterpret_cast<scalar_t**>(pointers.data_ptr());
    auto* pivots_data = compute_pivots ? pivots.data_ptr<int>() : nullptr;
    auto* infos_data = infos.data_ptr<int>();
    for_each_chunk(batch, [&](int64_t start, int count) {
      at::cuda::blas::getrfBatched<scalar_t>(
          n,
          matrices + start,
          std::max(1, n),
          compute_pivots ? pivots_data + start * n : nullptr,
          infos_data + start,
          count);
    });
  });
}

// cuSOLVER's getrf can return finite factors of a matrix that holds a NaN; cuBLAS and MAGMA do not.
// The largest element of every matrix is found before, and added with factor 0 to the diagonal of U
// after it: NaN for NaN and for +inf (whose factors are inf or NaN anyway), 0 for all else. From
// there it reaches the determinant, the inverse and every solution. All memory is the caller's.
class NanMarks {
 public:
  static int64_t bytes(const Tensor& input) {
    return at::native::batchCount(input) *
           static_cast<int64_t>(c10::elementSize(c10::toRealValueType(input.scalar_type())));
  }

  NanMarks(const Tensor& input, char* memory)
      : matrices_(input.dim() == 2 ? input.unsqueeze(0) : input.flatten(0, -3)),
        largest_(at::for_blob(memory, {matrices_.size(0)})
                     .options(input.options().dtype(c10::toRealValueType(input.scalar_type())))
                     .target_device(input.device())
                     .make_tensor()) {
    // amax propagates NaN
    if (input.is_complex()) {
      at::amax_out(largest_, at::view_as_real(matrices_), {-3, -2, -1});
    } else {
      at::amax_out(largest_, matrices_, {-2, -1});
    }
  }

  void mark() {
    matrices_.diagonal(/*offset=*/0, /*dim1=*/-2, /*dim2=*/-1)
        .add_(largest_.unsqueeze(-1), /*alpha=*/0);
  }

 private:
  Tensor matrices_;
  Tensor largest_;
};

int64_t aligned(int64_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

void lu_factor_cusolver(
    const Tensor& input,
    const Tensor& pivots,
    const Tensor& infos,
    bool compute_pivots,
    int lane_count) {
  const int m = checked_int(input.size(-2), "m");
  const int n = checked_int(input.size(-1), "n");
  const int lda = std::max(1, m);
  const int64_t batch = at::native::batchCount(input);
  const int64_t stride = at::native::matrixStride(input);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "lu_factor_cusolver", [&] {
    auto* data = input.data_ptr<scalar_t>();
    auto* infos_data = infos.data_ptr<int>();
    auto* pivots_data = compute_pivots ? pivots.data_ptr<int>() : nullptr;
    const int64_t pivots_stride = compute_pivots ? pivots.size(-1) : 0;

    // All matrices have one shape and the calls on a stream follow one another: a workspace per
    // stream. It is one allocation, with the memory for the marks at its end.
    const int elements =
        cusolver::getrf_buffer_size(at::cuda::getCurrentCUDASolverDnHandle(), m, n, data, lda);
    const int64_t lane_bytes = aligned(static_cast<int64_t>(sizeof(scalar_t)) * elements);
    const auto workspace = at::cuda::getCUDADeviceAllocator()->allocate(
        lane_bytes * lane_count + NanMarks::bytes(input));
    auto* const base = static_cast<char*>(workspace.get());
    NanMarks marks(input, base + lane_bytes * lane_count);

    lanes::for_each_on_lanes(batch, lane_count, [&](const lanes::Lane& lane, int64_t item) {
      cusolver::getrf(
          lane.handle,
          m,
          n,
          data + item * stride,
          lda,
          reinterpret_cast<scalar_t*>(base + lane_bytes * lane.index),
          compute_pivots ? pivots_data + item * pivots_stride : nullptr,
          infos_data + item);
    });

    if (!compute_pivots) {
      // Without row exchanges cuSOLVER writes NaN where the other routines write 0 (upstream
      // 53879).
      if (input.is_complex()) {
        input.copy_(at::where(input.eq(input), input, at::scalar_tensor(0., input.options())));
      } else {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        at::nan_to_num_(const_cast<Tensor&>(input), 0, infinity, -infinity);
      }
    }
    marks.mark();
  });
}

// The wheel's function gives a batched routine the whole batch, and those take at most 65535
// matrices.
void lu_factor_stock(
    const Tensor& input,
    const Tensor& pivots,
    const Tensor& infos,
    bool compute_pivots,
    bool in_chunks) {
  const auto stock = stock_lu_factor();
  if (!in_chunks) {
    stock(input, pivots, infos, compute_pivots);
    return;
  }
  const Tensor inputs = input.flatten(0, -3);
  const Tensor all_pivots = pivots.flatten(0, -2);
  const Tensor all_infos = infos.flatten();
  for_each_chunk(at::native::batchCount(input), [&](int64_t start, int count) {
    stock(
        inputs.narrow(0, start, count),
        all_pivots.narrow(0, start, count),
        all_infos.narrow(0, start, count),
        compute_pivots);
  });
}

void lu_factor_by(
    const Plan& plan,
    const Tensor& input,
    const Tensor& pivots,
    const Tensor& infos,
    bool compute_pivots,
    bool in_chunks) {
  switch (plan.route) {
    case Route::BatchedNative:
      lu_factor_batched_native(input, pivots, infos, compute_pivots);
      return;  // the pivots included
    case Route::BatchedCublas:
      lu_factor_batched_cublas(input, pivots, infos, compute_pivots);
      break;
    case Route::Stock:
      lu_factor_stock(input, pivots, infos, compute_pivots, in_chunks);
      return;  // the pivots included
    case Route::StreamedCusolver:
      lu_factor_cusolver(input, pivots, infos, compute_pivots, plan.lanes);
      break;
    default:
      lu_factor_cusolver(input, pivots, infos, compute_pivots, 1);
  }
  if (!compute_pivots) {
    const int64_t k = std::min(input.size(-2), input.size(-1));
    pivots.copy_(at::arange(1, k + 1, input.options().dtype(at::kInt)));
  }
}

void copy_and_wait(void* to, const void* from, size_t bytes) {
  const auto stream = at::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

// The matrices with a nonzero info, looked for on the host. Copied by the runtime's own calls: the
// user's sync debug mode has not told of MAGMA's wait just before, so it does not of this one.
Tensor with_info(const Tensor& infos) {
  const Tensor flat = infos.flatten().contiguous();
  std::vector<int> values(static_cast<size_t>(flat.numel()));
  copy_and_wait(values.data(), flat.data_ptr<int>(), values.size() * sizeof(int));
  std::vector<int64_t> found;
  for (size_t item = 0; item < values.size(); ++item) {
    if (values[item] != 0) {
      found.push_back(static_cast<int64_t>(item));
    }
  }
  const Tensor bad =
      at::empty({static_cast<int64_t>(found.size())}, flat.options().dtype(at::kLong));
  if (!found.empty()) {
    copy_and_wait(bad.data_ptr(), found.data(), found.size() * sizeof(int64_t));
  }
  return bad;
}

Tensor as_batch(const Tensor& matrices) {
  return matrices.dim() == 2 ? matrices.unsqueeze(0) : matrices.flatten(0, -3);
}

// How matrices with a zero pivot are factored again: as LAPACK does it, which cuBLAS does not
// either.
Plan plan_again(choice::Dtype dtype, const choice::Problem& problem) {
  Plan plan{Route::LoopedCusolver, Route::LoopedCusolver, nullptr, 1, 0};
  choice::Facts facts{1, false, false, native_state()};
  const auto own = choice::Backend::BatchedNative;
  if (choice::feasible(choice::Op::LuFactor, dtype, problem, own, facts).ok) {
    plan.route = plan.wanted = Route::BatchedNative;
  }
  return plan;
}

}  // namespace

void lu_factor_kernel(
    const Tensor& input, const Tensor& pivots, const Tensor& infos, bool compute_pivots) {
  const choice::Problem problem{
      at::native::batchCount(input), input.size(-2), input.size(-1), compute_pivots};
  choice::Dtype dtype{};
  if (!choice_dtype(input.scalar_type(), dtype)) {
    stock_lu_factor()(input, pivots, infos, compute_pivots);
    return;
  }
  if (input.numel() == 0) {
    infos.zero_();  // no routine has to be asked
    return;
  }
  const auto preference = choice_preference(at::globalContext().linalgPreferredBackend());
  const bool as_it_is = preference == choice::Preference::Magma;
  const bool in_chunks = problem.batch > kBatchLimit && !as_it_is;
  const auto observed = [&](const Plan& plan, int64_t batch) {
    return aten_overrides_gpu_call{
        batch,
        problem.m,
        problem.n,
        0,
        -1,
        plan.reason,
        static_cast<int32_t>(choice::Op::LuFactor),
        static_cast<int32_t>(dtype),
        static_cast<int32_t>(preference),
        static_cast<int32_t>(plan.route),
        static_cast<int32_t>(plan.wanted),
        plan.lanes,
        compute_pivots ? 1 : 0,
        plan.capturing};
  };
  const Plan plan = plan_lu_factor(dtype, problem, preference);
  const Observed first(observed(plan, problem.batch));
  if (plan.route != Route::Stock || as_it_is ||
      forced_route(static_cast<int>(choice::Op::LuFactor)) >= 0 ||
      stock_kind() != ATEN_OVERRIDES_GPU_STOCK_MAGMA ||
      !stock_lu_is_magma(problem.batch, problem.m, problem.n)) {
    lu_factor_by(plan, input, pivots, infos, compute_pivots, in_chunks);
    return;
  }

  MagmaCall magma(static_cast<int>(choice::Op::LuFactor), input);
  const char* failed =
      magma.run([&] { lu_factor_by(plan, input, pivots, infos, compute_pivots, in_chunks); });
  if (failed != nullptr) {
    infos.zero_();
    const Plan next = plan_lu_factor(dtype, problem, preference, failed);
    const Observed second(observed(next, problem.batch));
    lu_factor_by(next, input, pivots, infos, compute_pivots, in_chunks);
    return;
  }

  // MAGMA's factors of a matrix with a zero pivot hold NaN, or are not its factors (upstream 28608,
  // 51930). It has made the host wait, so to look costs little.
  const Tensor bad = with_info(infos);
  if (bad.numel() == 0) {
    return;
  }
  if (!magma.before().defined()) {
    TORCH_WARN(
        "linalg.lu_factor: MAGMA's factors of ",
        bad.numel(),
        " matrices with a zero pivot may be wrong, and there was no memory for the copy of which "
        "others could be made");
    return;
  }
  const Tensor again = as_batch(magma.before()).mT().index_select(0, bad).mT();
  const Tensor some_pivots = at::empty({bad.numel(), pivots.size(-1)}, pivots.options());
  const Tensor some_infos = at::zeros({bad.numel()}, infos.options());
  const choice::Problem some{bad.numel(), problem.m, problem.n, compute_pivots};
  const Plan next = plan_again(dtype, some);
  const Observed second(observed(next, some.batch));
  lu_factor_by(next, again, some_pivots, some_infos, compute_pivots, false);
  as_batch(input).mT().index_copy_(0, bad, again.mT());
  pivots.view({-1, pivots.size(-1)}).index_copy_(0, bad, some_pivots);
  infos.view({-1}).index_copy_(0, bad, some_infos);
}

}  // namespace aten_overrides::gpu
