#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

// Scheduling of independent calls over a few streams ("lanes"). Neither CUDA nor ATen is used here,
// so that the very code that runs on a GPU can be checked on a CPU against a simulated device.

namespace at::native::solver_lanes {

// Runs body(lane, item) for every item in [0, items), item i on lane i % used, where used is
// min(lanes, items). Lane 0 is the current stream itself, lanes 1, 2, ... are auxiliary streams.
//
//   fork: every auxiliary lane used waits for what the current stream holds at the call.
//   join: the current stream waits for every auxiliary lane that was forked.
//
// So for earlier and later work on the current stream the items look like work on that stream.
// Calls on one lane run in order; calls on different lanes may overlap and must not share anything
// they write. A lane that is forked is always joined, also when the body or a device call throws
// (the first exception is rethrown after the join), so a stream capture of the current stream never
// ends unjoined. With one lane or one item there is neither fork nor join; without items nothing is
// called at all.
//
// Device provides
//   void record(int lane)
//       records the lane's own event on the lane's stream.
//   void wait(int lane, int recorded)
//       makes the lane's stream wait for the event of lane `recorded`.
//   void drain(int lane) noexcept
//       is called when the join of this lane failed: blocks the host until the lane's work is done,
//       and reports it when that fails as well.
template <class Device, class Body>
void fork_join(Device& device, int lanes, int64_t items, Body&& body) {
  static_assert(
      noexcept(std::declval<Device&>().drain(0)), "drain is the last resort, it must not throw");
  if (items <= 0) {
    return;
  }
  const int used = static_cast<int>(std::min<int64_t>(std::max(lanes, 1), items));
  std::exception_ptr first_error;
  int forked = 1;
  try {
    if (used > 1) {
      device.record(0);
      for (; forked < used; ++forked) {
        device.wait(forked, 0);
      }
    }
    int lane = 0;
    for (int64_t item = 0; item < items; ++item) {
      body(lane, item);
      lane = lane + 1 < used ? lane + 1 : 0;
    }
  } catch (...) {
    first_error = std::current_exception();
  }

  // Only what was forked is joined: a lane outside the current stream's capture cannot join it.
  for (int lane = 1; lane < forked; ++lane) {
    try {
      device.record(lane);
      device.wait(0, lane);
    } catch (...) {
      if (!first_error) {
        first_error = std::current_exception();
      }
      // The caller frees the lane's workspace next, so the lane may not run on unattended.
      device.drain(lane);
    }
  }
  if (first_error) {
    std::rethrow_exception(first_error);
  }
}

}  // namespace at::native::solver_lanes
