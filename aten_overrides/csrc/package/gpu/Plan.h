#pragma once

// Which route a call takes and why: the choice itself is Choice.h's or the table's.

#include "../select/Choice.h"
#include "Api.h"

#include <cstdint>

namespace aten_overrides::gpu {

namespace choice = aten_overrides::choice;

// The back ends by their numbers, and further ways of lu_solve and eigh. Appended only.
enum class Route : int8_t {
  BatchedCublas = static_cast<int8_t>(choice::Backend::BatchedCublas),
  LoopedCusolver = static_cast<int8_t>(choice::Backend::LoopedCusolver),
  StreamedCusolver = static_cast<int8_t>(choice::Backend::StreamedCusolver),
  Stock = static_cast<int8_t>(choice::Backend::Stock),
  BatchedNative = static_cast<int8_t>(choice::Backend::BatchedNative),
  TriangularCublas = 8,  // two triangular solves
  BatchedCusolver = 9,
  JacobiBatchedCusolver = 10,
  BlockedNative = 11,  // of lu_solve
};
constexpr int kRoutes = 12;

// Operations by number: Choice.h's Op, and two that are none of its own. Appended only.
constexpr int kEighOp = 4;
constexpr int kEigvalshOp = 5;  // without eigenvectors
constexpr int kOps = 6;

const char* op_name(int op);

const char* route_name(int route);  // null: none of that number

constexpr Route route_of(choice::Backend backend) {
  return static_cast<Route>(backend);
}

struct Plan {
  Route route;
  Route wanted;        // the first choice
  const char* reason;  // why not the first choice; a static string, null if it is
  int lanes;           // for Route::StreamedCusolver
  int capturing;       // -1: was not asked
};

// The functions below are called on the thread and with the current device and stream of the
// operation.

// `no_stock`: why stock's function, the first choice, did not do it; null: it was not tried.
Plan plan_lu_factor(
    choice::Dtype dtype,
    const choice::Problem& problem,
    choice::Preference preference,
    const char* no_stock = nullptr);

// The choice alone: no device is asked.
Route choose_lu_factor_route(
    choice::Dtype dtype,
    const choice::Problem& problem,
    choice::Preference preference,
    const choice::Facts& facts);

bool is_capturing();

// ---- What the package decided ----

void set_table(aten_overrides_gpu_chooser chooser, const void* table);
void set_stock(aten_overrides_gpu_stock stock);  // ends retire_magma()
aten_overrides_gpu_stock stock_kind();
// MAGMA failed: it is not chosen any more.
void retire_magma();
bool magma_retired();
void set_strict(bool strict);
bool strict();
void force_route(int op, int route);
int forced_route(int op);  // negative: none

}  // namespace aten_overrides::gpu
