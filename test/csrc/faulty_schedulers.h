#pragma once

#include <ATen/native/cuda/linalg/CUDASolverLanes.h>

#include <algorithm>
#include <exception>

// Schedulers with one mistake each. The checker is trusted only because it finds every one of them.

enum class Fault {
  kNone,
  kNoForkWait,     // lanes do not wait for earlier work
  kOldFork,        // lanes wait for what the current stream held at the first call
  kNoJoin,         // the current stream does not wait
  kOldJoin,        // it waits for what the lane held at its first call
  kNoJoinOnThrow,  // an exception leaves the lanes unjoined
  kJoinUnforked,   // after a failed fork, lanes are joined that were not forked
  kNoDrain,        // a lane that cannot be joined is left running
  kSwallow,        // exceptions do not come out
  kLastException,  // the last exception comes out, not the first
  kSharedSlot,     // lanes share workspace and info
  kSharedHandle,   // lanes share a handle
  kSharedStream,   // two lanes are one
};

// The real device with calls left out.
class FaultyLanes {
 public:
  FaultyLanes(Fault fault, int lanes) : fault_(fault), lanes_(lanes) {}

  at::native::solver_lanes::Lane lane(int index) const {
    auto lane = lanes_[index];
    if (fault_ == Fault::kSharedHandle) {
      lane.handle = lanes_[0].handle;
    }
    if (fault_ == Fault::kSharedStream && index == 2) {
      lane = lanes_[1];
    }
    return lane;
  }

  void record(int lane) {
    static bool fork_recorded = false;
    static bool join_recorded[at::native::solver_lanes::kMaxLanes] = {};
    auto& recorded = lane == 0 ? fork_recorded : join_recorded[lane];
    if (recorded && fault_ == (lane == 0 ? Fault::kOldFork : Fault::kOldJoin)) {
      return;
    }
    lanes_.record(lane);
    recorded = true;
  }

  void wait(int lane, int recorded) {
    if (fault_ != (lane == 0 ? Fault::kNoJoin : Fault::kNoForkWait)) {
      lanes_.wait(lane, recorded);
    }
  }

  void drain(int lane) noexcept {
    if (fault_ != Fault::kNoDrain) {
      lanes_.drain(lane);
    }
  }

 private:
  Fault fault_;
  at::native::solver_lanes::CUDALanes lanes_;
};

// fork_join with mistakes in its handling of exceptions.
template <class Body>
void fork_join_with_fault(Fault fault, FaultyLanes& device, int lanes, int64_t items, Body&& body) {
  const int used = static_cast<int>(std::min<int64_t>(lanes, items));
  std::exception_ptr error;
  int forked = 1;
  try {
    if (used > 1) {
      device.record(0);
      for (; forked < used; ++forked) {
        device.wait(forked, 0);
      }
    }
    for (int64_t item = 0; item < items; ++item) {
      body(static_cast<int>(item % used), item);
    }
  } catch (...) {
    if (fault == Fault::kNoJoinOnThrow) {
      throw;
    }
    error = std::current_exception();
  }
  for (int lane = 1; lane < (fault == Fault::kJoinUnforked ? used : forked); ++lane) {
    try {
      device.record(lane);
      device.wait(0, lane);
    } catch (...) {
      if (!error || fault == Fault::kLastException) {
        error = std::current_exception();
      }
      device.drain(lane);
    }
  }
  if (error && fault != Fault::kSwallow) {
    std::rethrow_exception(error);
  }
}

template <class Body>
void for_each_with_fault(Fault fault, int64_t items, int lanes, Body&& body) {
  namespace sl = at::native::solver_lanes;
  if (fault == Fault::kNone) {
    sl::for_each_on_lanes(items, lanes, body);
    return;
  }
  if (items <= 0) {
    return;
  }
  FaultyLanes device(fault, static_cast<int>(std::min<int64_t>(lanes, items)));
  const auto with_lane = [&](int lane, int64_t item) { body(device.lane(lane), item); };
  const bool schedule = fault == Fault::kNoJoinOnThrow || fault == Fault::kJoinUnforked ||
                        fault == Fault::kSwallow || fault == Fault::kLastException;
  if (schedule) {
    fork_join_with_fault(fault, device, lanes, items, with_lane);
  } else {
    sl::fork_join(device, lanes, items, with_lane);
  }
}
