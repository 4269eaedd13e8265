#include "LoopApi.h"

#include "LoopChoice.h"

namespace choice = aten_overrides::choice;
namespace loops = aten_overrides::loops;

namespace {

struct Question {
  loops::Op op;
  loops::Dtype dtype;
  loops::Problem problem;
  loops::Preference preference;
  loops::Facts facts;
};

bool known(const aten_overrides_select_loop& loop) {
  return loop.op >= 0 && loop.op < loops::kOps && loop.dtype >= 0 &&
         loop.dtype <= static_cast<int32_t>(loops::Dtype::ComplexDouble) && loop.preference >= 0 &&
         loop.preference <= static_cast<int32_t>(loops::Preference::Native);
}

Question question(const aten_overrides_select_loop& loop) {
  return {
      static_cast<loops::Op>(loop.op),
      static_cast<loops::Dtype>(loop.dtype),
      {loop.batch, loop.m, loop.n, loop.nrhs, loop.hermitian != 0},
      static_cast<loops::Preference>(loop.preference),
      {loop.lanes, loop.magma != 0, loop.capturing != 0, loop.deterministic != 0}};
}

}  // namespace

int32_t aten_overrides_select_loop_backend(const aten_overrides_select_loop* loop) noexcept {
  if (!known(*loop)) {
    return -1;
  }
  const Question asked = question(*loop);
  return static_cast<int32_t>(
      loops::choose(asked.op, asked.dtype, asked.problem, asked.preference, asked.facts));
}

const char* aten_overrides_select_loop_infeasible(
    const aten_overrides_select_loop* loop, int32_t backend) noexcept {
  if (!known(*loop) || backend < 0 || backend >= loops::kBackends) {
    return "unknown";
  }
  const Question asked = question(*loop);
  const auto answer = loops::feasible(
      asked.op,
      asked.dtype,
      asked.problem,
      static_cast<loops::Backend>(backend),
      asked.preference,
      asked.facts);
  return answer.ok ? nullptr : answer.reason;
}

int32_t aten_overrides_select_loop_rival(const aten_overrides_select_loop* loop) noexcept {
  if (!known(*loop)) {
    return -1;
  }
  const Question asked = question(*loop);
  return static_cast<int32_t>(
      loops::rival_of(asked.op, asked.problem, asked.preference, asked.facts));
}

int32_t aten_overrides_select_loop_measured(int32_t op) noexcept {
  return op >= 0 && op < loops::kOps && loops::any_measured(static_cast<loops::Op>(op)) ? 1 : 0;
}

const char* aten_overrides_select_loop_backend_name(int32_t backend) noexcept {
  return backend >= 0 && backend < loops::kBackends
             ? loops::name(static_cast<loops::Backend>(backend))
             : nullptr;
}
