#pragma once

// Which loops of cuSOLVER calls over a batch run on auxiliary streams: the one place where each of
// them is turned on or off. Neither CUDA nor ATen is used here.

#include <cstddef>
#include <cstdint>
#include <limits>

namespace at::native::solver_lanes {

enum class Loop : int8_t {
  Getrs,
  Potrf,  // in place of potrfBatched, to which a batch goes otherwise
  Potrs,
  Geqrf,
  Orgqr,
  Ormqr,
  Syevd,
  Syevj,
  Sytrf,
};

// n is the order of the square matrices, and the number of reflectors of a matrix for the three
// loops of QR. Both have to be reached.
struct LoopThreshold {
  Loop loop;
  int64_t least_n;
  int64_t least_batch;
};

// Not measured, or measured to gain nothing.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Syevd: an NVIDIA H200 (2026-11-30; driver 580.159.04, torch 2.11.0+cu130, cuSOLVER 12.0.4), four
// streams against the loop, of n 2 to 1024 and batch 8 to 128, eigenvalues alone and with
// eigenvectors: 0.95 to 2.87 times as fast from here on, and no less than 1.23 at n 192 to 512.
inline constexpr LoopThreshold kLoopThresholds[] = {
    {Loop::Getrs, kNever, kNever},
    {Loop::Potrf, kNever, kNever},
    {Loop::Potrs, kNever, kNever},
    {Loop::Geqrf, kNever, kNever},
    {Loop::Orgqr, kNever, kNever},
    {Loop::Ormqr, kNever, kNever},
    {Loop::Syevd, 16, 8},
    {Loop::Syevj, kNever, kNever},
    {Loop::Sytrf, kNever, kNever},
};

// Whether the loop takes less time on auxiliary streams.
constexpr bool streams_gain(Loop loop, int64_t n, int64_t batch) noexcept {
  const auto& threshold = kLoopThresholds[static_cast<size_t>(loop)];
  return n >= threshold.least_n && batch >= threshold.least_batch;
}

constexpr bool every_loop_at_its_place() noexcept {
  size_t place = 0;
  for (const auto& threshold : kLoopThresholds) {
    if (static_cast<size_t>(threshold.loop) != place++ || threshold.least_batch < 2) {
      return false;
    }
  }
  return place == static_cast<size_t>(Loop::Sytrf) + 1;
}

static_assert(every_loop_at_its_place(), "kLoopThresholds: one row for each Loop, in its order");

}  // namespace at::native::solver_lanes
