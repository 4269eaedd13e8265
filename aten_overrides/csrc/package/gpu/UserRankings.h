#pragma once

// The rankings that choose for eigh and lu_solve: those of the user's own GPU if they were set,
// else those compiled in.

#include "../select/Rankings.h"

#include <cstdint>
#include <string>

namespace aten_overrides::gpu {

// Of an operation by its number (1 lu_solve, 4 eigh and eigvalsh); null: those compiled in again.
// Returns why they are refused, empty if they are not; refused ones change nothing.
std::string set_rankings(int32_t op, const int64_t* numbers, int64_t count);

at::native::eigh_choice::Measured measured_eigh();
lu_solve::Measured measured_lu_solve();

}  // namespace aten_overrides::gpu
