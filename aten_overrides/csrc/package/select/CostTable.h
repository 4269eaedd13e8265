#pragma once

// Measured times of one GPU and what they say about problems between the measured ones.
//
// Operations, dtypes and back ends are the integers of Choice.h; nothing here depends on what
// they stand for. Times are milliseconds, kept and interpolated as logarithms over log(batch) and
// log(n), because both axes are sampled geometrically and costs are close to powers of them.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace aten_overrides::select {

struct Problem {
  int64_t batch;
  int64_t m;
  int64_t n;
  bool pivot;
};

// How a time was obtained; ordered from firm to loose.
enum class Basis : int8_t { Measured, Interpolated, Extrapolated, None };

struct Prediction {
  double ms;
  Basis basis;  // None: nothing was measured that would tell; ms is 0
};

class CostTable {
 public:
  // Adds one measured time. Returns an empty string, or why it was refused.
  std::string add(int op, int dtype, int backend, const Problem& problem, double ms);

  // Completes the grids; call once after the last add and before the first predict.
  void finish();

  Prediction predict(int op, int dtype, int backend, const Problem& problem) const;

 private:
  struct Cell {
    double log_ms = 0;
    Basis basis = Basis::None;
  };

  static Cell in_row(const std::vector<Cell>& row, const std::vector<int64_t>& sizes, int64_t size);

  // Square problems of one operation, dtype and pivoting for one back end: a cell for every batch
  // of `batches` and every n of `sizes`, completed by finish().
  struct Grid {
    std::map<std::pair<int64_t, int64_t>, double> measured;  // (batch, n) -> log ms
    std::vector<std::vector<Cell>> rows;

    void complete(const std::vector<int64_t>& batches, const std::vector<int64_t>& all_sizes);
    Cell estimate(
        std::size_t row,
        std::size_t column,
        const std::vector<int64_t>& batches,
        const std::vector<int64_t>& sizes) const;
    Cell told_by(
        std::size_t row,
        std::size_t other,
        std::size_t column,
        const std::vector<int64_t>& sizes) const;
  };

  struct Shape {
    int64_t m;
    int64_t n;
    double log_ms;
    Basis basis;
  };

  // Rectangular problems: the shapes of each batch, those missing completed by finish().
  using Shapes = std::map<int64_t, std::vector<Shape>>;

  static void complete_shapes(Shapes& shapes);

  struct Family {
    std::vector<int64_t> batches;
    std::vector<int64_t> sizes;
    std::map<int, Grid> grids;  // by back end
  };

  using Key = std::tuple<int, int, bool>;  // op, dtype, pivot

  static Prediction predict_square(const Family&, const Grid&, int64_t batch, int64_t n);
  static Prediction predict_rectangular(const Shapes&, const Problem&);

  std::map<Key, Family> squares_;
  std::map<std::pair<Key, int>, Shapes> rectangles_;
};

}  // namespace aten_overrides::select
