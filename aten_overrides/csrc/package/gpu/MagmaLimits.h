#pragma once

// When the wheel's lu_factor goes to MAGMA, and what MAGMA must not be given. Pure C++.

#include <cstdint>
#include <limits>

namespace aten_overrides::gpu {

// torch's own rule from 2.6 to 2.14 where neither the user nor we prefer a library. The other
// matrices go to cuSOLVER or cuBLAS.
constexpr bool stock_lu_is_magma(int64_t batch, int64_t m, int64_t n) noexcept {
  return m != n || !(batch == 1 || m <= 16 || (m <= 128 && batch <= 16));
}

// Whether torch's lu_solve may: for triangular solves of more than 8 matrices above 512 and, in
// older releases, for small matrices with many right-hand sides. `batch`: of the right-hand sides.
constexpr bool stock_lu_solve_may_be_magma(
    int64_t batch, int64_t n, int64_t nrhs, bool transposed) noexcept {
  return (n > 512 && batch > 8) || (n <= 8 && nrhs >= 256 && !transposed);
}

// Why MAGMA's LU is never chosen for such matrices; a static string, null where it may be. Each is
// a shape for which a call raises, reads beside the matrix or returns wrong factors without a word.
//
// More than 65535 matrices are no such shape, since they are given to it in parts (upstream 21643;
// 13276: MAGMA 2.3 by itself returns wrong inverses of 65536). Nor are matrices with a zero pivot,
// which are factored again (upstream 28608, 51930): see lu_factor_kernel.
constexpr const char* magma_refuses_lu(int64_t batch, int64_t m, int64_t n) noexcept {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (batch < 1 || m < 1 || n < 1) {
    return "MAGMA refuses matrices without elements";  // upstream 48261
  }
  // The wheels have a 32-bit magma_int_t ("32-bit magma_int_t, 64-bit pointer" in MAGMA's own
  // words, upstream 13276); torch raises "too large to fit into a magma_int_t".
  if (m > most || n > most) {
    return "MAGMA takes sizes below 2^31 only";
  }
  // Element (i, j) lies at i + j * ldda, which is computed in that type (MAGMA Users' Guide,
  // "Naming conventions"): beyond, an address before the matrix.
  if (n > most / m) {
    return "MAGMA's offsets within a matrix have 32 bits";
  }
  return nullptr;
}

}  // namespace aten_overrides::gpu
