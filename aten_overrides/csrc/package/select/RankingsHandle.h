#pragma once

// What the opaque handle of rankings holds: those of one operation.

#include "Rankings.h"

struct aten_overrides_select_rankings {
  int32_t op;
  aten_overrides::rankings::EighRankings eigh;
  aten_overrides::rankings::LuSolveRankings lu_solve;
};

namespace aten_overrides::rankings {

// What the handle says of its operation; of another one, or without a handle, what was compiled in.
inline eigh::Measured eigh_of(const aten_overrides_select_rankings* handle) {
  return measured(handle != nullptr && handle->op == kEighOp ? &handle->eigh : nullptr);
}

inline lu_solve::Measured lu_solve_of(const aten_overrides_select_rankings* handle) {
  return measured(handle != nullptr && handle->op == kLuSolveOp ? &handle->lu_solve : nullptr);
}

}  // namespace aten_overrides::rankings
