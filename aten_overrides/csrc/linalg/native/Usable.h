#pragma once

namespace at::native::batched_native {

// Whether this library holds machine code of the kernels for the current device, and the device is
// of compute capability 8.0 or newer. Asks the driver once a device; works during graph capture.
bool usable();

}  // namespace at::native::batched_native
