#include "TableApi.h"

#include <cstdio>
#include <exception>
#include <new>

#include "TableHandle.h"

using aten_overrides::select::Basis;
using aten_overrides::select::Prediction;
using aten_overrides::select::Problem;

aten_overrides_select_table* aten_overrides_select_table_new(int32_t lanes) noexcept {
  return new (std::nothrow) aten_overrides_select_table{{}, lanes};
}

void aten_overrides_select_table_free(aten_overrides_select_table* table) noexcept {
  delete table;
}

int32_t aten_overrides_select_table_add(
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
    int32_t why_size) noexcept {
  const auto refuse = [&](const char* reason) {
    if (why != nullptr && why_size > 0) {
      std::snprintf(why, static_cast<std::size_t>(why_size), "%s", reason);
    }
    return 1;
  };
  try {
    const Problem problem{batch, m, n, pivot != 0};
    const std::string reason = table->costs.add(op, dtype, backend, problem, ms);
    return reason.empty() ? 0 : refuse(reason.c_str());
  } catch (const std::exception& error) {
    return refuse(error.what());
  }
}

int32_t aten_overrides_select_table_finish(aten_overrides_select_table* table) noexcept {
  try {
    table->costs.finish();
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

int32_t aten_overrides_select_table_predict(
    const aten_overrides_select_table* table,
    int32_t op,
    int32_t dtype,
    int32_t backend,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    double* ms) noexcept {
  Prediction prediction{0, Basis::None};
  try {
    prediction = table->costs.predict(op, dtype, backend, {batch, m, n, pivot != 0});
  } catch (const std::exception&) {
    // Out of memory: as good as not measured.
  }
  *ms = prediction.ms;
  return static_cast<int32_t>(prediction.basis);
}
