#pragma once

// The choice by the full measured table: predicted time or reason for every back end, the back end
// that follows, and the one that ATen's thresholds take for the same problem.

#include <array>

#include "Choice.h"
#include "CostTable.h"

namespace aten_overrides::select {

using choice::kBackends;

struct Candidate {
  bool allowed;           // feasible, and not left out by the preference
  const char* reason;     // why not allowed, or why it has no time; empty otherwise
  Prediction prediction;  // also for a back end that is only left out by the preference
};

struct Report {
  std::array<Candidate, kBackends> candidates;  // by choice::Backend
  choice::Backend by_table;
  choice::Backend by_thresholds;
  bool measured;  // false: the table has no time for any allowed back end, by_table follows the
                  // thresholds
};

// Total for every problem. `lanes` is the number of streams behind the table's streamed times.
Report choose_by_table(
    const CostTable& costs,
    int lanes,
    choice::Dtype dtype,
    const choice::Problem& problem,
    choice::Preference preference,
    const choice::Facts& facts);

}  // namespace aten_overrides::select
