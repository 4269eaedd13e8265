// Linked into a relinked linalg library that holds the auxiliary streams, for measurements only: a
// C API by which one lu_factor route is forced, whatever shape, dtype and preference say. Until
// aten_linalg_patched_route() is called, nothing here changes what torch calls.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/BatchLinearAlgebraLib.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <ATen/ops/arange.h>

#if __has_include(<ATen/native/cuda/linalg/LoopLanes.h>)
#include <ATen/native/cuda/linalg/LoopLanes.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#define ATEN_LINALG_PATCHED_API extern "C" __attribute__((visibility("default")))

namespace at::native {
namespace {
namespace linalg_routes {

using LuFactor = void (*)(const Tensor&, const Tensor&, const Tensor&, bool);

enum class Route : int { Choice, BatchedCublas, LoopedCusolver, StreamedCusolver, Stock };

struct Forced {
  Route route;
  int lanes;
};

std::mutex mutex;  // of the slot; calls do not take it
std::atomic<Forced> forced{Forced{Route::Choice, 1}};
std::atomic<LuFactor> wheel{nullptr};
void* replaced = nullptr;  // what the slot held before the first route, null while it is there

// Where torch keeps the CUDA function of lu_factor: see relink_entries.cpp.
void** slot() {
  return reinterpret_cast<void**>(&lu_factor_stub) + 1;
}

// Before every constructor that registers this library's functions: the slot still is the wheel's.
__attribute__((constructor(101))) void note_wheel() {
  wheel = reinterpret_cast<LuFactor>(*slot());
}

void run_forced(
    const Tensor& input, const Tensor& pivots, const Tensor& infos, bool compute_pivots) {
  const auto [route, lanes] = forced.load();
  switch (route) {
    case Route::BatchedCublas:
      TORCH_CHECK_VALUE(
          input.size(-2) == input.size(-1),
          "route batched_cublas: cuBLAS factors square matrices only, got ",
          input.sizes());
      return lu_factor_batched_cublas(input, pivots, infos, compute_pivots);
    case Route::LoopedCusolver:
      return lu_factor_looped_cusolver(input, pivots, infos, compute_pivots);
    case Route::StreamedCusolver: {
      const char* reason = nullptr;
      const auto wanted = std::min<int64_t>(lanes, batchCount(input));
      const auto available = solver_lanes::available_lanes(batchCount(input), &reason);
      TORCH_CHECK(
          available >= wanted,
          "route streamed_cusolver: asked for ",
          wanted,
          " lanes, got ",
          available,
          reason != nullptr ? ": " : "",
          reason != nullptr ? reason : "; raise the limits with aten_linalg_patched_lanes");
#if __has_include(<ATen/native/cuda/linalg/StreamedLU.h>)
      // There the loop's function takes the lanes that it gets: aten_linalg_patched_lanes(lanes)
      return lu_factor_looped_cusolver(input, pivots, infos, compute_pivots);
#else
      return lu_factor_looped_cusolver(
          input, pivots, infos, compute_pivots, static_cast<int>(wanted));
#endif
    }
    default:
      return wheel.load()(input, pivots, infos, compute_pivots);
  }
}

void lu_factor_forced(
    const Tensor& input, const Tensor& pivots, const Tensor& infos, bool compute_pivots) {
  run_forced(input, pivots, infos, compute_pivots);
  if (!compute_pivots) {
    // The back ends leave them unset; lu_factor itself sets the trivial permutation.
    pivots.copy_(at::arange(1, pivots.size(-1) + 1, pivots.options()));
  }
}

bool parse(const char* name, Route& route) {
  static constexpr struct {
    const char* name;
    Route route;
  } known[] = {
      {"choice", Route::Choice},
      {"batched_cublas", Route::BatchedCublas},
      {"looped_cusolver", Route::LoopedCusolver},
      {"streamed_cusolver", Route::StreamedCusolver},
      {"stock", Route::Stock},
  };
  for (const auto& each : known) {
    if (name != nullptr && std::strcmp(name, each.name) == 0) {
      route = each.route;
      return true;
    }
  }
  return false;
}

}  // namespace linalg_routes
}  // namespace
}  // namespace at::native

namespace routes = at::native::linalg_routes;

// Forces the back end of every following lu_factor call; "choice" gives back what the entry called
// before. `lanes` counts for "streamed_cusolver" only, the current stream included; a call that
// gets fewer raises. Returns 0; -1 (nothing changed): unknown route; -2: fewer than 2 lanes for
// "streamed_cusolver"; -3: the wheel's function for "stock" is not known.
ATEN_LINALG_PATCHED_API int aten_linalg_patched_route(const char* route, int lanes) {
  auto wanted = routes::Route::Choice;
  if (!routes::parse(route, wanted)) {
    return -1;
  }
  if (wanted == routes::Route::StreamedCusolver && lanes < 2) {
    return -2;
  }
  if (wanted == routes::Route::Stock && routes::wheel.load() == nullptr) {
    return -3;
  }
  const std::lock_guard<std::mutex> guard(routes::mutex);
  void* const wrapper = reinterpret_cast<void*>(&routes::lu_factor_forced);
  if (wanted == routes::Route::Choice) {
    // Something else may have taken the slot since (a select or restore): then it stays.
    if (routes::replaced != nullptr && *routes::slot() == wrapper) {
      *routes::slot() = routes::replaced;
    }
    routes::replaced = nullptr;
    return 0;
  }
  routes::forced = {wanted, lanes};
  if (*routes::slot() != wrapper) {
    routes::replaced = *routes::slot();
    *routes::slot() = wrapper;
  }
  return 0;
}

// Sets the limits of auxiliary streams: lanes per call, MiB for all handles of a device. Returns 0,
// or -1 (nothing changed) for a negative value.
ATEN_LINALG_PATCHED_API int aten_linalg_patched_lanes(int lanes, int64_t memory_mib) {
  if (lanes < 0 || memory_mib < 0) {
    return -1;
  }
  at::native::solver_lanes::set_limits({lanes, memory_mib});
  return 0;
}

// Auxiliary streams with a handle that exist on a device, over all threads.
ATEN_LINALG_PATCHED_API int aten_linalg_patched_created_lanes(int device) {
  return at::native::solver_lanes::created_lanes(static_cast<c10::DeviceIndex>(device));
}

// Destroys those of this thread and of finished threads.
ATEN_LINALG_PATCHED_API void aten_linalg_patched_release_lanes() {
  at::native::solver_lanes::release_lanes();
}

#if __has_include(<ATen/native/cuda/linalg/LoopLanes.h>)

// Whether the other loops use auxiliary streams whatever LoopThresholds.h says: 1 or 0.
ATEN_LINALG_PATCHED_API void aten_linalg_patched_loops_always(int always) {
  at::native::solver_lanes::set_streams_always(always != 0);
}

// Whether LoopThresholds.h turns the loop on, which is counted in the order of its rows: 1 or 0;
// -1: there is no such loop.
ATEN_LINALG_PATCHED_API int aten_linalg_patched_loop_on(int loop, int64_t n, int64_t batch) {
  namespace lanes = at::native::solver_lanes;
  for (const auto& row : lanes::kLoopThresholds) {
    if (static_cast<int>(row.loop) == loop) {
      return lanes::streams_gain(row.loop, n, batch) ? 1 : 0;
    }
  }
  return -1;
}

#endif
