#include "Plan.h"

#include "../select/ChoiceApi.h"
#include "MagmaLimits.h"
#include "NativeLu.h"

#include <ATen/Context.h>
#include <ATen/native/cuda/linalg/CUDASolverLanes.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <array>
#include <atomic>

namespace aten_overrides::gpu {
namespace {

using choice::Backend;
using choice::Facts;
using choice::Preference;
using choice::Problem;

struct Policy {
  // Written in this order, read in the reverse one: a chooser is never seen without its table.
  std::atomic<const void*> table{nullptr};
  std::atomic<aten_overrides_gpu_chooser> chooser{nullptr};
  std::atomic<aten_overrides_gpu_stock> stock{ATEN_OVERRIDES_GPU_STOCK_LIBRARY};
  std::atomic<bool> magma_retired{false};
  std::atomic<bool> strict{false};
  std::array<std::atomic<int>, kOps> forced{-1, -1, -1, -1, -1, -1};
  // Counts the changes after which remembered choices no longer hold.
  std::atomic<uint64_t> generation{1};
};

Policy policy;

// ---- The table's choice, remembered ----

struct Remembered {
  Problem problem{-1, -1, -1, false};
  uint64_t generation = 0;
  int32_t question = -1;  // dtype, preference and facts
  Backend answer = Backend::LoopedCusolver;
};

constexpr size_t kRemembered = 64;

size_t place_of(const Problem& problem, int32_t question) {
  const auto mix = static_cast<uint64_t>(problem.batch) * 0x9E3779B97F4A7C15ULL +
                   static_cast<uint64_t>(problem.m) * 0xC2B2AE3D27D4EB4FULL +
                   static_cast<uint64_t>(problem.n) * 0x165667B19E3779F9ULL +
                   static_cast<uint64_t>(question);
  return (mix >> 32) % kRemembered;
}

Backend ask_table(
    aten_overrides_gpu_chooser chooser,
    choice::Dtype dtype,
    const Problem& problem,
    Preference preference,
    const Facts& facts) {
  aten_overrides_select_report report{};
  const int32_t failed = chooser(
      policy.table.load(std::memory_order_acquire),
      static_cast<int32_t>(dtype),
      problem.batch,
      problem.m,
      problem.n,
      problem.pivot ? 1 : 0,
      static_cast<int32_t>(preference),
      facts.lanes,
      facts.stock ? 1 : 0,
      facts.capturing ? 1 : 0,
      static_cast<int32_t>(facts.native),
      &report);
  return failed != 0 ? choice::choose_lu_factor(dtype, problem, preference, facts)
                     : static_cast<Backend>(report.by_table);
}

Backend choose(
    choice::Dtype dtype, const Problem& problem, Preference preference, const Facts& facts) {
  const auto chooser = policy.chooser.load(std::memory_order_acquire);
  if (chooser == nullptr) {
    return choice::choose_lu_factor(dtype, problem, preference, facts);
  }
  const int32_t question = static_cast<int32_t>(dtype) | static_cast<int32_t>(preference) << 4 |
                           (problem.pivot ? 1 : 0) << 8 | (facts.stock ? 1 : 0) << 9 |
                           (facts.capturing ? 1 : 0) << 10 |
                           static_cast<int32_t>(facts.native) << 11 | facts.lanes << 13;
  const uint64_t generation = policy.generation.load(std::memory_order_acquire);
  static thread_local std::array<Remembered, kRemembered> memory;
  Remembered& known = memory[place_of(problem, question)];
  if (known.generation != generation || known.question != question ||
      known.problem.batch != problem.batch || known.problem.m != problem.m ||
      known.problem.n != problem.n) {
    known = {problem, generation, question, ask_table(chooser, dtype, problem, preference, facts)};
  }
  return known.answer;
}

// ---- Stock ----

// torch 2.15's own kernel takes square pivoted batches of 4 to 65535 matrices with n >= 256. On an
// H200 it is ahead of every library route from batch 8 on, and behind streams below that (measured
// with torch 2.11's libraries, September 2026); our kernels are 1.8 to 3.8 times ahead of it
// (float32, n 256..2048, batch 4..1024). It is in no table.
bool kernel_is_ahead(const Problem& problem) {
  return problem.pivot && problem.m == problem.n && problem.n >= 256 && problem.batch >= 8 &&
         problem.batch <= 65535;
}

constexpr const char* kMagmaInCapture =
    "MAGMA synchronizes the device and allocates, which a CUDA graph capture forbids";

// Notes why the first choice is not taken, or raises in strict mode (by the caller).
void give_up(Plan& plan, const char* reason) {
  if (plan.reason == nullptr) {
    plan.reason = reason;
  }
}

}  // namespace

bool is_capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

const char* route_name(int route) {
  switch (static_cast<Route>(route)) {
    case Route::BatchedCublas:
    case Route::LoopedCusolver:
    case Route::StreamedCusolver:
    case Route::Stock:
    case Route::BatchedNative:
      return choice::name(static_cast<Backend>(route));
    case Route::TriangularCublas:
      return "triangular_cublas";
    case Route::BatchedCusolver:
      return "batched_cusolver";
    case Route::JacobiBatchedCusolver:
      return "jacobi_batched_cusolver";
    case Route::BlockedNative:
      return "blocked_native";
  }
  return nullptr;
}

const char* op_name(int op) {
  switch (op) {
    case static_cast<int>(choice::Op::LuFactor):
      return "lu_factor";
    case static_cast<int>(choice::Op::LuSolve):
      return "lu_solve";
    case kEighOp:
      return "eigh";
    case kEigvalshOp:
      return "eigvalsh";
    default:
      return "an operation";
  }
}

Route choose_lu_factor_route(
    choice::Dtype dtype, const Problem& problem, Preference preference, const Facts& facts) {
  const auto stock = policy.stock.load(std::memory_order_relaxed);
  if (preference == Preference::Magma) {
    return Route::Stock;  // as without us, including its errors
  }
  Facts allowed = facts;
  allowed.stock = allowed.stock && stock == ATEN_OVERRIDES_GPU_STOCK_MAGMA && !magma_retired() &&
                  magma_refuses_lu(problem.batch, problem.m, problem.n) == nullptr;
  const Backend chosen = choose(dtype, problem, preference, allowed);
  const bool any = preference == Preference::Default || preference == Preference::Native;
  if (any && chosen != Backend::BatchedNative && stock == ATEN_OVERRIDES_GPU_STOCK_KERNEL &&
      kernel_is_ahead(problem)) {
    return Route::Stock;
  }
  return route_of(chosen);
}

Plan plan_lu_factor(
    choice::Dtype dtype, const Problem& problem, Preference preference, const char* no_stock) {
  namespace lanes = at::native::solver_lanes;
  // How many streams a call gets depends on memory, other threads and captures. Streams return the
  // bits of the loop, other back ends do not: deterministic algorithms use streams only in place of
  // the loop.
  const bool deterministic = at::globalContext().deterministicAlgorithms();
  Facts facts{
      deterministic ? 1 : lanes::limits().lanes,
      /*stock=*/no_stock == nullptr,
      /*capturing=*/false,
      native_state()};
  Plan plan{Route::Stock, Route::Stock, nullptr, 1, -1};

  const int forced = policy.forced[0].load(std::memory_order_relaxed);
  if (forced >= 0) {
    const auto backend = static_cast<Backend>(forced);
    const bool feasible = choice::feasible(choice::Op::LuFactor, dtype, problem, backend, facts).ok;
    plan.route = plan.wanted = feasible ? route_of(backend) : Route::LoopedCusolver;
  } else {
    plan.route = plan.wanted = choose_lu_factor_route(dtype, problem, preference, facts);
    const auto own =
        choice::feasible(choice::Op::LuFactor, dtype, problem, Backend::BatchedNative, facts);
    if (preference == Preference::Native && !own.ok) {
      plan.wanted = Route::BatchedNative;
      give_up(plan, own.reason);
    }
  }
  if (no_stock != nullptr) {
    plan.wanted = Route::Stock;
    plan.reason = no_stock;
  }

  if (plan.route == Route::Stock && preference != Preference::Magma && forced < 0 &&
      policy.stock.load(std::memory_order_relaxed) == ATEN_OVERRIDES_GPU_STOCK_MAGMA) {
    plan.capturing = is_capturing();
    if (plan.capturing != 0) {
      facts.capturing = true;
      give_up(plan, kMagmaInCapture);
      plan.route = choose_lu_factor_route(dtype, problem, preference, facts);
    }
  }
  if (deterministic && plan.route == Route::LoopedCusolver && forced < 0) {
    plan.lanes = lanes::available_lanes(problem.batch);
    plan.route = plan.lanes >= 2 ? Route::StreamedCusolver : plan.route;
  } else if (plan.route == Route::StreamedCusolver) {
    const char* why = nullptr;
    plan.lanes = lanes::available_lanes(problem.batch, &why);
    if (plan.lanes < std::min<int64_t>(facts.lanes, problem.batch)) {
      give_up(
          plan, why != nullptr ? why : "fewer auxiliary streams are usable than were asked for");
      facts.lanes = plan.lanes;
      facts.stock = facts.stock && plan.capturing <= 0;
      plan.route = forced >= 0 && plan.lanes >= 2
                       ? Route::StreamedCusolver
                       : choose_lu_factor_route(dtype, problem, preference, facts);
      if (plan.route == Route::Stock && is_capturing()) {
        facts.stock = false;
        plan.route = choose_lu_factor_route(dtype, problem, preference, facts);
      }
    }
  }
  return plan;
}

void set_table(aten_overrides_gpu_chooser chooser, const void* table) {
  policy.chooser.store(nullptr, std::memory_order_release);
  policy.table.store(table, std::memory_order_release);
  policy.chooser.store(chooser, std::memory_order_release);
  policy.generation.fetch_add(1, std::memory_order_acq_rel);
}

void set_stock(aten_overrides_gpu_stock stock) {
  policy.stock.store(stock);
  policy.magma_retired.store(false);
  policy.generation.fetch_add(1, std::memory_order_acq_rel);
}

aten_overrides_gpu_stock stock_kind() {
  return policy.stock.load(std::memory_order_relaxed);
}

void retire_magma() {
  policy.magma_retired.store(true);
}

bool magma_retired() {
  return policy.magma_retired.load(std::memory_order_relaxed);
}

void set_strict(bool strict) {
  policy.strict.store(strict);
}

bool strict() {
  return policy.strict.load(std::memory_order_relaxed);
}

void force_route(int op, int route) {
  policy.forced[static_cast<size_t>(op)].store(route);
}

int forced_route(int op) {
  return policy.forced[static_cast<size_t>(op)].load(std::memory_order_relaxed);
}

}  // namespace aten_overrides::gpu
