#pragma once

// C interface of the choice for eigh and eigvalsh. Integers are those of EighBackend.h and
// LinalgChoice.h; `vectors` 0 is eigvalsh; `batched`: cuSOLVER has XsyevBatched.

#include "RankingsApi.h"

// The back end that the thresholds take, or -1 when dtype or preference is unknown. The preference
// for our own kernels is the default here: there are none. `rankings`: those of the user's own GPU,
// null for those compiled in.
ATEN_OVERRIDES_SELECT_API int32_t aten_overrides_select_eigh(
    const aten_overrides_select_rankings* rankings,
    int32_t dtype,
    int64_t batch,
    int64_t n,
    int32_t vectors,
    int32_t preference,
    int32_t lanes,
    int32_t batched,
    int32_t stock,
    int32_t capturing) noexcept;

// Null if the back end can take the problem, else why not; "unknown" for an unknown back end.
ATEN_OVERRIDES_SELECT_API const char* aten_overrides_select_eigh_infeasible(
    int32_t backend,
    int64_t batch,
    int64_t n,
    int32_t vectors,
    int32_t lanes,
    int32_t batched,
    int32_t stock,
    int32_t capturing) noexcept;

// How many matrices one call of a batched routine gets; 0 where it has none or takes none.
ATEN_OVERRIDES_SELECT_API int64_t
aten_overrides_select_eigh_per_call(int32_t backend, int64_t batch, int64_t n) noexcept;

// The standard name of a back end, or null when there is none of that number.
ATEN_OVERRIDES_SELECT_API const char* aten_overrides_select_eigh_backend_name(
    int32_t backend) noexcept;
