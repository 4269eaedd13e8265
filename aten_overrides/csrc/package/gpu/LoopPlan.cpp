#include "LoopPlan.h"

#include "LoopRoutines.h"

#include <ATen/Context.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>

#include <algorithm>

namespace aten_overrides::gpu {
namespace {

namespace lanes = at::native::solver_lanes;
using loops::Backend;

constexpr const char* kFewerLanes = "fewer auxiliary streams are usable than were asked for";
constexpr const char* kNoRoutines = "the cuSOLVER of this torch lacks a routine that is needed";

// Stock for a route that these operations do not have.
Backend backend_of(Route route) {
  for (int i = 0; i < loops::kBackends; ++i) {
    if (route_of(static_cast<Backend>(i)) == route) {
      return static_cast<Backend>(i);
    }
  }
  return Backend::Stock;
}

}  // namespace

int op_number(loops::Op op) {
  switch (op) {
    case loops::Op::Geqrf:
      return static_cast<int>(choice::Op::Geqrf);
    case loops::Op::Orgqr:
      return kOrgqrOp;
    case loops::Op::Ormqr:
      return kOrmqrOp;
    case loops::Op::Cholesky:
      return kCholeskyOp;
    case loops::Op::CholeskySolve:
      return kCholeskySolveOp;
    case loops::Op::CholeskyInverse:
      return kCholeskyInverseOp;
    case loops::Op::LdlFactor:
      return kLdlFactorOp;
  }
  return -1;
}

Route route_of(Backend backend) {
  switch (backend) {
    case Backend::LoopedCusolver:
      return Route::LoopedCusolver;
    case Backend::StreamedCusolver:
      return Route::StreamedCusolver;
    case Backend::BatchedCublas:
      return Route::BatchedCublas;
    case Backend::Stock:
      break;
  }
  return Route::Stock;
}

Plan plan_loop(
    loops::Op op,
    choice::Dtype dtype,
    const loops::Problem& problem,
    choice::Preference preference) {
  Plan plan{Route::Stock, Route::Stock, nullptr, 1, -1};
  const int forced = forced_route(op_number(op));
  if (preference == choice::Preference::Magma && forced < 0) {
    return plan;  // as without us, including its errors
  }
  if (*loop_routines::missing() != '\0') {
    plan.reason = kNoRoutines;
    return plan;
  }
  loops::Facts facts{
      lanes::limits().lanes,
      stock_kind() != ATEN_OVERRIDES_GPU_STOCK_LIBRARY,
      /*capturing=*/false,
      at::globalContext().deterministicAlgorithms()};
  if (forced >= 0) {
    plan.wanted = static_cast<Route>(forced);
    const Backend asked = backend_of(plan.wanted);
    const auto answer = loops::feasible(op, dtype, problem, asked, preference, facts);
    plan.route = answer.ok ? route_of(asked) : Route::Stock;
    plan.reason = answer.ok ? nullptr : answer.reason;
  } else {
    plan.route = plan.wanted = route_of(loops::choose(op, dtype, problem, preference, facts));
    if (plan.route == Route::Stock) {
      auto captured = facts;
      captured.capturing = true;
      const auto possible =
          loops::feasible(op, dtype, problem, Backend::Stock, preference, captured);
      if (!possible.ok) {  // so it has to be asked
        plan.capturing = is_capturing() ? 1 : 0;
        if (plan.capturing != 0) {
          facts = captured;
          plan.reason = possible.reason;
          plan.route = route_of(loops::choose(op, dtype, problem, preference, facts));
        }
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
      facts.lanes = 1;
      facts.capturing = is_capturing();
      plan.route = forced >= 0 ? Route::LoopedCusolver
                               : route_of(loops::choose(op, dtype, problem, preference, facts));
    }
  }
  return plan;
}

}  // namespace aten_overrides::gpu
