#include "LuSolveApi.h"

#include "LuSolveChoice.h"
#include "RankingsHandle.h"

namespace choice = aten_overrides::choice;
namespace lu_solve = aten_overrides::lu_solve;

namespace {

bool known(int32_t dtype, int32_t preference, int32_t native) {
  return dtype >= 0 && dtype <= static_cast<int32_t>(choice::Dtype::ComplexDouble) &&
         preference >= 0 && preference <= static_cast<int32_t>(choice::Preference::Native) &&
         native >= 0 && native < choice::kNativeStates;
}

lu_solve::Facts facts_of(
    int32_t lanes, int32_t stock, int32_t capturing, int32_t native, int64_t most_rows) {
  return {
      lanes,
      stock != 0,
      stock != 0,
      capturing != 0,
      static_cast<choice::Native>(native),
      most_rows,
      most_rows};
}

}  // namespace

int32_t aten_overrides_select_lu_solve(
    const aten_overrides_select_rankings* rankings,
    int32_t dtype,
    int64_t batch,
    int64_t n,
    int64_t nrhs,
    int32_t transposed,
    int32_t regular,
    int32_t preference,
    int32_t lanes,
    int32_t stock,
    int32_t capturing,
    int32_t native,
    int64_t most_rows) noexcept {
  if (!known(dtype, preference, native)) {
    return -1;
  }
  return static_cast<int32_t>(lu_solve::choose(
      static_cast<choice::Dtype>(dtype),
      {batch, n, nrhs, transposed != 0, regular != 0},
      static_cast<choice::Preference>(preference),
      facts_of(lanes, stock, capturing, native, most_rows),
      aten_overrides::rankings::lu_solve_of(rankings)));
}

const char* aten_overrides_select_lu_solve_rejected(
    const aten_overrides_select_rankings* rankings,
    int32_t backend,
    int32_t dtype,
    int64_t batch,
    int64_t n,
    int64_t nrhs,
    int32_t transposed,
    int32_t regular,
    int32_t preference,
    int32_t lanes,
    int32_t stock,
    int32_t capturing,
    int32_t native,
    int64_t most_rows) noexcept {
  if (backend < 0 || backend >= lu_solve::kBackends || !known(dtype, preference, native)) {
    return "unknown";
  }
  const auto answer = lu_solve::considered(
      static_cast<choice::Dtype>(dtype),
      {batch, n, nrhs, transposed != 0, regular != 0},
      static_cast<lu_solve::Backend>(backend),
      static_cast<choice::Preference>(preference),
      facts_of(lanes, stock, capturing, native, most_rows),
      aten_overrides::rankings::lu_solve_of(rankings));
  return answer.ok ? nullptr : answer.reason;
}

const char* aten_overrides_select_lu_solve_backend_name(int32_t backend) noexcept {
  return backend >= 0 && backend < lu_solve::kBackends
             ? lu_solve::name(static_cast<lu_solve::Backend>(backend))
             : nullptr;
}
