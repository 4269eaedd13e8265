#pragma once

// A batch in parts, where the routine that gets a part may refuse it. Pure C++.

#include <algorithm>
#include <cstdint>

namespace aten_overrides::gpu {

// Calls attempt(first, count) over `total` items, at most `most` at once. A part that is refused
// (false) is tried again with half as many, and so are the ones after it. Returns how many items
// are done: fewer than `total` where an item alone was refused.
template <class Attempt>
int64_t in_parts(int64_t total, int64_t most, Attempt&& attempt) {
  int64_t done = 0;
  while (done < total && most > 0) {
    const int64_t count = std::min(most, total - done);
    if (attempt(done, count)) {
      done += count;
    } else {
      most = count / 2;
    }
  }
  return done;
}

}  // namespace aten_overrides::gpu
