#pragma once

// C interface of a measured table: loaded through ctypes and usable from C++ without Python.
// Integers for op, dtype and back end are those of Choice.h.

#include <cstdint>

#define ATEN_OVERRIDES_SELECT_API extern "C" __attribute__((visibility("default")))

struct aten_overrides_select_table;  // opaque

// A new, empty table whose streamed times were measured with `lanes` streams; null when out of
// memory.
ATEN_OVERRIDES_SELECT_API aten_overrides_select_table* aten_overrides_select_table_new(
    int32_t lanes) noexcept;

ATEN_OVERRIDES_SELECT_API void aten_overrides_select_table_free(
    aten_overrides_select_table* table) noexcept;

// 0, or 1 when the point was refused; `why` then holds the reason, cut to `why_size` bytes.
ATEN_OVERRIDES_SELECT_API int32_t aten_overrides_select_table_add(
    aten_overrides_select_table* table,
    int32_t op,
    int32_t dtype,
    int32_t backend,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    double ms,
    char* why,
    int32_t why_size) noexcept;

// 0, or 1 when out of memory. Call once, after the last add.
ATEN_OVERRIDES_SELECT_API int32_t
aten_overrides_select_table_finish(aten_overrides_select_table* table) noexcept;

// The basis of the time: 0 measured, 1 interpolated, 2 extrapolated, 3 none (then *ms is 0).
ATEN_OVERRIDES_SELECT_API int32_t aten_overrides_select_table_predict(
    const aten_overrides_select_table* table,
    int32_t op,
    int32_t dtype,
    int32_t backend,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    double* ms) noexcept;
