#pragma once

// C interface of the choice for lu_solve. Integers are those of LuSolveBackend.h and Choice.h.

#include "RankingsApi.h"

// The back end that is taken, or -1 when dtype, preference or native is unknown. `regular`: factor
// item % (number of factors) serves item. Rows are taken to fit our kernels up to `most_rows`.
// `rankings`: those of the user's own GPU, null for those compiled in.
ATEN_OVERRIDES_SELECT_API int32_t aten_overrides_select_lu_solve(
    const aten_overrides_select_rankings* rankings,
    int32_t dtype,
    int64_t batch,
    int64_t n,
    int64_t nrhs,
    int32_t transposed,
    int32_t regular,
    int32_t preference,
    int32_t lanes,
    int32_t stock,
    int32_t capturing,
    int32_t native,
    int64_t most_rows) noexcept;

// Null if the choice takes a back end into account, else why not: the preference leaves it out or
// it cannot take the problem. "unknown" where aten_overrides_select_lu_solve gives -1, and for an
// unknown back end.
ATEN_OVERRIDES_SELECT_API const char* aten_overrides_select_lu_solve_rejected(
    const aten_overrides_select_rankings* rankings,
    int32_t backend,
    int32_t dtype,
    int64_t batch,
    int64_t n,
    int64_t nrhs,
    int32_t transposed,
    int32_t regular,
    int32_t preference,
    int32_t lanes,
    int32_t stock,
    int32_t capturing,
    int32_t native,
    int64_t most_rows) noexcept;

// The standard name of a back end, or null when there is none of that number.
ATEN_OVERRIDES_SELECT_API const char* aten_overrides_select_lu_solve_backend_name(
    int32_t backend) noexcept;
