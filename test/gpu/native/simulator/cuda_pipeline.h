// Asynchronous copies, done when the thread commits them: a read before that sees the old content.
#pragma once

#include <cuda_runtime_api.h>

#include <map>

namespace simulated {
struct Copy {
  void* to;
  const void* from;
  size_t bytes, zeros;
};
inline std::map<std::pair<unsigned, int>, std::vector<Copy>> copies;  // by block and thread
inline std::vector<Copy>& own_copies() {
  return copies[{block->index, block->current}];
}
}  // namespace simulated

// The last `zeros` bytes become zero instead.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
  simulated::own_copies().push_back({to, from, bytes - zeros, zeros});
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(int) {
  for (const auto& copy : simulated::own_copies()) {
    std::memcpy(copy.to, copy.from, copy.bytes);
    std::memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zeros);
  }
  simulated::own_copies().clear();
}
