#include "CostTable.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>

namespace aten_overrides::select {

namespace {

double log_of(int64_t value) {
  return std::log(static_cast<double>(value));
}

// Two sizes closer than this say nothing about growth: the noise between them is as large.
constexpr double kShortestSpan = 0.18;  // log(1.2)

// Growth with the batch from here on is one call after the other.
constexpr double kInProportion = 0.8;

// A batch up to this far away tells more about a size than the neighbouring sizes do: routines
// change their algorithm at some sizes, alike at all batches.
constexpr double kNearBatch = 1.4;  // log(4)

// Where `value` lies on an ascending axis: between entries `low` and `high`, with `weight` on
// `high`.
struct Position {
  std::size_t low;
  std::size_t high;
  double weight;
  double beyond;  // signed log distance from the nearer end, 0 inside
};

Position locate(const std::vector<int64_t>& axis, int64_t value) {
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

std::vector<int64_t> sorted(const std::set<int64_t>& values) {
  return {values.begin(), values.end()};
}

Basis looser(Basis a, Basis b) {
  return std::max(a, b);
}

}  // namespace

std::string CostTable::add(int op, int dtype, int backend, const Problem& problem, double ms) {
  if (problem.batch < 1 || problem.m < 1 || problem.n < 1) {
    return "batch, m and n must be at least 1";
  }
  if (!(ms > 0) || !std::isfinite(ms)) {
    return "a time must be a positive number of milliseconds";
  }
  const Key key{op, dtype, problem.pivot};
  if (problem.m == problem.n) {
    auto& measured = squares_[key].grids[backend].measured;
    if (!measured.emplace(std::pair(problem.batch, problem.n), std::log(ms)).second) {
      return "this problem has a time for this back end already";
    }
    return {};
  }
  auto& shapes = rectangles_[{key, backend}][problem.batch];
  for (const Shape& shape : shapes) {
    if (shape.m == problem.m && shape.n == problem.n) {
      return "this problem has a time for this back end already";
    }
  }
  shapes.push_back({problem.m, problem.n, std::log(ms), Basis::Measured});
  return {};
}

void CostTable::finish() {
  for (auto& [key, family] : squares_) {
    std::set<int64_t> batches;
    std::set<int64_t> sizes;
    for (const auto& [backend, grid] : family.grids) {
      for (const auto& [at, log_ms] : grid.measured) {
        batches.insert(at.first);
        sizes.insert(at.second);
      }
    }
    family.batches = sorted(batches);
    family.sizes = sorted(sizes);
    for (auto& [backend, grid] : family.grids) {
      grid.complete(family.batches, family.sizes);
    }
  }
  for (auto& [key, shapes] : rectangles_) {
    complete_shapes(shapes);
  }
}

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

// The time at `size` in a complete row; below its sizes as at the smallest, above growing on.
CostTable::Cell CostTable::in_row(
    const std::vector<Cell>& row, const std::vector<int64_t>& sizes, int64_t size) {
  const Position at = locate(sizes, size);
  const Cell& low = row[at.low];
  const Cell& high = row[at.high];
  Cell cell{(1 - at.weight) * low.log_ms + at.weight * high.log_ms, looser(low.basis, high.basis)};
  if (at.beyond > 0) {
    cell.log_ms +=
        at.beyond * slope_at_end(sizes, at.high, [&row](std::size_t j) { return row[j].log_ms; });
  }
  if (at.beyond != 0) {
    cell.basis = Basis::Extrapolated;
  } else if (at.weight > 0) {
    cell.basis = looser(cell.basis, Basis::Interpolated);
  }
  return cell;
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

Prediction CostTable::predict_square(
    const Family& family, const Grid& grid, int64_t batch, int64_t n) {
  const Position at_batch = locate(family.batches, batch);
  const auto at_row = [&](std::size_t i) { return in_row(grid.rows[i], family.sizes, n); };
  const Cell low = at_row(at_batch.low);
  const Cell high = at_row(at_batch.high);
  double log_ms = (1 - at_batch.weight) * low.log_ms + at_batch.weight * high.log_ms;
  Basis basis = looser(low.basis, high.basis);
  if (at_batch.beyond != 0) {
    log_ms +=
        growth_beyond(family.batches, at_batch, [&](std::size_t i) { return at_row(i).log_ms; });
    basis = Basis::Extrapolated;
  } else if (at_batch.weight > 0) {
    basis = looser(basis, Basis::Interpolated);
  }
  return {std::exp(log_ms), basis};
}

// Few shapes are measured, so the shape between them is taken from all shapes of a batch, weighted
// by the inverse square of their log distance, each scaled by its work m * n * min(m, n).
Prediction CostTable::predict_rectangular(const Shapes& shapes, const Problem& problem) {
  const auto work = [](int64_t m, int64_t n) {
    return log_of(m) + log_of(n) + log_of(std::min(m, n));
  };
  const auto in_batch = [&](const std::vector<Shape>& row) -> Cell {
    double mean_work = 0;
    double mean_ms = 0;
    int64_t m_low = row.front().m, m_high = m_low, n_low = row.front().n, n_high = n_low;
    for (const Shape& shape : row) {
      if (shape.m == problem.m && shape.n == problem.n) {
        return {shape.log_ms, shape.basis};
      }
      mean_work += work(shape.m, shape.n) / static_cast<double>(row.size());
      mean_ms += shape.log_ms / static_cast<double>(row.size());
      m_low = std::min(m_low, shape.m);
      m_high = std::max(m_high, shape.m);
      n_low = std::min(n_low, shape.n);
      n_high = std::max(n_high, shape.n);
    }
    double covariance = 0;
    double variance = 0;
    for (const Shape& shape : row) {
      const double x = work(shape.m, shape.n) - mean_work;
      covariance += x * (shape.log_ms - mean_ms);
      variance += x * x;
    }
    const double slope = variance > 0 ? std::clamp(covariance / variance, 0.0, 1.0) : 0;
    double sum = 0;
    double weights = 0;
    for (const Shape& shape : row) {
      const double dm = log_of(shape.m) - log_of(problem.m);
      const double dn = log_of(shape.n) - log_of(problem.n);
      const double weight = 1 / (dm * dm + dn * dn);
      sum +=
          weight * (shape.log_ms + slope * (work(problem.m, problem.n) - work(shape.m, shape.n)));
      weights += weight;
    }
    const bool inside =
        problem.m >= m_low && problem.m <= m_high && problem.n >= n_low && problem.n <= n_high;
    return {sum / weights, inside ? Basis::Interpolated : Basis::Extrapolated};
  };
  std::vector<int64_t> batches;
  for (const auto& [batch, row] : shapes) {
    batches.push_back(batch);
  }
  const Position at = locate(batches, problem.batch);
  const Cell low = in_batch(shapes.at(batches[at.low]));
  const Cell high = in_batch(shapes.at(batches[at.high]));
  double log_ms = (1 - at.weight) * low.log_ms + at.weight * high.log_ms;
  Basis basis = looser(low.basis, high.basis);
  if (at.beyond != 0) {
    log_ms += growth_beyond(
        batches, at, [&](std::size_t i) { return in_batch(shapes.at(batches[i])).log_ms; });
    basis = Basis::Extrapolated;
  } else if (at.weight > 0) {
    basis = looser(basis, Basis::Interpolated);
  }
  return {std::exp(log_ms), basis};
}

Prediction CostTable::predict(int op, int dtype, int backend, const Problem& problem) const {
  constexpr Prediction nothing{0, Basis::None};
  if (problem.batch < 1 || problem.m < 1 || problem.n < 1) {
    return nothing;
  }
  if (problem.m == problem.n) {
    const auto family = squares_.find({op, dtype, problem.pivot});
    if (family == squares_.end()) {
      return nothing;
    }
    const auto grid = family->second.grids.find(backend);
    if (grid == family->second.grids.end()) {
      return nothing;
    }
    return predict_square(family->second, grid->second, problem.batch, problem.n);
  }
  auto found = rectangles_.find({{op, dtype, problem.pivot}, backend});
  bool as_asked = true;
  if (found == rectangles_.end()) {
    // The other pivoting is the closest thing that was measured.
    found = rectangles_.find({{op, dtype, !problem.pivot}, backend});
    as_asked = false;
  }
  if (found == rectangles_.end()) {
    return nothing;
  }
  Prediction prediction = predict_rectangular(found->second, problem);
  if (!as_asked) {
    prediction.basis = Basis::Extrapolated;
  }
  return prediction;
}

}  // namespace aten_overrides::select
