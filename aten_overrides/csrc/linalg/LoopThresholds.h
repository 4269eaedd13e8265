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
};

// n is the order of the square matrices, and the number of reflectors of a matrix for the three
// loops of QR. All three conditions have to hold.
struct LoopThreshold {
  Loop loop;
  int64_t least_n;
  int64_t least_batch;
  int64_t most_batch;
};

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// How many times as fast as the loop four streams were on an NVIDIA H200 (2026-11-30; driver
// 580.159.04, torch 2.11.0+cu130, cuSOLVER 12.0.4): of batch 4 to 256 and n 64 to 1024, syevd of
// batch 8 to 128 and n 16 to 1024. Smaller batches were not measured; they are taken as well where
// two streams gained too (potrs 1.02-2.12, geqrf 1.09-1.96).
inline constexpr LoopThreshold kLoopThresholds[] = {
    {Loop::Getrs, kNever, kNever, kAny},  // not measured; ATen loops for at most two matrices
    {Loop::Potrf, 128, 2, 4},             // 1.13-2.58 of potrfBatched; at batch 16 0.40-1.11
    {Loop::Potrs, 64, 2, kAny},           // 1.02-3.80
    {Loop::Geqrf, 64, 2, kAny},           // 1.10-1.22 at n = 64, 2.23-3.67 from 256 on
    {Loop::Orgqr, kNever, kNever, kAny},  // 0.99-1.03
    {Loop::Ormqr, kNever, kNever, kAny},  // 0.94-1.06
    {Loop::Syevd, 16, 2, kAny},           // 0.95-2.87
    {Loop::Syevj, kNever, kNever, kAny},  // not measured
};

// Whether the loop takes less time on auxiliary streams.
constexpr bool streams_gain(Loop loop, int64_t n, int64_t batch) noexcept {
  const auto& threshold = kLoopThresholds[static_cast<size_t>(loop)];
  return n >= threshold.least_n && batch >= threshold.least_batch && batch <= threshold.most_batch;
}

constexpr bool every_loop_at_its_place() noexcept {
  size_t place = 0;
  for (const auto& threshold : kLoopThresholds) {
    if (static_cast<size_t>(threshold.loop) != place++ || threshold.least_batch < 2) {
      return false;
    }
  }
  return place == static_cast<size_t>(Loop::Syevj) + 1;
}

static_assert(every_loop_at_its_place(), "kLoopThresholds: one row for each Loop, in its order");

}  // namespace at::native::solver_lanes
