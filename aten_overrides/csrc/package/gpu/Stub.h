#pragma once

// torch's dispatch stubs: the word that holds the CUDA function.

#include <ATen/native/DispatchStub.h>

#include <cstddef>

namespace aten_overrides::gpu {

// A stub has a setter but no getter. Calling through it as usual would need the macros that tell
// for which kinds of CPU torch was built.
static_assert(offsetof(at::native::DispatchStubImpl, cuda_dispatch_ptr) == sizeof(void*));

template <typename Stub>
void** cuda_slot(Stub& stub) {
  static_assert(sizeof(Stub) == sizeof(at::native::DispatchStubImpl));
  return reinterpret_cast<void**>(&stub) + 1;
}

template <typename Stub>
typename Stub::FnPtr cuda_function(Stub& stub) {
  return reinterpret_cast<typename Stub::FnPtr>(__atomic_load_n(cuda_slot(stub), __ATOMIC_ACQUIRE));
}

}  // namespace aten_overrides::gpu
