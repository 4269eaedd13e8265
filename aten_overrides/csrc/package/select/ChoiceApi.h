#pragma once

// C interface of the choice: what `explain` shows and what a caller without Python asks for.
// Integers are those of Choice.h; `native` is its Native.

#include "TableApi.h"

struct aten_overrides_select_candidate {
  double ms;           // predicted milliseconds, 0 if basis is 3
  const char* reason;  // a static string: why it is not allowed or has no time; empty otherwise
  int32_t allowed;
  int32_t basis;  // 0 measured, 1 interpolated, 2 extrapolated, 3 none
};

struct aten_overrides_select_report {
  aten_overrides_select_candidate candidates[5];  // by back end
  int32_t by_table;
  int32_t by_thresholds;
  int32_t measured;  // 0: no allowed back end has a time, by_table follows the thresholds
};

// Fills `report` for an LU factorization. 0, or 1 when dtype, preference or native is unknown.
ATEN_OVERRIDES_SELECT_API int32_t aten_overrides_select_lu_factor(
    const aten_overrides_select_table* table,
    int32_t dtype,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    int32_t preference,
    int32_t lanes,
    int32_t stock,
    int32_t capturing,
    int32_t native,
    aten_overrides_select_report* report) noexcept;

// The back end that ATen's thresholds take, or -1 when dtype, preference or native is unknown.
ATEN_OVERRIDES_SELECT_API int32_t aten_overrides_select_lu_factor_by_thresholds(
    int32_t dtype,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    int32_t preference,
    int32_t lanes,
    int32_t stock,
    int32_t capturing,
    int32_t native) noexcept;

// Null if the back end can take the problem, else why not; "unknown" for an unknown op, dtype,
// back end or native.
ATEN_OVERRIDES_SELECT_API const char* aten_overrides_select_infeasible(
    int32_t op,
    int32_t dtype,
    int32_t backend,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    int32_t lanes,
    int32_t stock,
    int32_t capturing,
    int32_t native) noexcept;

// The standard name of a back end, or null when there is none of that number.
ATEN_OVERRIDES_SELECT_API const char* aten_overrides_select_backend_name(int32_t backend) noexcept;
