// Solution of linear systems by LU factors, in place of the right-hand sides.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "Cusolver.h"
#include "Kernels.h"
#include "Magma.h"
#include "MagmaLimits.h"
#include "NativeSolve.h"
#include "Observe.h"
#include "Pointers.h"
#include "SolvePlan.h"
#include "Stub.h"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/LUSolveRoutes.h>
#include <ATen/ops/empty.h>

#include <optional>

namespace aten_overrides::gpu {
namespace {

using at::Tensor;
using at::native::TransposeType;
namespace routes = at::native::lu_solve_routes;
using Call = routes::Systems;

NativeSystems native_systems(const Call& call) {
  return {
      call.LU.scalar_type(),
      call.n,
      call.nrhs(),
      call.batch(),
      call.sharing.factors,
      call.trans != TransposeType::NoTranspose,
      call.trans == TransposeType::ConjTranspose,
      call.LU.data_ptr(),
      call.pivots.data_ptr<int>(),
      call.B.data_ptr()};
}

void exchange_rows(const Call& call) {
  const lu_solve::Problem problem{
      call.batch(), call.n, call.nrhs(), call.trans != TransposeType::NoTranspose};
  const auto facts = solve_facts(call.LU.scalar_type());
  if (lu_solve::feasible(problem, lu_solve::Backend::BlockedNative, facts).ok) {
    exchange_rows_native(native_systems(call));
    return;
  }
  routes::exchange_rows(call, cuda_function(at::native::unpack_pivots_stub));
}

void lu_solve_cusolver(const Call& call, int lane_count) {
  const Tensor infos = at::empty({lane_count}, call.LU.options().dtype(at::kInt));
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(call.LU.scalar_type(), "lu_solve_cusolver", [&] {
    routes::looped_cusolver<scalar_t>(
        call, lane_count, infos, [](const auto&... arguments) { cusolver::getrs(arguments...); });
  });
}

// Whether stock's function may go to MAGMA without having been asked to.
bool may_be_magma(const Tensor& B, TransposeType trans, choice::Preference preference) {
  return stock_kind() == ATEN_OVERRIDES_GPU_STOCK_MAGMA &&
         preference != choice::Preference::Magma &&
         forced_route(static_cast<int>(choice::Op::LuSolve)) < 0 &&
         stock_lu_solve_may_be_magma(
             at::native::batchCount(B),
             B.size(-2),
             B.size(-1),
             trans != TransposeType::NoTranspose);
}

}  // namespace

void lu_solve_kernel(const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans) {
  choice::Dtype dtype{};
  // torch gives all of them column by column, without gaps.
  const bool usual = routes::usual_layout(LU, pivots, B);
  if (!choice_dtype(LU.scalar_type(), dtype) || B.numel() == 0 || !usual) {
    stock_lu_solve()(LU, pivots, B, trans);
    return;
  }
  const auto preference = choice_preference(at::globalContext().linalgPreferredBackend());
  const Call call = routes::systems_of(LU, pivots, B, trans);
  const lu_solve::Problem problem{
      call.batch(), call.n, call.nrhs(), trans != TransposeType::NoTranspose, call.sharing.regular};
  Plan plan = plan_lu_solve(dtype, LU.scalar_type(), problem, preference);
  const auto described = [&] {
    return aten_overrides_gpu_call{
        at::native::batchCount(B),
        call.n,
        call.n,
        B.size(-1),
        -1,
        plan.reason,
        static_cast<int32_t>(choice::Op::LuSolve),
        static_cast<int32_t>(dtype),
        static_cast<int32_t>(preference),
        static_cast<int32_t>(plan.route),
        static_cast<int32_t>(plan.wanted),
        plan.lanes,
        1,
        plan.capturing};
  };
  const Observed observed(described());
  std::optional<Observed> observed_next;
  if (plan.route == Route::Stock && may_be_magma(B, trans, preference)) {
    MagmaCall magma(static_cast<int>(choice::Op::LuSolve), B);
    const char* failed = magma.run([&] { stock_lu_solve()(LU, pivots, B, trans); });
    if (failed == nullptr) {
      return;
    }
    plan = plan_lu_solve(dtype, LU.scalar_type(), problem, preference, failed);
    observed_next.emplace(described());
  }
  switch (plan.route) {
    case Route::BatchedNative:
    case Route::BlockedNative:
      lu_solve_native(native_systems(call), plan.route == Route::BatchedNative);
      break;
    case Route::BatchedCublas:
      routes::batched_cublas(call);
      break;
    case Route::LoopedCusolver:
    case Route::StreamedCusolver:
      lu_solve_cusolver(call, plan.lanes);
      break;
    case Route::TriangularCublas:
      routes::triangular_cublas(call, exchange_rows);
      break;
    default:
      stock_lu_solve()(LU, pivots, B, trans);
  }
}

}  // namespace aten_overrides::gpu
