#pragma once

// Our own solve with LU factors (linalg/native), where the build has it. Call these functions only
// where native_state() is Usable.

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

namespace aten_overrides::gpu {

// A X = B, with A's transpose or its conjugate transpose, on device memory. Matrices are
// column-major and follow one another without gaps; factor item % lu_batch serves item.
struct NativeSystems {
  c10::ScalarType type;
  int64_t n, nrhs, batch, lu_batch;
  bool transposed, conjugated;
  const void* lu;
  const int* pivots;
  void* b;
};

// The most rows that the current device has room for.
struct SolveRows {
  int64_t pass, blocked;
};
SolveRows native_solve_rows(c10::ScalarType type);

// Few right-hand sides in one pass over the factors (`pass`), or many.
void lu_solve_native(const NativeSystems& systems, bool pass);

// B := P B for A X = B, P^T B for its transpose.
void exchange_rows_native(const NativeSystems& systems);

}  // namespace aten_overrides::gpu
