#pragma once

// How right-hand sides share factors. Pure C++.

#include <cstdint>

namespace at::native::lu_solve_routes {

// Where `regular`, right-hand sides of one factor that follow one another are the columns of one
// matrix (as they lie in memory: column by column, without gaps), and factor item % factors serves
// item of the `batch` matrices of `nrhs` columns that this makes.
struct Sharing {
  bool regular;
  int64_t factors, batch, nrhs;
};

// From the batch dimensions of the factors and of the right-hand sides, to which the former can be
// broadcast, and the columns of each right-hand side.
template <class Sizes>
Sharing sharing_of(const Sizes& factors, const Sizes& sides, int64_t nrhs) {
  const auto count = [](const Sizes& sizes) {
    int64_t product = 1;
    for (const int64_t size : sizes) {
      product *= size;
    }
    return product;
  };
  const int64_t batch = count(sides), all = count(factors);
  if (all == batch) {
    return {true, all, batch, nrhs};
  }
  const auto dims = static_cast<int64_t>(sides.size());
  const auto missing = dims - static_cast<int64_t>(factors.size());
  const auto side = [&](int64_t from_last) { return sides[dims - 1 - from_last]; };
  const auto own = [&](int64_t from_last) {
    const int64_t at = dims - 1 - from_last - missing;
    return at < 0 ? int64_t{1} : int64_t{factors[at]};
  };
  // From the innermost dimension: where factors are broadcast, where not, where they are again.
  int64_t place = 0, inner = 1, found = 1;
  for (; place < dims && own(place) == 1; ++place) {
    inner *= side(place);
  }
  for (; place < dims && own(place) == side(place); ++place) {
    found *= own(place);
  }
  for (; place < dims; ++place) {
    if (own(place) != 1) {
      return {false, all, batch, nrhs};
    }
  }
  return {true, found, batch / inner, nrhs * inner};
}

}  // namespace at::native::lu_solve_routes
