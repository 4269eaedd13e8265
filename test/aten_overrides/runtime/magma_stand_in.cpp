// Stands in for the wheel's lu_factor and lu_solve as MAGMA would fail, on CPU tensors, and calls
// torch's entries with such. What our functions do next then fails for want of a GPU; of interest
// is which route that was, and in which state it found the matrices.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/TransposeType.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <c10/util/Exception.h>

#include "Stub.h"

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

using aten_overrides::gpu::cuda_function;
using aten_overrides::gpu::cuda_slot;

namespace {

enum Ending : int { kGood, kRaises, kNoMemory, kSingular, kOther };
int ending = kGood;
int calls = 0;

void end(const at::Tensor& target) {
  ++calls;
  target.fill_(-1);  // as far as it came
  switch (ending) {
    case kRaises:
      TORCH_CHECK(false, "CUDA error: invalid configuration argument\nand more lines");
    case kNoMemory:
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2 GiB");
    case kOther:
      throw std::runtime_error("not torch's kind");
    default:
      break;
  }
}

void lu_factor(const at::Tensor& a, const at::Tensor&, const at::Tensor& infos, bool) {
  end(a);
  if (ending == kSingular) {
    infos.select(0, 1).fill_(3);
  }
}

void lu_solve(
    const at::Tensor&, const at::Tensor&, const at::Tensor& b, at::native::TransposeType) {
  end(b);
}

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

// What the entry left of the matrices: "as before", "by the stand-in" or "otherwise".
void tell(
    const std::string& message,
    const at::Tensor& now,
    const at::Tensor& before,
    char* text,
    int size) {
  const bool stand_in = now.eq(-1).all().item<bool>();
  const char* state = now.equal(before) ? "as before" : stand_in ? "by the stand-in" : "otherwise";
  std::snprintf(
      text,
      static_cast<size_t>(size),
      "%d|%s|%s",
      calls,
      state,
      message.substr(0, message.find('\n')).c_str());
}

}  // namespace

// After the wheel's library was loaded and before the overrides are enabled.
extern "C" void magma_stand_in_install() {
  *cuda_slot(at::native::lu_factor_stub) = reinterpret_cast<void*>(&lu_factor);
  *cuda_slot(at::native::lu_solve_stub) = reinterpret_cast<void*>(&lu_solve);
}

extern "C" void magma_stand_in_ends(int how) {
  ending = how;
  calls = 0;
}

extern "C" void magma_stand_in_lu_factor(long batch, long m, long n, char* text, int size) {
  const auto a = at::empty_strided({batch, m, n}, {m * n, 1, m});
  a.copy_(at::arange(batch * m * n).view({batch, m, n}));
  const auto before = a.clone();
  const auto pivots = at::zeros({batch, m < n ? m : n}, at::kInt);
  const auto infos = at::zeros({batch}, at::kInt);
  const auto message =
      message_of([&] { cuda_function(at::native::lu_factor_stub)(a, pivots, infos, true); });
  tell(message, a, before, text, size);
}

// 9 factors for 36 right-hand sides, in a pattern that no other back end but getrsBatched takes.
extern "C" void magma_stand_in_lu_solve(long n, long nrhs, char* text, int size) {
  const auto lu = at::empty_strided({3, 1, 3, n, n}, {3 * n * n, 3 * n * n, n * n, 1, n});
  const auto b =
      at::empty_strided({3, 4, 3, n, nrhs}, {12 * n * nrhs, 3 * n * nrhs, n * nrhs, 1, n});
  b.copy_(at::arange(36 * n * nrhs).view(b.sizes()));
  const auto before = b.clone();
  const auto pivots = at::zeros({3, 1, 3, n}, at::kInt);
  const auto message = message_of([&] {
    cuda_function(at::native::lu_solve_stub)(lu, pivots, b, at::native::TransposeType::NoTranspose);
  });
  tell(message, b, before, text, size);
}
