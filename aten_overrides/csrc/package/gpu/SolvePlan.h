#pragma once

// Which route a call of lu_solve takes and why.

#include "../select/LuSolveChoice.h"
#include "Plan.h"

#include <c10/core/ScalarType.h>

namespace aten_overrides::gpu {

// What this build and the current device allow, outside a capture.
lu_solve::Facts solve_facts(c10::ScalarType type);

// `type` is that of `dtype`. `no_stock`: why stock's function, the first choice, did not do it;
// null: it was not tried.
Plan plan_lu_solve(
    choice::Dtype dtype,
    c10::ScalarType type,
    const lu_solve::Problem& problem,
    choice::Preference preference,
    const char* no_stock = nullptr);

}  // namespace aten_overrides::gpu
