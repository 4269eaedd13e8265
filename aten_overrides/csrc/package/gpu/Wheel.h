#pragma once

// The wheel's own linalg library: the functions of it and of its cuSOLVER that we call.
//
// They are looked up in the library that torch itself uses instead of being linked, so that there
// is one cuSOLVER in the process whatever the layout of the installation, and so that loading our
// library does not load the wheel's: that has to happen behind the guards of Entries.h.

#include <string>

namespace aten_overrides::gpu {

// Loads the library at `path` (null: torch's CUDA library holds the functions) and looks up all
// functions. Returns why that failed, empty on success. Not to be called by two threads at once.
std::string load_wheel_linalg(const char* path);

// Whether the library at `path` is in the process already. Waits for constructors under way.
bool wheel_linalg_loaded(const char* path);

// A function of the wheel's linalg library or of what it is linked with, its cuSOLVER among them;
// null if there is none of this name. To be called once the library was loaded.
void* wheel_symbol(const char* name);

}  // namespace aten_overrides::gpu
