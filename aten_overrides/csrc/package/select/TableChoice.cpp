#include "TableChoice.h"

#include <algorithm>
#include <cmath>

namespace aten_overrides::select {

namespace {

using choice::Backend;
using choice::Op;
using choice::Preference;

// Why the preference leaves a feasible back end out; empty if it does not.
const char* left_out(
    choice::Dtype dtype,
    const choice::Problem& problem,
    Preference preference,
    Backend backend,
    const choice::Facts& facts) {
  if (choice::prefers_native(Op::LuFactor, dtype, problem, preference, facts)) {
    return backend == Backend::BatchedNative ? "" : "the preference is native";
  }
  if (choice::prefers_cublas(Op::LuFactor, problem, preference)) {
    return backend == Backend::BatchedCublas ? "" : "the preference is cublas";
  }
  if (preference == Preference::Magma &&
      choice::feasible(Op::LuFactor, dtype, problem, Backend::Stock, facts).ok) {
    return backend == Backend::Stock ? "" : "the preference is magma";
  }
  const bool of_the_library = backend != Backend::Stock && backend != Backend::BatchedNative;
  if (!of_the_library && preference == Preference::Cusolver) {
    return "the preference is cusolver";
  }
  if (!of_the_library && preference == Preference::Cublas) {
    return "the preference is cublas, which elsewhere means cusolver";
  }
  return "";
}

// The streamed time with fewer streams than were measured: the same work on fewer of them, but
// never more than one after the other.
Prediction on_fewer_lanes(
    const Prediction& streamed,
    const Prediction& looped,
    int64_t batch,
    int measured,
    int available) {
  const int64_t used = std::min<int64_t>(batch, measured);
  if (streamed.basis == Basis::None || available >= used) {
    return streamed;
  }
  double ms = streamed.ms * static_cast<double>(used) / available;
  if (looped.basis != Basis::None) {
    ms = std::min(ms, std::max(looped.ms, streamed.ms));
  }
  return {ms, Basis::Extrapolated};
}

}  // namespace

Report choose_by_table(
    const CostTable& costs,
    int lanes,
    choice::Dtype dtype,
    const choice::Problem& problem,
    Preference preference,
    const choice::Facts& facts) {
  constexpr auto op = Op::LuFactor;
  const Problem asked{problem.batch, problem.m, problem.n, problem.pivot};
  const auto predict = [&](Backend backend) {
    return costs.predict(
        static_cast<int>(op), static_cast<int>(dtype), static_cast<int>(backend), asked);
  };
  Report report{};
  report.by_thresholds = choice::choose_lu_factor(dtype, problem, preference, facts);
  report.by_table = report.by_thresholds;
  double best = HUGE_VAL;
  for (int i = 0; i < kBackends; ++i) {
    const auto backend = static_cast<Backend>(i);
    Candidate& candidate = report.candidates[static_cast<std::size_t>(i)];
    candidate = {false, "", {0, Basis::None}};
    const auto feasibility = choice::feasible(op, dtype, problem, backend, facts);
    if (!feasibility.ok) {
      candidate.reason = feasibility.reason;
      continue;
    }
    candidate.prediction = predict(backend);
    if (backend == Backend::StreamedCusolver) {
      candidate.prediction = on_fewer_lanes(
          candidate.prediction,
          predict(Backend::LoopedCusolver),
          problem.batch,
          lanes,
          facts.lanes);
    }
    candidate.reason = left_out(dtype, problem, preference, backend, facts);
    candidate.allowed = candidate.reason[0] == '\0';
    if (candidate.prediction.basis == Basis::None) {
      if (candidate.allowed) {
        candidate.reason = "the table has no measurement for such a problem";
      }
      continue;
    }
    if (candidate.allowed && candidate.prediction.ms < best) {
      best = candidate.prediction.ms;
      report.by_table = backend;
      report.measured = true;
    }
  }
  return report;
}

}  // namespace aten_overrides::select
