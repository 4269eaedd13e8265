#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "Loops.h"

#include "LaneMemory.h"
#include "LoopPlan.h"
#include "LoopRoutines.h"
#include "Observe.h"
#include "Pointers.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDABlas.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>

#include <algorithm>
#include <type_traits>

namespace aten_overrides::gpu {
namespace {

using at::Tensor;
using at::native::batchCount;
using at::native::matrixStride;
using loop_routines::Reflectors;
using loops::Op;
namespace lanes = at::native::solver_lanes;

static_assert(std::is_same_v<at::native::geqrf_fn, decltype(&geqrf_kernel)>);
static_assert(std::is_same_v<at::native::orgqr_fn, decltype(&orgqr_kernel)>);
static_assert(std::is_same_v<at::native::ormqr_fn, decltype(&ormqr_kernel)>);
static_assert(std::is_same_v<at::native::cholesky_fn, decltype(&cholesky_kernel)>);
static_assert(std::is_same_v<at::native::cholesky_inverse_fn, decltype(&cholesky_inverse_kernel)>);
static_assert(std::is_same_v<at::native::ldl_factor_fn, decltype(&ldl_factor_kernel)>);

cublasFillMode_t triangle_of(bool upper) {
  return upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
}

// ---- QR ----

void geqrf_cusolver(const Tensor& input, const Tensor& tau, int lane_count) {
  const int64_t m = input.size(-2), n = input.size(-1), stride = matrixStride(input);
  const int64_t tau_stride = tau.size(-1);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "geqrf_cusolver", [&] {
    auto* a = input.data_ptr<scalar_t>();
    auto* taus = tau.data_ptr<scalar_t>();
    const LaneMemory memory(
        loop_routines::geqrf_sizes(at::cuda::getCurrentCUDASolverDnHandle(), m, n, a, taus),
        lane_count);
    lanes::for_each_on_lanes(batchCount(input), lane_count, [&](const auto& lane, int64_t item) {
      loop_routines::geqrf(
          lane.handle,
          m,
          n,
          a + item * stride,
          taus + item * tau_stride,
          memory.of(lane),
          memory.info(lane));
    });
  });
}

void geqrf_batched_cublas(const Tensor& input, const Tensor& tau) {
  const int m = checked_int(input.size(-2), "m"), n = checked_int(input.size(-1), "n");
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "geqrf_batched_cublas", [&] {
    const Tensor pointers = matrix_pointers(input);
    const Tensor tau_pointers = matrix_pointers(tau.unsqueeze(-1));
    auto** a = reinterpret_cast<scalar_t**>(pointers.data_ptr());
    auto** taus = reinterpret_cast<scalar_t**>(tau_pointers.data_ptr());
    for_each_chunk(batchCount(input), [&](int64_t start, int count) {
      int info = 0;  // says only which argument is wrong
      at::cuda::blas::geqrfBatched<scalar_t>(
          at::cuda::getCurrentCUDABlasHandle(),
          m,
          n,
          a + start,
          std::max(1, m),
          taus + start,
          &info,
          count);
      TORCH_INTERNAL_ASSERT(info == 0, "geqrfBatched: argument ", -info, " is wrong");
    });
  });
}

void orgqr_cusolver(const Tensor& result, const Tensor& tau, int lane_count) {
  const Reflectors shape{
      checked_int(result.size(-2), "m"),
      checked_int(result.size(-1), "n"),
      checked_int(tau.size(-1), "k")};
  const int64_t stride = matrixStride(result);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(result.scalar_type(), "orgqr_cusolver", [&] {
    auto* a = result.data_ptr<scalar_t>();
    const auto* taus = tau.const_data_ptr<scalar_t>();
    const LaneMemory memory(
        loop_routines::orgqr_sizes(at::cuda::getCurrentCUDASolverDnHandle(), shape, a, taus),
        lane_count);
    lanes::for_each_on_lanes(batchCount(result), lane_count, [&](const auto& lane, int64_t item) {
      loop_routines::orgqr(
          lane.handle,
          shape,
          a + item * stride,
          taus + item * shape.k,
          memory.of(lane),
          memory.info(lane));
    });
  });
}

void ormqr_cusolver(
    const Tensor& input,
    const Tensor& tau,
    const Tensor& other,
    bool left,
    bool transpose,
    int lane_count) {
  const Reflectors shape{
      checked_int(other.size(-2), "m"),
      checked_int(other.size(-1), "n"),
      checked_int(tau.size(-1), "k"),
      left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT,
      transpose};
  const int64_t stride = matrixStride(input), other_stride = matrixStride(other);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "ormqr_cusolver", [&] {
    const auto* a = input.const_data_ptr<scalar_t>();
    const auto* taus = tau.const_data_ptr<scalar_t>();
    auto* c = other.data_ptr<scalar_t>();
    const LaneMemory memory(
        loop_routines::ormqr_sizes(at::cuda::getCurrentCUDASolverDnHandle(), shape, a, taus, c),
        lane_count);
    lanes::for_each_on_lanes(batchCount(input), lane_count, [&](const auto& lane, int64_t item) {
      loop_routines::ormqr(
          lane.handle,
          shape,
          a + item * stride,
          taus + item * shape.k,
          c + item * other_stride,
          memory.of(lane),
          memory.info(lane));
    });
  });
}

// ---- Cholesky ----

void cholesky_cusolver(const Tensor& input, const Tensor& infos, bool upper, int lane_count) {
  const int64_t n = input.size(-1), stride = matrixStride(input);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "cholesky_cusolver", [&] {
    auto* a = input.data_ptr<scalar_t>();
    auto* info = infos.data_ptr<int>();
    const LaneParams params(lane_count);
    const LaneMemory memory(
        loop_routines::potrf_sizes(
            at::cuda::getCurrentCUDASolverDnHandle(), params.first(), triangle_of(upper), n, a),
        lane_count);
    lanes::for_each_on_lanes(batchCount(input), lane_count, [&](const auto& lane, int64_t item) {
      loop_routines::potrf(
          lane.handle,
          params.of(lane),
          triangle_of(upper),
          n,
          a + item * stride,
          memory.of(lane),
          info + item);
    });
  });
}

void cholesky_solve_cusolver(
    const Tensor& factors, const Tensor& sides, bool upper, int lane_count) {
  const int64_t n = sides.size(-2), nrhs = sides.size(-1);
  const int64_t stride = matrixStride(factors), sides_stride = matrixStride(sides);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(sides.scalar_type(), "cholesky_solve_cusolver", [&] {
    const auto* a = factors.const_data_ptr<scalar_t>();
    auto* b = sides.data_ptr<scalar_t>();
    const LaneParams params(lane_count);
    const LaneMemory memory({0, 0}, lane_count);
    lanes::for_each_on_lanes(batchCount(sides), lane_count, [&](const auto& lane, int64_t item) {
      loop_routines::potrs(
          lane.handle,
          params.of(lane),
          triangle_of(upper),
          n,
          nrhs,
          a + item * stride,
          b + item * sides_stride,
          memory.info(lane));
    });
  });
}

// ---- LDL ----

void ldl_factor_cusolver(
    const Tensor& input, const Tensor& pivots, const Tensor& infos, bool upper, int lane_count) {
  const int n = checked_int(input.size(-1), "n");
  const int64_t stride = matrixStride(input);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "ldl_factor_cusolver", [&] {
    auto* a = input.data_ptr<scalar_t>();
    auto* pivot = pivots.data_ptr<int>();
    auto* info = infos.data_ptr<int>();
    const LaneMemory memory(
        loop_routines::sytrf_sizes(at::cuda::getCurrentCUDASolverDnHandle(), n, a), lane_count);
    lanes::for_each_on_lanes(batchCount(input), lane_count, [&](const auto& lane, int64_t item) {
      loop_routines::sytrf(
          lane.handle,
          triangle_of(upper),
          n,
          a + item * stride,
          pivot + item * n,
          memory.of(lane),
          info + item);
    });
  });
}

// ---- One call ----

// torch gives all matrices column by column, without gaps.
bool usual(const Tensor& matrices) {
  return matrices.dim() >= 2 && matrices.numel() > 0 && matrices.mT().is_contiguous();
}

// Runs stock() or ours(route, lanes), as planned; stock() for a call that is not `ours_can`.
template <class Stock, class Ours>
void run(
    Op op,
    bool ours_can,
    c10::ScalarType type,
    const loops::Problem& problem,
    Stock&& stock,
    Ours&& ours) {
  choice::Dtype dtype{};
  if (!ours_can || !choice_dtype(type, dtype)) {
    stock();
    return;
  }
  const auto preference = choice_preference(at::globalContext().linalgPreferredBackend());
  const Plan plan = plan_loop(op, dtype, problem, preference);
  const Observed observed(
      {problem.batch,
       problem.m,
       problem.n,
       problem.nrhs,
       -1,
       plan.reason,
       op_number(op),
       static_cast<int32_t>(dtype),
       static_cast<int32_t>(preference),
       static_cast<int32_t>(plan.route),
       static_cast<int32_t>(plan.wanted),
       plan.lanes,
       1,
       plan.capturing});
  if (plan.route == Route::Stock) {
    stock();
  } else {
    ours(plan.route, plan.lanes);
  }
}

}  // namespace

void geqrf_kernel(const Tensor& input, const Tensor& tau) {
  run(
      Op::Geqrf,
      usual(input) && tau.is_contiguous(),
      input.scalar_type(),
      {batchCount(input), input.size(-2), input.size(-1)},
      [&] { stock_geqrf()(input, tau); },
      [&](Route route, int lane_count) {
        if (route == Route::BatchedCublas) {
          geqrf_batched_cublas(input, tau);
        } else {
          geqrf_cusolver(input, tau, lane_count);
        }
      });
}

Tensor& orgqr_kernel(Tensor& result, const Tensor& tau) {
  run(
      Op::Orgqr,
      usual(result) && tau.is_contiguous() && tau.numel() > 0,
      result.scalar_type(),
      {batchCount(result), result.size(-2), tau.size(-1)},
      [&] { stock_orgqr()(result, tau); },
      [&](Route, int lane_count) { orgqr_cusolver(result, tau, lane_count); });
  return result;
}

void ormqr_kernel(
    const Tensor& input, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  run(
      Op::Ormqr,
      usual(input) && usual(other) && tau.is_contiguous() && tau.numel() > 0,
      input.scalar_type(),
      {batchCount(input), input.size(-2), tau.size(-1), other.size(left ? -1 : -2)},
      [&] { stock_ormqr()(input, tau, other, left, transpose); },
      [&](Route, int lane_count) {
        ormqr_cusolver(input, tau, other, left, transpose, lane_count);
      });
}

void cholesky_kernel(const Tensor& input, const Tensor& info, bool upper) {
  run(
      Op::Cholesky,
      usual(input) && info.is_contiguous(),
      input.scalar_type(),
      {batchCount(input), input.size(-2), input.size(-1)},
      [&] { stock_cholesky()(input, info, upper); },
      [&](Route, int lane_count) { cholesky_cusolver(input, info, upper, lane_count); });
}

Tensor& cholesky_inverse_kernel(Tensor& result, Tensor& infos, bool upper) {
  const int64_t n = result.size(-1);
  run(
      Op::CholeskyInverse,
      usual(result),
      result.scalar_type(),
      {batchCount(result), n, n, n},
      [&] { stock_cholesky_inverse()(result, infos, upper); },
      [&](Route, int lane_count) {
        // The solution for the identity; infos, which nothing is found out for, are left alone, as
        // by torch's own cuSOLVER function.
        const Tensor factors = at::native::cloneBatchedColumnMajor(result);
        result.zero_();
        result.diagonal(/*offset=*/0, /*dim1=*/-2, /*dim2=*/-1).fill_(1);
        cholesky_solve_cusolver(factors, result, upper, lane_count);
      });
  return result;
}

Tensor cholesky_solve_kernel(const Tensor& self, const Tensor& factors, bool upper) {
  Tensor result;
  run(
      Op::CholeskySolve,
      self.numel() > 0 && factors.numel() > 0,
      self.scalar_type(),
      {batchCount(self), self.size(-2), self.size(-2), self.size(-1)},
      [&] { result = stock_cholesky_solve()(self, factors, upper); },
      [&](Route, int lane_count) {
        result = at::native::cloneBatchedColumnMajor(self);
        // The factors are only read, and torch.linalg.cholesky returns them as they are needed.
        cholesky_solve_cusolver(
            usual(factors) ? factors : at::native::cloneBatchedColumnMajor(factors),
            result,
            upper,
            lane_count);
      });
  return result;
}

void ldl_factor_kernel(
    const Tensor& input, const Tensor& pivots, const Tensor& infos, bool upper, bool hermitian) {
  run(
      Op::LdlFactor,
      usual(input) && pivots.is_contiguous() && infos.is_contiguous(),
      input.scalar_type(),
      {batchCount(input), input.size(-2), input.size(-1), 0, hermitian},
      [&] { stock_ldl_factor()(input, pivots, infos, upper, hermitian); },
      [&](Route, int lane_count) { ldl_factor_cusolver(input, pivots, infos, upper, lane_count); });
}

}  // namespace aten_overrides::gpu
