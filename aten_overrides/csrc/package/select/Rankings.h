#pragma once

// Rankings of eigh or lu_solve that were measured on the user's own GPU, read from numbers and
// checked. They take the place of those in EighThresholds.h and LuSolveThresholds.h.
//
// The numbers: how many back ends a ranking has; then for each dtype, and for each of the two ways
// (without eigenvectors and with them; without transposition and with it), the n from which streams
// take the place of the loop, the number of rows, and each row: batch, right-hand sides (0 where
// there are none, and for as many as rows), number of segments, and each segment: its first n and
// the back ends in order.

#include <ATen/native/cuda/linalg/EighChoice.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "LuSolveChoice.h"

namespace aten_overrides::rankings {

namespace eigh = at::native::eigh_choice;

// Operations by number, as in _names.py's OPS.
constexpr int32_t kLuSolveOp = 1;
constexpr int32_t kEighOp = 4;

constexpr int kDtypes = 4;
constexpr int64_t kMostRows = 4096;

inline void set_columns(eigh::Row& /*row*/, int64_t /*nrhs*/) {}

inline void set_columns(lu_solve::Row& row, int64_t nrhs) {
  row.nrhs = nrhs;
}

// `Backend`, `Row` and `Rows` are those of one operation.
template <class Backend, class Row, class Rows>
class Rankings {
 public:
  // `rows_needed`: whether there has to be a row for everything, and the first one begins with the
  // batch 1. Returns what is wrong, empty if nothing is; then this holds what was read.
  std::string read(const int64_t* numbers, int64_t count, int backends, bool rows_needed) {
    at_ = numbers;
    end_ = numbers + (count < 0 ? 0 : count);
    int64_t ranked = 0;
    if (!next(ranked) || ranked != kRanked) {
      return "rankings of " + std::to_string(ranked) + " back ends, this library has " +
             std::to_string(kRanked);
    }
    for (int dtype = 0; dtype < kDtypes; ++dtype) {
      for (int way = 0; way < 2; ++way) {
        const std::string wrong = read_rows(dtype, way, backends, rows_needed);
        if (!wrong.empty()) {
          return "dtype " + std::to_string(dtype) + ", way " + std::to_string(way) + ": " + wrong;
        }
      }
    }
    return at_ == end_ ? "" : "there are numbers after the last row";
  }

  const Rows (*rows() const)[2] {
    return rows_;
  }

  const int64_t (*lanes_from() const)[2] {
    return lanes_from_;
  }

  // By dtype alone, where both ways have the same.
  const int64_t* lanes_from_by_dtype() const {
    return by_dtype_;
  }

 private:
  using Segments = decltype(Row::segments);
  using Order = decltype(std::declval<Row>().segments[0].ranking.order);
  static constexpr int kMostSegments = static_cast<int>(std::extent_v<Segments>);
  static constexpr int kRanked = static_cast<int>(std::extent_v<std::remove_reference_t<Order>>);

  bool next(int64_t& value) {
    if (at_ == end_) {
      return false;
    }
    value = *at_++;
    return true;
  }

  std::string read_rows(int dtype, int way, int backends, bool rows_needed) {
    int64_t from = 0, count = 0;
    if (!next(from) || !next(count)) {
      return kShort;
    }
    if (from < 1 || count < (rows_needed ? 1 : 0) || count > kMostRows) {
      return "streams from n = " + std::to_string(from) + ", " + std::to_string(count) + " rows";
    }
    auto& stored = stored_[dtype][way];
    stored.clear();
    for (int64_t i = 0; i < count; ++i) {
      Row row{};
      const std::string wrong = read_row(row, backends);
      if (!wrong.empty()) {
        return "row " + std::to_string(i) + ": " + wrong;
      }
      if (rows_needed && (stored.empty() ? row.batch != 1 : row.batch <= stored.back().batch)) {
        return "the batches of the rows must ascend from 1";
      }
      if (!stored.empty() && row.batch < stored.back().batch) {
        return "the batches of the rows must ascend";
      }
      stored.push_back(row);
    }
    rows_[dtype][way] = {static_cast<int>(stored.size()), stored.data()};
    lanes_from_[dtype][way] = from;
    by_dtype_[dtype] = from;
    return "";
  }

  std::string read_row(Row& row, int backends) {
    int64_t nrhs = 0, count = 0;
    if (!next(row.batch) || !next(nrhs) || !next(count)) {
      return kShort;
    }
    if (row.batch < 1 || nrhs < 0 || count < 1 || count > kMostSegments) {
      return "batch " + std::to_string(row.batch) + ", " + std::to_string(nrhs) +
             " right-hand sides, " + std::to_string(count) + " segments of at most " +
             std::to_string(kMostSegments);
    }
    set_columns(row, nrhs);
    row.count = static_cast<int>(count);
    for (int i = 0; i < row.count; ++i) {
      auto& segment = row.segments[i];
      if (!next(segment.from_n)) {
        return kShort;
      }
      if (i == 0 ? segment.from_n != 1 : segment.from_n <= row.segments[i - 1].from_n) {
        return "the n of the segments must ascend from 1";
      }
      const std::string wrong = read_order(segment.ranking.order, backends);
      if (!wrong.empty()) {
        return wrong;
      }
    }
    return "";
  }

  std::string read_order(Backend (&order)[kRanked], int backends) {
    for (auto place = std::begin(order); place != std::end(order); ++place) {
      int64_t backend = 0;
      if (!next(backend)) {
        return kShort;
      }
      if (backend < 0 || backend >= backends) {
        return "there is no back end " + std::to_string(backend);
      }
      *place = static_cast<Backend>(backend);
      if (std::find(std::begin(order), place, *place) != place) {
        return "a ranking names back end " + std::to_string(backend) + " twice";
      }
    }
    return "";
  }

  static constexpr const char* kShort = "the numbers end too early";

  const int64_t* at_ = nullptr;
  const int64_t* end_ = nullptr;
  std::vector<Row> stored_[kDtypes][2];
  Rows rows_[kDtypes][2]{};
  int64_t lanes_from_[kDtypes][2]{};
  int64_t by_dtype_[kDtypes]{};
};

using EighRankings = Rankings<eigh::Backend, eigh::Row, eigh::Rows>;
using LuSolveRankings = Rankings<lu_solve::Backend, lu_solve::Row, lu_solve::Rows>;

inline std::string read(EighRankings& into, const int64_t* numbers, int64_t count) {
  return into.read(numbers, count, eigh::kBackends, /*rows_needed=*/true);
}

inline std::string read(LuSolveRankings& into, const int64_t* numbers, int64_t count) {
  return into.read(numbers, count, lu_solve::kBackends, /*rows_needed=*/false);
}

// What was compiled in where there are none.
inline eigh::Measured measured(const EighRankings* own) {
  return own == nullptr ? eigh::kMeasured : eigh::Measured{own->rows(), own->lanes_from()};
}

inline lu_solve::Measured measured(const LuSolveRankings* own) {
  return own == nullptr ? lu_solve::kMeasured
                        : lu_solve::Measured{own->rows(), own->lanes_from_by_dtype()};
}

}  // namespace aten_overrides::rankings
