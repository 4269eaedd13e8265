#include "ChoiceApi.h"

#include "TableChoice.h"
#include "TableHandle.h"

namespace choice = aten_overrides::choice;
using aten_overrides::choice::kBackends;
using aten_overrides::select::Basis;
using aten_overrides::select::choose_by_table;
using aten_overrides::select::CostTable;
using aten_overrides::select::Report;

namespace {

bool known(int32_t value, choice::Dtype) {
  return value >= 0 && value <= static_cast<int32_t>(choice::Dtype::ComplexDouble);
}

bool known(int32_t value, choice::Preference) {
  return value >= 0 && value <= static_cast<int32_t>(choice::Preference::Native);
}

bool known(int32_t value, choice::Op) {
  return value >= 0 && value <= static_cast<int32_t>(choice::Op::Gels);
}

bool known(int32_t value, choice::Native) {
  return value >= 0 && value < choice::kNativeStates;
}

}  // namespace

int32_t aten_overrides_select_lu_factor(
    const aten_overrides_select_table* table,
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
    aten_overrides_select_report* report) noexcept {
  if (!known(dtype, choice::Dtype{}) || !known(preference, choice::Preference{}) ||
      !known(native, choice::Native{})) {
    return 1;
  }
  const Report made = choose_by_table(
      table->costs,
      table->lanes,
      static_cast<choice::Dtype>(dtype),
      {batch, m, n, pivot != 0},
      static_cast<choice::Preference>(preference),
      {lanes, stock != 0, capturing != 0, static_cast<choice::Native>(native)});
  for (int i = 0; i < kBackends; ++i) {
    const auto& candidate = made.candidates[static_cast<std::size_t>(i)];
    report->candidates[i] = {
        candidate.prediction.ms,
        candidate.reason,
        candidate.allowed ? 1 : 0,
        static_cast<int32_t>(candidate.prediction.basis)};
  }
  report->by_table = static_cast<int32_t>(made.by_table);
  report->by_thresholds = static_cast<int32_t>(made.by_thresholds);
  report->measured = made.measured ? 1 : 0;
  return 0;
}

int32_t aten_overrides_select_lu_factor_by_thresholds(
    int32_t dtype,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    int32_t preference,
    int32_t lanes,
    int32_t stock,
    int32_t capturing,
    int32_t native) noexcept {
  if (!known(dtype, choice::Dtype{}) || !known(preference, choice::Preference{}) ||
      !known(native, choice::Native{})) {
    return -1;
  }
  return static_cast<int32_t>(choice::choose_lu_factor(
      static_cast<choice::Dtype>(dtype),
      {batch, m, n, pivot != 0},
      static_cast<choice::Preference>(preference),
      {lanes, stock != 0, capturing != 0, static_cast<choice::Native>(native)}));
}

const char* aten_overrides_select_infeasible(
    int32_t op,
    int32_t dtype,
    int32_t backend,
    int64_t batch,
    int64_t m,
    int64_t n,
    int32_t pivot,
    int32_t lanes,
    int32_t stock,
    int32_t capturing,
    int32_t native) noexcept {
  if (!known(op, choice::Op{}) || !known(dtype, choice::Dtype{}) || backend < 0 ||
      backend >= kBackends || !known(native, choice::Native{})) {
    return "unknown";
  }
  const auto answer = choice::feasible(
      static_cast<choice::Op>(op),
      static_cast<choice::Dtype>(dtype),
      {batch, m, n, pivot != 0},
      static_cast<choice::Backend>(backend),
      {lanes, stock != 0, capturing != 0, static_cast<choice::Native>(native)});
  return answer.ok ? nullptr : answer.reason;
}

const char* aten_overrides_select_backend_name(int32_t backend) noexcept {
  return backend >= 0 && backend < kBackends ? choice::name(static_cast<choice::Backend>(backend))
                                             : nullptr;
}
