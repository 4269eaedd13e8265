// How a cost table tells what was not measured.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "Axis.h"
#include "CostTable.h"

namespace aten_overrides::select {

namespace {

// A batch up to this far away tells more about a size than the neighbouring sizes do: routines
// change their algorithm at some sizes, alike at all batches.
constexpr double kNearBatch = 1.4;  // log(4)

}  // namespace

// A shape that a batch lacks is told by the nearest smaller and larger batches that have it: their
// time, times the mean ratio at the shapes in common. Without any in common a smaller batch counts
// in proportion, a larger one as it is: both upper bounds.
void CostTable::complete_shapes(Shapes& shapes) {
  const Shapes measured = shapes;
  const auto find = [](const std::vector<Shape>& row, const Shape& wanted) {
    return std::find_if(row.begin(), row.end(), [&](const Shape& shape) {
      return shape.m == wanted.m && shape.n == wanted.n;
    });
  };
  std::vector<Shape> all;
  for (const auto& [batch, row] : measured) {
    std::copy_if(row.begin(), row.end(), std::back_inserter(all), [&](const Shape& shape) {
      return find(all, shape) == all.end();
    });
  }
  for (auto& [batch, row] : shapes) {
    const auto& own = measured.at(batch);
    for (const Shape& wanted : all) {
      if (find(own, wanted) != own.end()) {
        continue;
      }
      double below = 0, above = 0, below_distance = HUGE_VAL, above_distance = HUGE_VAL;
      for (const auto& [other_batch, other] : measured) {
        const auto known = find(other, wanted);
        const double distance = log_of(batch) - log_of(other_batch);
        if (known == other.end()) {
          continue;
        }
        double ratio = 0;
        int count = 0;
        for (const Shape& shape : own) {
          const auto same = find(other, shape);
          if (same != other.end()) {
            ratio += shape.log_ms - same->log_ms;
            ++count;
          }
        }
        const double told = known->log_ms + (count > 0 ? ratio / count : std::max(distance, 0.0));
        if (distance > 0) {  // batches ascend, so the last one below is the nearest
          below = told;
          below_distance = distance;
        } else if (above_distance == HUGE_VAL) {
          above = told;
          above_distance = -distance;
        }
      }
      const bool between = below_distance < HUGE_VAL && above_distance < HUGE_VAL;
      const double weight = between ? below_distance / (below_distance + above_distance)
                                    : (below_distance < HUGE_VAL ? 0.0 : 1.0);
      row.push_back(
          {wanted.m,
           wanted.n,
           (1 - weight) * below + weight * above,
           between ? Basis::Interpolated : Basis::Extrapolated});
    }
  }
}

// A time of the row at `column` that was not measured, told by another row: the other row's time
// there, times the ratio of the two rows at the columns that both have, interpolated over
// log(size). Nothing when the other row lacks the column or the two have none in common.
CostTable::Cell CostTable::Grid::told_by(
    std::size_t row,
    std::size_t other,
    std::size_t column,
    const std::vector<int64_t>& sizes) const {
  const auto measured_at = [this](std::size_t i, std::size_t j) {
    return rows[i][j].basis == Basis::Measured;
  };
  if (!measured_at(other, column)) {
    return {};
  }
  const auto common = [&](std::size_t j) { return measured_at(row, j) && measured_at(other, j); };
  const auto ratio = [&](std::size_t j) { return rows[row][j].log_ms - rows[other][j].log_ms; };
  std::size_t low = column;
  while (low > 0 && !common(low)) {
    --low;
  }
  std::size_t high = column;
  while (high + 1 < sizes.size() && !common(high)) {
    ++high;
  }
  const double there = rows[other][column].log_ms;
  if (common(low) && common(high)) {
    const double span = log_of(sizes[high]) - log_of(sizes[low]);
    const double weight = (log_of(sizes[column]) - log_of(sizes[low])) / span;
    return {there + (1 - weight) * ratio(low) + weight * ratio(high), Basis::Interpolated};
  }
  if (common(low) || common(high)) {
    return {there + ratio(common(low) ? low : high), Basis::Extrapolated};
  }
  return {};
}

// A time that was not measured, in a row that has some. In this order: as the nearest smaller and
// larger batches tell if they are near; on the line between the row's own neighbours; as the
// nearest smaller batch tells, however far; growing on as the row did; as at the row's smallest
// size, an upper bound, so that a back end seen only at larger batches and sizes does not win by
// guess.
CostTable::Cell CostTable::Grid::estimate(
    std::size_t row,
    std::size_t column,
    const std::vector<int64_t>& batches,
    const std::vector<int64_t>& sizes) const {
  struct Told {
    Cell cell;
    double distance = HUGE_VAL;
  };
  const auto look = [&](int step) {
    for (std::size_t i = row + step; i < rows.size(); i += step) {  // wraps below zero
      const Cell cell = told_by(row, i, column, sizes);
      if (cell.basis != Basis::None) {
        return Told{cell, std::abs(log_of(batches[i]) - log_of(batches[row]))};
      }
    }
    return Told{};
  };
  const Told smaller = look(-1);
  const Told larger = look(1);
  const bool use_smaller = smaller.distance <= kNearBatch;
  const bool use_larger = larger.distance <= kNearBatch;
  if (use_smaller && use_larger) {
    const double weight = smaller.distance / (smaller.distance + larger.distance);
    return {(1 - weight) * smaller.cell.log_ms + weight * larger.cell.log_ms, Basis::Interpolated};
  }
  if (use_smaller || use_larger) {
    return use_smaller ? smaller.cell : larger.cell;
  }
  const auto measured_at = [&](std::size_t j) { return rows[row][j].basis == Basis::Measured; };
  std::size_t low = column;
  while (low > 0 && !measured_at(low)) {
    --low;
  }
  std::size_t high = column;
  while (high + 1 < sizes.size() && !measured_at(high)) {
    ++high;
  }
  if (measured_at(low) && measured_at(high)) {
    const double span = log_of(sizes[high]) - log_of(sizes[low]);
    const double weight = (log_of(sizes[column]) - log_of(sizes[low])) / span;
    return {
        (1 - weight) * rows[row][low].log_ms + weight * rows[row][high].log_ms,
        Basis::Interpolated};
  }
  if (smaller.cell.basis != Basis::None) {
    return {smaller.cell.log_ms, Basis::Extrapolated};
  }
  if (measured_at(low)) {
    std::vector<int64_t> own_sizes;
    std::vector<double> own_log_ms;
    for (std::size_t j = 0; j <= low; ++j) {
      if (measured_at(j)) {
        own_sizes.push_back(sizes[j]);
        own_log_ms.push_back(rows[row][j].log_ms);
      }
    }
    const double slope =
        slope_at_end(own_sizes, own_sizes.size() - 1, [&](std::size_t j) { return own_log_ms[j]; });
    return {
        rows[row][low].log_ms + slope * (log_of(sizes[column]) - log_of(sizes[low])),
        Basis::Extrapolated};
  }
  return {rows[row][high].log_ms, Basis::Extrapolated};
}

// Completes `all_sizes` by way of those that this back end was measured at.
void CostTable::Grid::complete(
    const std::vector<int64_t>& batches, const std::vector<int64_t>& all_sizes) {
  std::set<int64_t> own;
  for (const auto& [at, log_ms] : measured) {
    own.insert(at.second);
  }
  const std::vector<int64_t> sizes = sorted(own);
  rows.assign(batches.size(), std::vector<Cell>(sizes.size()));
  std::vector<bool> empty(batches.size(), true);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (std::size_t j = 0; j < sizes.size(); ++j) {
      const auto found = measured.find({batches[i], sizes[j]});
      if (found != measured.end()) {
        rows[i][j] = {found->second, Basis::Measured};
        empty[i] = false;
      }
    }
  }
  auto completed = rows;
  std::vector<int64_t> own_batches;
  std::vector<std::size_t> own_rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (empty[i]) {
      continue;
    }
    own_batches.push_back(batches[i]);
    own_rows.push_back(i);
    for (std::size_t j = 0; j < sizes.size(); ++j) {
      if (completed[i][j].basis != Basis::Measured) {
        completed[i][j] = estimate(i, j, batches, sizes);
      }
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!empty[i]) {
      continue;
    }
    const Position at = locate(own_batches, batches[i]);
    for (std::size_t j = 0; j < sizes.size(); ++j) {
      const auto log_ms = [&](std::size_t k) { return completed[own_rows[k]][j].log_ms; };
      const Basis basis =
          looser(completed[own_rows[at.low]][j].basis, completed[own_rows[at.high]][j].basis);
      completed[i][j] = {
          (1 - at.weight) * log_ms(at.low) + at.weight * log_ms(at.high) +
              growth_beyond(own_batches, at, log_ms),
          at.beyond != 0 ? Basis::Extrapolated : looser(basis, Basis::Interpolated)};
    }
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].assign(all_sizes.size(), {});
    for (std::size_t j = 0; j < all_sizes.size(); ++j) {
      rows[i][j] = in_row(completed[i], sizes, all_sizes[j]);
    }
  }
}

}  // namespace aten_overrides::select
