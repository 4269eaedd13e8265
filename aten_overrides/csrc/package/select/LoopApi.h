#pragma once

// C interface of the choice for the operations of LoopBackend.h, by whose numbers they are given.

#include "TableApi.h"

// A problem, and what a build and a call allow.
struct aten_overrides_select_loop {
  int64_t batch;
  int64_t m;
  int64_t n;
  int64_t nrhs;
  int32_t op;
  int32_t dtype;
  int32_t hermitian;
  int32_t preference;
  int32_t lanes;
  int32_t magma;
  int32_t capturing;
  int32_t deterministic;
};

// The back end that is taken, or -1 when operation, dtype or preference is unknown.
ATEN_OVERRIDES_SELECT_API int32_t
aten_overrides_select_loop_backend(const aten_overrides_select_loop* loop) noexcept;

// Null if the back end can take the problem, else why not; "unknown" for unknown values.
ATEN_OVERRIDES_SELECT_API const char* aten_overrides_select_loop_infeasible(
    const aten_overrides_select_loop* loop, int32_t backend) noexcept;

// What the wheel's own function does: LoopBackend.h's Rival; -1 for unknown values.
ATEN_OVERRIDES_SELECT_API int32_t
aten_overrides_select_loop_rival(const aten_overrides_select_loop* loop) noexcept;

// 1 if the operation leaves the wheel's own function anywhere, else 0.
ATEN_OVERRIDES_SELECT_API int32_t aten_overrides_select_loop_measured(int32_t op) noexcept;

// The standard name of a back end, or null when there is none of that number.
ATEN_OVERRIDES_SELECT_API const char* aten_overrides_select_loop_backend_name(
    int32_t backend) noexcept;
