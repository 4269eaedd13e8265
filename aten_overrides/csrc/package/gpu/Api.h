#pragma once

// C interface of the gpu library, used by the package through ctypes. No Python in it.
//
// Functions return 0 on success; otherwise `why` holds the reason, cut to `why_size` bytes.

#include <cstdint>

#define ATEN_OVERRIDES_GPU_API extern "C" __attribute__((visibility("default")))

// Raised whenever a structure or function below changes.
constexpr int32_t kAtenOverridesGpuApi = 5;

// One call of an operation, or the common part of many.
struct aten_overrides_gpu_call {
  int64_t batch;
  int64_t m;
  int64_t n;
  int64_t nrhs;        // 0 where there are no right-hand sides
  double ms;           // on the current stream, between before and after; negative: not measured
  const char* reason;  // a static string: why not the first choice; null: it is the first choice
  int32_t op;          // see Plan.h
  int32_t dtype;       // Choice.h's Dtype
  int32_t preference;  // Choice.h's Preference
  int32_t route;       // see aten_overrides_gpu_route_name
  int32_t wanted;      // the route that was the first choice
  int32_t lanes;       // streams used
  int32_t pivot;
  int32_t capturing;  // -1: was not asked
};

// What the package decides once, when it enables the overrides.
struct aten_overrides_gpu_settings {
  int32_t strict;      // raise instead of falling back
  int32_t lanes;       // streams per call, the current one included; negative: as before
  int64_t memory_mib;  // for the handles of all auxiliary streams of a device; negative: as before
  int32_t stock;       // what the wheel's lu_factor is, see aten_overrides_gpu_stock
};

enum aten_overrides_gpu_stock : int32_t {
  ATEN_OVERRIDES_GPU_STOCK_LIBRARY = 0,  // cuSOLVER and cuBLAS only: never better than ours
  ATEN_OVERRIDES_GPU_STOCK_MAGMA = 1,    // as measured with torch 2.11
  ATEN_OVERRIDES_GPU_STOCK_KERNEL = 2,   // the batched LU kernel that torch has since 2.15
};

struct aten_overrides_select_loop;  // see csrc/package/select/LoopApi.h

// The choice of the select library, see csrc/package/select/ChoiceApi.h.
struct aten_overrides_select_report;
typedef int32_t (*aten_overrides_gpu_chooser)(
    const void* table,
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
    aten_overrides_select_report* report);

typedef void (*aten_overrides_gpu_log)(const aten_overrides_gpu_call* call);

ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_api() noexcept;

// ---- Entries ----

// Puts wrappers that any number of threads may enter in front of torch's lazy ones, which may run
// only once. `linalg` is the path of the wheel's linalg library, null if torch has none of its own.
// Loads nothing. May be called again.
ATEN_OVERRIDES_GPU_API int32_t
aten_overrides_gpu_guard(const char* linalg, char* why, int32_t why_size) noexcept;

// Loads the wheel's linalg library if it is not loaded yet, and makes the entries whose bit is set
// (bit 0 lu_factor, 1 lu_solve, 2 eigh, 3 geqrf, 4 orgqr, 5 ormqr, 6 cholesky, 7 cholesky_inverse,
// 8 ldl_factor, 9 cholesky_solve) ours, the others the wheel's. Calls aten_overrides_gpu_guard.
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_install(
    const char* linalg, uint32_t entries, char* why, int32_t why_size) noexcept;

// Gives the entries back as they were when they were taken. An entry that someone else has changed
// since is left alone; its bit is set in the result.
ATEN_OVERRIDES_GPU_API uint32_t aten_overrides_gpu_restore() noexcept;

// The bits of the entries that call our functions at this moment.
ATEN_OVERRIDES_GPU_API uint32_t aten_overrides_gpu_installed() noexcept;

// By number, the entries of a linalg library: name (null: no such entry), the function that torch
// calls now, the wheel's (null: not taken) and ours (null: we have none).
struct aten_overrides_gpu_entry {
  const char* name;
  const void* current;
  const void* saved;
  const void* ours;
};
ATEN_OVERRIDES_GPU_API aten_overrides_gpu_entry aten_overrides_gpu_entry_at(int32_t index) noexcept;

// ---- Settings ----

ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_configure(
    const aten_overrides_gpu_settings* settings, char* why, int32_t why_size) noexcept;

// The table behind the choice and the function that reads it; null: ATen's thresholds. Both must
// outlive every call that is under way, so they are never freed.
ATEN_OVERRIDES_GPU_API void aten_overrides_gpu_set_table(
    aten_overrides_gpu_chooser chooser, const void* table) noexcept;

// Rankings measured on the user's own GPU, of an operation by its number (1 lu_solve, 4 eigh and
// eigvalsh): the numbers of csrc/package/select/Rankings.h, which are copied. Null: those compiled
// in again. Refused ones change nothing.
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_set_rankings(
    int32_t op, const int64_t* numbers, int64_t count, char* why, int32_t why_size) noexcept;

// The route that lu_factor would take now on the current device; -1 for unknown values.
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_lu_factor_route(
    int32_t dtype,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    int32_t preference,
    int32_t lanes,
    int32_t capturing,
    int32_t native) noexcept;

// The route that eigh (`vectors`) or eigvalsh would take; `batched`: cuSOLVER has XsyevBatched. -1
// for unknown values.
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_eigh_route(
    int32_t dtype,
    int64_t batch,
    int64_t n,
    int32_t vectors,
    int32_t preference,
    int32_t lanes,
    int32_t batched,
    int32_t capturing) noexcept;

// The route of an operation of LoopBackend.h, by its number there: see LoopApi.h for the arguments.
// -1 for unknown values.
ATEN_OVERRIDES_GPU_API int32_t
aten_overrides_gpu_loop_route(const aten_overrides_select_loop* loop) noexcept;

// 1 if such an operation leaves the wheel's own function anywhere: if anything was measured.
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_loop_measured(int32_t op) noexcept;

// Device memory, in MiB, that a call of eigh or eigvalsh may take as workspace of a batched
// routine, unless one matrix needs more; larger batches are dealt with in several calls. Negative:
// as before. Returns the value now.
ATEN_OVERRIDES_GPU_API int64_t aten_overrides_gpu_eigh_workspace(int64_t mib) noexcept;

// Makes every call of an operation (by its number in Plan.h: 0 lu_factor, 1 lu_solve, 4 eigh, ...)
// take this route, where it is feasible; negative: off. For tests and measurements.
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_force_route(int32_t op, int32_t route) noexcept;

ATEN_OVERRIDES_GPU_API const char* aten_overrides_gpu_route_name(int32_t route) noexcept;

// Sets torch's preferred linalg library to a value of Choice.h's Preference, without torch's
// note that the setting is experimental.
ATEN_OVERRIDES_GPU_API int32_t
aten_overrides_gpu_prefer(int32_t preference, char* why, int32_t why_size) noexcept;

// ---- Our own kernels ----

// Whether they can run on the current device: Choice.h's Native.
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_native() noexcept;

// Compute capabilities they were compiled for, as "80,90"; empty: not built.
ATEN_OVERRIDES_GPU_API const char* aten_overrides_gpu_native_architectures() noexcept;

// ---- Measuring ----

// One call of lu_factor on device memory, on the current stream, by the route that would be taken
// or is forced: `batch` column-major m x n matrices at `a` that follow one another are factored in
// place; `pivots` holds batch * min(m, n), `infos` holds batch int32.
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_lu_factor(
    int32_t dtype,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    void* a,
    int32_t* pivots,
    int32_t* infos,
    char* why,
    int32_t why_size) noexcept;

// Likewise for eigh and eigvalsh: `batch` column-major n x n matrices at `a` are replaced by their
// eigenvectors (`vectors`) or overwritten; `values` holds batch * n numbers of the real type,
// `infos` batch int32, zero before. `unmarked`: without the look for NaN before syevjBatched.
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_eigh(
    int32_t dtype,
    int64_t batch,
    int64_t n,
    int32_t upper,
    int32_t vectors,
    int32_t unmarked,
    void* a,
    void* values,
    int32_t* infos,
    char* why,
    int32_t why_size) noexcept;

// ---- Auxiliary streams ----

ATEN_OVERRIDES_GPU_API void aten_overrides_gpu_limits(int32_t* lanes, int64_t* memory_mib) noexcept;
ATEN_OVERRIDES_GPU_API int32_t aten_overrides_gpu_created_lanes(int32_t device) noexcept;
ATEN_OVERRIDES_GPU_API int32_t
aten_overrides_gpu_release_lanes(char* why, int32_t why_size) noexcept;

// ---- What ran ----

// Calls since the library was loaded, by operation and route.
ATEN_OVERRIDES_GPU_API uint64_t aten_overrides_gpu_count(int32_t op, int32_t route) noexcept;

// level 0: never; 1: once for every operation and reason of a fallback; 2: every call. The function
// is called on the thread of the operation, before its work is enqueued.
ATEN_OVERRIDES_GPU_API void aten_overrides_gpu_set_log(
    aten_overrides_gpu_log log, int32_t level) noexcept;

// Starts or stops keeping every call with its time, at most `capacity` of them.
ATEN_OVERRIDES_GPU_API void aten_overrides_gpu_profile_start(int64_t capacity) noexcept;
ATEN_OVERRIDES_GPU_API void aten_overrides_gpu_profile_stop() noexcept;

// Waits for the kept calls, copies at most `size` of them in order, forgets all, and returns how
// many there were; `dropped` counts those beyond the capacity.
ATEN_OVERRIDES_GPU_API int64_t aten_overrides_gpu_profile_take(
    aten_overrides_gpu_call* calls, int64_t size, int64_t* dropped) noexcept;
