#pragma once

// Which back end runs an operation of LoopBackend.h: pure functions, as in Choice.h. `choose` is
// total. Streams take the place of the wheel's own function where they were measured ahead of what
// it does with such a problem; the measured intervals are in LoopThresholds.h, which is generated.

#include <cstdint>
#include <limits>

#include "Choice.h"
#include "LoopBackend.h"
#include "LoopThresholds.h"

namespace aten_overrides::loops {

using choice::Dtype;
using choice::Feasibility;
using choice::Preference;

// m x n: the matrices to be factored, or that hold the reflectors. `nrhs`: columns of what is
// solved for or multiplied, rows where it is multiplied from the right; 0: there is nothing like
// it.
struct Problem {
  int64_t batch;
  int64_t m;
  int64_t n;
  int64_t nrhs = 0;
  bool hermitian = false;  // of LdlFactor
};

// What this build and this call allow.
struct Facts {
  int lanes;           // auxiliary streams usable for this call; below 2: none
  bool magma;          // the wheel's own function may call MAGMA
  bool capturing;      // the current stream is being captured into a CUDA graph
  bool deterministic;  // the same bits whatever streams can be had
};

constexpr bool is_complex(Dtype dtype) noexcept {
  return dtype == Dtype::ComplexFloat || dtype == Dtype::ComplexDouble;
}

constexpr Routine routine_of(Op op) noexcept {
  switch (op) {
    case Op::Geqrf:
      return Routine::Geqrf;
    case Op::Orgqr:
      return Routine::Orgqr;
    case Op::Ormqr:
      return Routine::Ormqr;
    case Op::Cholesky:
      return Routine::Potrf;
    case Op::CholeskySolve:
    case Op::CholeskyInverse:
      return Routine::Potrs;
    case Op::LdlFactor:
      return Routine::Sytrf;
  }
  return Routine::Geqrf;
}

// torch 2.6 to 2.11. Where a later one does something else, the choice may cost time, no more.
constexpr Rival rival_of(
    Op op, const Problem& problem, Preference preference, const Facts& facts) noexcept {
  const bool many = problem.batch > 1;
  const bool magma = facts.magma && many && preference != Preference::Cusolver;
  switch (op) {
    case Op::Geqrf:
      return problem.m <= 256 && many && problem.batch >= problem.m / 16 ? Rival::BatchedCublas
                                                                         : Rival::Loop;
    case Op::Orgqr:
    case Op::Ormqr:
    case Op::LdlFactor:
      return Rival::Loop;
    case Op::Cholesky:
      return many ? Rival::BatchedCusolver : Rival::Loop;
    case Op::CholeskySolve:
      return magma                       ? Rival::Magma
             : many && problem.nrhs == 1 ? Rival::BatchedCusolver
                                         : Rival::Loop;
    case Op::CholeskyInverse:
      return magma ? Rival::Magma : Rival::Loop;
  }
  return Rival::Loop;
}

constexpr Feasibility feasible(
    Op op,
    Dtype dtype,
    const Problem& problem,
    Backend backend,
    Preference preference,
    const Facts& facts) noexcept {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (backend == Backend::Stock) {
    if (facts.capturing && rival_of(op, problem, preference, facts) == Rival::Magma) {
      return {
          false, "MAGMA synchronizes the device and allocates, which a CUDA graph capture forbids"};
    }
    return {true, ""};
  }
  if (op == Op::LdlFactor && is_complex(dtype) && problem.hermitian) {
    return {false, "cuSOLVER has no LDL factorization of complex Hermitian matrices"};
  }
  if (problem.m > most || problem.n > most || problem.nrhs > most) {
    return {false, "cuSOLVER and cuBLAS take sizes up to 2^31 - 1"};
  }
  if (backend == Backend::BatchedCublas && op != Op::Geqrf) {
    return {false, "cuBLAS has no batched routine for it"};
  }
  if (backend == Backend::StreamedCusolver && facts.lanes < 2) {
    return {false, "fewer than two auxiliary streams are usable"};
  }
  if (backend == Backend::StreamedCusolver && problem.batch < 2) {
    return {false, "one matrix cannot be dealt out to several streams"};
  }
  return {true, ""};
}

// The measured number of columns nearest to that of a problem, by ratio.
constexpr Columns columns_of(Op op, const Problem& problem) noexcept {
  switch (op) {
    case Op::CholeskyInverse:
      return Columns::AsManyAsRows;
    case Op::Ormqr:
    case Op::CholeskySolve:
      break;
    default:
      return Columns::None;
  }
  constexpr int64_t most = std::numeric_limits<int32_t>::max();  // whose square is an int64
  const int64_t columns = problem.nrhs < most ? problem.nrhs : most;
  const int64_t rows = problem.m < most ? problem.m : most;
  if (op == Op::Ormqr) {
    return columns * columns < rows ? Columns::One : Columns::AsManyAsRows;
  }
  if (columns * columns < kSomeColumns) {
    return Columns::One;
  }
  return columns * columns < kSomeColumns * rows ? Columns::Some : Columns::AsManyAsRows;
}

// The back end of the interval that holds a problem, Stock if none does.
constexpr Backend measured_of(
    const Interval* intervals,
    int count,
    Routine routine,
    Rival rival,
    Columns columns,
    Dtype dtype,
    int64_t batch,
    int64_t n) noexcept {
  int64_t nearest = 0;  // the largest measured batch that is not above
  Backend found = Backend::Stock;
  for (int i = 0; i < count; ++i) {
    const Interval& each = intervals[i];
    if (each.routine != routine || each.rival != rival || each.columns != columns ||
        each.dtype != static_cast<int8_t>(dtype) || each.batch > batch || each.batch < nearest) {
      continue;
    }
    if (each.batch > nearest) {
      nearest = each.batch;
      found = Backend::Stock;
    }
    if (n >= each.from_n && n < each.to_n) {
      found = each.backend;
    }
  }
  return found;
}

// Square matrices were measured. A loop over rectangular ones gains as over squares of the larger
// side. How a batched routine fares depends on the shape, so near squares only.
constexpr Backend measured(
    Op op,
    Dtype dtype,
    const Problem& problem,
    Preference preference,
    const Facts& facts) noexcept {
  const Rival rival = rival_of(op, problem, preference, facts);
  const int64_t less = problem.m < problem.n ? problem.m : problem.n;
  const int64_t more = problem.m < problem.n ? problem.n : problem.m;
  if (rival != Rival::Loop && more / 2 > less) {
    return Backend::Stock;
  }
  const Backend found = measured_of(
      kIntervals,
      kIntervalCount,
      routine_of(op),
      rival,
      columns_of(op, problem),
      dtype,
      problem.batch,
      rival == Rival::Loop ? more : less);
  // Which streams can be had changes from call to call, and only the loop has their bits.
  const bool varies = found == Backend::StreamedCusolver && rival != Rival::Loop;
  return facts.deterministic && varies ? Backend::Stock : found;
}

// | preference       | meaning                                          |
// |------------------|--------------------------------------------------|
// | Default, Native  | measured choice                                  |
// | Cusolver         | measured choice, the wheel's own without MAGMA   |
// | Cublas           | geqrfBatched; elsewhere as Default               |
// | Magma            | the wheel's own function                         |
constexpr Backend choose(
    Op op,
    Dtype dtype,
    const Problem& problem,
    Preference preference,
    const Facts& facts) noexcept {
  if (preference == Preference::Magma) {
    return Backend::Stock;
  }
  const auto can = [&](Backend backend) {
    return feasible(op, dtype, problem, backend, preference, facts).ok;
  };
  if (preference == Preference::Cublas && op == Op::Geqrf && can(Backend::BatchedCublas)) {
    return Backend::BatchedCublas;
  }
  const Backend found = measured(op, dtype, problem, preference, facts);
  if (found == Backend::LoopedCusolver && can(Backend::StreamedCusolver)) {
    return Backend::StreamedCusolver;
  }
  if (found != Backend::Stock && can(found)) {
    return found;
  }
  if (can(Backend::Stock)) {
    return Backend::Stock;
  }
  return can(Backend::StreamedCusolver) ? Backend::StreamedCusolver
         : can(Backend::LoopedCusolver) ? Backend::LoopedCusolver
                                        : Backend::Stock;
}

// Whether anything was measured for which the operation leaves the wheel's own function.
constexpr bool any_measured(Op op) noexcept {
  for (int i = 0; i < kIntervalCount; ++i) {
    if (kIntervals[i].routine == routine_of(op) && kIntervals[i].to_n > 0) {
      return true;
    }
  }
  return false;
}

}  // namespace aten_overrides::loops
