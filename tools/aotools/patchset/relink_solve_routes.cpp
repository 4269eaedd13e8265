// Linked into a relinked linalg library that holds LUSolve.h, for measurements only: a C API by
// which one lu_solve route is forced, whatever shape, dtype and preference say. Until
// aten_linalg_patched_solve_route() is called, nothing here changes what torch calls.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <ATen/native/cuda/linalg/LUSolve.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

namespace at::native {
namespace {
namespace solve_routes {

using LuSolve = void (*)(const Tensor&, const Tensor&, const Tensor&, TransposeType);
using lu_solve_choice::Backend;

struct Forced {
  Backend backend;
  int lanes;
};

std::mutex mutex;  // of the slot; calls do not take it
std::atomic<Forced> forced{Forced{Backend::Stock, 1}};
std::atomic<LuSolve> wheel{nullptr};
void* replaced = nullptr;  // what the slot held before the first route, null while it is there

// Where torch keeps the CUDA function of lu_solve: see relink_entries.cpp.
void** slot() {
  return reinterpret_cast<void**>(&lu_solve_stub) + 1;
}

// Before every constructor that registers this library's functions: the slot still is the wheel's.
__attribute__((constructor(101))) void note_wheel() {
  wheel = reinterpret_cast<LuSolve>(*slot());
}

void lu_solve_forced(const Tensor& LU, const Tensor& pivots, const Tensor& B, TransposeType trans) {
  const auto [backend, wanted] = forced.load();
  if (backend == Backend::Stock || B.numel() == 0) {
    return wheel.load()(LU, pivots, B, trans);
  }
  int lanes = 1;
  if (backend == Backend::StreamedCusolver) {
    const char* reason = nullptr;
    const auto most = std::min<int64_t>(wanted, batchCount(B));
    lanes = std::min(wanted, solver_lanes::available_lanes(batchCount(B), &reason));
    TORCH_CHECK(
        lanes >= most,
        "route streamed_cusolver: asked for ",
        most,
        " lanes, got ",
        lanes,
        reason != nullptr ? ": " : "",
        reason != nullptr ? reason : "; raise the limits with aten_linalg_patched_lanes");
  }
  TORCH_CHECK(
      lu_solve_by(backend, LU, pivots, B, trans, lanes),
      "route ",
      lu_solve_choice::name(backend),
      ": the strides are not those that torch.linalg makes");
}

}  // namespace solve_routes
}  // namespace
}  // namespace at::native

namespace routes = at::native::solve_routes;

// Forces the back end of every following lu_solve call; "choice" gives back what the entry called
// before. `lanes` counts for "streamed_cusolver" only, the current stream included; a call that
// gets fewer raises. Returns 0; -1 (nothing changed): unknown route; -2: fewer than 2 lanes for
// "streamed_cusolver"; -3: the wheel's function for "stock" is not known.
extern "C" __attribute__((visibility("default"))) int aten_linalg_patched_solve_route(
    const char* route, int lanes) {
  const std::lock_guard<std::mutex> guard(routes::mutex);
  void* const wrapper = reinterpret_cast<void*>(&routes::lu_solve_forced);
  if (route != nullptr && std::strcmp(route, "choice") == 0) {
    // Something else may have taken the slot since (a select or restore): then it stays.
    if (routes::replaced != nullptr && *routes::slot() == wrapper) {
      *routes::slot() = routes::replaced;
    }
    routes::replaced = nullptr;
    return 0;
  }
  using routes::Backend;
  for (const auto backend :
       {Backend::BatchedCublas,
        Backend::LoopedCusolver,
        Backend::StreamedCusolver,
        Backend::TriangularCublas,
        Backend::Stock}) {
    if (route == nullptr || std::strcmp(route, at::native::lu_solve_choice::name(backend)) != 0) {
      continue;
    }
    if (backend == Backend::StreamedCusolver && lanes < 2) {
      return -2;
    }
    if (backend == Backend::Stock && routes::wheel.load() == nullptr) {
      return -3;
    }
    routes::forced = {backend, lanes};
    if (*routes::slot() != wrapper) {
      routes::replaced = *routes::slot();
      *routes::slot() = wrapper;
    }
    return 0;
  }
  return -1;
}
