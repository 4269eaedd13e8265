// For the libraries' functions: any arguments, the status they return. See README.md.
#pragma once

#define HIP_ANY_ARGUMENTS(status, name) \
  template <class... Arguments>         \
  inline status name(Arguments&&...) {  \
    return status{};                    \
  }
