#pragma once

// Positions and growth along the axes of a cost table, in logarithms.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "CostTable.h"

namespace aten_overrides::select {

inline double log_of(int64_t value) {
  return std::log(static_cast<double>(value));
}

// Two sizes closer than this say nothing about growth: the noise between them is as large.
constexpr double kShortestSpan = 0.18;  // log(1.2)

// Growth with the batch from here on is one call after the other.
constexpr double kInProportion = 0.8;

// Where `value` lies on an ascending axis: between entries `low` and `high`, with `weight` on
// `high`.
struct Position {
  std::size_t low;
  std::size_t high;
  double weight;
  double beyond;  // signed log distance from the nearer end, 0 inside
};

inline Position locate(const std::vector<int64_t>& axis, int64_t value) {
  const std::size_t last = axis.size() - 1;
  if (value <= axis.front()) {
    return {0, 0, 0, log_of(value) - log_of(axis.front())};
  }
  if (value >= axis.back()) {
    return {last, last, 0, log_of(value) - log_of(axis.back())};
  }
  const auto above = std::upper_bound(axis.begin(), axis.end(), value);
  const auto high = static_cast<std::size_t>(above - axis.begin());
  const std::size_t low = high - 1;
  const double span = log_of(axis[high]) - log_of(axis[low]);
  const double weight = (log_of(value) - log_of(axis[low])) / span;
  return {low, weight > 0 ? high : low, weight, 0};
}

// Growth exponent at the upper end of a row of times, from its last two sizes that are far enough
// apart.
template <typename LogMs>
double slope_at_end(const std::vector<int64_t>& axis, std::size_t end, LogMs log_ms) {
  for (std::size_t i = end; i-- > 0;) {
    const double span = log_of(axis[end]) - log_of(axis[i]);
    if (span >= kShortestSpan) {
      return (log_ms(end) - log_ms(i)) / span;
    }
  }
  return 0;
}

// What a time changes by from the end of the batches to a batch beyond. Above, it goes on as
// between the last two batches, but never falls and never grows faster than in proportion. Below,
// what costs in proportion to the batch, one call per matrix, goes on so; all else stays, which is
// an upper bound.
template <typename LogMs>
double growth_beyond(const std::vector<int64_t>& batches, const Position& at, LogMs log_ms) {
  if (batches.size() < 2) {
    return std::max(at.beyond, 0.0);
  }
  const std::size_t high = at.beyond > 0 ? batches.size() - 1 : 1;
  const double span = log_of(batches[high]) - log_of(batches[high - 1]);
  const double slope = std::clamp((log_ms(high) - log_ms(high - 1)) / span, 0.0, 1.0);
  return at.beyond > 0 || slope > kInProportion ? at.beyond * slope : 0;
}

inline std::vector<int64_t> sorted(const std::set<int64_t>& values) {
  return {values.begin(), values.end()};
}

inline Basis looser(Basis a, Basis b) {
  return std::max(a, b);
}

}  // namespace aten_overrides::select
