#pragma once

// C interface of rankings measured on the user's own GPU; the numbers are those of Rankings.h.

#include "TableApi.h"

struct aten_overrides_select_rankings;  // opaque

// Of an operation by its number (1 lu_solve, 4 eigh and eigvalsh). Null when they are refused;
// `why` then holds the reason, cut to `why_size` bytes.
ATEN_OVERRIDES_SELECT_API aten_overrides_select_rankings* aten_overrides_select_rankings_new(
    int32_t op, const int64_t* numbers, int64_t count, char* why, int32_t why_size) noexcept;

ATEN_OVERRIDES_SELECT_API void aten_overrides_select_rankings_free(
    aten_overrides_select_rankings* rankings) noexcept;
