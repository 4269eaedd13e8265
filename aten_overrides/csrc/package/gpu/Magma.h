#pragma once

// Calls of the wheel's functions where those go to MAGMA, which may fail.

#include <ATen/core/Tensor.h>

#include <functional>

namespace aten_overrides::gpu {

class MagmaCall {
 public:
  // `target` is what the call overwrites. A copy is kept, if there is memory for it: MAGMA may have
  // written to `target` before it fails.
  MagmaCall(int op, const at::Tensor& target);

  // Runs `call`. Null if that went well. Otherwise `target` is as before, the error was shown as a
  // warning, and the result, a static string, is the reason for the next route. Unless it was
  // memory that lacked, MAGMA is retired. Raises where the call cannot go on: without the copy, or
  // when the GPU cannot be used any more.
  const char* run(const std::function<void()>& call);

  // The copy; undefined if there was no memory.
  const at::Tensor& before() const {
    return before_;
  }

 private:
  int op_;
  const at::Tensor& target_;
  at::Tensor before_;
};

}  // namespace aten_overrides::gpu
