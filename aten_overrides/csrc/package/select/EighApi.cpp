#include "EighApi.h"

#include "Choice.h"
#include "RankingsHandle.h"

#include <ATen/native/cuda/linalg/EighChoice.h>

namespace choice = aten_overrides::choice;
namespace eigh = at::native::eigh_choice;

namespace {

bool known(int32_t backend) {
  return backend >= 0 && backend < eigh::kBackends;
}

}  // namespace

int32_t aten_overrides_select_eigh(
    const aten_overrides_select_rankings* rankings,
    int32_t dtype,
    int64_t batch,
    int64_t n,
    int32_t vectors,
    int32_t preference,
    int32_t lanes,
    int32_t batched,
    int32_t stock,
    int32_t capturing) noexcept {
  if (dtype < 0 || dtype > static_cast<int32_t>(eigh::Dtype::ComplexDouble) || preference < 0 ||
      preference > static_cast<int32_t>(choice::Preference::Native)) {
    return -1;
  }
  const auto wanted = preference == static_cast<int32_t>(choice::Preference::Native)
                          ? eigh::Preference::Default
                          : static_cast<eigh::Preference>(preference);
  return static_cast<int32_t>(eigh::choose(
      static_cast<eigh::Dtype>(dtype),
      {batch, n, vectors != 0},
      wanted,
      {lanes, batched != 0, stock != 0, capturing != 0},
      aten_overrides::rankings::eigh_of(rankings)));
}

const char* aten_overrides_select_eigh_infeasible(
    int32_t backend,
    int64_t batch,
    int64_t n,
    int32_t vectors,
    int32_t lanes,
    int32_t batched,
    int32_t stock,
    int32_t capturing) noexcept {
  if (!known(backend)) {
    return "unknown";
  }
  const auto answer = eigh::feasible(
      {batch, n, vectors != 0},
      static_cast<eigh::Backend>(backend),
      {lanes, batched != 0, stock != 0, capturing != 0});
  return answer.ok ? nullptr : answer.reason;
}

int64_t aten_overrides_select_eigh_per_call(int32_t backend, int64_t batch, int64_t n) noexcept {
  const auto which = static_cast<eigh::Backend>(backend);
  if (which != eigh::Backend::BatchedCusolver && which != eigh::Backend::JacobiBatchedCusolver) {
    return 0;
  }
  return eigh::matrices_per_call(which, {batch, n, true});
}

const char* aten_overrides_select_eigh_backend_name(int32_t backend) noexcept {
  return known(backend) ? eigh::name(static_cast<eigh::Backend>(backend)) : nullptr;
}
