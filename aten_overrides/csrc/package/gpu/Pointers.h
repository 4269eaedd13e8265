#pragma once

// Small common parts of the kernels.

#include "Plan.h"

#include <ATen/LinalgBackend.h>
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace aten_overrides::gpu {

// What cuBLAS's and MAGMA's batched routines take at most: the limit of a grid's second dimension.
constexpr int64_t kBatchLimit = 65535;

// Runs body(start, count) over [0, batch) in pieces that a batched routine takes.
template <class Body>
void for_each_chunk(int64_t batch, Body&& body) {
  for (int64_t start = 0; start < batch; start += kBatchLimit) {
    body(start, static_cast<int>(std::min(kBatchLimit, batch - start)));
  }
}

inline int checked_int(int64_t value, const char* what) {
  TORCH_CHECK(
      value <= std::numeric_limits<int>::max(),
      what,
      " is ",
      value,
      ", and cuBLAS and cuSOLVER take sizes up to 2^31 - 1 only");
  return static_cast<int>(value);
}

// False for a dtype that LAPACK does not know.
inline bool choice_dtype(c10::ScalarType type, choice::Dtype& dtype) {
  switch (type) {
    case c10::ScalarType::Float:
      dtype = choice::Dtype::Float;
      return true;
    case c10::ScalarType::Double:
      dtype = choice::Dtype::Double;
      return true;
    case c10::ScalarType::ComplexFloat:
      dtype = choice::Dtype::ComplexFloat;
      return true;
    case c10::ScalarType::ComplexDouble:
      dtype = choice::Dtype::ComplexDouble;
      return true;
    default:
      return false;
  }
}

// torch's enum may have no name for cuBLAS or for our kernels, but it carries the values.
inline choice::Preference choice_preference(at::LinalgBackend backend) {
  const auto value = static_cast<int8_t>(backend);
  return value >= 0 && value <= static_cast<int8_t>(choice::Preference::Native)
             ? static_cast<choice::Preference>(value)
             : choice::Preference::Default;
}

// An int64 tensor of the addresses of the matrices of a batch whose items follow one another.
at::Tensor matrix_pointers(const at::Tensor& matrices);

}  // namespace aten_overrides::gpu
