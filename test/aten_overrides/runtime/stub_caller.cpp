// Calls entries of torch's linalg library directly and from several threads, which Python cannot do
// without a GPU: their device checks come first. The functions behind then fail for want of a
// driver; what is of interest is which function was called and with which message it failed.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/TransposeType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <c10/util/Exception.h>

#include "Stub.h"

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>
#include <vector>

using aten_overrides::gpu::cuda_function;

namespace {

constexpr int kKinds = 5;

// Empty on success.
std::string call(int kind) {
  const auto a = at::empty_strided({2, 3, 3}, {9, 1, 3});
  const auto info = at::empty({2}, at::kInt);
  const auto pivots = at::empty({2, 3}, at::kInt);
  const auto tau = at::empty({2, 3});
  try {
    switch (kind % kKinds) {
      case 0:
        cuda_function(at::native::cholesky_stub)(a, info, false);
        break;
      case 1:
        cuda_function(at::native::lu_factor_stub)(a, pivots, info, true);
        break;
      case 2:
        cuda_function(at::native::geqrf_stub)(a, tau);
        break;
      case 3:
        cuda_function(at::native::ldl_factor_stub)(a, pivots, info, false, false);
        break;
      default:
        cuda_function(at::native::linalg_eigh_stub)(tau, a, info, false, true);
    }
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();  // a backtrace takes a second
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace

// Each of `threads` threads calls one entry, all at the same moment. Returns how many calls torch's
// lazy wrapper refused; `text` gets the first line of one message of every other kind.
extern "C" int stub_caller_race(int threads, char* text, int size) {
  std::atomic<int> waiting{threads};
  std::vector<std::string> messages(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      --waiting;
      while (waiting.load() > 0) {
        std::this_thread::yield();
      }
      messages[static_cast<size_t>(i)] = call(i);
    });
  }
  for (auto& thread : running) {
    thread.join();
  }
  int refused = 0;
  std::string others;
  for (const auto& message : messages) {
    if (message.find("lazy wrapper") != std::string::npos) {
      ++refused;
    } else if (others.find(message.substr(0, message.find('\n'))) == std::string::npos) {
      others += message.substr(0, message.find('\n')) + "\n";
    }
  }
  std::snprintf(text, static_cast<size_t>(size), "%s", others.c_str());
  return refused;
}

// One call of lu_factor_stub with float32 matrices; `text` gets the first line of its error.
extern "C" void stub_caller_lu_factor(long batch, long m, long n, int pivot, char* text, int size) {
  std::string message;
  try {
    const auto a = at::empty_strided({batch, m, n}, {m * n, 1, m});
    const auto info = at::empty({batch}, at::kInt);
    const auto pivots = at::empty({batch, m < n ? m : n}, at::kInt);
    cuda_function(at::native::lu_factor_stub)(a, pivots, info, pivot != 0);
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::snprintf(
      text, static_cast<size_t>(size), "%s", message.substr(0, message.find('\n')).c_str());
}

// The same for lu_solve_stub, one factor for `factors` of the `batch` right-hand sides.
extern "C" void stub_caller_lu_solve(long batch, long n, long nrhs, char* text, int size) {
  std::string message;
  try {
    const auto lu = at::empty_strided({batch, n, n}, {n * n, 1, n});
    const auto pivots = at::empty({batch, n}, at::kInt);
    const auto b = at::empty_strided({batch, n, nrhs}, {n * nrhs, 1, n});
    cuda_function(at::native::lu_solve_stub)(lu, pivots, b, at::native::TransposeType::NoTranspose);
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::snprintf(
      text, static_cast<size_t>(size), "%s", message.substr(0, message.find('\n')).c_str());
}

// The same for the entry of this name among those that are loops of cuSOLVER calls; -1: no such.
extern "C" int stub_caller_loop(const char* name, long batch, long n, char* text, int size) {
  std::string message;
  const std::string wanted(name);
  auto a = at::empty_strided({batch, n, n}, {n * n, 1, n});
  auto b = at::empty_strided({batch, n, n}, {n * n, 1, n});
  const auto tau = at::empty({batch, n});
  auto info = at::empty({batch}, at::kInt);
  const auto pivots = at::empty({batch, n}, at::kInt);
  int found = 0;
  try {
    if (wanted == "geqrf") {
      cuda_function(at::native::geqrf_stub)(a, tau);
    } else if (wanted == "orgqr") {
      cuda_function(at::native::orgqr_stub)(a, tau);
    } else if (wanted == "ormqr") {
      cuda_function(at::native::ormqr_stub)(a, tau, b, true, true);
    } else if (wanted == "cholesky") {
      cuda_function(at::native::cholesky_stub)(a, info, false);
    } else if (wanted == "cholesky_inverse") {
      cuda_function(at::native::cholesky_inverse_stub)(a, info, false);
    } else if (wanted == "ldl_factor") {
      cuda_function(at::native::ldl_factor_stub)(a, pivots, info, false, false);
    } else {
      found = -1;
    }
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::snprintf(
      text, static_cast<size_t>(size), "%s", message.substr(0, message.find('\n')).c_str());
  return found;
}

// The same for linalg_eigh_stub.
extern "C" void stub_caller_linalg_eigh(long batch, long n, int vectors, char* text, int size) {
  std::string message;
  try {
    const auto a = at::empty_strided({batch, n, n}, {n * n, 1, n});
    const auto values = at::empty({batch, n});
    const auto info = at::empty({batch}, at::kInt);
    cuda_function(at::native::linalg_eigh_stub)(values, a, info, false, vectors != 0);
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  std::snprintf(
      text, static_cast<size_t>(size), "%s", message.substr(0, message.find('\n')).c_str());
}
