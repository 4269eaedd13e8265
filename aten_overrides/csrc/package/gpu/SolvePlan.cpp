#include "SolvePlan.h"

#include "MagmaLimits.h"
#include "NativeLu.h"
#include "NativeSolve.h"
#include "UserRankings.h"

#include <ATen/native/cuda/linalg/CUDASolverLanes.h>

#include <algorithm>

namespace aten_overrides::gpu {
namespace {

namespace lanes = at::native::solver_lanes;
using choice::Preference;
using lu_solve::Backend;

Route route_of(Backend backend) {
  switch (backend) {
    case Backend::BatchedNative:
      return Route::BatchedNative;
    case Backend::BlockedNative:
      return Route::BlockedNative;
    case Backend::BatchedCublas:
      return Route::BatchedCublas;
    case Backend::TriangularCublas:
      return Route::TriangularCublas;
    case Backend::LoopedCusolver:
      return Route::LoopedCusolver;
    case Backend::StreamedCusolver:
      return Route::StreamedCusolver;
    case Backend::Stock:
      return Route::Stock;
  }
  return Route::Stock;
}

// Stock for a route that lu_solve does not have.
Backend backend_of(Route route) {
  for (int i = 0; i < lu_solve::kBackends; ++i) {
    if (route_of(static_cast<Backend>(i)) == route) {
      return static_cast<Backend>(i);
    }
  }
  return Backend::Stock;
}

}  // namespace

lu_solve::Facts solve_facts(c10::ScalarType type) {
  const auto native = native_state();
  const auto rows = native == choice::Native::Usable ? native_solve_rows(type) : SolveRows{0, 0};
  return {
      lanes::limits().lanes,
      /*stock=*/true,
      stock_kind() == ATEN_OVERRIDES_GPU_STOCK_MAGMA,
      /*capturing=*/false,
      native,
      rows.pass,
      rows.blocked};
}

Plan plan_lu_solve(
    choice::Dtype dtype,
    c10::ScalarType type,
    const lu_solve::Problem& problem,
    Preference preference,
    const char* no_stock) {
  lu_solve::Facts facts = solve_facts(type);
  const bool retired =
      facts.magma && magma_retired() &&
      stock_lu_solve_may_be_magma(problem.batch, problem.n, problem.nrhs, problem.transposed);
  facts.stock = facts.stock && no_stock == nullptr && !retired;
  Plan plan{Route::Stock, Route::Stock, nullptr, 1, -1};

  const int forced = forced_route(static_cast<int>(choice::Op::LuSolve));
  if (forced >= 0) {
    const Backend asked = backend_of(static_cast<Route>(forced));
    const bool can = lu_solve::feasible(problem, asked, facts).ok;
    plan.route = plan.wanted = can ? route_of(asked) : Route::BatchedCublas;
  } else {
    const lu_solve::Measured measured = measured_lu_solve();
    const Backend wanted = lu_solve::choose(dtype, problem, preference, facts, measured);
    plan.route = plan.wanted = route_of(wanted);
    if (wanted == Backend::Stock && preference != Preference::Magma) {
      auto captured = facts;
      captured.capturing = true;
      const auto possible = lu_solve::feasible(problem, wanted, captured);
      if (!possible.ok) {  // so it has to be asked
        plan.capturing = is_capturing() ? 1 : 0;
        if (plan.capturing != 0) {
          plan.reason = possible.reason;
          plan.route = route_of(lu_solve::choose(dtype, problem, preference, captured, measured));
        }
      }
    }
    const auto own = lu_solve::feasible(problem, Backend::BatchedNative, facts);
    const auto blocked = lu_solve::feasible(problem, Backend::BlockedNative, facts);
    if (preference == Preference::Native && !own.ok && !blocked.ok) {
      plan.wanted = Route::BatchedNative;
      plan.reason = own.reason;
    }
  }
  if (no_stock != nullptr) {
    plan.wanted = Route::Stock;
    plan.reason = no_stock;
  }
  if (plan.route == Route::StreamedCusolver) {
    const char* why = nullptr;
    plan.lanes = lanes::available_lanes(problem.batch, &why);
    if (plan.lanes < 2) {
      plan.lanes = 1;
      plan.route = Route::LoopedCusolver;
      plan.reason = why != nullptr ? why : "fewer than two auxiliary streams are usable";
    }
  }
  return plan;
}

}  // namespace aten_overrides::gpu
