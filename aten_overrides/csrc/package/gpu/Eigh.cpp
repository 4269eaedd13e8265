#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include "Eigh.h"

#include "EighRoutines.h"
#include "Kernels.h"
#include "Observe.h"
#include "Pointers.h"
#include "SymmetricEigen.h"
#include "UserRankings.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <algorithm>
#include <limits>
#include <type_traits>

namespace aten_overrides::gpu {
namespace {

using at::Tensor;
namespace lanes = at::native::solver_lanes;

static_assert(std::is_same_v<at::native::linalg_eigh_fn, decltype(&eigh_kernel)>);

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

// The matrices from `start` on, which a batched routine refused even one by one.
void eigh_rest(
    const Tensor& values,
    const Tensor& vectors,
    const Tensor& infos,
    bool upper,
    bool compute_vectors,
    int64_t start) {
  TORCH_WARN_ONCE(
      "linalg.eigh: cuSOLVER's batched routine refuses matrices of ",
      vectors.size(-1),
      " rows; they go one by one to Xsyevd, which is slower. Other back ends: "
      "aten_overrides.explain");
  if (start == 0) {
    eigh_cusolver(values, vectors, infos, upper, compute_vectors, /*lane_count=*/1);
    return;
  }
  const int64_t count = at::native::batchCount(vectors) - start;
  eigh_cusolver(
      values.flatten(0, -2).narrow(0, start, count),
      vectors.flatten(0, -3).narrow(0, start, count),
      infos.flatten().narrow(0, start, count),
      upper,
      compute_vectors,
      /*lane_count=*/1);
}

// Which matrices have a NaN or an infinity in the triangle that is read. syevjBatched says info 0
// of them, and of a NaN beside the diagonal finite eigenvalues, where the other routines report a
// failure to converge, at which torch raises.
Tensor not_finite(const Tensor& vectors, bool upper) {
  const Tensor rows = vectors.mT();  // columns in memory are rows, so the triangles swap
  const Tensor read = upper ? rows.tril() : rows.triu();
  constexpr double inf = std::numeric_limits<double>::infinity();
  return read.norm(inf, {-2, -1}).lt(inf).logical_not_();
}

// ---- The plan ----

constexpr const char* kFewerLanes = "fewer auxiliary streams are usable than were asked for";
constexpr const char* kNoRoutines = "the cuSOLVER of this torch lacks a routine that is needed";

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
    if (plan.route != Route::BatchedCusolver) {
      plan.capturing =
          c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
      if (plan.capturing != 0) {
        facts.capturing = true;
        plan.reason = eigh::feasible(problem, backend_of(plan.route), facts).reason;
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
  int64_t done = problem.batch;
  Tensor bad;
  switch (plan.route) {
    case Route::BatchedCusolver:
      done = eigh_batched_cusolver(values, vectors, infos, upper, compute_vectors, most);
      break;
    case Route::JacobiBatchedCusolver:
      bad = mark ? not_finite(vectors, upper) : Tensor();
      done = eigh_jacobi_batched_cusolver(values, vectors, infos, upper, compute_vectors, most);
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
  if (done < problem.batch) {
    eigh_rest(values, vectors, infos, upper, compute_vectors, done);
  }
  if (bad.defined()) {
    infos.masked_fill_(bad, problem.n + 1);
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
  return route_of_eigh(eigh::choose(dtype, problem, known, facts, measured_eigh()));
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
