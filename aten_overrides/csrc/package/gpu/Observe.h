#pragma once

// What ran: counters that are always on, a log hook, and times of single calls while they are
// profiled.

#include "Api.h"
#include "Plan.h"

#include <cstdint>

namespace aten_overrides::gpu {

// Spans the work of one call. The constructor counts and logs; in strict mode it raises instead of
// letting a fallback pass.
class Observed {
 public:
  explicit Observed(const aten_overrides_gpu_call& call);
  ~Observed();
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  int64_t kept_ = -1;  // where the call is kept while calls are profiled
  uint64_t session_ = 0;
};

uint64_t count(int op, int route);
void set_log(aten_overrides_gpu_log log, int level);
void profile_start(int64_t capacity);
void profile_stop();
int64_t profile_take(aten_overrides_gpu_call* calls, int64_t size, int64_t* dropped);

}  // namespace aten_overrides::gpu
