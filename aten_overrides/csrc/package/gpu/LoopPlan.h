#pragma once

#include "../select/LoopChoice.h"
#include "Plan.h"

namespace aten_overrides::gpu {

namespace loops = aten_overrides::loops;

// The number of an operation among all, see Plan.h.
int op_number(loops::Op op);

Route route_of(loops::Backend backend);

Plan plan_loop(
    loops::Op op,
    choice::Dtype dtype,
    const loops::Problem& problem,
    choice::Preference preference);

}  // namespace aten_overrides::gpu
