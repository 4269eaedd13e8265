#include "Api.h"

#include "Eigh.h"
#include "Entries.h"
#include "../select/LoopApi.h"
#include "Kernels.h"
#include "LoopPlan.h"
#include "NativeLu.h"
#include "Observe.h"
#include "Plan.h"
#include "UserRankings.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/from_blob.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <string>

namespace gpu = aten_overrides::gpu;

namespace {

int32_t answer(const std::string& failure, char* why, int32_t why_size) noexcept {
  if (why != nullptr && why_size > 0) {
    std::snprintf(why, static_cast<size_t>(why_size), "%s", failure.c_str());
  }
  return failure.empty() ? 0 : 1;
}

// Nothing may leave through the C interface.
template <class Body>
int32_t guarded(char* why, int32_t why_size, Body&& body) noexcept {
  try {
    return answer(body(), why, why_size);
  } catch (const std::exception& error) {
    return answer(error.what(), why, why_size);
  } catch (...) {
    return answer("an exception of unknown type", why, why_size);
  }
}

constexpr std::array kTypes{at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

bool known_dtype(int32_t dtype) {
  return dtype >= 0 && dtype < static_cast<int32_t>(kTypes.size());
}

at::Tensor at_memory(
    void* data, at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType type) {
  const c10::Device device(c10::kCUDA, at::cuda::current_device());
  return at::for_blob(data, sizes)
      .strides(strides)
      .options(at::TensorOptions(device).dtype(type))
      .target_device(device)
      .make_tensor();
}

}  // namespace

int32_t aten_overrides_gpu_api() noexcept {
  return kAtenOverridesGpuApi;
}

int32_t aten_overrides_gpu_guard(const char* linalg, char* why, int32_t why_size) noexcept {
  return guarded(why, why_size, [&] {
    gpu::guard_entries(linalg);
    return std::string();
  });
}

int32_t aten_overrides_gpu_install(
    const char* linalg, uint32_t entries, char* why, int32_t why_size) noexcept {
  return guarded(why, why_size, [&] { return gpu::install_entries(linalg, entries); });
}

uint32_t aten_overrides_gpu_restore() noexcept {
  return gpu::restore_entries();
}

uint32_t aten_overrides_gpu_installed() noexcept {
  return gpu::installed_entries();
}

aten_overrides_gpu_entry aten_overrides_gpu_entry_at(int32_t index) noexcept {
  const auto view = gpu::entry_at(index);
  return {view.name, view.current, view.saved, view.ours};
}

int32_t aten_overrides_gpu_configure(
    const aten_overrides_gpu_settings* settings, char* why, int32_t why_size) noexcept {
  return guarded(why, why_size, [&] {
    namespace lanes = at::native::solver_lanes;
    if (settings->stock < ATEN_OVERRIDES_GPU_STOCK_LIBRARY ||
        settings->stock > ATEN_OVERRIDES_GPU_STOCK_KERNEL) {
      return std::string("unknown kind of stock function");
    }
    auto limits = lanes::limits();
    if (settings->lanes >= 0) {
      limits.lanes = settings->lanes;
    }
    if (settings->memory_mib >= 0) {
      limits.memory_mib = settings->memory_mib;
    }
    lanes::set_limits(limits);
    gpu::set_strict(settings->strict != 0);
    gpu::set_stock(static_cast<aten_overrides_gpu_stock>(settings->stock));
    return std::string();
  });
}

void aten_overrides_gpu_set_table(aten_overrides_gpu_chooser chooser, const void* table) noexcept {
  gpu::set_table(chooser, table);
}

int32_t aten_overrides_gpu_set_rankings(
    int32_t op, const int64_t* numbers, int64_t count, char* why, int32_t why_size) noexcept {
  return guarded(why, why_size, [&] { return gpu::set_rankings(op, numbers, count); });
}

int32_t aten_overrides_gpu_lu_factor_route(
    int32_t dtype,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    int32_t preference,
    int32_t lanes,
    int32_t capturing,
    int32_t native) noexcept {
  if (dtype < 0 || dtype > static_cast<int32_t>(gpu::choice::Dtype::ComplexDouble) ||
      preference < 0 || preference > static_cast<int32_t>(gpu::choice::Preference::Native) ||
      native < 0 || native >= gpu::choice::kNativeStates) {
    return -1;
  }
  return static_cast<int32_t>(gpu::choose_lu_factor_route(
      static_cast<gpu::choice::Dtype>(dtype),
      {batch, m, n, pivot != 0},
      static_cast<gpu::choice::Preference>(preference),
      {lanes, true, capturing != 0, static_cast<gpu::choice::Native>(native)}));
}

int32_t aten_overrides_gpu_eigh_route(
    int32_t dtype,
    int64_t batch,
    int64_t n,
    int32_t vectors,
    int32_t preference,
    int32_t lanes,
    int32_t batched,
    int32_t capturing) noexcept {
  if (!known_dtype(dtype) || preference < 0 ||
      preference > static_cast<int32_t>(gpu::choice::Preference::Native)) {
    return -1;
  }
  return static_cast<int32_t>(gpu::choose_eigh_route(
      static_cast<gpu::choice::Dtype>(dtype),
      {batch, n, vectors != 0},
      static_cast<gpu::choice::Preference>(preference),
      {lanes, batched != 0, /*stock=*/true, capturing != 0}));
}

int32_t aten_overrides_gpu_loop_route(const aten_overrides_select_loop* loop) noexcept {
  if (loop->op < 0 || loop->op >= gpu::loops::kOps || !known_dtype(loop->dtype) ||
      loop->preference < 0 ||
      loop->preference > static_cast<int32_t>(gpu::choice::Preference::Native)) {
    return -1;
  }
  return static_cast<int32_t>(gpu::route_of(gpu::loops::choose(
      static_cast<gpu::loops::Op>(loop->op),
      static_cast<gpu::choice::Dtype>(loop->dtype),
      {loop->batch, loop->m, loop->n, loop->nrhs, loop->hermitian != 0},
      static_cast<gpu::choice::Preference>(loop->preference),
      {loop->lanes, loop->magma != 0, loop->capturing != 0, loop->deterministic != 0})));
}

int32_t aten_overrides_gpu_loop_measured(int32_t op) noexcept {
  return op >= 0 && op < gpu::loops::kOps &&
                 gpu::loops::any_measured(static_cast<gpu::loops::Op>(op))
             ? 1
             : 0;
}

int64_t aten_overrides_gpu_eigh_workspace(int64_t mib) noexcept {
  return gpu::eigh_workspace_mib(mib);
}

int32_t aten_overrides_gpu_force_route(int32_t op, int32_t route) noexcept {
  if (op < 0 || op >= gpu::kOps || (route >= 0 && gpu::route_name(route) == nullptr)) {
    return 1;
  }
  gpu::force_route(op, route);
  return 0;
}

const char* aten_overrides_gpu_route_name(int32_t route) noexcept {
  return gpu::route_name(route);
}

int32_t aten_overrides_gpu_prefer(int32_t preference, char* why, int32_t why_size) noexcept {
  return guarded(why, why_size, [&] {
    struct Quiet : c10::WarningHandler {
      void process(const c10::Warning& /*warning*/) override {}
    } quiet;
    const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    at::globalContext().setLinalgPreferredBackend(static_cast<at::LinalgBackend>(preference));
    return std::string();
  });
}

int32_t aten_overrides_gpu_native() noexcept {
  return static_cast<int32_t>(gpu::native_state());
}

const char* aten_overrides_gpu_native_architectures() noexcept {
  return gpu::native_architectures();
}

int32_t aten_overrides_gpu_lu_factor(
    int32_t dtype,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    void* a,
    int32_t* pivots,
    int32_t* infos,
    char* why,
    int32_t why_size) noexcept {
  return guarded(why, why_size, [&] {
    if (!known_dtype(dtype)) {
      return std::string("unknown dtype");
    }
    const int64_t k = std::min(m, n);
    gpu::lu_factor_kernel(
        at_memory(a, {batch, m, n}, {m * n, 1, m}, kTypes[static_cast<size_t>(dtype)]),
        at_memory(pivots, {batch, k}, {k, 1}, at::kInt),
        at_memory(infos, {batch}, {1}, at::kInt),
        pivot != 0);
    return std::string();
  });
}

int32_t aten_overrides_gpu_eigh(
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
    int32_t why_size) noexcept {
  return guarded(why, why_size, [&] {
    if (!known_dtype(dtype)) {
      return std::string("unknown dtype");
    }
    const auto type = kTypes[static_cast<size_t>(dtype)];
    const auto run = unmarked != 0 ? &gpu::eigh_unmarked : &gpu::eigh_kernel;
    run(at_memory(values, {batch, n}, {n, 1}, c10::toRealValueType(type)),
        at_memory(a, {batch, n, n}, {n * n, 1, n}, type),
        at_memory(infos, {batch}, {1}, at::kInt),
        upper != 0,
        vectors != 0);
    return std::string();
  });
}

void aten_overrides_gpu_limits(int32_t* lanes, int64_t* memory_mib) noexcept {
  const auto limits = at::native::solver_lanes::limits();
  *lanes = limits.lanes;
  *memory_mib = limits.memory_mib;
}

int32_t aten_overrides_gpu_created_lanes(int32_t device) noexcept {
  return at::native::solver_lanes::created_lanes(static_cast<c10::DeviceIndex>(device));
}

int32_t aten_overrides_gpu_release_lanes(char* why, int32_t why_size) noexcept {
  return guarded(why, why_size, [] {
    at::native::solver_lanes::release_lanes();
    return std::string();
  });
}

uint64_t aten_overrides_gpu_count(int32_t op, int32_t route) noexcept {
  return gpu::count(op, route);
}

void aten_overrides_gpu_set_log(aten_overrides_gpu_log log, int32_t level) noexcept {
  gpu::set_log(log, level);
}

void aten_overrides_gpu_profile_start(int64_t capacity) noexcept {
  gpu::profile_start(capacity);
}

void aten_overrides_gpu_profile_stop() noexcept {
  gpu::profile_stop();
}

int64_t aten_overrides_gpu_profile_take(
    aten_overrides_gpu_call* calls, int64_t size, int64_t* dropped) noexcept {
  return gpu::profile_take(calls, size, dropped);
}
