#include "CostTable.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>

#include "Axis.h"

namespace aten_overrides::select {

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
